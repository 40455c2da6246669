r"""Measures the speed of training, prediction and data, each beside its peer.

    python benchmarks/speed.py classify --init_checkpoint=MODEL \
        --train_file=train.tsv --predict_file=dev.tsv --text_column=sentence \
        --peer_python=/path/to/python/with/torch
    python benchmarks/speed.py answer --init_checkpoint=MODEL \
        --train_file=train-v1.1.json --predict_file=dev-v1.1.json ...
    python benchmarks/speed.py tag --init_checkpoint=MODEL --data_dir=conll2003
    python benchmarks/speed.py pretrain --size=base --batch_size=16 \
        --input_file=text.txt --vocab_file=vocab.txt ...
    python benchmarks/speed.py records --input_file=text.txt \
        --vocab_file=vocab.txt --reference=CHECKOUT_OF_GOOGLE_RESEARCH_BERT

Every side is a command, which runs with a small and with a large amount of
work, in turns. The difference of the two is the time of the work alone, without
imports and compilation. Prints the medians of what is done per second by the
clock and by processor time (user and system, all threads), the memory, and the
ratio of both sides. Other programs distort the clock: their load is measured
before, and above a tenth of the cores the ratio by the clock is in brackets.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEER = str(ROOT / "benchmarks" / "peer.py")
MOST = 0.1  # The fraction of the cores that other programs may take.
SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}


class Usage(NamedTuple):
    """What a command took."""

    seconds: float
    processor_seconds: float
    mebibytes: float


class Work(NamedTuple):
    """What is compared.

    Attributes:
      unit: what is counted.
      amounts: of the small and of the large run, in units.
      sides: name -> command line for an amount.
    """

    unit: str
    amounts: tuple[int, int]
    sides: Mapping[str, Callable[[int], Sequence[str]]]


def run(arguments: Sequence[object]) -> Usage:
    """Runs a command; ends this process if it fails."""
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [*map(str, arguments)], stdout=log, stderr=log, cwd=ROOT
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            log.seek(0)
            sys.exit(f"{arguments}: {log.read()[-3000:]}")
    return Usage(
        time.perf_counter() - began,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
    )


def ours(program: str, **flags: object) -> list[str]:
    """Returns the command line of a command of this project."""
    given = [f"--{k}={v}" for k, v in flags.items() if v is not None]
    return [sys.executable, str(ROOT / program), *given]


def load_of_others(seconds: float = 2.0) -> float:
    """Returns the fraction of the cores that are busy while this one waits."""

    def busy() -> float:
        # user, nice, system, idle, iowait, irq, softirq, steal
        line = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0]
        ticks = list(map(int, line.split()[1:9]))
        return sum(ticks) - ticks[3] - ticks[4]

    before = busy()
    time.sleep(seconds)
    cores = os.cpu_count() or 1
    ticks = os.sysconf("SC_CLK_TCK")
    return (busy() - before) / (ticks * seconds * cores)


def compare(title: str, work: Work, rounds: int) -> None:
    """Lets the sides take turns and prints their speeds."""
    others = load_of_others()
    if others > MOST:
        print(f"other programs take {others:.0%} of the cores", flush=True)
    taken = collections.defaultdict(list)
    for _ in range(rounds):
        for name, command in work.sides.items():
            for amount in work.amounts:
                taken[name, amount].append(run(command(amount)))
    small, large = work.amounts
    speeds = {}
    for name in work.sides:
        before, after = (
            Usage(*map(statistics.median, zip(*taken[name, x], strict=True)))
            for x in work.amounts
        )
        speeds[name] = [
            (large - small) / (after[i] - before[i]) for i in range(2)
        ]
        by_clock, by_processor = speeds[name]
        print(
            f"{title}, {name}: {by_clock:.4g} {work.unit}/s, "
            f"{by_processor:.4g} per processor second, "
            f"{after.mebibytes:.0f} MiB",
            flush=True,
        )
    first, *rest = speeds
    for name in rest:
        by_clock, by_processor = (
            a / b for a, b in zip(speeds[first], speeds[name], strict=True)
        )
        shown = f"({by_clock:.2f})" if others > MOST else f"{by_clock:.2f}"
        print(
            f"{title}, ratio {first} / {name}: {shown}, by processor time "
            f"{by_processor:.2f}"
        )


def with_peers(
    options, command: Callable[[int], Sequence[str]]
) -> dict[str, Callable[[int], Sequence[str]]]:
    """Returns transformers with batches of similar length, and as it is."""
    if options.peer_python is None:
        return {}

    def make(*more: str) -> Callable[[int], Sequence[str]]:
        return lambda amount: [
            options.peer_python,
            PEER,
            *command(amount),
            f"--precision={options.precision}",
            *more,
        ]

    sides = {"transformers": make()}
    if options.defaults:
        sides["transformers' defaults"] = make("--random_batches")
    return sides


# Every function makes one comparison in a scratch folder.


def classify(options, folder: pathlib.Path) -> None:
    """Fine-tuning and prediction of a classifier of a table."""
    form = pathlib.Path(options.train_file).suffix[1:]
    rows = pathlib.Path(options.train_file).read_text().splitlines()
    count = len(rows) - 1
    columns = {
        name: getattr(options, name)
        for name in ("text_column", "text_pair_column", "label_column")
        if getattr(options, name)
    }
    common = {
        "task_name": form,
        "init_checkpoint": options.init_checkpoint,
        "max_seq_length": options.max_seq_length,
        "precision": options.precision,
        **columns,
    }
    flags = [f"--{name}={value}" for name, value in columns.items()]
    flags += [f"--max_seq_length={options.max_seq_length}"]
    flags += [f"--model={options.init_checkpoint}"]

    def train(amount: int, output: str = "train") -> list[str]:
        shutil.rmtree(folder / output, ignore_errors=True)
        return ours(
            "run_classifier.py",
            **common,
            do_train=True,
            train_file=options.train_file,
            num_train_epochs=amount / count,
            train_batch_size=options.batch_size,
            output_dir=folder / output,
        )

    def train_peer(amount: int) -> list[str]:
        return [
            "classify",
            *flags,
            f"--train_file={options.train_file}",
            f"--epochs={amount / count}",
            f"--batch_size={options.batch_size}",
        ]

    amounts = tuple(int(x * count) for x in options.epochs)
    sides = {"ours": train, **with_peers(options, train_peer)}
    compare("fine-tuning", Work("examples", amounts, sides), options.rounds)
    # A model that has trained for a step; the peer trains for as long.
    run(train(options.batch_size, "model"))
    lines = pathlib.Path(options.predict_file).read_text().splitlines()
    header, texts = lines[0], lines[1:]
    paths = {}
    for amount in options.predictions:
        repeated = texts * -(-amount // len(texts))
        paths[amount] = folder / f"predict{amount}.{form}"
        table = "\n".join([header, *repeated[:amount]]) + "\n"
        paths[amount].write_text(table)

    def predict(amount: int) -> list[str]:
        shutil.rmtree(folder / "predicted", ignore_errors=True)
        common["init_checkpoint"] = folder / "model"
        return ours(
            "run_classifier.py",
            **common,
            do_predict=True,
            test_file=paths[amount],
            output_dir=folder / "predicted",
        )

    def predict_peer(amount: int) -> list[str]:
        command = train_peer(options.batch_size)
        files = f"--predict_file={paths[amount]}", f"--output_dir={folder}/peer"
        return [*command, *files]

    sides = {"ours": predict, **with_peers(options, predict_peer)}
    work = Work("examples", tuple(options.predictions), sides)
    compare("prediction", work, options.rounds)


def answer(options, folder: pathlib.Path) -> None:
    """Answering SQuAD's questions."""
    data = json.loads(pathlib.Path(options.predict_file).read_text())["data"]
    paragraphs = [x for article in data for x in article["paragraphs"]]
    random.Random(1).shuffle(paragraphs)
    paths, taken, number = {}, [], 0
    for amount in options.predictions:
        while number < amount and paragraphs:
            taken.append(paragraphs.pop())
            number += len(taken[-1]["qas"])
        paths[number] = folder / f"questions{number}.json"
        articles = [{"title": "", "paragraphs": taken}]
        paths[number].write_text(json.dumps({"data": articles}))
    windows = {
        "max_seq_length": options.max_seq_length,
        "doc_stride": options.doc_stride,
    }
    train = ours(
        "run_squad.py",
        **windows,
        init_checkpoint=options.init_checkpoint,
        train_file=next(iter(paths.values())),
        do_train=True,
        train_batch_size=4,
        num_train_epochs=8 / min(paths),
        precision=options.precision,
        output_dir=folder / "model",
    )
    run(train)

    def predict(amount: int) -> list[str]:
        shutil.rmtree(folder / "predicted", ignore_errors=True)
        return ours(
            "run_squad.py",
            **windows,
            init_checkpoint=folder / "model",
            predict_file=paths[amount],
            do_predict=True,
            precision=options.precision,
            output_dir=folder / "predicted",
        )

    def predict_peer(amount: int) -> list[str]:
        # Its stride is the overlap of two windows.
        overlap = options.max_seq_length - options.doc_stride - 67
        return [
            "answer",
            f"--model={options.init_checkpoint}",
            "--epochs=0",
            f"--predict_file={paths[amount]}",
            f"--max_seq_length={options.max_seq_length}",
            f"--doc_stride={max(overlap, 1)}",
            "--batch_size=16",
            f"--output_dir={folder}/peer",
        ]

    sides = {"ours": predict, **with_peers(options, predict_peer)}
    work = Work("questions", tuple(paths), sides)
    compare("answering", work, options.rounds)


