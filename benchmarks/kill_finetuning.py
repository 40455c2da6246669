r"""Kills run_classifier.py, run_ner.py or run_squad.py at random moments.

    python benchmarks/kill_finetuning.py --command=run_ner --kills=70 \
      --flags='--data_dir=conll2003 --init_checkpoint=model ...'

--flags are those of the command, without --output_dir: a grid of learning rates
that trains, evaluates and predicts, for example. Each trial starts it in an
empty directory, kills it with SIGKILL once or several times, and starts it
again until it ends by itself. A trial is good if the model, the scores and the
predictions have the bytes of an undisturbed run's. Prints a table; the exit
code is 1 if a trial is not good. The trials are forks of one process, as in
kill_pretraining.py.
"""

import importlib
import os
import pathlib
import random
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import kill_pretraining
import kill_pretraining_data
import smoke

COMMANDS = ("run_classifier", "run_ner", "run_squad")
# Endings of the files whose bytes do not depend on times and paths.
COMPARED = (
    ".safetensors",
    ".tsv",
    "predictions.json",
    "predictions_dev.txt",
    "predictions_test.txt",
    "null_odds.json",
    "_results.txt",
)


def result(folder: pathlib.Path) -> dict[str, str]:
    """Returns the hashes of the files of a run that must be equal."""
    return {
        name: found
        for name, found in kill_pretraining_data.hashes(folder).items()
        if name.endswith(COMPARED)
    }


def start(options, folder: pathlib.Path) -> int:
    """Forks a run, with its messages in a file beside the folder."""
    runner = importlib.import_module(options.command)
    flags = [f"--output_dir={folder}", *options.flags.split()]
    return kill_pretraining.fork(runner, flags, f"{folder}.log")


def trial(options, folder, rng, work, expected) -> tuple[int, str, str]:
    """Kills and restarts the command in a folder; see kill_pretraining."""
    kills, code = 0, None
    while code is None:
        is_last = kills and rng.random() < 0.5
        seconds = None if is_last else rng.uniform(0, work)
        code = kill_pretraining.wait(start(options, folder), seconds)
        kills += code is None
    if code == 0 and result(folder) == expected:
        return kills, options.command, "same files"
    return kills, options.command, f"{folder} (exit code {code})"


def main() -> int:
    """Runs the trials; returns the exit code."""
    parser = kill_pretraining_data.make_parser(
        __doc__.splitlines()[0], kills=70
    )
    parser.add_argument("--command", choices=COMMANDS, required=True)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="kills-"))
    begin = time.monotonic()
    if kill_pretraining.wait(start(options, scratch / "undisturbed")):
        sys.exit((scratch / "undisturbed.log").read_text())
    work = time.monotonic() - begin
    expected = result(scratch / "undisturbed")
    print(
        f"An undisturbed run takes {work:.1f} s; compared are "
        f"{', '.join(expected)}",
        flush=True,
    )
    return kill_pretraining_data.run_trials(
        trial, options, rng, scratch, work=work, expected=expected
    )


def _make_encoder(folder: pathlib.Path) -> None:
    """Makes it in a fork: TensorFlow must not work before later forks."""
    pid = os.fork()
    if not pid:
        smoke.encoder(folder)
        os._exit(0)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    with smoke.flags(
        {
            "command": "run_classifier",
            "kills": 1,
            "flags": "--task_name=SST-2 --data_dir=DATA/glue/SST-2 "
            "--init_checkpoint=DATA/model --do_train --do_eval --do_predict "
            "--learning_rate=1e-3,1e-4 --train_batch_size=8 "
            "--num_train_epochs=1 --max_seq_length=32 "
            "--save_checkpoints_steps=2",
        },
        _make_encoder,
    ):
        sys.exit(main())
