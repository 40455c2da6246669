r"""Compares --long_texts=windows with cut texts, on documents of many topics.

    python benchmarks/long_documents.py --train_file=train-v1.1.json.gz \
        --init_checkpoint=MODEL_DIR --output_dir=long --num_seeds=3

A document has the beginnings of eight paragraphs of SQuAD's articles. One of
them, at a random position, is of the article that is the document's label; the
others are of articles that are no label. run_classifier.py is trained on

    paragraph             the paragraphs of the labels alone: an upper bound
    cut                   the documents, cut at the maximum length
    mean, max, attention  the documents, divided into windows whose logits are
                          pooled so

The paragraphs of an article are divided into a training and a development part.
Each paragraph of the training part is in several documents. The encoder is
frozen: trained from the first step, it gives all texts the same vector.

Prints the accuracy, the seconds, the processor seconds and the peak memory of
each run. Continues after an interruption as run_classifier.py does.
"""

import collections
import csv
import dataclasses
import json
import os
import pathlib
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import smoke

from foundation import config_flags

field = config_flags.field
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
_SEED, _DEV_PART = 7, 5  # Every fifth paragraph is held out.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The flags of this benchmark."""

    train_file: str = field("A file in SQuAD's JSON.")
    init_checkpoint: str = field("The encoder.")
    output_dir: str = field("Directory of the documents and the runs.")
    num_articles: int = field("Articles that are labels.", 20, at_least=2)
    num_paragraphs: int = field("Paragraphs of a document.", 8, at_least=2)
    paragraph_words: int = field(
        "Words kept of each paragraph, from its beginning.", 20, at_least=1
    )
    per_article: int = field("Paragraphs used of each label.", 60, at_least=5)
    copies: int = field(
        "Training documents of each paragraph, each with other paragraphs "
        "around it.",
        4,
        at_least=1,
    )
    num_seeds: int = field("Runs of each form.", 3, at_least=1)
    forms: str = field("What is run.", "paragraph,cut,mean,max,attention")
    max_seq_length: int = field("Tokens of a sequence.", 32, at_least=8)
    doc_stride: int = field("See run_classifier.py.", 30, at_least=1)
    train_batch_size: int = field("Examples of a step.", 16, at_least=1)
    num_train_epochs: float = field("Epochs.", 1.0, above=0)
    learning_rate: float = field("Peak learning rate.", 2e-3, above=0)
    freeze_layers: int = field(
        "Layers that are not trained; if any, the embeddings are not, either.",
        6,
        at_least=0,
    )


def articles(path: str, words: int) -> dict[str, list[str]]:
    """Returns title -> first words of the paragraphs, of SQuAD's JSON."""
    from foundation import file_system

    data = file_system.read_json(path)["data"]
    return {
        article["title"]: [
            " ".join(x["context"].split()[:words])
            for x in article["paragraphs"]
        ]
        for article in data
    }


def write_documents(config: Config) -> None:
    """Writes train and dev tables of paragraphs and of documents."""
    rng = random.Random(_SEED)
    found = articles(config.train_file, config.paragraph_words)
    by_size = sorted(found, key=lambda title: (-len(found[title]), title))
    labels = by_size[: config.num_articles]
    others = [x for title in by_size[len(labels) :] for x in found[title]]
    rows: dict[str, list] = collections.defaultdict(list)
    for label in labels:
        for i, text in enumerate(found[label][: config.per_article]):
            part = "dev" if i % _DEV_PART == 0 else "train"
            for _ in range(config.copies if part == "train" else 1):
                document = rng.sample(others, config.num_paragraphs - 1)
                document.insert(rng.randrange(config.num_paragraphs), text)
                rows[f"paragraph_{part}"].append([text, label])
                rows[f"document_{part}"].append([" ".join(document), label])
    os.makedirs(config.output_dir, exist_ok=True)
    for name, table in rows.items():
        path = os.path.join(config.output_dir, f"{name}.csv")
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["text", "label"], *table])


def run(config: Config, form: str, seed: int) -> dict[str, float]:
    """Trains one form with one seed.

    Returns:
      The accuracy, and of the process the seconds, those of processors, and the
      peak memory in MiB.
    """
    kind = "paragraph" if form == "paragraph" else "document"
    folder = os.path.join(config.output_dir, f"{form}_{seed}")
    data = os.path.join(config.output_dir, kind)
    command = [
        sys.executable,
        os.path.join(ROOT, "run_classifier.py"),
        "--do_train",
        "--do_eval",
        "--task_name=csv",
        "--eval_every_epoch=false",
        f"--train_file={data}_train.csv",
        f"--dev_file={data}_dev.csv",
        f"--init_checkpoint={config.init_checkpoint}",
        f"--output_dir={folder}",
        f"--max_seq_length={config.max_seq_length}",
        f"--train_batch_size={config.train_batch_size}",
        f"--num_train_epochs={config.num_train_epochs}",
        f"--learning_rate={config.learning_rate}",
        f"--random_seed={seed}",
        f"--freeze_layers={config.freeze_layers}",
        "--eval_batch_size=16",
    ]
    if form not in ("paragraph", "cut"):
        command.append("--long_texts=windows")
        command.append(f"--window_pooling={form}")
        command.append(f"--doc_stride={config.doc_stride}")
    start = time.monotonic()
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise subprocess.CalledProcessError(status, command)
    with open(os.path.join(folder, "eval_results.json")) as file:
        accuracy = json.load(file)["eval_accuracy"]
    return {
        "accuracy": accuracy,
        "seconds": time.monotonic() - start,
        "processor seconds": usage.ru_utime + usage.ru_stime,
        "MiB": usage.ru_maxrss / 1024,
    }


def main(config: Config) -> None:
    """Runs all forms and seeds, the cheapest form first."""
    write_documents(config)
    for form in config.forms.split(","):
        for seed in range(1, config.num_seeds + 1):
            found = run(config, form, seed)
            shown = ", ".join(f"{k} {x:.4g}" for k, x in found.items())
            print(f"{form}, seed {seed}: {shown}", flush=True)


def _make_smallest(folder: pathlib.Path) -> None:
    """Writes an encoder, and four articles of ten paragraphs."""
    smoke.encoder(folder)
    texts = (folder / "texts.txt").read_text().splitlines()
    data = [
        {
            "title": f"article {i}",
            "paragraphs": [{"context": texts[10 * i + j]} for j in range(10)],
        }
        for i in range(4)
    ]
    (folder / "articles.json").write_text(json.dumps({"data": data}))


if __name__ == "__main__":
    with smoke.flags(
        {
            "train_file": "DATA/articles.json",
            "init_checkpoint": "DATA/model",
            "output_dir": "DATA/long",
            "num_articles": 2,
            "num_paragraphs": 2,
            "num_seeds": 1,
            "forms": "cut,max",
            "max_seq_length": 16,
            "freeze_layers": 1,
            "train_batch_size": 2,
            "num_train_epochs": 1,
        },
        _make_smallest,
    ):
        config_flags.run(Config, main)