def tag(options, folder: pathlib.Path) -> None:
    """Fine-tuning on CoNLL-2003."""
    path = pathlib.Path(options.data_dir) / "eng.train"
    blocks = path.read_text().split("\n\n")
    count = sum("-DOCSTART-" not in x and bool(x.strip()) for x in blocks)

    def train(amount: int) -> list[str]:
        shutil.rmtree(folder / "train", ignore_errors=True)
        return ours(
            "run_ner.py",
            data_dir=options.data_dir,
            init_checkpoint=options.init_checkpoint,
            do_train=True,
            num_train_epochs=amount / count,
            train_batch_size=options.batch_size,
            max_seq_length=options.max_seq_length,
            precision=options.precision,
            output_dir=folder / "train",
        )

    def train_peer(amount: int) -> list[str]:
        return [
            "tag",
            f"--model={options.init_checkpoint}",
            f"--train_file={path}",
            f"--epochs={amount / count}",
            f"--batch_size={options.batch_size}",
            f"--max_seq_length={options.max_seq_length}",
        ]

    amounts = tuple(int(x * count) for x in options.epochs)
    sides = {"ours": train, **with_peers(options, train_peer)}
    compare("tagging", Work("sentences", amounts, sides), options.rounds)


def pretrain(options, folder: pathlib.Path) -> None:
    """Steps of pre-training; the peer has random batches of the same shape."""
    layers, hidden, heads = SIZES[options.size]
    vocabulary = pathlib.Path(options.vocab_file).read_text().splitlines()
    config = {
        "vocab_size": len(vocabulary),
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "initializer_range": 0.02,
    }
    (folder / "config.json").write_text(json.dumps(config))
    predictions = max(1, round(0.15 * options.max_seq_length))
    sizes = {
        "max_seq_length": options.max_seq_length,
        "max_predictions_per_seq": predictions,
    }
    run(
        ours(
            "create_pretraining_data.py",
            input_file=options.input_file,
            vocab_file=options.vocab_file,
            output_prefix=folder / "shards" / "x",
            dupe_factor=1,
            short_seq_prob=0.0,
            **sizes,
        )
    )

    def train(amount: int) -> list[str]:
        shutil.rmtree(folder / "train", ignore_errors=True)
        steps = amount // options.batch_size
        return ours(
            "run_pretraining.py",
            bert_config_file=folder / "config.json",
            input_file=folder / "shards" / "x-*",
            do_train=True,
            num_train_steps=steps,
            num_warmup_steps=0,
            save_checkpoints_steps=steps,
            train_batch_size=options.batch_size,
            precision=options.precision,
            output_dir=folder / "train",
            **sizes,
        )

    def train_peer(amount: int) -> list[str]:
        return [
            "pretrain",
            f"--size={options.size}",
            f"--steps={amount // options.batch_size}",
            f"--batch_size={options.batch_size}",
            f"--max_seq_length={options.max_seq_length}",
        ]

    amounts = tuple(int(x) * options.batch_size for x in options.steps)
    sides = {"ours": train, **with_peers(options, train_peer)}
    title = f"BERT-{options.size.title()}, {options.batch_size} x "
    work = Work("sequences", amounts, sides)
    compare(f"{title}{options.max_seq_length}", work, options.rounds)


