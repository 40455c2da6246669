r"""Compares scores over seeds: ours, the peer's, and those that need no BERT.

    python benchmarks/scores.py classify --init_checkpoint=MODEL \
        --train_file=train.tsv --predict_file=dev.tsv --text_column=sentence \
        --label_column=label --output_dir=scores --seeds=5 \
        --peer_python=/path/to/python/with/torch
    python benchmarks/scores.py answer --init_checkpoint=MODEL \
        --train_file=train-v1.1.json --predict_file=dev-v1.1.json --every=40 ...
    python benchmarks/scores.py tag --init_checkpoint=MODEL \
        --train_file=eng.train --predict_file=eng.testb ...

Both sides have the same encoder, rows, batch size, epochs and peak rate. Ours
is the command of the task, the peer is peer.py. All predictions are scored
here: accuracy and F1 of the rarest label, exact match and F1 of SQuAD, F1 of
entities.
Beside them stand the constant answer, and a model without BERT: a bag of words
(TF-IDF and the overlap of a pair's words, logistic regression), or the tag that
a word has most often. A run that has finished is not repeated.
"""

import argparse
import collections
import csv
import json
import math
import pathlib
import re
import statistics
import string
import sys
from collections.abc import Mapping, Sequence

import speed

Scores = Mapping[str, float]
Sentences = Sequence[tuple[Sequence[str], Sequence[str]]]


def read_rows(path: str) -> list[dict[str, str]]:
    """Returns the rows of a table, .csv or .tsv."""
    is_tsv = path.endswith(".tsv")
    with open(path, newline="", encoding="utf-8") as file:
        return [
            *csv.DictReader(
                file,
                delimiter="\t" if is_tsv else ",",
                quoting=csv.QUOTE_NONE if is_tsv else csv.QUOTE_MINIMAL,
            )
        ]


def label_scores(true: Sequence[str], found: Sequence[str]) -> Scores:
    """Returns the accuracy and the F1 of the rarest label."""
    from sklearn import metrics

    rarest = min(collections.Counter(true).items(), key=lambda x: x[::-1])[0]
    is_right = [a == b for a, b in zip(true, found, strict=True)]
    f1 = metrics.f1_score(
        [x == rarest for x in true],
        [x == rarest for x in found],
        zero_division=0.0,
    )
    return {"accuracy": statistics.fmean(is_right), f"F1 of {rarest}": f1}


def classify(options) -> dict[str, list[Scores]]:
    """Returns the scores of classifiers."""
    train, dev = map(read_rows, (options.train_file, options.predict_file))
    label = options.label_column
    columns = [x for x in (options.text_column, options.text_pair_column) if x]
    true = [row[label] for row in dev]
    most_frequent = collections.Counter(row[label] for row in train)
    constant = [most_frequent.most_common(1)[0][0]] * len(dev)

    def ours(folder: pathlib.Path, seed: int) -> list[str]:
        speed.run(
            speed.ours(
                "run_classifier.py",
                task_name=pathlib.Path(options.train_file).suffix[1:],
                train_file=options.train_file,
                test_file=options.predict_file,
                text_column=options.text_column,
                text_pair_column=options.text_pair_column,
                label_column=label,
                max_seq_length=options.max_seq_length,
                do_predict=True,
                **common(options, folder, seed),
            )
        )
        _, *lines = (folder / "predictions.tsv").read_text().splitlines()
        return [line.split("\t")[1] for line in lines]

    def peer(folder: pathlib.Path, seed: int) -> list[str]:
        flags = [f"--text_column={options.text_column}"]
        if options.text_pair_column:
            flags.append(f"--text_pair_column={options.text_pair_column}")
        flags.append(f"--label_column={label}")
        run_peer(options, "classify", folder, seed, *flags)
        return (folder / "labels.txt").read_text().splitlines()

    return {
        "constant": [label_scores(true, constant)],
        "bag of words": [
            label_scores(true, bag_of_words(train, dev, columns, label))
        ],
        **{
            side: [label_scores(true, found) for found in runs]
            for side, runs in trained(options, ours, peer).items()
        },
    }


