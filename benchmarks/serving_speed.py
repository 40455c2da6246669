r"""Measures requests per second and latency of serve.py next to two peers.

    python benchmarks/serving_speed.py --model_dir=sst2 --text_file=texts.txt \
        --peer_python=peer/bin/python

The sides serve one classifier of single texts with the same weights:

    batched     serve.py
    unbatched   serve.py --max_batch_size=0
    one-thread  serve.py --threads_per_batch=1
    ours-onnx   serve.py --engine=onnxruntime, in float32
    pipeline    the pipeline of transformers in PyTorch, behind aiohttp
    onnx        onnxruntime with the fast tokenizer, behind aiohttp

Every client sends one text at a time and waits for the answer. One side is
measured at a time, for --seconds, and the sides take turns, so that other load
on the machine slows all of them alike. The side ours-onnx needs the packages of
requirements-onnx.txt; the peers' Python needs aiohttp, torch, transformers,
onnx and onnxruntime.
"""

import asyncio
import collections
import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

import aiohttp
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import comparison
import smoke

from foundation import config_flags

ROOT = pathlib.Path(__file__).resolve().parent.parent
field = config_flags.field
NAME = "model"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingConfig:
    """The flags of the benchmark."""

    model_dir: str = field("A classifier of single texts.")
    text_file: str = field("Texts to classify, one per line.")
    peer_python: str | None = field(comparison.PEER_PYTHON, None)
    clients: str = field("Numbers of clients, separated by commas.", "1,8,32")
    seconds: float = field("Length of a turn.", 5.0)
    rounds: int = field("Turns of each side.", 3)
    max_seq_length: int = field("In tokens, of all sides.", 128)
    precision: str = field(
        "float32, or bfloat16 of all sides but onnxruntime.", "float32"
    )


class Turn(NamedTuple):
    """The requests of one turn: how many per second, seconds of each."""

    rate: float
    latencies: list[float]


class Server(NamedTuple):
    """A process that serves, and its address."""

    process: subprocess.Popen
    url: str


def start(command: Sequence[str]) -> Server:
    """Starts a server that writes "serving at http://HOST:PORT/"."""
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    lines = []
    for line in process.stderr:
        lines.append(line)
        found = re.search(r"serving at (http://\S+)", line)
        if found:
            return Server(process, found[1])
    sys.exit(f"{command[:2]} ended with {process.wait()}:\n{''.join(lines)}")


def start_ours(exported: str, **flags: object) -> Server:
    """Starts serve.py on an exported model, with any flags.

    Beside other programs, a late answer is a latency and not a failure.
    """
    flags = {"request_timeout": 600} | flags
    given = [f"--{name}={value}" for name, value in flags.items()]
    command = [sys.executable, str(ROOT / "serve.py"), "--port=0"]
    return start([*command, f"--models={NAME}={exported}", *given])