def records(options, folder: pathlib.Path) -> None:
    """Data for pre-training, by passes over the text."""
    lines = pathlib.Path(options.input_file).read_text().splitlines()
    flags = {
        "input_file": options.input_file,
        "vocab_file": options.vocab_file,
        "max_seq_length": options.max_seq_length,
        "max_predictions_per_seq": max(1, round(0.15 * options.max_seq_length)),
    }

    def make(amount: int) -> list[str]:
        shutil.rmtree(folder / "ours", ignore_errors=True)
        return ours(
            "create_pretraining_data.py",
            **flags,
            output_prefix=folder / "ours" / "x",
            dupe_factor=amount // len(lines),
            num_workers=options.workers,
        )

    def make_reference(amount: int) -> list[str]:
        given = {
            **flags,
            "output_file": folder / "reference.tfrecord",
            "dupe_factor": amount // len(lines),
        }
        command = [sys.executable, PEER, "records"]
        command += [f"--reference={options.reference}", "--"]
        return command + [f"--{k}={v}" for k, v in given.items()]

    amounts = tuple(x * len(lines) for x in options.passes)
    sides: dict[str, Callable[[int], Sequence[str]]] = {"ours": make}
    if options.reference:
        sides["google-research/bert"] = make_reference
    compare("records", Work("lines", amounts, sides), options.rounds)


