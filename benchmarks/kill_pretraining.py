r"""Kills run_pretraining.py at random moments and damages its files.

    python benchmarks/kill_pretraining.py --input_file='shards/x*.tfrecord' \
      --bert_config_file=config.json --kills=100

Each trial trains in an empty directory, kills the command with SIGKILL once or
several times, truncates one of the files in half of the cases, and starts the
command again until it ends by itself. A trial is good if the model has the
bytes of an undisturbed run's, and metrics.jsonl its lines (without timings, and
unless it was the truncated file), or if the command ended with exit code 2 and
one line that names the truncated file. Prints a table; the exit code is 1 if a
trial is not good. The trials are forks of one process, which has imported
TensorFlow, so that a run of a tiny model takes seconds.
"""

import hashlib
import json
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import time
import types
from collections.abc import Sequence

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import kill_pretraining_data
import smoke

import run_pretraining
from foundation import config_flags
from training import metric_writer


def start(options, folder: pathlib.Path) -> int:
    """Forks a run, with its messages in a file beside the folder."""
    flags = [
        f"--input_file={options.input_file}",
        f"--bert_config_file={options.bert_config_file}",
        f"--output_dir={folder}",
        "--do_train",
        *options.flags.split(),
    ]
    return fork(run_pretraining, flags, f"{folder}.log")


def fork(runner: types.ModuleType, flags: Sequence[str], log: str) -> int:
    """Forks a command, with its messages in a file; returns the process."""
    file = open(log, "wb", buffering=0)
    pid = os.fork()
    if pid:
        file.close()
        return pid
    for descriptor in (1, 2):
        os.dup2(file.fileno(), descriptor)
    code = 1
    (config,) = (
        x for name, x in vars(runner).items() if name.endswith("Config")
    )
    try:
        config_flags.run(config, runner.main, [runner.__name__, *flags])
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def wait(pid: int, seconds: float | None = None) -> int | None:
    """Waits for a run; returns its exit code, None if it was killed."""
    end = None if seconds is None else time.monotonic() + seconds
    while end is None or time.monotonic() < end:
        done, status = os.waitpid(pid, 0 if end is None else os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def result(folder: pathlib.Path) -> tuple[str, list[dict]]:
    """Returns the hash of the model, and the metrics without timings."""
    model = (folder / "model.safetensors").read_bytes()
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return hashlib.sha256(model).hexdigest(), [
        {
            name: value
            for name, value in json.loads(line).items()
            if name not in metric_writer.TIMINGS
        }
        for line in lines
    ]


def trial(options, folder, rng, work, expected) -> tuple[int, str, str]:
    """Kills and restarts the command in a folder.

    Returns:
      The number of kills; the kind of the truncated file or "none"; and "same
      files", "named" or the path of the log of what went wrong.
    """
    kills, damaged = 0, None
    while True:
        pid = start(options, folder)
        is_last = kills and rng.random() < 0.7
        code = wait(pid, None if is_last else rng.uniform(0, work))
        if code is not None:
            break
        kills += 1
        if damaged is None and folder.is_dir() and rng.random() < 0.5:
            damaged = kill_pretraining_data.truncate(folder, rng)
    kind = "none"
    if damaged is not None:
        kind = re.sub(r"\d{3,}|[0-9a-f]{12}", "*", damaged.name)
        kind = re.sub(r"ckpt-\d+", "ckpt-N", kind)
        kind = re.sub(r"tfevents\..*", "tfevents.*", kind)
    text = pathlib.Path(f"{folder}.log").read_text()
    if code == 0:
        model, lines = result(folder)
        is_metrics = damaged is not None and damaged.name == "metrics.jsonl"
        if model == expected[0] and (is_metrics or lines == expected[1]):
            return kills, kind, "same files"
    elif code == 2 and damaged is not None and "Traceback" not in text:
        # A damaged checkpoint is named without .index or .data-*-of-*.
        name = re.sub(r"\.(index|data-.*)$", "", damaged.name)
        if name in text.splitlines()[-1]:
            return kills, kind, "named"
    return kills, kind, f"{folder} (exit code {code})"


def main() -> int:
    """Runs the trials; returns the exit code."""
    parser = kill_pretraining_data.make_parser(
        __doc__.splitlines()[0], kills=100
    )
    parser.add_argument("--input_file", required=True)
    parser.add_argument("--bert_config_file", required=True)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="kills-"))
    begin = time.monotonic()
    if wait(start(options, scratch / "undisturbed")):
        sys.exit((scratch / "undisturbed.log").read_text())
    work = time.monotonic() - begin
    expected = result(scratch / "undisturbed")
    print(f"An undisturbed run takes {work:.1f} s.", flush=True)
    return kill_pretraining_data.run_trials(
        trial, options, rng, scratch, work=work, expected=expected
    )


if __name__ == "__main__":
    with smoke.flags(
        {
            "input_file": "DATA/records.tfrecord",
            "bert_config_file": "DATA/bert_config.json",
            "kills": 1,
            "flags": "--num_train_steps=4 --train_batch_size=4 "
            "--save_checkpoints_steps=2 --max_seq_length=32 "
            "--max_predictions_per_seq=5",
        },
        smoke.records,
    ):
        sys.exit(main())
