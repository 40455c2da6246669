"""Scores of a sentence task over several seeds, ours beside transformers'.

    python benchmarks/finetuning_scores.py --task_name=MRPC --data_dir=MRPC \
        --init_checkpoint=MODEL_DIR --peer_python=/path/to/python/with/torch \
        --output_dir=scores

Both train with the same pieces, batch size, epochs, peak rate, warm-up and
linear decay: ours as released (AdamW without bias correction, decay 0.01), the
peer as transformers' run_glue does (PyTorch's AdamW, random batches). The
scores of both are computed by the same functions on the development set.
Interrupted and started again, it goes on with the next seed. Exits with 1 if
the means differ by more than three standard errors.
"""

import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import numpy as np
import tokenized_task

from training import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What is compared."""

    task_name: str = field("Of GLUE.")
    data_dir: str = field("Folder of the task's files.")
    init_checkpoint: str = field("A model directory that both read.")
    output_dir: str = field("Where everything goes.")
    peer_python: str | None = field(
        "Python with torch and transformers; None: ours alone.", None
    )
    learning_rate: float = field("Peak.", 5e-5)
    num_train_epochs: float = field("Times that every example is seen.", 3.0)
    train_batch_size: int = field("Examples per step.", 32)
    num_seeds: int = field("Runs of each, seeds 1, 2, ...", 5)
    peer_seed: int = field("Used by itself.", 0)


def ours(config: Config) -> list[dict[str, float]]:
    """Runs run_classifier.py's grid of seeds; returns the scores of each."""
    import run_classifier

    folder = os.path.join(config.output_dir, "ours")
    subprocess.run(
        [
            sys.executable,
            os.path.abspath(run_classifier.__file__),
            f"--task_name={config.task_name}",
            f"--data_dir={config.data_dir}",
            f"--init_checkpoint={config.init_checkpoint}",
            f"--learning_rate={config.learning_rate}",
            f"--num_train_epochs={config.num_train_epochs}",
            f"--train_batch_size={config.train_batch_size}",
            f"--num_seeds={config.num_seeds}",
            "--random_seed=1",
            "--do_train",
            "--do_eval",
            "--eval_batch_size=32",
            f"--output_dir={folder}",
        ],
        check=True,
    )
    with open(os.path.join(folder, "grid_results.json")) as file:
        return json.load(file)["runs"]


def peer(config: Config) -> list[dict[str, float]]:
    """Runs the peer with every seed; returns the scores of each."""
    from tasks import classification

    folder = os.path.join(config.output_dir, "peer")
    os.makedirs(folder, exist_ok=True)
    tokenized_task.write(
        folder,
        config.task_name,
        data_dir=config.data_dir,
        init_checkpoint=config.init_checkpoint,
    )
    task = tokenized_task.open_task(config.task_name, config.data_dir)
    truth = task.label_ids(task.dev_splits[0])
    scores = []
    for seed in range(1, config.num_seeds + 1):
        path = os.path.join(folder, f"logits{seed}.npy")
        if not os.path.exists(path):
            flags = {**dataclasses.asdict(config), "peer_seed": seed}
            given = [f"--{k}={v}" for k, v in flags.items() if v is not None]
            command = [config.peer_python, os.path.abspath(__file__), *given]
            subprocess.run(command, check=True)
        scores.append(
            classification.evaluate(
                task.kind, task.metrics, np.load(path), truth
            )
        )
    return scores


def train_peer(config: Config) -> None:
    """Fine-tunes transformers' classifier and writes its logits."""
    import torch
    import transformers

    folder = os.path.join(config.output_dir, "peer")
    arrays = {
        name: tokenized_task.read(os.path.join(folder, f"{name}.npz"))
        for name in ("train", "dev")
    }
    transformers.set_seed(config.peer_seed)
    labels = arrays["train"]["label_ids"]
    is_regression = labels.dtype.kind == "f"
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        config.init_checkpoint,
        num_labels=1 if is_regression else int(labels.max()) + 1,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate)
    count, size = len(labels), config.train_batch_size
    steps = int(count / size * config.num_train_epochs)
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, int(0.1 * steps), steps
    )

    def batch(part, rows) -> dict:
        found = tokenized_task.padded(part, rows)
        return {
            name: torch.tensor(x).float()
            if x.dtype.kind == "f"
            else torch.tensor(x).long()
            for name, x in found.items()
        }

    draw = np.random.default_rng(config.peer_seed)
    epochs = math.ceil(config.num_train_epochs) + 1
    order = np.concatenate([draw.permutation(count) for _ in range(epochs)])
    model.train()
    for step in range(steps):
        rows = order[step * size : (step + 1) * size]
        model(**batch(arrays["train"], rows)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.eval()
    logits = []
    with torch.inference_mode():
        rows = np.arange(len(arrays["dev"]["label_ids"]))
        for start in range(0, len(rows), size):
            inputs = batch(arrays["dev"], rows[start : start + size])
            inputs.pop("labels")
            logits.append(model(**inputs).logits.numpy())
    path = os.path.join(folder, f"logits{config.peer_seed}.npy")
    np.save(path, np.concatenate(logits))


def main(config: Config) -> None:
    """Prints mean and deviation of every metric, and how far they differ."""
    if config.peer_seed:
        return train_peer(config)
    sides = {"ours": ours(config)}
    if config.peer_python:
        sides["peer"] = peer(config)
    names = set.intersection(*(set(runs[0]) for runs in sides.values()))
    is_far = False
    for name in sorted(names - {"learning_rate", "random_seed"}):
        columns = {
            side: [run[name] for run in runs] for side, runs in sides.items()
        }
        shown = [_describe(side, values) for side, values in columns.items()]
        if "peer" in columns:
            errors_apart = _errors_apart(*columns.values())
            is_far |= name == "score" and abs(errors_apart) > 3
            shown.append(f"apart by {errors_apart:+.1f} standard errors")
        print(f"{config.task_name} {name}: {'; '.join(shown)}")
    sys.exit(1 if is_far else 0)


def _describe(side: str, values: list[float]) -> str:
    mean, deviation = statistics.fmean(values), _deviation(values)
    return f"{side} {mean:.4f} +- {deviation:.4f}"


def _errors_apart(ours: list[float], peer: list[float]) -> float:
    apart = statistics.fmean(ours) - statistics.fmean(peer)
    error = math.hypot(
        *(_deviation(x) / math.sqrt(len(x)) for x in (ours, peer))
    )
    return apart / error if error else 0.0


def _deviation(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


if __name__ == "__main__":
    config_flags.run(Config, main)
