r"""Measures a classifier behind serve.py, beside its peers, in turns.

    python benchmarks/serving_speed.py --model_dir=sst2 --text_file=texts.txt \
        --peer_python=/path/to/python/with/torch/transformers/onnxruntime

Exports the model and starts serve.py with TensorFlow and, if it is installed,
with onnxruntime; with --peer_python also transformers' pipeline, and
onnxruntime with the fast tokenizer, both behind aiohttp. All sides must give
the same probabilities. Then 1, 8 and 32 clients send one text at a time to each
side in turn. Prints the medians over the rounds: requests per second by the
clock and by the processor time of the server, and the median time of an answer.
"""

import argparse
import asyncio
import importlib.util
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

import aiohttp
import speed

PATH = "v1/models/model:predict"


class Server(NamedTuple):
    """A process and its address."""

    process: subprocess.Popen
    url: str


class Turn(NamedTuple):
    """What one turn of a side measured."""

    per_second: float
    per_processor_second: float
    milliseconds: float


def start(command: Sequence[object]) -> Server:
    """Starts a server and waits until it says its address."""
    process = subprocess.Popen(
        [*map(str, command)], stderr=subprocess.PIPE, text=True
    )
    for line in process.stderr:
        if found := re.search(r"serving at (http://\S+)", line):
            # Its further messages must not fill the pipe.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return Server(process, found[1].rstrip("/") + "/")
    sys.exit(f"{command} ended with code {process.wait()}")


def processor_seconds(process: subprocess.Popen) -> float:
    """Returns the processor time of a process so far."""
    stat = pathlib.Path(f"/proc/{process.pid}/stat").read_text()
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


async def predict(session, server: Server, text: str) -> dict[str, float]:
    """Returns the probabilities of a text, by label."""
    body = {"instances": [{"text": text}]}
    async with session.post(server.url + PATH, json=body) as response:
        values = await response.json()
    (row,) = values["predictions"]
    return dict(zip(row["labels"], row["probabilities"], strict=True))


async def turn(
    server: Server, texts: Sequence[str], clients: int, seconds: float
) -> Turn:
    """Sends requests for some seconds."""
    times: list[float] = []
    begun, used = time.perf_counter(), processor_seconds(server.process)

    async def client(number: int) -> None:
        connector = aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(connector=connector) as session:
            while time.perf_counter() < begun + seconds:
                before = time.perf_counter()
                text = texts[(number + len(times)) % len(texts)]
                await predict(session, server, text)
                times.append(time.perf_counter() - before)

    await asyncio.gather(*map(client, range(clients)))
    taken = time.perf_counter() - begun
    used = processor_seconds(server.process) - used
    median = 1000 * statistics.median(times)
    return Turn(len(times) / taken, len(times) / max(used, 0.01), median)


async def measure(options, servers: dict[str, Server]) -> None:
    """Checks that the sides agree, lets them take turns, prints the medians."""
    lines = pathlib.Path(options.text_file).read_text().splitlines()
    texts = [line for line in lines if line.strip()][:1000]
    async with aiohttp.ClientSession() as session:
        for text in texts[:20]:
            answers = {
                name: await predict(session, server, text)
                for name, server in servers.items()
            }
            first, *others = answers.values()
            for other in others:
                apart = max(abs(first[x] - other[x]) for x in first)
                assert apart < options.tolerance, (text, answers)
    for clients in options.clients:
        turns: dict[str, list[Turn]] = {name: [] for name in servers}
        for _ in range(options.rounds):
            for name, server in servers.items():
                turns[name].append(
                    await turn(server, texts, clients, options.seconds)
                )
        for name, found in turns.items():
            median = Turn(*map(statistics.median, zip(*found, strict=True)))
            print(
                f"{clients} clients, {name}: {median.per_second:.1f} "
                f"requests/s, {median.per_processor_second:.1f} per processor "
                "second, "
                f"{median.milliseconds:.1f} ms",
                flush=True,
            )


def main() -> None:
    """Starts all servers, measures, and ends them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model_dir", required=True)
    parser.add_argument("--text_file", required=True)
    parser.add_argument("--peer_python")
    parser.add_argument("--max_seq_length", type=int, default=64)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--flags", default="", help="of serve.py, in quotes")
    options = parser.parse_args()
    others = speed.load_of_others()
    if others > speed.MOST:
        print(f"other programs take {others:.0%} of the cores", flush=True)
    servers: dict[str, Server] = {}
    with tempfile.TemporaryDirectory(prefix="serving-") as name:
        folder = pathlib.Path(name)
        sizes = {"max_seq_length": options.max_seq_length}
        engines = ["tensorflow"]
        if importlib.util.find_spec("onnxruntime"):
            engines.append("onnxruntime")
        try:
            for engine in engines:
                exported = folder / engine / "model"
                form = "onnx" if engine == "onnxruntime" else None
                speed.run(
                    speed.ours(
                        "export_model.py",
                        model_dir=options.model_dir,
                        output_dir=exported,
                        format=form,
                        **sizes,
                    )
                )
                command = speed.ours(
                    "serve.py", models=exported, engine=engine, port=0
                )
                servers[engine] = start([*command, *options.flags.split()])
            for engine in ("pipeline", "onnx") if options.peer_python else ():
                command = [options.peer_python, speed.PEER, "serve"]
                flags = f"--engine={engine}", f"--model={options.model_dir}"
                length = f"--max_seq_length={options.max_seq_length}"
                servers[f"peer, {engine}"] = start([*command, *flags, length])
            asyncio.run(measure(options, servers))
        finally:
            for server in servers.values():
                server.process.kill()
                server.process.wait()


if __name__ == "__main__":
    main()