def bag_of_words(
    train: Sequence[Mapping[str, str]],
    dev: Sequence[Mapping[str, str]],
    columns: Sequence[str],
    label: str,
) -> list[str]:
    """Returns the labels that a linear model of words predicts."""
    import scipy.sparse
    from sklearn import linear_model
    from sklearn.feature_extraction import text

    def overlap(row: Mapping[str, str]) -> list[float]:
        words = [{*row[x].lower().split()} for x in columns]
        common = set.intersection(*words)
        union = set.union(*words)
        sizes = [len(common) / max(len(x), 1) for x in words]
        return [*sizes, len(common) / max(len(union), 1)]

    parts = {"train": [], "dev": []}
    for column in columns:
        weights = text.TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
        parts["train"].append(weights.fit_transform(x[column] for x in train))
        parts["dev"].append(weights.transform(x[column] for x in dev))
    if len(columns) > 1:
        for name, rows in (("train", train), ("dev", dev)):
            parts[name].append(scipy.sparse.csr_matrix([*map(overlap, rows)]))
    model = linear_model.LogisticRegression(C=10.0, max_iter=1000)
    features = scipy.sparse.hstack(parts["train"])
    model.fit(features, [row[label] for row in train])
    return [*model.predict(scipy.sparse.hstack(parts["dev"]))]


# Questions.


