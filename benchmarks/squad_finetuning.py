r"""Fine-tunes on a part of SQuAD 1.1 or 2.0, beside transformers' procedure.

    python benchmarks/squad_finetuning.py --train_file=train-v1.1.json \
        --predict_file=dev-v1.1.json --every=40 --init_checkpoint=MODEL \
        --peer_python=/path/to/python/with/torch/and/transformers

Both learn every 40th question and predict the whole of --predict_file, with
the same batch size, peak learning rate, epochs, warm-up and weight decay, and
are scored by tasks.squad_metrics. The peer's windows, labels and choice of
answers are those of transformers' run_qa.py; to save time its batches are
padded to their longest window, not to 384. --halves makes both sets of one
file of SQuAD 2.0, every other article in each.
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Literal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import numpy as np

from training import config_flags

field = config_flags.field
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What is compared."""

    train_file: str = field("SQuAD's JSON.")
    predict_file: str | None = field("SQuAD's JSON.", None)
    init_checkpoint: str = field("A directory that transformers reads too.")
    output_dir: str = field("Where runs go.")
    every: int = field("Of the questions to learn, one in so many.", 40)
    halves: bool = field("Learn one half of the articles of a file.", False)
    num_seeds: int = field("Runs of each.", 1)
    train_batch_size: int = field("Windows.", 16)
    learning_rate: float = field("At its peak.", 1e-4)
    num_train_epochs: float = field("Times that every question is seen.", 2.0)
    peer_python: str | None = field("Python with torch.", None)
    worker: Literal["none", "peer"] = field("Used by itself.", "none")
    seed: int = field("Used by itself.", 1)


def part(config: Config) -> tuple[str, str]:
    """Writes the questions to learn, and to predict; returns both paths."""
    from data import squad, text_tables

    values = squad.load_json(text_tables.find(config.train_file))
    paths = [os.path.join(config.output_dir, f"{n}.json") for n in ("a", "b")]
    os.makedirs(config.output_dir, exist_ok=True)
    if config.halves:
        for i, path in enumerate(paths):
            write(path, {"data": values["data"][i::2]})
        return paths[0], paths[1]
    number = 0
    for article in values["data"]:
        for paragraph in article["paragraphs"]:
            numbered = list(enumerate(paragraph["qas"], number))
            number += len(numbered)
            paragraph["qas"] = [
                qa for i, qa in numbered if i % config.every == 0
            ]
    write(paths[0], values)
    return paths[0], config.predict_file


def write(path: str, values: dict) -> None:
    """Writes a JSON file."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(values, file)


def run_ours(config: Config, train: str, predict: str, seed: int) -> str:
    """Runs run_squad.py; returns its folder."""
    folder = os.path.join(config.output_dir, f"ours{seed}")
    flags = {
        "init_checkpoint": config.init_checkpoint,
        "train_file": train,
        "predict_file": predict,
        "train_batch_size": config.train_batch_size,
        "predict_batch_size": 16,
        "learning_rate": config.learning_rate,
        "num_train_epochs": config.num_train_epochs,
        "random_seed": seed,
        "output_dir": folder,
        "do_train": True,
        "do_predict": True,
        "version_2_with_negative": config.halves,
    }
    command = [sys.executable, os.path.join(ROOT, "run_squad.py")]
    command += [f"--{name}={value}" for name, value in flags.items()]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return folder


def run_peer(config: Config, train: str, predict: str, seed: int) -> str:
    """Runs the peer in its own Python; returns its folder."""
    folder = os.path.join(config.output_dir, f"peer{seed}")
    os.makedirs(folder, exist_ok=True)
    given = dataclasses.asdict(config) | {
        "train_file": train,
        "predict_file": predict,
        "output_dir": folder,
        "seed": seed,
        "worker": "peer",
    }
    command = [config.peer_python, os.path.abspath(__file__)]
    command += [f"--{k}={v}" for k, v in given.items() if v is not None]
    subprocess.run(command, check=True)
    return folder


def rows(path: str) -> list[dict]:
    """Returns all questions of a file with their paragraphs."""
    with open(path, encoding="utf-8") as file:
        data = json.load(file)["data"]
    return [
        {**qa, "context": paragraph["context"]}
        for article in data
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ]


def tokenize(tokenizer, examples: list[dict]):
    """Cuts windows as run_qa.py does: 128 pieces are in two of them."""
    return tokenizer(
        [example["question"].lstrip() for example in examples],
        [example["context"] for example in examples],
        truncation="only_second",
        max_length=384,
        stride=128,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )


def positions(encoded, number: int, example: dict) -> tuple[int, int]:
    """Returns where a window has its answer, (0, 0) if it has not."""
    if not example["answers"]:
        return 0, 0
    answer = example["answers"][0]
    start = answer["answer_start"]
    end = start + len(answer["text"])
    offsets = encoded["offset_mapping"][number]
    kinds = encoded.sequence_ids(number)
    places = [i for i, kind in enumerate(kinds) if kind == 1]
    if offsets[places[0]][0] > start or offsets[places[-1]][1] < end:
        return 0, 0
    first = max(i for i in places if offsets[i][0] <= start)
    last = min(i for i in places if offsets[i][1] >= end)
    return first, last


def learn(config: Config, tokenizer, model) -> None:
    """Trains the peer."""
    import torch
    import transformers

    examples = rows(config.train_file)
    encoded = tokenize(tokenizer, examples)
    owners = encoded["overflow_to_sample_mapping"]
    spans = [positions(encoded, i, examples[j]) for i, j in enumerate(owners)]
    size = config.train_batch_size
    steps = int(len(examples) / size * config.num_train_epochs)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, weight_decay=0.01
    )
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, steps // 10, steps
    )
    model.train()
    order: list[int] = []
    for _ in range(steps):
        if len(order) < size:
            order += torch.randperm(len(owners)).tolist()
        chosen, order = order[:size], order[size:]
        batch = pad(tokenizer, encoded, chosen)
        picked = torch.tensor([spans[i] for i in chosen])
        loss = model(
            **batch, start_positions=picked[:, 0], end_positions=picked[:, 1]
        ).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def pad(tokenizer, encoded, chosen: list[int]) -> dict:
    """Returns a batch that is padded to its longest window."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    return tokenizer.pad(
        {name: [encoded[name][i] for i in chosen] for name in names},
        return_tensors="pt",
    )


