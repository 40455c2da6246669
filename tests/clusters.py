"""TF_CONFIG of several workers on this machine, each its own process."""

import json
import socket


def tf_configs(number: int) -> list[str]:
    """Returns the TF_CONFIG of each worker of a cluster on free ports."""
    workers = []
    for _ in range(number):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            workers.append(f"127.0.0.1:{probe.getsockname()[1]}")
    return [
        json.dumps(
            {
                "cluster": {"worker": workers},
                "task": {"type": "worker", "index": index},
            }
        )
        for index in range(number)
    ]
