r"""Kills create_pretraining_data.py at random moments and damages its files.

    python benchmarks/kill_pretraining_data.py --input_file=text.txt \
      --vocab_file=vocab.txt --kills=200

Each trial makes shards in an empty directory, kills the command with SIGKILL
once or several times, truncates one of the files in half of the cases, and
starts the command again until it ends by itself. A trial is good if all files
are those of an undisturbed run, or if the command ended with exit code 2 and
one line that names the truncated file. Prints a table; the exit code is 1 if
a trial is not good. A few hundred kilobytes of text make runs of seconds.
"""

import argparse
import collections
import contextlib
import hashlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import smoke

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMAND = ROOT / "create_pretraining_data.py"
_DIGITS = re.compile(r"\d{5}(-of-\d{5})?")


def start(options, folder: pathlib.Path) -> subprocess.Popen:
    """Starts the command, with its messages in a file beside the folder."""
    with open(f"{folder}.log", "w") as log:
        return subprocess.Popen(
            [
                sys.executable,
                str(COMMAND),
                f"--input_file={options.input_file}",
                f"--vocab_file={options.vocab_file}",
                f"--output_prefix={folder}/x",
                f"--num_shards={options.num_shards}",
                f"--dupe_factor={options.dupe_factor}",
                f"--num_workers={options.num_workers}",
                *options.flags.split(),
            ],
            stdout=subprocess.DEVNULL,
            stderr=log,
        )


def hashes(folder: pathlib.Path) -> dict[str, str]:
    """Returns the SHA-256 of every file below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def seconds_of_work(process: subprocess.Popen, folder: pathlib.Path) -> float:
    """Waits for the end; returns the seconds since the first message."""
    wait_for_message(process, folder)
    begin = time.monotonic()
    if process.wait():
        sys.exit(pathlib.Path(f"{folder}.log").read_text())
    return time.monotonic() - begin


def wait_for_message(process: subprocess.Popen, folder: pathlib.Path) -> None:
    """Waits until the command begins to work, after its imports, or ends."""
    log = pathlib.Path(f"{folder}.log")
    while process.poll() is None and not log.stat().st_size:
        time.sleep(0.005)


def kill(process, folder: pathlib.Path, seconds: float) -> bool:
    """Kills the command after some seconds of work; False if it ended."""
    wait_for_message(process, folder)
    try:
        process.wait(timeout=seconds)
        return False
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True


def truncate(folder: pathlib.Path, rng: random.Random) -> pathlib.Path | None:
    """Truncates a random file, to nothing or to a random length."""
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.stat().st_size
    ]
    if not files:
        return None
    path = rng.choice(files)
    size = path.stat().st_size
    os.truncate(path, rng.choice([0, rng.randrange(size)]))
    return path


def trial(options, folder, rng, work, expected) -> tuple[int, str, str]:
    """Kills and restarts the command in a folder.

    Returns:
      The number of kills; the kind of the truncated file or "none"; and "same
      files", "named" or the path of the log of what went wrong.
    """
    kills, damaged = 0, None
    folder.mkdir()
    while True:
        process = start(options, folder)
        if kills and rng.random() < 0.7:
            process.wait()
            break
        if not kill(process, folder, rng.uniform(0, work)):
            break
        kills += 1
        if damaged is None and rng.random() < 0.5:
            damaged = truncate(folder, rng)
    kind = "none"
    if damaged is not None:
        kind = _DIGITS.sub("N", str(damaged.relative_to(folder)))
        kind = re.sub(r"[0-9a-f]{12}", "*", kind)
    log = pathlib.Path(f"{folder}.log")
    if process.returncode == 0 and hashes(folder) == expected:
        return kills, kind, "same files"
    lines = log.read_text().splitlines()
    if (
        process.returncode == 2
        and damaged is not None
        and any(
            damaged.name in line
            for line in lines  # A killed run's tracker may write later lines.
            if line.startswith(f"{COMMAND.name}:")
        )
        and "Traceback" not in log.read_text()
    ):
        return kills, kind, "named"
    return kills, kind, f"{folder} (exit code {process.returncode})"


def make_parser(description: str, *, kills: int) -> argparse.ArgumentParser:
    """Returns a parser of the flags that all such benchmarks have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--kills", type=int, default=kills)
    parser.add_argument("--flags", default="", help="more flags, in quotes")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def run_trials(
    run_trial: Callable[..., tuple[int, str, str]],
    options: argparse.Namespace,
    rng: random.Random,
    scratch: pathlib.Path,
    **undisturbed: Any,
) -> bool:
    """Runs trials and prints how they end, by the truncated file.

    Args:
      run_trial: runs one in a folder; returns what `trial` does.
      options: the flags.
      rng: for the moments of the kills.
      scratch: the folder of the trials, which is removed if all are good.
      **undisturbed: what an undisturbed run showed, for run_trial.

    Returns:
      Whether a trial is not good.
    """
    table = collections.defaultdict(collections.Counter)
    kills, failures = 0, []
    with contextlib.suppress(KeyboardInterrupt):  # Prints what was done.
        for number in range(10 * options.kills):
            if kills >= options.kills:
                break
            folder = scratch / f"trial-{number}"
            found, kind, end = run_trial(options, folder, rng, **undisturbed)
            kills += found
            if end not in ("same files", "named"):
                failures.append(end)
                print(f"{end}, truncated: {kind}", flush=True)
                end = "failed"
            else:
                shutil.rmtree(folder, ignore_errors=True)
            table[kind][end] += 1
            print(f"{kills} kills, {kind}: {end}", file=sys.stderr, flush=True)
    print(f"{'truncated file':42} same files   named  failed")
    for kind, ends in sorted(table.items()):
        counts = [ends[end] for end in ("same files", "named", "failed")]
        print(f"{kind:42} {counts[0]:10} {counts[1]:7} {counts[2]:7}")
    print(f"{kills} kills, {len(failures)} failures")
    if not failures:
        shutil.rmtree(scratch)
    return bool(failures)


def main() -> int:
    """Runs the trials; returns the exit code."""
    parser = make_parser(__doc__.splitlines()[0], kills=200)
    parser.add_argument("--input_file", required=True)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--num_shards", type=int, default=8)
    parser.add_argument("--dupe_factor", type=int, default=10)
    parser.add_argument("--num_workers", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="kills-"))
    undisturbed = scratch / "undisturbed"
    undisturbed.mkdir()
    work = seconds_of_work(start(options, undisturbed), undisturbed)
    expected = hashes(undisturbed)
    print(f"An undisturbed run works for {work:.1f} s.", flush=True)
    return run_trials(
        trial, options, rng, scratch, work=work, expected=expected
    )


if __name__ == "__main__":
    with smoke.flags(
        {
            "input_file": "DATA/corpus.txt",
            "vocab_file": "DATA/vocab.txt",
            "kills": 2,
            "num_shards": 2,
            "dupe_factor": 2,
        }
    ):
        sys.exit(main())