def answer(config: Config, tokenizer, model) -> dict[str, str]:
    """Predicts with the peer as postprocess_qa_predictions does."""
    import torch

    examples = rows(config.predict_file)
    encoded = tokenize(tokenizer, examples)
    owners = encoded["overflow_to_sample_mapping"]
    order = sorted(range(len(owners)), key=lambda i: -len(encoded[i].ids))
    found: list[list] = [[] for _ in examples]
    nulls = [float("inf")] * len(examples)
    model.eval()
    for first in range(0, len(order), 16):
        chosen = order[first : first + 16]
        with torch.inference_mode():
            outputs = model(**pad(tokenizer, encoded, chosen))
        for row, window in enumerate(chosen):
            start = outputs.start_logits[row].float().numpy()
            end = outputs.end_logits[row].float().numpy()
            owner = owners[window]
            nulls[owner] = min(nulls[owner], float(start[0] + end[0]))
            kinds = encoded.sequence_ids(window)
            offsets = encoded["offset_mapping"][window]
            for i in np.argsort(start)[-20:]:
                for j in np.argsort(end)[-20:]:
                    if not i <= j < i + 30 or j >= len(kinds):
                        continue
                    if kinds[i] != 1 or kinds[j] != 1:
                        continue
                    span = offsets[i][0], offsets[j][1]
                    found[owner].append((float(start[i] + end[j]), span))
    result = {}
    for example, spans, null in zip(examples, found, nulls, strict=True):
        best = max(spans, default=(-1e9, (0, 0)))
        is_null = config.halves and null > best[0]
        text = "" if is_null else example["context"][slice(*best[1])]
        result[example["id"]] = text
    return result


def work(config: Config) -> None:
    """Is the peer: trains, predicts, writes predictions.json."""
    import torch
    import transformers

    torch.manual_seed(config.seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        config.init_checkpoint
    )
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(
        config.init_checkpoint
    )
    learn(config, tokenizer, model)
    write(
        os.path.join(config.output_dir, "predictions.json"),
        answer(config, tokenizer, model),
    )


def main(config: Config) -> None:
    """Runs all and prints a table."""
    if config.worker == "peer":
        return work(config)
    from data import squad
    from tasks import squad_metrics

    train, predict = part(config)
    found = squad.read(predict)
    runs = {"ours": run_ours}
    if config.peer_python:
        runs["peer"] = run_peer
    print(f"{len(squad.read(train))} questions to learn, {len(found)} to score")
    for name, run in runs.items():
        scores = []
        for seed in range(1, config.num_seeds + 1):
            started = time.monotonic()
            path = os.path.join(
                run(config, train, predict, seed), "predictions.json"
            )
            given = squad_metrics.read_json(path, str)
            values = squad_metrics.evaluate(found, given)
            scores.append(values["f1"])
            shown = {k: round(v, 2) for k, v in values.items()}
            seconds = time.monotonic() - started
            print(f"{name} seed {seed}: {shown}, {seconds:.0f} s", flush=True)
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        print(f"{name}: F1 {statistics.fmean(scores):.2f} +- {spread:.2f}")
    return None


if __name__ == "__main__":
    config_flags.run(Config, main)
