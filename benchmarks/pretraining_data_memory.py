r"""Peak memory of create_pretraining_data.py on corpora of growing size.

    python benchmarks/pretraining_data_memory.py --input_file=books.txt.gz \
      --vocab_file=vocab.txt --megabytes 15 150 1500 --folder=/scratch

Each corpus repeats the documents of the given text in another order. Prints,
for the starting process and for the largest worker, the peak of the resident
memory and of what of it is not just mapped from files, and the time. Exits
with 1 if a worker is over 1 GiB or the peaks differ by more than 10 %.
Everything it wrote is removed.
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

ROOT = pathlib.Path(__file__).resolve().parent.parent
GIB = 1 << 30


def write_corpus(documents: list[bytes], path: str, size: float) -> None:
    """Writes about `size` bytes of documents, shuffled anew each time."""
    rng, written = random.Random(0), 0
    with open(path, "wb") as file:
        while written < size:
            rng.shuffle(documents)
            for document in documents:
                written += file.write(document + b"\n\n")
                if written >= size:
                    break


def children(pid: int) -> list[int]:
    """Returns a process and all that descend from it."""
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
    """Returns the peak and the anonymous resident bytes of a process."""
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in text.splitlines())
    if "VmHWM" not in fields:
        return {}
    names = {"peak": "VmHWM", "anonymous": "RssAnon"}
    return {k: int(fields[v].split()[0]) * 1024 for k, v in names.items()}


def watch(command: list[str]) -> tuple[dict, dict, float]:
    """Runs a command; returns the peaks of it and of its largest child."""
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
    """Reads the command line, measures every size, prints the table."""
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
    print(f"{'MB':>6}  starting process        worker                  time")
    print(f"{'':6}  MB peak  not mapped      MB peak  not mapped      s")
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
        own, worker, seconds = watch(command)
        shutil.rmtree(folder)
        found.append(max(own["peak"], worker["peak"]))
        cells = [own["peak"], own["anonymous"]]
        cells += [worker["peak"], worker["anonymous"]]
        print(
            f"{megabytes:6.0f}",
            *(f"{cell / 1e6:11.0f}" for cell in cells),
            f"{seconds:9.0f}",
            flush=True,
        )
    spread = max(found) / min(found) - 1
    print(f"largest of all within {100 * spread:.1f} % of each other")
    return int(max(found) > GIB or spread > 0.1)


if __name__ == "__main__":
    sys.exit(main())
