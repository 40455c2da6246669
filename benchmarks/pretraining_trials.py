r"""Compares recipes of pre-training at equal processor time on one core.

    taskset -c 1 python benchmarks/pretraining_trials.py \
        --corpus=train.txt --held_out_corpus=heldout.txt \
        --output_dir=trials --recipe=today --seed=1

A trial trains for --minutes of processor time: some steps of the recipe are
timed first, which gives the number of its steps. So the result depends little
on what else the machine does; the table has the minutes that the steps took.
All recipes have --num_warmup_steps steps of warm-up and a learning rate that
falls to 0, and are evaluated on the same records with 15 % masks. A recipe
loses if its loss is 0.03 higher than today's.

    today     BERT-Mini, length 64, batches of 64
    layers6   6 layers of 384 units; layers8 has 8
    masks     masks drawn again, for 30 % of the tokens, falling to 15 %
    redrawn   masks drawn again, for 15 % of the tokens
    beta2     Adam's beta_2 0.98 and a weight decay of 0.1
    lengths   half of the time with records of 32 tokens, half of 64
    causal    a left-to-right language model for a fifth of the time
    both      causal, then masks
    phases    the same two phases as causal, in one run
    winner    the same two phases as both, in one run
    stacked   two layers for a third of the time, then these twice
    batches   batches of 32, 64 and 128, each for a third of the time
    z_loss    with the loss of z_loss_pretraining.py

`causal`, `both`, `stacked` and `batches` are several runs, each of which starts
from the model of the one before, without its optimizer. All but the last keep
the learning rate at its peak; all but the first have a tenth of the steps of
warm-up.

The same command continues a trial that was interrupted, and prints the results
of all trials in --output_dir.
"""

import dataclasses
import glob
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import comparison
import smoke

from foundation import atomic, config_flags, errors, file_system, metadata

field = config_flags.field
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
_PREDICTED = 0.15  # Of the tokens of stored records.
# Steps of the run that times a step. Its first half compiles parts of the step.
_TIMED = 400
_STEP = re.compile(r" step ([\d,]+) of ")
_FIRST_STEP = re.compile(r" parameters, steps ([\d,]+) to ")


class Part(NamedTuple):
    """A phase of a run.

    Attributes:
      fraction: of the run's processor time.
      length: of the records, as a fraction of --max_seq_length.
      left_to_right: whether it is a left-to-right phase.
    """

    fraction: float = 1.0
    length: float = 1.0
    left_to_right: bool = False


class Stage(NamedTuple):
    """A run of a trial, and what differs from today's recipe.

    Attributes:
      fraction: its part of the processor time.
      model: values of bert_config.json.
      flags: flags of run_pretraining.py.
      script: the program that trains; its flags are run_pretraining.py's.
      parts: the phases of this run.
    """

    fraction: float = 1.0
    model: Mapping[str, int] = {}
    flags: Mapping[str, Any] = {}
    script: str = "run_pretraining.py"
    parts: Sequence[Part] = (Part(),)


def _model(num_hidden_layers: int, hidden_size: int) -> dict[str, int]:
    return {
        "num_hidden_layers": num_hidden_layers,
        "hidden_size": hidden_size,
        "num_attention_heads": hidden_size // 64,
        "intermediate_size": 4 * hidden_size,
    }


