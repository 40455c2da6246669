r"""Sends many requests to serve.py and checks every answer.

    python benchmarks/serving_load.py --model_dir=sst2 --text_file=texts.txt

--clients clients send --requests requests, of which a part is malformed in
several ways. The server gets SIGTERM while all clients continue to send, until
it refuses their connections. The command prints

    wrong answers      other probabilities than those of the exported model in
                       this process, one text at a time; or another status
    lost requests      sent on an open connection and not answered
    memory             of the server's process (RSS), ten times in the run

and exits with code 1 if an answer was wrong or a request lost.
"""

import asyncio
import collections
import dataclasses
import json
import pathlib
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence

import aiohttp
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import serving
import smoke

from foundation import config_flags

field = config_flags.field
_PATH = f"v1/models/{serving.NAME}"
# Method, path, body, status.
_MALFORMED = (
    ("POST", f"{_PATH}:predict", b"{", 400),
    ("POST", f"{_PATH}:predict", b"[]", 400),
    ("POST", f"{_PATH}:predict", b"[" * 5000, 400),
    ("POST", f"{_PATH}:predict", b"\xff\xfe", 400),
    ("POST", f"{_PATH}:predict", b'{"instances": [{"text": 1}]}', 400),
    ("POST", f"{_PATH}:predict", b'{"instances": [{"other": ""}]}', 400),
    ("POST", f"{_PATH}:predict", b'{"instances": []}', 400),
    ("POST", f"{_PATH}:predict", b'{"instances": ["\\ud800"]}', 400),
    ("POST", f"{_PATH}:predict", b" " * 40000, 413),
    ("POST", "v1/models/none:predict", b"{}", 404),
    ("GET", f"{_PATH}:predict", None, 405),
    ("GET", "v2/" + "x" * 3000, None, 404),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadConfig:
    """The flags of the load test."""

    model_dir: str = field("A classifier of single texts.")
    text_file: str = field("Texts to classify, one per line.")
    requests: int = field("Requests before SIGTERM.", 100_000)
    clients: int = field("Clients, each with one connection.", 32)
    malformed: float = field("Fraction of malformed requests.", 0.05)
    tolerance: float = field("Of probabilities.", 1e-4)


class Clients:
    """Sends requests and counts what comes back."""

    def __init__(
        self,
        config: LoadConfig,
        server: serving.Server,
        expected: dict[str, np.ndarray],
    ):
        """Sends nothing yet; `expected` are the probabilities of texts."""
        self._config, self._server = config, server
        self._expected = list(expected.items())
        self.counts: collections.Counter[str] = collections.Counter()
        self.examples: list[str] = []
        self.memory: list[int] = []
        self._is_ending = False

    async def run(self) -> None:
        """Sends all requests, and further ones until the server has ended."""
        started = time.monotonic()
        tasks = [
            asyncio.create_task(self._client(number))
            for number in range(self._config.clients)
        ]
        step = self._config.requests // 10
        while self.counts["answered"] < self._config.requests:
            await asyncio.sleep(0.05)
            if any(task.done() for task in tasks):
                break
            if self.counts["answered"] >= step * (len(self.memory) + 1):
                self.memory.append(resident(self._server.process.pid))
                print(
                    f"{self.counts['answered']:7} answered, "
                    f"{time.monotonic() - started:6.0f} s, "
                    f"{self.memory[-1] >> 20} MiB",
                    flush=True,
                )
        self._is_ending = True
        self._server.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*tasks)
        self.counts["exit code"] = await asyncio.to_thread(
            self._server.process.wait, 60
        )

    async def _client(self, number: int) -> None:
        rng = random.Random(number)
        connector = aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(connector=connector) as session:
            while True:
                try:
                    await self._request(session, rng)
                except aiohttp.ClientConnectorError:
                    if not self._is_ending:
                        self._add("lost", "no connection")
                    return  # The server listens no more.
                except (aiohttp.ClientError, OSError) as error:
                    self._add("lost", repr(error))
                    return

    async def _request(
        self, session: aiohttp.ClientSession, rng: random.Random
    ) -> None:
        if rng.random() < self._config.malformed:
            method, path, body, status = rng.choice(_MALFORMED)
            expected = None
        else:
            # Requests of one to three texts.
            chosen = rng.choices(self._expected, k=rng.choice((1, 1, 1, 3)))
            rows = [{"text": text} for text, _ in chosen]
            method, path = "POST", f"{_PATH}:predict"
            body = json.dumps({"instances": rows}).encode()
            status, expected = 200, [values for _, values in chosen]
        async with session.request(
            method, self._server.url + path, data=body
        ) as response:
            answer = await response.json()
        self.counts["answered"] += 1
        self.counts[f"status {response.status}"] += 1
        if response.status != status:
            self._add("wrong", f"{response.status} instead of {status}")
        elif expected is None:
            if list(answer) != ["error"] or "\n" in answer["error"]:
                self._add("wrong", json.dumps(answer))
        else:
            found = [row["probabilities"] for row in answer["predictions"]]
            difference = np.abs(np.array(found) - np.array(expected)).max()
            if not difference <= self._config.tolerance:
                self._add("wrong", f"differs by {difference}")

    def _add(self, kind: str, example: str) -> None:
        self.counts[kind] += 1
        self.examples.append(f"{kind}: {example}")


def resident(process: int) -> int:
    """Returns the resident memory of a process in bytes."""
    text = pathlib.Path(f"/proc/{process}/status").read_text()
    (line,) = [x for x in text.splitlines() if x.startswith("VmRSS")]
    return int(line.split()[1]) << 10


def expected_probabilities(
    exported: str, texts: Sequence[str]
) -> dict[str, np.ndarray]:
    """Predicts texts one by one in this process."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401

    function = tf.saved_model.load(exported).signatures["serving_default"]
    return {
        text: function(text=tf.constant([text]))["probabilities"].numpy()[0]
        for text in texts
    }


def main(config: LoadConfig) -> int:
    """Runs the test; returns 1 if it failed."""
    lines = pathlib.Path(config.text_file).read_text().splitlines()
    texts = [line for line in lines if line.strip()][:300]
    with tempfile.TemporaryDirectory() as folder:
        exported = serving.export(config.model_dir, f"{folder}/exported")
        expected = expected_probabilities(exported, texts)
        server = serving.start_ours(exported, max_request_bytes=20000)
        clients = Clients(config, server, expected)
        try:
            asyncio.run(clients.run())
        finally:
            server.process.kill()
            server.process.wait()
    for name, count in sorted(clients.counts.items()):
        print(f"{name}: {count}")
    first, last = clients.memory[0], clients.memory[-1]
    print(f"memory: {first >> 20} MiB to {last >> 20} MiB")
    for example in clients.examples[:10]:
        print(example)
    counts = clients.counts
    print(f"wrong: {counts['wrong']}, lost: {counts['lost']}")
    return 1 if counts["wrong"] or counts["lost"] or counts["exit code"] else 0


if __name__ == "__main__":
    with smoke.flags(
        {
            "model_dir": "DATA/model",
            "text_file": "DATA/texts.txt",
            "requests": 300,
            "clients": 4,
        },
        smoke.classifier,
    ):
        config_flags.run(LoadConfig, main)