def pair(kind: type) -> Callable[[str], list]:
    """Returns a parser of the small and the large amount: "1,3"."""

    def parse(text: str) -> list:
        small, large = map(kind, text.split(","))
        return [small, large]

    return parse


def main() -> None:
    """Makes one comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    works = (classify, answer, tag, pretrain, records)
    parser.add_argument("work", choices=[work.__name__ for work in works])
    parser.add_argument("--init_checkpoint")
    parser.add_argument("--train_file")
    parser.add_argument("--predict_file")
    parser.add_argument("--data_dir")
    parser.add_argument("--input_file")
    parser.add_argument("--vocab_file")
    parser.add_argument("--reference")
    parser.add_argument("--peer_python")
    parser.add_argument("--text_column", default="text")
    parser.add_argument("--text_pair_column")
    parser.add_argument("--label_column", default="label")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--doc_stride", type=int, default=64)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--size", choices=SIZES, default="mini")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--defaults",
        action="store_true",
        help="measures transformers with random batches, too",
    )
    amounts = "of the small and the large run"
    parser.add_argument(
        "--epochs", type=pair(float), default=[1, 3], help=amounts
    )
    parser.add_argument("--predictions", type=pair(int), default=[1000, 5000])
    parser.add_argument("--steps", type=pair(int), default=[200, 300])
    parser.add_argument("--passes", type=pair(int), default=[5, 15])
    options = parser.parse_args()
    (work,) = [work for work in works if work.__name__ == options.work]
    with tempfile.TemporaryDirectory(prefix="speed-") as name:
        work(options, pathlib.Path(name))


if __name__ == "__main__":
    main()