_CAUSAL_FIRST = [Part(0.2, left_to_right=True), Part(0.8)]
RECIPES = {
    "today": [Stage()],
    "layers6": [Stage(model=_model(6, 384))],
    "layers8": [Stage(model=_model(8, 384))],
    "masks": [Stage(flags={"mask_schedule": "0.30:0.15"})],
    "redrawn": [Stage(flags={"mask_schedule": "0.15"})],
    "beta2": [Stage(flags={"adam_beta_2": 0.98, "weight_decay_rate": 0.1})],
    "lengths": [Stage(parts=[Part(0.5, 0.5), Part(0.5)])],
    "causal": [Stage(0.2, flags={"objective": "left_to_right"}), Stage(0.8)],
    "both": [
        Stage(0.2, flags={"objective": "left_to_right"}),
        Stage(0.8, flags={"mask_schedule": "0.30:0.15"}),
    ],
    "phases": [Stage(parts=_CAUSAL_FIRST)],
    "winner": [
        Stage(flags={"mask_schedule": "0.30:0.15"}, parts=_CAUSAL_FIRST)
    ],
    "stacked": [Stage(1 / 3, model={"num_hidden_layers": 2}), Stage(2 / 3)],
    "batches": [
        Stage(1 / 3, flags={"train_batch_size": size}) for size in (32, 64, 128)
    ],
    "z_loss": [Stage(script="benchmarks/z_loss_pretraining.py")],
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The flags of this measurement."""

    corpus: str = field("Text, one sentence a line.")
    held_out_corpus: str = field("Other text, to evaluate on.")
    output_dir: str = field("Directory of the records and of all trials.")
    recipe: str = field("What to train.", "today")
    seed: int = field("Of the training.", 1)
    minutes: float = field("Of processor time in training.", 45.0, above=0)
    vocab_size: int = field("Of the vocabulary.", 8192)
    max_seq_length: int = field("Of the records.", 64)
    train_batch_size: int = field("Sequences in a step.", 64)
    learning_rate: float = field("At its peak.", 1e-3)
    num_warmup_steps: int = field("Of all recipes.", 1000)
    precision: str = field("auto as in the commands.", "auto")

    def __post_init__(self):
        """Refuses an unknown recipe."""
        if self.recipe not in RECIPES:
            raise ValueError(
                f"--recipe={self.recipe}: must be one of {', '.join(RECIPES)}"
            )


def _run(program: str, **flags: Any) -> float:
    """Runs one of our commands; see comparison.run."""
    script = os.path.join(ROOT, f"{program}.py")
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    return comparison.run([sys.executable, script, *arguments])


def _pretrain(stage: Stage, **flags: Any) -> list[tuple[int, float]]:
    """Runs the program of a stage.

    Returns:
      Steps that the run logs, the one before its first step at first, and the
      processor seconds that its process had used; [] if it has no steps to
      train.

    Raises:
      InputError: it failed.
    """
    script = os.path.join(ROOT, stage.script)
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    points = []
    with subprocess.Popen(
        [sys.executable, script, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        for line in process.stderr or ():
            sys.stderr.write(line)
            seconds = _processor_seconds(process.pid)
            if match := _FIRST_STEP.search(line):
                points.append((_number(match) - 1, seconds))
            elif match := _STEP.search(line):
                points.append((_number(match), seconds))
    if process.returncode:
        raise errors.InputError(
            f"{stage.script} failed with exit code {process.returncode}; the "
            "same command continues"
        )
    return points


def _number(match: re.Match[str]) -> int:
    return int(match[1].replace(",", ""))


def _seconds_per_step(points: Sequence[tuple[int, float]]) -> float:
    """Returns the seconds of a step in the second half of the points.

    The first half has the start and the compilation. A run of two points has
    no other.
    """
    middle = points[len(points) // 2 if len(points) > 3 else 0]
    steps, seconds = (b - a for a, b in zip(middle, points[-1], strict=True))
    return seconds / steps


def _processor_seconds(pid: int) -> float:
    """Returns the processor time of a process that runs, on Linux."""
    with open(f"/proc/{pid}/stat") as file:
        values = file.read().rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


def make_records(config: Config) -> None:
    """Makes the records of both lengths, which all trials read, once."""
    vocabulary = os.path.join(config.output_dir, "vocab.txt")
    if not os.path.exists(vocabulary):
        _run(
            "create_vocabulary",
            input_file=config.corpus,
            output_file=vocabulary,
            vocab_size=config.vocab_size,
        )
    for length in (config.max_seq_length // 2, config.max_seq_length):
        for name, text in (
            ("train", config.corpus),
            ("heldout", config.held_out_corpus),
        ):
            _run(
                "create_pretraining_data",
                input_file=text,
                vocab_file=vocabulary,
                output_prefix=os.path.join(
                    config.output_dir, str(length), name
                ),
                num_shards=4 if name == "train" else 1,
                max_seq_length=length,
                max_predictions_per_seq=round(length * _PREDICTED),
                masked_lm_prob=_PREDICTED,
                dupe_factor=1,
            )


def _training_flags(config: Config, stage: Stage, folder: str) -> dict:
    """Returns the flags of run_pretraining.py without phases and output."""
    with open(os.path.join(ROOT, "configs", "mini_cpu.json")) as file:
        model = json.load(file) | {"vocab_size": config.vocab_size}
    model |= stage.model
    # The rule of docs/pretraining.md, as in the file.
    model["initializer_range"] = 0.57 / math.sqrt(model["hidden_size"])
    path = os.path.join(folder, "bert_config.json")
    file_system.make_folder(folder)
    atomic.write_json(path, model)
    shards = os.path.join(config.output_dir, "*")
    flags = {
        "bert_config_file": path,
        "input_file": os.path.join(shards, "train-*.tfrecord"),
        "eval_file": os.path.join(shards, "heldout-*.tfrecord"),
        "train_batch_size": config.train_batch_size,
        "learning_rate": config.learning_rate,
        "precision": config.precision,
        "random_seed": config.seed,
        "do_train": True,
        **stage.flags,
    }
    if flags.get("objective") != "left_to_right":
        flags["next_sentence_loss_weight"] = 0.1
    return flags


def plan(config: Config, stage: Stage, folder: str, flags: dict) -> str:
    """Returns --phases, by the processor time of some steps of each length."""
    path = os.path.join(folder, "plan.json")
    known = metadata.read_if_present(path, metadata.Object)
    if known:
        return known["phases"]
    phases = []
    for part in stage.parts:
        length = round(part.length * config.max_seq_length)
        suffix, timed = "", flags
        if part.left_to_right:
            suffix = ":left_to_right"
            timed = {**flags, "objective": "left_to_right"}
            for name in ("next_sentence_loss_weight", "mask_schedule"):
                timed.pop(name, None)
        output_dir = os.path.join(
            folder, f"timed-{length}{suffix.replace(':', '-')}"
        )
        # Of a plan that was interrupted, it may have ended.
        shutil.rmtree(output_dir, ignore_errors=True)
        per_step = _seconds_per_step(
            _pretrain(
                stage,
                **timed,
                num_warmup_steps=config.num_warmup_steps,
                phases=f"{length}:{_TIMED}",
                output_dir=output_dir,
            )
        )
        minutes = config.minutes * stage.fraction * part.fraction
        steps = max(1, round(60 * minutes / per_step))
        phases.append(f"{length}:{steps}{suffix}")
        print(f"  length {length}: {per_step:.3f} s a step", flush=True)
    atomic.write_json(path, {"phases": ",".join(phases)})
    return ",".join(phases)


def _copy_model(model_dir: str, copy: str) -> None:
    """Copies the files of a model, without its checkpoints and reports."""
    os.makedirs(copy, exist_ok=True)
    for pattern in ("*.json", "*.txt", "*.safetensors"):
        for path in glob.glob(os.path.join(glob.escape(model_dir), pattern)):
            shutil.copy(path, copy)


def grow(model_dir: str, num_layers: int) -> None:
    """Repeats the layers of a model directory until there are so many."""
    from safetensors import numpy as safetensors

    path = os.path.join(model_dir, "model.safetensors")
    tensors = safetensors.load_file(path)
    layer = re.compile(r"(bert\.encoder\.layer\.)(\d+)(\..*)")
    matches = list(filter(None, map(layer.fullmatch, tensors)))
    count = 1 + max(int(match[2]) for match in matches)
    if count == num_layers:
        return
    for match in matches:
        for i in range(int(match[2]) + count, num_layers, count):
            tensors[f"{match[1]}{i}{match[3]}"] = tensors[match[0]].copy()
    for name in ("bert_config.json", "config.json"):
        config_path = os.path.join(model_dir, name)
        with open(config_path) as file:
            values = json.load(file)
        values["num_hidden_layers"] = num_layers
        atomic.write_json(config_path, values)
    with atomic.replacing(path) as temporary:
        safetensors.save_file(tensors, temporary, {"format": "pt"})


def train(config: Config, folder: str) -> tuple[str, list[str], float]:
    """Trains all stages.

    Returns:
      The last model's directory, the phases, and the minutes of processor time
      with the starts of the runs; NaN if one was interrupted.
    """
    stages, model_dir, all_phases = RECIPES[config.recipe], None, []
    minutes = 0.0
    for number, stage in enumerate(stages, 1):
        own = folder if len(stages) == 1 else os.path.join(folder, str(number))
        flags = _training_flags(config, stage, own)
        all_phases.append(plan(config, stage, own, flags))
        num_steps = sum(
            int(phase.split(":")[1]) for phase in all_phases[-1].split(",")
        )
        warmup = config.num_warmup_steps if number == 1 else num_steps // 10
        is_last = number == len(stages)
        flags |= {
            "num_warmup_steps": warmup,
            "phases": all_phases[-1],
            "output_dir": os.path.join(own, "pretrained"),
            "lr_decay": "linear" if is_last else "constant",
        }
        if model_dir is not None:
            # A copy: the run before would otherwise begin with a grown model.
            start = os.path.join(own, "start")
            if not os.path.isdir(start):
                _copy_model(model_dir, f"{start}.new")
                with open(flags["bert_config_file"]) as file:
                    grow(f"{start}.new", json.load(file)["num_hidden_layers"])
                os.rename(f"{start}.new", start)
            flags["init_checkpoint"] = start
        if is_last:
            flags |= {"do_eval": True, "eval_batch_size": 64}
            flags["max_eval_steps"] = 0
        points = _pretrain(stage, **flags)
        is_whole = bool(points) and points[0][0] == 0
        minutes += points[-1][1] / 60 if is_whole else math.nan
        model_dir = flags["output_dir"]
    return model_dir, all_phases, minutes


def measure(config: Config) -> dict[str, Any]:
    """Returns the result of one trial, which may have ended before.

    Raises:
      InputError: a command failed, or the trial has ended with other flags.
    """
    folder = os.path.join(
        config.output_dir, "trials", f"{config.recipe}-{config.seed}"
    )
    path = os.path.join(folder, "result.json")
    given = dataclasses.asdict(config)
    del given["output_dir"]
    found = metadata.read_if_present(path, metadata.Object) or {}
    if not found:
        make_records(config)
        output_dir, phases, minutes = train(config, folder)
        with open(os.path.join(output_dir, "eval_results.txt")) as file:
            values = dict(line.strip().split(" = ") for line in file)
        found = {
            "config": given,
            "phases": " then ".join(phases),
            "minutes": minutes,
            "loss": float(values["masked_lm_loss"]),
            "accuracy": float(values["masked_lm_accuracy"]),
        }
        atomic.write_json(path, found)
    comparison.refuse_other_recipe(path, found["config"], given)
    return found


def main(config: Config) -> None:
    """Runs a trial; prints a line for each trial that has ended."""
    print(f"{config.recipe}, seed {config.seed}", flush=True)
    measure(config)
    print(f"{'trial':12} {'held-out loss':>13} {'accuracy':>8}  phases")
    pattern = os.path.join(
        glob.escape(config.output_dir), "trials", "*", "result.json"
    )
    for path in sorted(glob.glob(pattern)):
        name = os.path.basename(os.path.dirname(path))
        found = metadata.read_if_present(path, metadata.Object)
        print(
            f"{name:12} {found['loss']:13.3f} {found['accuracy']:8.3f}  "
            f"{found['phases']}, {found['minutes']:.1f} minutes"
        )


if __name__ == "__main__":
    with smoke.flags(
        {
            "corpus": "DATA/corpus.txt",
            "held_out_corpus": "DATA/corpus.txt",
            "output_dir": "DATA/trials",
            "recipe": "winner",
            "minutes": 0.02,
            "vocab_size": 160,
            "max_seq_length": 32,
            "train_batch_size": 4,
            "num_warmup_steps": 2,
        }
    ):
        config_flags.run(Config, main)
