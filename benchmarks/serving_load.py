r"""Sends many requests to serve.py and checks every answer.

    python benchmarks/serving_load.py --model_dir=sst2 --text_file=texts.txt

--clients clients send --requests requests, of which a part is malformed in
several ways; others vanish: they close the connection before the request is
complete, or before it is answered. Every --burst_every seconds, requests come
for --burst_seconds at twice the rate that was answered before, whether answers
come or not. The server gets SIGTERM while all clients continue to send, until
it refuses their connections. The command prints

    wrong answers      other probabilities than those of TensorFlow in this
                       process, one text at a time; or another status, except
                       503 (too many requests) when there are bursts
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
import urllib.parse
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import aiohttp
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import serving_speed
import smoke

from foundation import config_flags

field = config_flags.field
_PATH = f"v1/models/{serving_speed.NAME}"
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
    engine: Literal["tensorflow", "onnxruntime"] = field(
        "Engine of the server.", "tensorflow"
    )
    requests: int = field("Requests before SIGTERM.", 100_000)
    clients: int = field("Clients, each with one connection.", 32)
    malformed: float = field("Fraction of malformed requests.", 0.05)
    vanishing: float = field("Fraction of clients that do not wait.", 0.01)
    burst_every: float = field("Seconds between bursts; 0 for none.", 20.0)
    burst_seconds: float = field("Length of a burst.", 2.0)
    tolerance: float = field("Of probabilities.", 1e-4)


class _Request(NamedTuple):
    """A request, and the answer that is right.

    Attributes:
      method: of HTTP.
      path: the address on the server.
      body: the bytes of the body.
      status: of the answer.
      expected: [N, C] probabilities, if the status is 200.
    """

    method: str
    path: str
    body: bytes | None
    status: int
    expected: Sequence[np.ndarray] | None


class Clients:
    """Sends requests and counts what comes back."""

    def __init__(
        self,
        config: LoadConfig,
        server: serving_speed.Server,
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
        if self._config.burst_every:
            tasks.append(asyncio.create_task(self._bursts()))
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
        """Sends one request after the other."""
        rng = random.Random(number)
        connector = aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(connector=connector) as session:
            listens = True
            while listens:
                request = self._draw(rng)
                if rng.random() < self._config.vanishing:
                    await self._vanish(request, rng)
                listens = await self._send(session, request)

    async def _bursts(self) -> None:
        """Sends requests at twice the rate of before, again and again."""
        rng, loop = random.Random(-1), asyncio.get_running_loop()
        while True:
            before, since = self.counts["answered"], loop.time()
            while loop.time() < since + self._config.burst_every:
                if self._is_ending:
                    return
                await asyncio.sleep(0.05)
            answered = self.counts["answered"] - before
            rate = 2 * answered / (loop.time() - since)
            await self._burst(rng, rate, self._config.burst_seconds)
            self.counts["bursts"] += 1

    async def _burst(
        self, rng: random.Random, rate: float, seconds: float
    ) -> None:
        """Sends `rate` requests per second; none waits for another."""
        loop = asyncio.get_running_loop()
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            started, sent = loop.time(), []
            for number in range(round(rate * seconds)):
                await asyncio.sleep(started + number / rate - loop.time())
                request = self._draw(rng)
                sent.append(asyncio.create_task(self._send(session, request)))
            await asyncio.gather(*sent)

    def _draw(self, rng: random.Random) -> _Request:
        """Returns a malformed request, or one of one to three texts."""
        if rng.random() < self._config.malformed:
            return _Request(*rng.choice(_MALFORMED), expected=None)
        chosen = rng.choices(self._expected, k=rng.choice((1, 1, 1, 3)))
        rows = [{"text": text} for text, _ in chosen]
        return _Request(
            "POST",
            f"{_PATH}:predict",
            json.dumps({"instances": rows}).encode(),
            200,
            [values for _, values in chosen],
        )

    async def _vanish(self, request: _Request, rng: random.Random) -> None:
        """Sends a request, or a part of it, and closes the connection."""
        url = urllib.parse.urlsplit(self._server.url)
        body = request.body or b""
        head = (
            f"{request.method} /{request.path} HTTP/1.1\r\n"
            f"Host: {url.netloc}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        content = head.encode() + body
        size = rng.choice((rng.randrange(len(content)), len(content)))
        try:
            _, writer = await asyncio.open_connection(url.hostname, url.port)
        except OSError:
            return  # `_send` finds out why.
        writer.write(content[:size])
        await asyncio.sleep(0.02 * rng.random())
        writer.transport.abort()
        self.counts["vanished"] += 1

    async def _send(
        self, session: aiohttp.ClientSession, request: _Request
    ) -> bool:
        """Sends a request and checks the answer; returns if there was one."""
        try:
            async with session.request(
                request.method,
                self._server.url + request.path,
                data=request.body,
            ) as response:
                self._check(request, response.status, await response.json())
                return True
        except aiohttp.ClientConnectorError:
            if not self._is_ending:  # Else the server listens no more.
                self._add("lost", "no connection")
        except (aiohttp.ClientError, OSError) as error:
            self._add("lost", repr(error))
        return False

    def _check(self, request: _Request, status: int, answer: Any) -> None:
        """Counts an answer, and whether it is wrong."""
        self.counts["answered"] += 1
        self.counts[f"status {status}"] += 1
        is_busy = status == 503 and self._config.burst_every > 0
        if status != request.status and not is_busy:
            self._add("wrong", f"{status} instead of {request.status}")
        elif status != 200:
            if list(answer) != ["error"] or "\n" in answer["error"]:
                self._add("wrong", json.dumps(answer))
        else:
            found = [row["probabilities"] for row in answer["predictions"]]
            difference = np.abs(np.array(found) - request.expected).max()
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
        exported = serving_speed.export(config.model_dir, f"{folder}/exported")
        expected = expected_probabilities(exported, texts)
        served = exported
        if config.engine == "onnxruntime":
            served = serving_speed.export(
                config.model_dir, f"{folder}/onnx", format="onnx"
            )
        server = serving_speed.start_ours(
            served, engine=config.engine, max_request_bytes=20000
        )
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
            "vanishing": 0.2,
            "burst_every": 0.3,
            "burst_seconds": 0.2,
        },
        smoke.classifier,
    ):
        config_flags.run(LoadConfig, main)
