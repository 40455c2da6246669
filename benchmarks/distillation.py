r"""Compares a student of three layers with and without its teacher.

    python benchmarks/distillation.py --glue_dir=glue \
        --init_checkpoint=MODEL_DIR --output_dir=distilled --num_seeds=3

run_classifier.py trains, for each task and seed,

    teacher   the complete model
    alone     some layers of --init_checkpoint, without a teacher
    copied    the same layers of the teacher of this seed, with labels only
    taught    the same layers, with the teacher's outputs as targets, too

Prints the metrics of the development set and the seconds of each run, and the
means of each form. A run that has its results is not repeated.
"""

import collections
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import smoke

from foundation import config_flags

field = config_flags.field
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
_METRICS = ("eval_accuracy", "eval_f1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The flags of this benchmark."""

    glue_dir: str = field("Directory with a folder of each task.")
    init_checkpoint: str = field("The pre-trained model.")
    output_dir: str = field("Directory of the runs.")
    tasks: str = field("Tasks of GLUE.", "MRPC,SST-2")
    forms: str = field(
        "What is run; the last two need the first.",
        "teacher,alone,copied,taught",
    )
    layers: str = field("The student's layers, from 0.", "0,2,4")
    num_seeds: int = field("Runs of each form.", 3, at_least=1)
    temperature: float = field("See run_classifier.py.", 2.0, above=0)
    weight: float = field("See run_classifier.py.", 0.5, at_least=0, at_most=1)
    max_seq_length: int = field("Tokens of a sequence.", 128, at_least=8)
    train_batch_size: int = field("Examples of a step.", 32, at_least=1)
    num_train_epochs: float = field("Epochs.", 3.0, above=0)
    learning_rate: float = field("Peak learning rate.", 5e-5, above=0)


def run(config: Config, task: str, form: str, seed: int) -> dict[str, float]:
    """Trains one form with one seed; returns its metrics and the seconds."""
    folder = os.path.join(config.output_dir, task, f"{form}_{seed}")
    teacher = os.path.join(config.output_dir, task, f"teacher_{seed}")
    command = [
        sys.executable,
        os.path.join(ROOT, "run_classifier.py"),
        "--do_train",
        "--do_eval",
        f"--task_name={task}",
        f"--data_dir={os.path.join(config.glue_dir, task)}",
        f"--output_dir={folder}",
        f"--max_seq_length={config.max_seq_length}",
        f"--train_batch_size={config.train_batch_size}",
        f"--num_train_epochs={config.num_train_epochs}",
        f"--learning_rate={config.learning_rate}",
        f"--random_seed={seed}",
        "--keep_optimizer=false",
    ]
    start = config.init_checkpoint if form in ("teacher", "alone") else teacher
    command.append(f"--init_checkpoint={start}")
    if form != "teacher":
        command.append(f"--init_layers={config.layers}")
    if form == "taught":
        command.append(f"--teacher_dir={teacher}")
        command.append(f"--distillation_temperature={config.temperature}")
        command.append(f"--distillation_weight={config.weight}")
    path = os.path.join(folder, "eval_results.json")
    begun = time.monotonic()
    if not os.path.exists(path):
        subprocess.run(command, check=True)
    with open(path) as file:
        found = json.load(file)
    metrics = {name: found[name] for name in _METRICS if name in found}
    return metrics | {"seconds": time.monotonic() - begun}


def main(config: Config) -> None:
    """Runs all forms of all tasks, seed by seed."""
    forms = config.forms.split(",")
    for task in config.tasks.split(","):
        scores = collections.defaultdict(list)
        for seed in range(1, config.num_seeds + 1):
            for form in forms:
                found = run(config, task, form, seed)
                shown = ", ".join(f"{k} {x:.4g}" for k, x in found.items())
                print(f"{task}, {form}, seed {seed}: {shown}", flush=True)
                for name in _METRICS:
                    if name in found:
                        scores[form, name].append(found[name])
        for (form, name), values in scores.items():
            mean, all_values = statistics.mean(values), sorted(values)
            print(
                f"{task}, {form}: {name} {100 * mean:.1f} "
                f"({100 * all_values[0]:.1f} to {100 * all_values[-1]:.1f}, "
                f"{len(values)} seeds)",
                flush=True,
            )


if __name__ == "__main__":
    with smoke.flags(
        {
            "glue_dir": "DATA/glue",
            "init_checkpoint": "DATA/model",
            "output_dir": "DATA/distilled",
            "tasks": "MRPC",
            "forms": "teacher,taught",
            "layers": "0",
            "num_seeds": 1,
            "max_seq_length": 16,
            "train_batch_size": 2,
            "num_train_epochs": 0.5,
        },
        smoke.encoder,
    ):
        config_flags.run(Config, main)
