r"""Scores of a sentence task over several seeds, ours beside transformers'.

    python benchmarks/finetuning_scores.py --task_name=MRPC --data_dir=MRPC \
        --init_checkpoint=MODEL_DIR --peer_python=/path/to/python/with/torch \
        --output_dir=scores

Both train with the same pieces, batch size, epochs, peak rate, warm-up and
linear decay, in batches of similar length: ours as released (AdamW without
bias correction), the peer as transformers' run_glue does. The scores of both
are computed by the same functions on the development set. Interrupted and
started again, it goes on with the next seed. Exits with 1 if the means differ
by more than three standard errors.
"""

import dataclasses
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))


import example_arrays
import numpy as np
import seeds
import tokenized_task
import turns

from foundation import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(seeds.Contest):
    """What is compared."""

    task_name: str = field("Of GLUE.")
    data_dir: str = field("Folder of the task's files.")
    train_file: str | None = field("In place of the released name.", None)
    dev_file: str | None = field("In place of the released name.", None)
    num_peer_seeds: int | None = field("Runs of the peer, if others.", None)
    peer_seed: int = field("Used by itself.", 0)


def ours(config: Config) -> list[dict[str, float]]:
    """Runs run_classifier.py's grid of seeds; returns the scores of each."""
    import run_classifier

    folder = os.path.join(config.output_dir, "ours")
    flags = config.flags(
        "task_name",
        "data_dir",
        "train_file",
        "dev_file",
        "num_seeds",
        output_dir=folder,
        random_seed=1,
        eval_batch_size=32,
    )
    script = os.path.abspath(run_classifier.__file__)
    command = [sys.executable, script, "--do_train", "--do_eval", *flags]
    subprocess.run(command, check=True)
    name = "grid_results.json" if config.num_seeds > 1 else "eval_results.json"
    with open(os.path.join(folder, name)) as file:
        found = json.load(file)
    if config.num_seeds > 1:
        return found["runs"]
    return [{k.removeprefix("eval_"): value for k, value in found.items()}]


def peer(config: Config) -> list[dict[str, float]]:
    """Runs the peer with every seed; returns the scores of each."""
    from tasks.classification import objective

    folder = os.path.join(config.output_dir, "peer")
    os.makedirs(folder, exist_ok=True)
    task = tokenized_task.open_task(
        config.task_name, config.data_dir, config.train_file, config.dev_file
    )
    for name, split in (("train", "train"), ("dev", task.dev_splits[0])):
        path = os.path.join(folder, f"{name}.npz")
        tokenized_task.write(path, task, split, config.init_checkpoint)
    truth = task.label_ids(task.dev_splits[0])
    scores = []
    for seed in range(1, (config.num_peer_seeds or config.num_seeds) + 1):
        path = os.path.join(folder, f"logits{seed}.npy")
        if not os.path.exists(path):
            command = turns.command(
                __file__,
                config,
                config.peer_python,
                peer_seed=seed,
                precision=config.compute_dtype(),
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
        example_arrays.read(os.path.join(folder, f"{name}.npz"))
        for name in ("train", "dev")
    )
    transformers.set_seed(config.peer_seed)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        config.init_checkpoint, num_labels=int(train["classes"])
    ).float()

    def batch(part, rows) -> dict:
        return torch_peer.tensors(example_arrays.padded(part, rows))

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
    """Prints mean and deviation of every metric, and how far they differ."""
    if config.peer_seed:
        return train_peer(config)
    sides = {"ours": ours(config)}
    if config.peer_python:
        sides["peer"] = peer(config)
    names = set.intersection(*(set(runs[0]) for runs in sides.values()))
    far = {
        name: seeds.compare(
            f"{config.task_name} {name}",
            {side: [x[name] for x in runs] for side, runs in sides.items()},
        )
        for name in sorted(names - {"learning_rate", "random_seed"})
    }
    sys.exit(1 if far["score"] else 0)


if __name__ == "__main__":
    config_flags.run(Config, main)
