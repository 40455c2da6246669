r"""Serves exported models over HTTP, with a page on which to try them.

    python serve.py --models=exports/mrpc
    python serve.py --models=sentiment=exports/sst2,answers=exports/squad

Then open http://127.0.0.1:8501/, or send requests as to TensorFlow Serving:

    curl -d '{"instances": [{"text": "a fine film"}]}' \
        http://127.0.0.1:8501/v1/models/sentiment:predict

Concurrent requests are computed in batches. SIGTERM or Ctrl-C ends the server
after it has answered the requests that it accepted.
"""

import asyncio
import dataclasses
import importlib.util
import re
from typing import Literal

from foundation import config_flags, errors, file_system
from serving import servable, served_directories, served_model, server, versions

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """The flags of serve.py."""

    models: str = field(
        "Comma-separated directories of exported models, or NAME=DIRECTORY; "
        "the name is part of the address."
    )
    engine: Literal["tensorflow", "onnxruntime"] = field(
        "onnxruntime serves what export_model.py --format=onnx writes.",
        "tensorflow",
    )
    host: str = field(
        "Address to listen on; 0.0.0.0 is reached from other machines.",
        "127.0.0.1",
    )
    port: int = field(
        "Port to listen on; 0 for any free one.",
        8501,
        at_least=0,
        at_most=65535,
    )
    allowed_hosts: tuple[str, ...] | None = field(
        "Names in the address that a browser or a proxy asks for, without "
        "ports; * for any. Other requests get status 403. Without the flag: "
        "localhost, 127.0.0.1, [::1] and --host, and any name if --host is not "
        "a loopback address.",
        None,
    )
    cors_origins: tuple[str, ...] | None = field(
        "Pages of other servers that may read answers in a browser, such as "
        "https://example.com; * for any.",
        None,
    )
    version_poll_seconds: float = field(
        "Seconds between two looks for new versions in directories of numbered "
        "versions; 0 serves those of the start.",
        2.0,
        at_least=0,
    )
    batching: servable.Batching = config_flags.group(servable.Batching)
    limits: server.Limits = config_flags.group(server.Limits)

    def __post_init__(self):
        """Raises ValueError for what no browser sends."""
        for name in self.allowed_hosts or ():
            if not name or "/" in name or ("*" in name and name != "*"):
                raise ValueError(
                    f"--allowed_hosts={name}: give names without scheme, path "
                    "and patterns, or * for any name"
                )
        for origin in self.cors_origins or ():
            if not re.fullmatch(r"\*|null|[a-z][\w+.-]*://[^/]+", origin):
                raise ValueError(
                    f"--cors_origins={origin}: give scheme and name, without "
                    "a path, as in https://example.com"
                )


def main(config: ServeConfig) -> None:
    """Loads the models and serves them until SIGTERM."""
    from absl import logging

    directories = served_directories.by_name(config.models)
    for directory in directories.values():
        if not file_system.is_remote(directory):  # TensorFlow takes seconds.
            served_directories.find_version(
                directory, served_directories.FILES[config.engine]
            )
    listener = server.bind(config.host, config.port)
    engine = _engine(config)
    servables = {
        name: servable.load(name, directory, engine, config.batching)
        for name, directory in directories.items()
    }
    logging.info("engine: %s", config.engine)
    watch = None
    if config.version_poll_seconds:
        watch = versions.Watch(
            servables,
            directories,
            engine,
            config.version_poll_seconds,
        )
    for model in servables.values():
        model.warm_up()
    serving = server.Server(
        servables,
        config.limits,
        server.accepted_hosts(config.host, config.allowed_hosts),
        config.cors_origins or (),
    )
    asyncio.run(serving.run(listener, watch))


def _engine(config: ServeConfig) -> served_model.Engine:
    """Returns what computes the models, without importing the other engine."""
    if config.engine == "tensorflow":
        import foundation.tensorflow_setup  # noqa: F401
        from serving import tensorflow_engine

        tensorflow_engine.set_threads(config.batching.threads)
        return tensorflow_engine.ENGINE
    if importlib.util.find_spec("onnxruntime") is None:
        raise errors.InputError(
            "--engine=onnxruntime needs onnxruntime: pip install -r "
            "requirements-onnx.txt"
        )
    from serving import onnx_engine

    return onnx_engine.make(config.batching.threads)


if __name__ == "__main__":
    config_flags.run(ServeConfig, main)
