r"""Measures what is reached in one hour, from raw text to fine-tuned scores.

    python benchmarks/one_hour.py --corpus=books.txt --glue_dir=glue \
        --output_dir=hour --peer_python=/path/to/python/with/torch

The clock starts with raw text: vocabulary, records, pre-training and
fine-tuning on six sentence tasks must all end within --minutes. The score is
the mean of the tasks' main metrics on the development sets; a task that has not
ended in time counts as 0. Pre-training gets the time that the other steps
leave, and its learning rate falls to 0 at the end of this time.

The peer is transformers with its own tokenizer library, data collator and
Trainer, on the same text with a vocabulary of the same size. Its fine-tuning is
slower and gets more of the hour, and it makes fewer steps of pre-training, so
that the same number of warm-up steps is a larger fraction. The sides take
turns, one seed each. --glue_dir holds MNLI, QNLI, SST-2, MRPC, CoLA and STS-B;
training sets may be cut to their first rows.

Each turn ends with OUTPUT_DIR/SIDE_seedN/scores.json. The same command goes on
with the next turn; a turn that was interrupted begins again.
"""

import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from typing import Literal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import comparison
import examples
import smoke

from foundation import atomic, config_flags, errors, file_system, metadata

field = config_flags.field
_MAX_STEPS = 1_000_000  # More than any time allows.
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
PEER = os.path.join(ROOT, "benchmarks", "one_hour_peer.py")
# Flags that the peer has the same value of, unless it is given another one.
_SEPARATE = ("num_layers", "hidden_size", "num_heads", "masked_lm_prob")
TASKS = {
    "SST-2": "accuracy",
    "MRPC": "f1",
    "STS-B": "spearman",
    "CoLA": "matthews_correlation",
    "QNLI": "accuracy",
    "MNLI": "accuracy",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The flags of this measurement; the recipe is that of our side."""

    corpus: str = field("Text, one sentence a line.")
    held_out_corpus: str | None = field(
        "Other text, on which our pre-training is evaluated, within its time.",
        None,
    )
    glue_dir: str = field("Directory of the six tasks.")
    output_dir: str = field("Directory of all runs.")
    tasks: str = field("Of the six, separated by commas.", ",".join(TASKS))
    peer_python: str | None = field(comparison.PEER_PYTHON, None)
    minutes: float = field("The time for everything.", 60.0)
    finetuning_minutes: float = field("Of these, for our fine-tuning.", 12.0)
    peer_finetuning_minutes: float = field("For the peer's.", 14.5)
    num_seeds: int = field("Turns of each side.", 2)
    first_seed: int = field("Of the first turn of each side.", 1)
    vocab_size: int = field("Of both sides.", 8192)
    num_layers: int = field("Of both sides.", 4)
    hidden_size: int = field("Of both sides.", 256)
    num_heads: int = field("Of both sides.", 4)
    peer_num_layers: int | None = field("If it has another number.", None)
    peer_hidden_size: int | None = field("If it has another size.", None)
    peer_num_heads: int | None = field("If it has another number.", None)
    max_seq_length: int = field("In pre-training, of both sides.", 64)
    train_batch_size: int = field("In pre-training, of both sides.", 64)
    learning_rate: float = field("In pre-training.", 1e-3)
    peer_learning_rate: float = field("In the peer's pre-training.", 1e-3)
    objective: Literal[
        "masked_lm_and_next_sentence", "masked_lm", "left_to_right"
    ] = field("Of our side.", "masked_lm_and_next_sentence")
    next_sentence_loss_weight: float = field("Of our side.", 0.1)
    masked_lm_prob: float = field("Fraction of predicted tokens.", 0.15)
    peer_masked_lm_prob: float | None = field("If it has another.", None)
    mask_token_prob: float = field("Of these, [MASK] on our side.", 0.8)
    random_token_prob: float = field("Of these, random on our side.", 0.1)
    initializer_range: float = field("Of both sides.", 0.036)
    dropout: float = field("Of both sides.", 0.0)
    left_to_right_fraction: float = field(
        "Of the time of our pre-training: a left-to-right phase comes first.",
        0.2,
        at_least=0,
        below=1,
    )
    warmup_fraction: float = field("Of the time of pre-training.", 0.1)
    peer_warmup_fraction: float = field("In the peer's pre-training.", 0.3)
    finetuning_learning_rate: float = field("Of our side.", 1e-4)
    peer_finetuning_learning_rate: float = field("Of the peer.", 3e-4)
    num_train_epochs: float = field("Of fine-tuning, both sides.", 3.0)
    sst2_epochs: float = field("Of SST-2, which has most examples.", 1.0)
    pretraining_flags: str = field(
        "More flags of run_pretraining.py, separated by spaces.",
        "--mask_schedule=0.30:0.15",
    )
    finetuning_flags: str = field(
        "More flags of run_classifier.py, separated by spaces.", ""
    )
    precision: str = field("Of our side; auto as in the commands.", "auto")
    peer_precision: str = field("Of the peer; auto as in the commands.", "auto")
    peer_compile: bool = field("Whether the peer takes torch.compile.", False)


class Clock:
    """The time of one side; prints how long each step took."""

    def __init__(self, minutes: float):
        """Starts."""
        self._began = time.monotonic()
        self._seconds = 60 * minutes

    def left(self) -> float:
        """Returns the seconds that are left."""
        return self._began + self._seconds - time.monotonic()

    def run(self, title: str, command: list[str]) -> None:
        """Runs one step, whose own messages go to standard error.

        Raises:
          InputError: the step failed.
        """
        before = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.DEVNULL)
        if done.returncode:
            raise errors.InputError(
                f"{title} failed with exit code {done.returncode}; the same "
                "command starts this turn again"
            )
        seconds = time.monotonic() - before
        print(
            f"  {title}: {seconds:.0f} s, {self.left():.0f} s left", flush=True
        )


def ours(config: Config, folder: str, seed: int) -> dict[str, float]:
    """Runs all steps of this project; returns task -> metric."""
    clock = Clock(config.minutes)
    vocab = os.path.join(folder, "vocab.txt")
    clock.run(
        "vocabulary",
        _command(
            "create_vocabulary",
            input_file=config.corpus,
            output_file=vocab,
            vocab_size=config.vocab_size,
        ),
    )
    predictions = round(config.max_seq_length * config.masked_lm_prob)
    shards = os.path.join(folder, "shards")
    records = {
        "vocab_file": vocab,
        "max_seq_length": config.max_seq_length,
        "max_predictions_per_seq": predictions,
        "masked_lm_prob": config.masked_lm_prob,
        "mask_token_prob": config.mask_token_prob,
        "random_token_prob": config.random_token_prob,
        "dupe_factor": 1,
        "random_seed": seed,
    }
    for name, text in (
        ("part", config.corpus),
        ("heldout", config.held_out_corpus),
    ):
        if text is not None:
            command = _command(
                "create_pretraining_data",
                input_file=text,
                output_prefix=os.path.join(shards, name),
                num_shards=8 if name == "part" else 1,
                **records,
            )
            clock.run("records", command)
    evaluation = {}
    if config.held_out_corpus is not None:
        evaluation = {
            "eval_file": os.path.join(shards, "heldout-*"),
            "eval_batch_size": 64,
            "eval_every_steps": 1000,
            "max_eval_steps": 0,
        }
    path = os.path.join(folder, "bert_config.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(_bert_config(config), file)
    pretrained = os.path.join(folder, "pretrained")
    # A turn that is late by now ends with scores of 0.
    seconds = max(1.0, clock.left() - 60 * config.finetuning_minutes)
    pairs = {}
    if config.objective == "masked_lm_and_next_sentence":
        pairs["next_sentence_loss_weight"] = config.next_sentence_loss_weight
    # With --max_train_hours, steps are fractions of the time.
    causal = round(config.left_to_right_fraction * _MAX_STEPS)
    if causal:
        length = config.max_seq_length
        rest = f"{length}:{_MAX_STEPS - causal}"
        phases = {"phases": f"{length}:{causal}:left_to_right,{rest}"}
    else:
        phases = {
            "max_seq_length": config.max_seq_length,
            "max_predictions_per_seq": predictions,
            "num_train_steps": _MAX_STEPS,
        }
    command = _command(
        "run_pretraining",
        bert_config_file=path,
        input_file=os.path.join(shards, "part-*"),
        output_dir=pretrained,
        do_train=True,
        objective=config.objective,
        train_batch_size=config.train_batch_size,
        learning_rate=config.learning_rate,
        num_warmup_steps=round(config.warmup_fraction * _MAX_STEPS),
        max_train_hours=seconds / 3600,
        random_seed=seed,
        precision=config.precision,
        **phases,
        **pairs,
        **evaluation,
    )
    clock.run("pre-training", command + config.pretraining_flags.split())
    with open(os.path.join(pretrained, "metrics.jsonl")) as file:
        _print_steps(config, max(json.loads(line)["step"] for line in file))
    scores = {}
    for task, metric in _metrics(config).items():
        output_dir = os.path.join(folder, task)
        command = _command(
            "run_classifier",
            task_name=task,
            data_dir=os.path.join(config.glue_dir, task),
            init_checkpoint=pretrained,
            output_dir=output_dir,
            do_train=True,
            do_eval=True,
            max_seq_length=config.max_seq_length,
            learning_rate=config.finetuning_learning_rate,
            num_train_epochs=_epochs(config)[task],
            eval_batch_size=32,
            random_seed=seed,
            precision=config.precision,
        )
        clock.run(task, command + config.finetuning_flags.split())
        with open(os.path.join(output_dir, "eval_results.json")) as file:
            value = json.load(file)[f"eval_{metric}"]
        scores[task] = value if clock.left() >= 0 else 0.0
    return scores


def peer(config: Config, folder: str, seed: int) -> dict[str, float]:
    """Runs all steps of transformers; returns task -> metric."""
    import numpy as np

    data = os.path.join(config.output_dir, "tasks")
    tasks = {
        task: examples.open_sentence_task(
            task, os.path.join(config.glue_dir, task)
        )
        for task in _metrics(config)
    }
    for name, task in tasks.items():  # Not counted: both read the same rows.
        for split in ("train", task.dev_splits[0]):
            _write_rows(task, split, os.path.join(data, f"{name}.{split}.json"))
    clock = Clock(config.minutes)
    flags = dataclasses.asdict(config)
    for name in _SEPARATE:
        flags[name] = flags[f"peer_{name}"] or flags[name]
    flags |= {
        "seed": seed,
        "data": data,
        "folder": folder,
        "precision": comparison.resolve_precision(config.peer_precision),
        "epochs": _epochs(config),
        "classes": {
            name: len(task.labels) or 1 for name, task in tasks.items()
        },
        "dev": {name: task.dev_splits[0] for name, task in tasks.items()},
    }
    clock.run("everything", [config.peer_python, PEER, json.dumps(flags)])
    with open(os.path.join(folder, "steps.json"), encoding="utf-8") as file:
        _print_steps(config, json.load(file))
    scores = {}
    for name, metric in _metrics(config).items():
        task = tasks[name]
        found = np.load(os.path.join(folder, f"{name}.npz"))
        values = task.metrics_of(
            found["logits"], task.label_ids(task.dev_splits[0])
        )
        is_late = found["seconds"] > 60 * config.minutes
        scores[name] = 0.0 if is_late else values[metric]
    return scores


def _metrics(config: Config) -> dict[str, str]:
    """Returns task -> main metric of the tasks that are measured."""
    return {task: TASKS[task] for task in config.tasks.split(",")}


def _epochs(config: Config) -> dict[str, float]:
    """Returns task -> epochs of fine-tuning."""
    others = dict.fromkeys(TASKS, config.num_train_epochs)
    return others | {"SST-2": config.sst2_epochs}


def _print_steps(config: Config, steps: int) -> None:
    sequences = steps * config.train_batch_size
    print(f"  pre-trained for {steps:,} steps, {sequences:,} sequences")


def measure_once(config: Config, side: str, seed: int) -> dict[str, float]:
    """Returns task -> metric of one turn, which may have ended before.

    Raises:
      InputError: the turn has ended with another recipe.
    """
    folder = os.path.join(config.output_dir, f"{side}_seed{seed}")
    path = os.path.join(folder, "scores.json")
    recipe = dataclasses.asdict(config)
    for name in ("output_dir", "peer_python", "num_seeds", "first_seed"):
        del recipe[name]
    if side == "ours":  # Another setting of the peer changes nothing here.
        recipe = {k: v for k, v in recipe.items() if not k.startswith("peer_")}
    found = metadata.read_if_present(path, metadata.Object) or {}
    if not found:
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        scores = {"ours": ours, "peer": peer}[side](config, folder, seed)
        found = {"recipe": recipe, "scores": scores}
        atomic.write_json(path, found)
    comparison.refuse_other_recipe(path, found["recipe"], recipe)
    return found["scores"]


def _write_rows(task, split: str, path: str) -> None:
    """Writes a split as JSON: texts, pairs and label ids."""
    rows = list(task.read(split))
    file_system.make_folder(os.path.dirname(path))
    pairs = [example.second[0] for example in rows if example.second]
    atomic.write_json(
        path,
        {
            "text": [example.first for example in rows],
            "text_pair": pairs or None,
            "labels": task.label_ids(split)[:, 0].tolist(),
        },
    )


def _bert_config(config: Config) -> dict[str, object]:
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": 4 * config.hidden_size,
        "hidden_act": "gelu",
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.dropout,
        "max_position_embeddings": max(128, config.max_seq_length),
        "type_vocab_size": 2,
        "initializer_range": config.initializer_range,
    }


def _command(program: str, **flags: object) -> list[str]:
    script = os.path.join(ROOT, f"{program}.py")
    return [sys.executable, script, *(f"--{k}={v}" for k, v in flags.items())]


def main(config: Config) -> None:
    """Prints the scores of each seed, and the means of both sides."""
    unknown = {*config.tasks.split(",")} - {*TASKS}
    if unknown:
        raise errors.InputError(
            f"--tasks={config.tasks}: {', '.join(sorted(unknown))} is not of "
            f"{', '.join(TASKS)}"
        )
    sides = ["ours", "peer"] if config.peer_python else ["ours"]
    means: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(config.num_seeds):
        seed = config.first_seed + turn
        for side in sides:
            print(f"{side}, seed {seed}", flush=True)
            scores = measure_once(config, side, seed)
            means[side].append(statistics.fmean(scores.values()))
            shown = "  ".join(f"{k} {v:.3f}" for k, v in scores.items())
            print(f"  {shown}  mean {means[side][-1]:.4f}", flush=True)
    comparison.compare_scores(
        f"mean score in {config.minutes:g} minutes", means
    )


if __name__ == "__main__":
    with smoke.flags(
        {
            "corpus": "DATA/corpus.txt",
            "held_out_corpus": "DATA/corpus.txt",
            "glue_dir": "DATA/glue",
            "output_dir": "DATA/hour",
            "tasks": "MRPC",
            "num_seeds": 1,
            "minutes": 1.2,
            "finetuning_minutes": 0.9,
            "vocab_size": 160,
            "num_layers": 2,
            "hidden_size": 16,
            "num_heads": 2,
            "max_seq_length": 32,
            "train_batch_size": 4,
            "num_train_epochs": 1,
        }
    ):
        config_flags.run(Config, main)
