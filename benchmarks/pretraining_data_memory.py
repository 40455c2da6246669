r"""Measures the peak memory of create_pretraining_data.py by corpus size.

    python benchmarks/pretraining_data_memory.py --input_file=books.txt.gz \
      --vocab_file=vocab.txt --megabytes 15 150 1500 --folder=/scratch

Each corpus repeats the documents of the given text in random order. Prints the
time and, for the main process and the largest worker, the peaks of resident and
of anonymous memory (anonymous memory excludes mapped files). Exits with code 1
if a worker needs more than 1 GiB or the peaks differ by more than 10 %. Removes
all files that it wrote.
"""

import argparse
import gzip
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

import smoke

ROOT = pathlib.Path(__file__).resolve().parent.parent
GIB = 1 << 30


def write_corpus(documents: list[bytes], path: str, size: float) -> None:
    """Writes about `size` bytes: all documents, shuffled, repeatedly."""
    rng, written = random.Random(0), 0
    with open(path, "wb") as file:
        while written < size:
            rng.shuffle(documents)
            for document in documents:
                written += file.write(document + b"\n\n")
                if written >= size:
                    break


def children(pid: int) -> list[int]:
    """Returns a process and its descendants."""
    parents = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found = [pid]
    for one in found:
        found.extend(parents.get(one, []))
    return found


def memory(pid: int) -> dict[str, int]:
    """Returns the peak and the anonymous memory of a process in bytes."""
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in text.splitlines())
    if "VmHWM" not in fields:
        return {}
    names = {"peak": "VmHWM", "anonymous": "RssAnon"}
    return {k: int(fields[v].split()[0]) * 1024 for k, v in names.items()}


def measure(command: list[str]) -> tuple[dict, dict, float]:
    """Runs a command; returns its peaks, its largest child's, and seconds."""
    begin, peaks = time.monotonic(), {}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stderr=log)
        while process.poll() is None:
            for pid in children(process.pid):
                held = peaks.setdefault(pid, {"peak": 0, "anonymous": 0})
                for name, value in memory(pid).items():
                    held[name] = max(held[name], value)
            time.sleep(0.25)
        seconds = time.monotonic() - begin
        if process.returncode:
            log.seek(0)
            raise SystemExit(log.read().decode()[-3000:])
    own = peaks.pop(process.pid)
    nothing = {"peak": 0, "anonymous": 0}
    largest = max(peaks.values(), key=lambda x: x["peak"], default=nothing)
    return own, largest, seconds


def main() -> int:
    """Measures every size and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input_file", required=True)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--megabytes", type=float, nargs="+", required=True)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--dupe_factor", type=int, default=1)
    parser.add_argument("--max_seq_length", type=int, default=128)
    arguments = parser.parse_args()
    opened = gzip.open if arguments.input_file.endswith(".gz") else open
    with opened(arguments.input_file, "rb") as file:
        documents = file.read().split(b"\n\n")
    print(f"{'MB':>6}  main process            largest worker          time")
    print(f"{'':6}  MB peak  anonymous       MB peak  anonymous       s")
    found = []
    for megabytes in arguments.megabytes:
        folder = tempfile.mkdtemp(dir=arguments.folder)
        text = os.path.join(folder, "text.txt")
        write_corpus(documents, text, megabytes * 1e6)
        command = [sys.executable, str(ROOT / "create_pretraining_data.py")]
        command += [f"--input_file={text}", f"--output_prefix={folder}/x"]
        command += [f"--vocab_file={arguments.vocab_file}"]
        for name in ("dupe_factor", "max_seq_length"):
            command.append(f"--{name}={getattr(arguments, name)}")
        command.append(f"--num_workers={arguments.workers}")
        own, worker, seconds = measure(command)
        shutil.rmtree(folder)
        found.append(max(own["peak"], worker["peak"]))
        cells = [own["peak"], own["anonymous"]]
        cells += [worker["peak"], worker["anonymous"]]
        print(
            f"{megabytes:6g}",
            *(f"{cell / 1e6:11.0f}" for cell in cells),
            f"{seconds:9.0f}",
            flush=True,
        )
    spread = max(found) / min(found) - 1
    print(f"The peaks differ by {100 * spread:.1f} %.")
    return int(max(found) > GIB or spread > 0.1)


if __name__ == "__main__":
    with smoke.flags(
        {
            "input_file": "DATA/corpus.txt",
            "vocab_file": "DATA/vocab.txt",
            "megabytes": (0.1, 0.2),
        }
    ):
        sys.exit(main())
