r"""Compares the scores of a sentence task over seeds with transformers.

    python benchmarks/finetuning_scores.py --task_name=MRPC --data_dir=MRPC \
        --init_checkpoint=MODEL_DIR --peer_python=/path/to/python/with/torch \
        --output_dir=scores

Both sides train with the same tokens, batch size, epochs, peak learning rate,
warm-up and linear decay, in batches of similar length: ours as
google-research/bert (AdamW without bias correction), the peer as transformers'
run_glue.py. The same functions compute the scores of both on the development
set. If it was interrupted, the same command continues with the next seed.
Exits with code 1 if the means differ by more than three standard errors.
"""

import dataclasses
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import comparison
import examples
import numpy as np
import smoke

from foundation import config_flags

field = config_flags.field
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(comparison.ScoreComparison):
    """The flags of this comparison."""

    task_name: str = field("Name of a GLUE task.")
    data_dir: str = field("Directory of the task's files.")
    train_file: str | None = field("Another training file.", None)
    dev_file: str | None = field("Another development file.", None)
    num_peer_seeds: int | None = field(
        "Runs of the peer; None is --num_seeds.", None
    )
    peer_seed: int = field("Set by the script itself.", 0)


def ours(config: Config) -> list[dict[str, float]]:
    """Runs run_classifier.py with all seeds; returns the scores of each."""
    folder = os.path.join(config.output_dir, "ours")
    flags = config.our_flags(
        "task_name",
        "data_dir",
        "train_file",
        "dev_file",
        "num_seeds",
        output_dir=folder,
        random_seed=1,
        eval_batch_size=32,
    )
    command = [sys.executable, os.path.join(ROOT, "run_classifier.py"), *flags]
    command += ["--do_train", "--do_eval"]
    subprocess.run(command, check=True)
    name = "grid_results.json" if config.num_seeds > 1 else "eval_results.json"
    with open(os.path.join(folder, name)) as file:
        found = json.load(file)
    if config.num_seeds > 1:
        return found["runs"]
    return [{k.removeprefix("eval_"): value for k, value in found.items()}]


def peer(config: Config) -> list[dict[str, float]]:
    """Runs the peer with all seeds; returns the scores of each."""
    from tasks.classification import objective

    folder = os.path.join(config.output_dir, "peer")
    os.makedirs(folder, exist_ok=True)
    task = examples.open_sentence_task(
        config.task_name, config.data_dir, config.train_file, config.dev_file
    )
    for name, split in (("train", "train"), ("dev", task.dev_splits[0])):
        path = os.path.join(folder, f"{name}.npz")
        examples.tokenize_sentence_task(
            path, task, split, config.init_checkpoint
        )
    truth = task.label_ids(task.dev_splits[0])
    scores = []
    for seed in range(1, (config.num_peer_seeds or config.num_seeds) + 1):
        path = os.path.join(folder, f"logits{seed}.npy")
        if not os.path.exists(path):
            command = comparison.command(
                __file__,
                config,
                config.peer_python,
                peer_seed=seed,
                precision=comparison.resolve_precision(config.precision),
            )
            subprocess.run(command, check=True)
        logits = np.load(path)
        scores.append(
            objective.evaluate(
                task.kind,
                task.metrics,
                logits,
                truth,
                selected_by=task.selected_by,
            )
        )
    return scores


def train_peer(config: Config) -> None:
    """Fine-tunes transformers' classifier and writes its logits."""
    import torch
    import torch_peer
    import transformers

    folder = os.path.join(config.output_dir, "peer")
    train, dev = (
        examples.read(os.path.join(folder, f"{name}.npz"))
        for name in ("train", "dev")
    )
    transformers.set_seed(config.peer_seed)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        config.init_checkpoint, num_labels=int(train["classes"])
    ).float()

    def batch(part, rows) -> dict:
        return torch_peer.tensors(examples.padded(part, rows))

    torch_peer.fit(
        model,
        lambda rows: batch(train, rows),
        np.diff(train["row_splits"]),
        batch_size=config.train_batch_size,
        epochs=config.num_train_epochs,
        learning_rate=config.learning_rate,
        seed=config.peer_seed,
        schedule_name=config.peer_schedule,
        precision=config.precision,
    )
    model.eval()
    order = np.argsort(np.diff(dev["row_splits"]), kind="stable")
    logits = np.zeros((len(order), int(train["classes"])), np.float32)
    with torch.inference_mode(), torch_peer.autocast(config.precision):
        for start in range(0, len(order), 32):
            rows = order[start : start + 32]
            inputs = batch(dev, rows)
            inputs.pop("labels")
            logits[rows] = model(**inputs).logits.float().numpy()
    path = os.path.join(folder, f"logits{config.peer_seed}.npy")
    np.save(path, logits)


def main(config: Config) -> None:
    """Prints mean, standard deviation and difference of every metric."""
    if config.peer_seed:
        return train_peer(config)
    config.check_recipe()
    sides = {"ours": ours(config)}
    if config.peer_python:
        sides["peer"] = peer(config)
    names = set.intersection(*(set(runs[0]) for runs in sides.values()))
    is_far = {
        name: comparison.compare_scores(
            f"{config.task_name} {name}",
            {side: [x[name] for x in runs] for side, runs in sides.items()},
        )
        for name in sorted(names - {"learning_rate", "random_seed"})
    }
    sys.exit(1 if is_far["score"] else 0)


if __name__ == "__main__":
    with smoke.flags(
        {
            "task_name": "MRPC",
            "data_dir": "DATA/glue/MRPC",
            "init_checkpoint": "DATA/model",
            "output_dir": "DATA/scores",
            "num_seeds": 1,
            "num_train_epochs": 1,
        },
        smoke.encoder,
    ):
        config_flags.run(Config, main)