def export(model_dir: str, output_dir: str, **flags: object) -> str:
    """Exports a model with export_model.py; returns its directory."""
    given = [f"--{name}={value}" for name, value in flags.items()]
    command = [sys.executable, str(ROOT / "export_model.py"), *given]
    command += [f"--model_dir={model_dir}", f"--output_dir={output_dir}"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return output_dir


async def predict(
    session: aiohttp.ClientSession, url: str, text: str
) -> dict[str, float]:
    """Returns the probability of each label."""
    body = json.dumps({"instances": [{"text": text}]})
    async with session.post(
        f"{url}v1/models/{NAME}:predict", data=body
    ) as response:
        answer = await response.json()
        if response.status != 200:
            raise ValueError(answer)
    (found,) = answer["predictions"]
    return dict(zip(found["labels"], found["probabilities"], strict=True))


async def measure(
    url: str, texts: Sequence[str], *, clients: int, seconds: float
) -> Turn:
    """Lets clients send texts for some seconds."""
    latencies: list[float] = []
    ends = time.perf_counter() + seconds

    async def client(session: aiohttp.ClientSession, number: int) -> None:
        while (started := time.perf_counter()) < ends:
            await predict(session, url, texts[number % len(texts)])
            latencies.append(time.perf_counter() - started)
            number += clients

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        started = time.perf_counter()
        await asyncio.gather(*(client(session, n) for n in range(clients)))
        return Turn(len(latencies) / (time.perf_counter() - started), latencies)


async def probabilities(url: str, texts: Sequence[str]) -> np.ndarray:
    """Returns the probabilities of each text's labels in alphabetic order."""
    async with aiohttp.ClientSession() as session:
        found = [await predict(session, url, text) for text in texts]
    return np.array([[row[name] for name in sorted(row)] for row in found])


def check(servers: dict[str, Server], texts: Sequence[str]) -> None:
    """Prints how much the sides' probabilities differ."""
    expected = None
    for name, server in servers.items():
        found = asyncio.run(probabilities(server.url, texts))
        expected = found if expected is None else expected
        print(f"{name}: max |difference| {np.abs(found - expected).max():.1e}")


def report(turns: dict[tuple[str, int], list[Turn]]) -> None:
    """Prints a row for each side and number of clients."""
    print("clients  side        requests/s  p50 ms  p99 ms  batched / side")
    rates = {
        key: statistics.median(turn.rate for turn in found)
        for key, found in turns.items()
    }
    for (name, clients), found in turns.items():
        latencies = [1000 * x for turn in found for x in turn.latencies]
        p50, p99 = np.percentile(latencies, [50, 99])
        # The ratio of turns that followed each other.
        ratio = statistics.median(
            ours.rate / turn.rate
            for ours, turn in zip(turns["batched", clients], found, strict=True)
        )
        print(
            f"{clients:7}  {name:10}  {rates[name, clients]:10.1f}  "
            f"{p50:6.1f}  {p99:6.1f}  {ratio:14.2f}"
        )


def main(config: ServingConfig) -> None:
    """Starts all sides and lets them take turns."""
    lines = pathlib.Path(config.text_file).read_text().splitlines()
    texts = [line for line in lines if line.strip()]
    shared = {"max_seq_length": config.max_seq_length}
    servers = {}
    with tempfile.TemporaryDirectory() as folder:
        exported = export(
            config.model_dir,
            f"{folder}/exported",
            precision=config.precision,
            **shared,
        )
        try:
            servers["batched"] = start_ours(exported)
            servers["unbatched"] = start_ours(exported, max_batch_size=0)
            servers["one-thread"] = start_ours(exported, threads_per_batch=1)
            if importlib.util.find_spec("onnxruntime"):
                graph = export(
                    config.model_dir, f"{folder}/onnx", format="onnx", **shared
                )
                servers["ours-onnx"] = start_ours(graph, engine="onnxruntime")
            for name in ("pipeline", "onnx") if config.peer_python else ():
                script = pathlib.Path(__file__).with_name("serving_peer.py")
                servers[name] = start(
                    [
                        config.peer_python,
                        str(script),
                        f"--side={name}",
                        f"--model_dir={config.model_dir}",
                        f"--max_seq_length={config.max_seq_length}",
                        f"--precision={config.precision}",
                    ]
                )
            check(servers, texts[:32])
            turns = collections.defaultdict(list)
            for _ in range(config.rounds):
                for clients in map(int, config.clients.split(",")):
                    for name, server in servers.items():
                        turn = measure(
                            server.url,
                            texts,
                            clients=clients,
                            seconds=config.seconds,
                        )
                        turns[name, clients].append(asyncio.run(turn))
        finally:
            for server in servers.values():
                server.process.kill()
                server.process.wait()
    report(turns)


if __name__ == "__main__":
    with smoke.flags(
        {
            "model_dir": "DATA/model",
            "text_file": "DATA/texts.txt",
            "clients": "1,2",
            "seconds": 0.5,
            "rounds": 1,
            "max_seq_length": 32,
        },
        smoke.classifier,
    ):
        config_flags.run(ServingConfig, main)