def words_of(text: str) -> list[str]:
    """Returns the words that SQuAD's script compares."""
    kept = "".join(x for x in text.lower() if x not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


def answer_scores(questions, found: Mapping[str, str]) -> Scores:
    """Returns exact match and F1 as SQuAD's script computes them."""
    exact, f1 = [], []
    for question in questions:
        given = words_of(found.get(question["id"], ""))
        truths = [words_of(x["text"]) for x in question["answers"]] or [[]]
        exact.append(max(given == truth for truth in truths))
        f1.append(max(overlap_f1(given, truth) for truth in truths))
    return {
        "exact match": 100 * statistics.fmean(exact),
        "F1": 100 * statistics.fmean(f1),
    }


def overlap_f1(given: Sequence[str], truth: Sequence[str]) -> float:
    """Returns the F1 of two bags of words; two empty ones are equal."""
    same = (collections.Counter(given) & collections.Counter(truth)).total()
    if not given or not truth:
        return float(not given and not truth)
    return 2 * same / (len(given) + len(truth))


def answer(options) -> dict[str, list[Scores]]:
    """Returns the scores of SQuAD, trained on every N-th question."""
    folder = pathlib.Path(options.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    values = json.loads(pathlib.Path(options.train_file).read_text())
    paragraphs = [x for a in values["data"] for x in a["paragraphs"]]
    number = 0
    for paragraph in paragraphs:
        numbered = [*enumerate(paragraph["qas"], number)]
        number += len(numbered)
        paragraph["qas"] = [x for i, x in numbered if i % options.every == 0]
    options.train_file = str(folder / "train.json")
    pathlib.Path(options.train_file).write_text(json.dumps(values))
    data = json.loads(pathlib.Path(options.predict_file).read_text())["data"]
    questions = [
        question
        for article in data
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    windows = {
        "max_seq_length": options.max_seq_length,
        "doc_stride": options.doc_stride,
    }

    def ours(folder: pathlib.Path, seed: int) -> dict[str, str]:
        speed.run(
            speed.ours(
                "run_squad.py",
                train_file=options.train_file,
                predict_file=options.predict_file,
                do_predict=True,
                **windows,
                **common(options, folder, seed),
            )
        )
        return json.loads((folder / "predictions.json").read_text())

    def peer(folder: pathlib.Path, seed: int) -> dict[str, str]:
        flags = [f"--{k}={v}" for k, v in windows.items()]
        run_peer(options, "answer", folder, seed, *flags)
        return json.loads((folder / "predictions.json").read_text())

    return {
        "no answer": [answer_scores(questions, {})],
        **{
            side: [answer_scores(questions, found) for found in runs]
            for side, runs in trained(options, ours, peer).items()
        },
    }


# Entities.


def spans(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """Returns the entities of IOB1 or BIO2 tags: first word, end, type."""
    found, begin = set(), 0
    for i, (before, tag) in enumerate(
        zip(["O", *tags], [*tags, "O"], strict=True)
    ):
        is_inside = tag.startswith("I-") and tag[2:] == before[2:]
        if before != "O" and not is_inside:
            found.add((begin, i, before[2:]))
        if not is_inside:
            begin = i
    return found


def tag_scores(
    true: Sequence[Sequence[str]], found: Sequence[Sequence[str]]
) -> Scores:
    """Returns the F1 of entities as conlleval computes it."""
    pairs = [(spans(a), spans(b)) for a, b in zip(true, found, strict=True)]
    right = sum(len(a & b) for a, b in pairs)
    total = sum(len(a) + len(b) for a, b in pairs)
    return {"F1": 200 * right / total if total else 0.0}


def read_sentences(path: str | pathlib.Path) -> Sentences:
    """Returns the first cell and the last cell of the lines of sentences."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    sentences = []
    for block in re.split(r"\n\s*\n", text):
        cells = [x.split() for x in block.splitlines()]
        cells = [x for x in cells if x and x[0] != "-DOCSTART-"]
        if cells:
            sentences.append(([x[0] for x in cells], [x[-1] for x in cells]))
    return sentences


def tag(options) -> dict[str, list[Scores]]:
    """Returns the scores of taggers."""
    train, test = map(
        read_sentences, (options.train_file, options.predict_file)
    )
    true = [tags for _, tags in test]
    counts = collections.defaultdict(collections.Counter)
    for words, tags in train:
        for word, one in zip(words, tags, strict=True):
            counts[word][one] += 1
    usual = {word: x.most_common(1)[0][0] for word, x in counts.items()}

    def ours(folder: pathlib.Path, seed: int) -> list[Sequence[str]]:
        speed.run(
            speed.ours(
                "run_ner.py",
                train_file=options.train_file,
                test_file=options.predict_file,
                max_seq_length=options.max_seq_length,
                do_predict=True,
                **common(options, folder, seed),
            )
        )
        sentences = read_sentences(folder / "predictions_test.txt")
        return [tags for _, tags in sentences]

    def peer(folder: pathlib.Path, seed: int) -> list[Sequence[str]]:
        run_peer(options, "tag", folder, seed)
        return [tags for _, tags in read_sentences(folder / "predictions.txt")]

    outside = [["O"] * len(tags) for tags in true]
    by_word = [[usual.get(word, "O") for word in words] for words, _ in test]
    return {
        "constant O": [tag_scores(true, outside)],
        "the word's usual tag": [tag_scores(true, by_word)],
        **{
            side: [tag_scores(true, found) for found in runs]
            for side, runs in trained(options, ours, peer).items()
        },
    }


# Runs.


def common(options, folder: pathlib.Path, seed: int) -> dict[str, object]:
    """Returns the flags that all commands of ours have."""
    return {
        "do_train": True,
        "init_checkpoint": options.init_checkpoint,
        "train_batch_size": options.batch_size,
        "num_train_epochs": options.epochs,
        "learning_rate": options.learning_rate,
        "precision": options.precision,
        "bias_correction": options.bias_correction,
        "random_seed": seed,
        "output_dir": folder,
    }


def run_peer(
    options, work: str, folder: pathlib.Path, seed: int, *flags: str
) -> None:
    """Runs peer.py unless it has finished; its files are its last step."""
    if folder.exists():
        return
    speed.run(
        [
            *(options.peer_python, speed.PEER, work, *flags),
            f"--model={options.init_checkpoint}",
            f"--train_file={options.train_file}",
            f"--predict_file={options.predict_file}",
            f"--batch_size={options.batch_size}",
            f"--epochs={options.epochs}",
            f"--learning_rate={options.learning_rate}",
            f"--precision={options.precision}",
            f"--max_seq_length={options.max_seq_length}",
            f"--seed={seed}",
            f"--output_dir={folder}",
        ]
    )


def trained(options, ours, peer) -> dict[str, list]:
    """Trains both sides with all seeds; returns their predictions."""
    sides = {"ours": ours}
    if options.peer_python:
        sides["transformers"] = peer
    return {
        side: [
            run(pathlib.Path(options.output_dir) / f"{side}{seed}", seed)
            for seed in range(1, options.seeds + 1)
        ]
        for side, run in sides.items()
    }


def show(scores: Mapping[str, Sequence[Scores]]) -> None:
    """Prints mean and deviation of each side, and the distance of two."""
    for metric in next(iter(scores.values()))[0]:
        values = {x: [run[metric] for run in y] for x, y in scores.items()}
        for side, found in values.items():
            text = f"{metric}, {side}: {statistics.fmean(found):.4g}"
            if len(found) > 1:
                text += f" +- {statistics.stdev(found):.2g} ({len(found)})"
            print(text)
        if "transformers" in values and len(values["ours"]) > 1:
            both = values["ours"], values["transformers"]
            error = math.hypot(
                *(statistics.stdev(x) / len(x) ** 0.5 for x in both)
            )
            apart = statistics.fmean(both[0]) - statistics.fmean(both[1])
            print(f"{metric}: {apart:+.4g}, standard error {error:.2g}")


def main() -> None:
    """Trains, predicts and prints the scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    works = (classify, answer, tag)
    parser.add_argument("work", choices=[work.__name__ for work in works])
    for name in ("init_checkpoint", "train_file", "predict_file"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--peer_python")
    parser.add_argument("--text_column", default="text")
    parser.add_argument("--text_pair_column")
    parser.add_argument("--label_column", default="label")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--doc_stride", type=int, default=64)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--bias_correction", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    (work,) = [work for work in works if work.__name__ == options.work]
    show(work(options))


if __name__ == "__main__":
    sys.exit(main())
