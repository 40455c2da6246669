r"""Compares exported models with the commands on real data, for every task.

    python benchmarks/exported_scores.py --data_dir=data --http \
        --vocab_file=uncased_L-12_H-768_A-12/vocab.txt --output_dir=scores

Equal results need no good model: each task gets a small random model, or, with
--init_checkpoint, a pre-trained encoder with a random head. The command
predicts a set, export_model.py exports the model, and a process that imports
only tensorflow and tensorflow_text predicts the same texts, in batches of 32
and, for the last --num_single, of 1. With --http, serve.py predicts them once
more: 8 clients send requests of so many rows, which the server combines to
batches. Texts that are hard to read (empty, 10,000 characters, emoji,
right-to-left) end each set.

--data_dir contains glue/MRPC, glue/STS-B, swag, squad and conll2003 with the
released files. Prints a line for each task, and exits with code 1 if a label,
an answer, an entity or a word differs, or a probability by more than 1e-5.
"""

import asyncio
import csv
import dataclasses
import functools
import itertools
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import aiohttp
import serving_speed
import smoke

from foundation import config_flags, errors, file_system

field = config_flags.field
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
TOLERANCE = 1e-5
HARD_TEXTS = (
    "",
    " \u00a0\u200b ",
    "\U0001f600 great \U0001f468\u200d\U0001f469\u200d\U0001f467!\U0001f600",
    "\u05e9\u05dc\u05d5\u05dd \u202bHello, \u05e2\u05d5\u05dc\u05dd\u202c.",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644",
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002 Cafe\u0301 \u00c9cole",
    "He didn't say \"Mr. Smith's 3,000 (U.S.) dollars\"... " * 195,
    "x" * 10000,
    "a b\u0000c\ufffdd \ufb01ne \u00bd \u0130stanbul \u03a3\u03a3 don't",
)
# Predicts batches of sizes and inputs on standard input; one line each.
SERVER = """
import json, sys
import tensorflow as tf
import tensorflow_text

def text(values):
    if isinstance(values, list):
        return [text(x) for x in values]
    return values.decode() if isinstance(values, bytes) else values

function = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
for line in sys.stdin:
    batch = json.loads(line)
    outputs = function(**{k: tf.constant(v) for k, v in batch.items()})
    columns = {name: text(x.numpy().tolist()) for name, x in outputs.items()}
    print(json.dumps(columns), flush=True)
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The flags of this comparison."""

    data_dir: str = field("Directory of glue, swag, squad and conll2003.")
    vocab_file: str = field("Vocabulary of the random models.")
    output_dir: str = field("Directory of models, exports and predictions.")
    swag_file: str = field("Below --data_dir.", "swag/val.csv")
    squad_file: str = field("Below --data_dir.", "squad/dev-v1.1.json")
    squad_2_file: str = field("Below --data_dir.", "squad/dev-v2.0.json")
    init_checkpoint: str | None = field("Encoder with random heads.", None)
    tasks: str | None = field("Comma-separated; by default all.", None)
    max_examples: int = field("Of each set.", 100000)
    num_single: int = field("Examples in batches of 1.", 200)
    max_seq_length: int = field("Of sentence tasks and taggers.", 64)
    http: bool = field("Also compare the answers of serve.py.", False)
    clients: int = field("That send requests at the same time.", 8)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A task with its model and its texts.

    Attributes:
      inputs: name -> one value for each example.
      expected: results of the command, for each example.
      read: outputs of one example -> results in the same form.
      flags: of export_model.py.
    """

    inputs: dict[str, Sequence[Any]]
    expected: Sequence[Any]
    read: Callable[[dict[str, Any]], Any]
    flags: Sequence[str] = ()


class Runner:
    """Makes models, and calls the commands."""

    def __init__(self, config: Config):
        """Reads the vocabulary."""
        import foundation.tensorflow_setup  # noqa: F401
        from weights import pretrained, tokenizer_files

        self.config = config
        self.folder = pathlib.Path(config.output_dir)
        self._start = None
        if config.init_checkpoint:
            self._start = pretrained.open_start(
                output_dir=None,
                init_checkpoint=config.init_checkpoint,
                max_seq_length=384,
            )
            self.tokenizer = self._start.tokenizer
        else:
            self.tokenizer = tokenizer_files.with_vocabulary(config.vocab_file)

    def model(self, name: str, make: Any, labels=None, **options) -> str:
        """Saves a model with a random head; returns its directory."""
        from modeling.config import BertConfig
        from weights import model_directory, pretrained

        directory = str(self.folder / name / "model")
        if self._start is not None:
            model = make(self._start.config, seed=1, **options)
            pretrained.assign(model, self._start.init_checkpoint)
        else:
            config = BertConfig(
                vocab_size=len(self.tokenizer.vocabulary),
                hidden_size=64,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=128,
                initializer_range=0.2,
            )
            model = make(config, seed=1, **options)
        problem_type = None
        if labels and name == "multilabel":
            problem_type = "multi_label_classification"
        model_directory.save(
            model,
            directory,
            self.tokenizer,
            labels=labels,
            problem_type=problem_type,
        )
        return directory

    def run(self, command: str, *flags: str) -> None:
        """Runs a command of the project in float32."""
        path = os.path.join(ROOT, command)
        done = subprocess.run(
            [sys.executable, path, *flags], stderr=subprocess.PIPE, text=True
        )
        if done.returncode:
            raise errors.InputError(f"{command}: {done.stderr[-2000:]}")

    def table(self, name: str, rows: Sequence[dict], **flags: str) -> list:
        """Predicts rows with run_classifier.py; returns rows of values."""
        path = self.folder / name / "test.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return self.classify(name, test_file=path, **flags)

    def classify(self, name: str, **flags: Any) -> list[list[float]]:
        """Predicts a file with run_classifier.py; returns rows of values."""
        self.predict(
            "run_classifier.py",
            name,
            max_seq_length=self.config.max_seq_length,
            **flags,
        )
        text = (self.folder / name / "predicted/test_results.tsv").read_text()
        return [list(map(float, x.split("\t"))) for x in text.splitlines()]

    def predict(
        self, command: str, name: str, *given: str, **flags: Any
    ) -> None:
        """Predicts a set with a command, into the folder "predicted"."""
        folder = self.folder / name
        self.run(
            command,
            "--do_predict",
            "--precision=float32",
            f"--init_checkpoint={folder / 'model'}",
            f"--output_dir={folder / 'predicted'}",
            *given,
            *(f"--{k}={v}" for k, v in flags.items()),
        )


def read_tsv(config: Config, path: str, *columns: int) -> list[list[str]]:
    """Returns columns of a set of GLUE, and the hard texts in each column."""
    lines = pathlib.Path(config.data_dir, "glue", path).read_text("utf-8-sig")
    rows = [line.split("\t") for line in lines.splitlines()[1:]]
    rows = [row for row in rows if len(row) > max(columns)]
    count = len(HARD_TEXTS)
    texts = HARD_TEXTS + HARD_TEXTS  # A different pairing in each column.
    return [
        [row[column] for row in rows[: config.max_examples]]
        + list(texts[i : i + count])
        for i, column in enumerate(columns)
    ]


def classification(runner: Runner) -> Case:
    """Pairs of MRPC, three classes."""
    from modeling import models

    labels = ["a", "b", "c"]
    runner.model(
        "classification",
        models.ClassificationModel,
        labels=labels,
        num_classes=3,
    )
    first, second = read_tsv(runner.config, "MRPC/dev.tsv", 3, 4)
    rows = [{"a": a, "b": b} for a, b in zip(first, second, strict=True)]
    flags = {"task_name": "jsonl", "text_column": "a", "text_pair_column": "b"}
    expected = runner.table("classification", rows, **flags)
    return Case(
        inputs={"text": first, "text_pair": second},
        expected=[[labels[x.index(max(x))], x] for x in expected],
        read=lambda x: [x["label"], x["probabilities"]],
        flags=["--text_pair"],
    )


def regression(runner: Runner) -> Case:
    """Single sentences of STS-B."""
    from modeling import models

    runner.model("regression", models.ClassificationModel, num_classes=1)
    (texts,) = read_tsv(runner.config, "STS-B/dev.tsv", 7)
    rows = [{"text": text} for text in texts]
    expected = runner.table("regression", rows, task_name="jsonl")
    return Case(
        inputs={"text": texts},
        expected=expected,
        read=lambda x: [x["score"]],
    )


def multilabel(runner: Runner) -> Case:
    """Single sentences of MRPC, three labels."""
    from modeling import models

    runner.model(
        "multilabel",
        models.ClassificationModel,
        labels=["a", "b", "c"],
        num_classes=3,
    )
    (texts,) = read_tsv(runner.config, "MRPC/dev.tsv", 3)
    rows = [{"text": text} for text in texts]
    expected = runner.table("multilabel", rows, task_name="jsonl")
    return Case(
        inputs={"text": texts},
        expected=expected,
        read=lambda x: x["probabilities"],
    )


def multiple_choice(runner: Runner) -> Case:
    """SWAG's format: a context and four endings."""
    from modeling import models

    runner.model("multiple_choice", models.MultipleChoiceModel)
    config = runner.config
    source = pathlib.Path(config.data_dir, config.swag_file)
    with open(source, newline="") as file:
        rows = list(csv.DictReader(file))[: config.max_examples]
    hard = [text.replace("\0", "") for text in HARD_TEXTS]
    names = [f"ending{i}" for i in range(4)]
    for i, text in enumerate(hard):
        endings = [hard[(i + j) % len(hard)] for j in range(1, 5)]
        rows.append(
            dict(rows[0], sent1=text, sent2="")
            | dict(zip(names, endings, strict=True))
        )
    path = runner.folder / "multiple_choice" / "test.csv"
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    expected = runner.classify(
        "multiple_choice", task_name="swag", test_file=path
    )
    return Case(
        inputs={
            "context": [row["sent1"] for row in rows],
            "endings": [
                [f"{row['sent2']} {row[name]}" for name in names]
                for row in rows
            ],
        },
        expected=[[x.index(max(x)), x] for x in expected],
        read=lambda x: [x["choice"], x["probabilities"]],
    )


def sentence_embedding(runner: Runner) -> Case:
    """Single sentences of MRPC, averaged vectors."""
    import numpy as np

    from modeling import models

    folder = runner.folder / "sentence_embedding"
    runner.model("sentence_embedding", models.PretrainingModel)
    (texts,) = read_tsv(runner.config, "MRPC/dev.tsv", 3)
    # A text file has a text a line, and no zero bytes.
    texts = [" ".join(text.split()).replace("\0", "") for text in texts]
    (folder / "texts.txt").write_text("".join(f"{x}\n" for x in texts))
    flags = ["--pooling=mean", "--normalize"]
    runner.run(
        "extract_features.py",
        *flags,
        f"--max_seq_length={runner.config.max_seq_length}",
        f"--init_checkpoint={folder / 'model'}",
        f"--input_file={folder / 'texts.txt'}",
        f"--output_file={folder / 'vectors.npz'}",
        "--output_format=npz",
    )
    with np.load(folder / "vectors.npz") as arrays:
        (vectors,) = [x for x in arrays.values() if x.dtype.kind == "f"]
    return Case(
        inputs={"text": texts},
        expected=vectors.tolist(),
        read=lambda x: x["embedding"],
        flags=[*flags, "--task=sentence_embedding"],
    )


def fill_mask(runner: Runner) -> Case:
    """Sentences of MRPC with every seventh word masked."""
    from modeling import models
    from tasks.fill_mask import masked_words
    from weights import pretrained

    directory = runner.model("fill_mask", models.PretrainingModel)
    (texts,) = read_tsv(runner.config, "MRPC/dev.tsv", 3)
    # The command refuses texts that are too long.
    texts = [text for text in texts if len(text) < 1000]
    words = [text.split() for text in texts]
    texts = [
        " ".join("[MASK]" if i % 7 == 3 else x for i, x in enumerate(row))
        + " [MASK]"
        for row in words
    ]
    model, tokenizer = pretrained.load_masked_lm(directory)
    filler = masked_words.MaskFiller(model, tokenizer)
    found = filler.fill(texts, top_k=5)

    def read(outputs: dict[str, Any]) -> Any:
        rows = zip(outputs["words"], outputs["probabilities"], strict=True)
        return [[*map(list, row)] for row in rows if row[0][0]]

    return Case(
        inputs={"text": texts},
        expected=[
            [
                [[c.token for c in mask], [c.probability for c in mask]]
                for mask in row
            ]
            for row in found
        ],
        read=read,
    )


def token_classification(runner: Runner) -> Case:
    """Documents of CoNLL-2003 as raw text."""
    return tagging_case(runner, "token_classification", has_crf=False)


def token_classification_crf(runner: Runner) -> Case:
    """The same with a CRF."""
    return tagging_case(runner, "token_classification_crf", has_crf=True)


def tagging_case(runner: Runner, name: str, *, has_crf: bool) -> Case:
    """Documents of CoNLL-2003 as raw text."""
    from modeling import models

    labels = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    folder = runner.folder / name
    directory = runner.model(
        name, models.TaggingModel, labels=labels, num_classes=5
    )
    if has_crf:
        save_random_crf(labels, directory)
    source = pathlib.Path(runner.config.data_dir, "conll2003", "eng.testa")
    texts, words = [], []
    for line in source.read_text().splitlines():
        if line.startswith("-DOCSTART-"):
            texts.append(" ".join(words))
            words = []
        elif line:
            words.append(line.split()[0])
    texts.append(" ".join(words))
    texts = [text for text in texts if text][: runner.config.max_examples]
    texts += [text.replace("\0", "") for text in HARD_TEXTS]
    (folder / "texts.txt").write_text("".join(f"{x}\n" for x in texts))
    runner.predict(
        "run_ner.py",
        name,
        max_seq_length=runner.config.max_seq_length,
        text_file=folder / "texts.txt",
    )
    lines = (folder / "predicted" / "entities.jsonl").read_text().splitlines()
    names = ("type", "start", "end", "text", "probability")
    outputs = ("entity_type", "start", "end", "entity", "score")

    def read(found: dict[str, Any]) -> list:
        rows = zip(*(found[name] for name in outputs), strict=True)
        return [list(row) for row in rows if row[1] >= 0]

    return Case(
        inputs={"text": texts},
        expected=[
            [[x[name] for name in names] for x in json.loads(line)["entities"]]
            for line in lines
        ],
        read=read,
    )


def save_random_crf(labels: list[str], directory: str) -> None:
    """Adds a CRF with random scores of transitions to a model directory."""
    import numpy as np

    from modeling import crf
    from modeling.config import BertConfig
    from tasks.ner import tagging

    small = BertConfig(
        vocab_size=8,
        hidden_size=2,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=2,
    )
    model = crf.CrfTaggingModel(
        small, num_classes=5, forbidden=tagging.forbidden(labels, "bio2")
    )
    rng = np.random.default_rng(1)
    shapes = ((5, 5), (5,), (5,))
    model.set_scores(
        crf.Scores(*(rng.normal(size=x).astype(np.float32) for x in shapes))
    )
    tagging.save_crf(model, labels, directory)


def question_answering(runner: Runner) -> Case:
    """SQuAD 1.1's development set: the answer and the n best."""
    name = "question_answering"
    return squad_case(runner, name, runner.config.squad_file, [])


def question_answering_2(runner: Runner) -> Case:
    """The same of SQuAD 2.0, where an answer may be empty."""
    # About half of the answers of the random model are.
    flags = ["--version_2_with_negative", "--null_score_diff_threshold=-2"]
    name = "question_answering_2"
    return squad_case(runner, name, runner.config.squad_2_file, flags)


def squad_case(
    runner: Runner, name: str, file_name: str, flags: list[str]
) -> Case:
    """A development set: the answer and the n best."""
    from modeling import models

    config = runner.config
    runner.model(name, models.QuestionAnsweringModel)
    folder = runner.folder / name
    source = file_system.find(os.path.join(config.data_dir, file_name))
    data = file_system.read_json(source)["data"]
    pairs = [
        (qa["question"], paragraph["context"])
        for article in data
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ][: config.max_examples]
    pairs += [(text, pairs[0][1]) for text in HARD_TEXTS]
    pairs += [(pairs[0][0], text) for text in HARD_TEXTS]
    paragraphs = [
        {"context": context, "qas": [{"id": str(i), "question": question}]}
        for i, (question, context) in enumerate(pairs)
    ]
    path = folder / "test.json"
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    runner.predict("run_squad.py", name, *flags, predict_file=path)
    predicted = folder / "predicted"
    answers = file_system.read_json(str(predicted / "predictions.json"))
    n_best = file_system.read_json(str(predicted / "nbest_predictions.json"))
    expected = []
    for i in map(str, range(len(pairs))):
        texts = [row["text"] for row in n_best[i]]
        values = [row["probability"] for row in n_best[i]]
        # The text of released code if a question has no answer at all.
        answer = "" if texts == ["empty"] else answers[i]
        texts = [""] if texts == ["empty"] else texts
        expected.append([answer, dict(zip(texts, values, strict=True))])
    print(f"{name}: {sum(not x[0] for x in expected)} answers are empty")

    def read(outputs: dict[str, Any]) -> list:
        values = [x for x in outputs["scores"] if x > 0]
        texts = outputs["answers"][: len(values)]
        return [outputs["answer"], dict(zip(texts, values, strict=True))]

    return Case(
        inputs={
            "question": [question for question, _ in pairs],
            "context": [context for _, context in pairs],
        },
        expected=expected,
        read=read,
        flags=flags,
    )


TASKS = {
    function.__name__: function
    for function in (
        classification,
        regression,
        multilabel,
        multiple_choice,
        sentence_embedding,
        fill_mask,
        token_classification,
        token_classification_crf,
        question_answering,
        question_answering_2,
    )
}


def batches_of(case: Case, size: int) -> list[dict[str, list]]:
    """Returns the inputs of each batch."""
    return [
        {name: list(x[i : i + size]) for name, x in case.inputs.items()}
        for i in range(0, len(case.expected), size)
    ]


def in_fresh_process(
    directory: str, batches: Sequence[dict[str, list]]
) -> list[dict[str, Any]]:
    """Returns the outputs of each example."""
    done = subprocess.run(
        [sys.executable, "-c", SERVER, directory],
        input="".join(f"{json.dumps(batch)}\n" for batch in batches),
        cwd=directory,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise errors.InputError(done.stderr[-2000:])
    return [row for x in done.stdout.splitlines() for row in rows_of(x)]


def rows_of(line: str) -> list[dict[str, Any]]:
    """Returns the rows of a batch whose columns are given as JSON."""
    columns = json.loads(line)
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def over_http(
    directory: str, batches: Sequence[dict[str, list]], clients: int
) -> list[dict[str, Any]]:
    """Returns the outputs of each example that serve.py answers."""
    server = serving_speed.start_ours(directory)
    try:
        return asyncio.run(send(server.url, batches, clients))
    finally:
        server.process.kill()
        server.process.wait()


async def send(
    url: str, batches: Sequence[dict[str, list]], clients: int
) -> list[dict[str, Any]]:
    """Sends a request for each batch, some at the same time."""
    address = f"{url}v1/models/{serving_speed.NAME}"
    found: list[list[dict[str, Any]]] = [[] for _ in batches]
    waiting = iter(range(len(batches)))
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{address}/metadata") as response:
            described = (await response.json())["metadata"]["signature_def"]
        names = described["signature_def"]["serving_default"]["outputs"]

        async def client() -> None:
            for number in waiting:
                rows = rows_of(json.dumps(batches[number]))
                body = json.dumps({"instances": rows})
                async with session.post(
                    f"{address}:predict", data=body
                ) as response:
                    answer = await response.json()
                rows = answer["predictions"]
                if len(names) == 1:  # Its values have no name.
                    (name,) = names
                    rows = [{name: row} for row in rows]
                found[number] = rows

        await asyncio.gather(*(client() for _ in range(clients)))
    return [row for rows in found for row in rows]


def difference(found: Any, expected: Any) -> float:
    """Returns the largest difference of numbers; infinity of other values.

    A text that only one of two n-best lists contains is compared with the last
    of the other: which of two equally probable answers is last is chance.
    """
    if isinstance(expected, dict):
        if len(found) != len(expected):
            return float("inf")
        last, expected_last = min(found.values()), min(expected.values())
        return max(
            abs(found.get(x, last) - expected.get(x, expected_last))
            for x in found | expected
        )
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            return float("inf")
        pairs = zip(found, expected, strict=True)
        return max((difference(*pair) for pair in pairs), default=0.0)
    if isinstance(expected, float):
        return abs(found - expected) / max(1.0, abs(expected))
    return 0.0 if found == expected else float("inf")


def main(config: Config) -> int:
    """Prints the comparison of each task; returns 1 if one is unequal."""
    if bool(config.tasks) and not set(config.tasks.split(",")) <= set(TASKS):
        raise errors.InputError(f"--tasks: not of {', '.join(TASKS)}")
    runner = Runner(config)
    names = config.tasks.split(",") if config.tasks else list(TASKS)
    is_unequal = False
    for name in names:
        folder = runner.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        case = TASKS[name](runner)
        length = config.max_seq_length
        if name.startswith(("question_answering", "fill_mask")):
            length = None
        runner.run(
            "export_model.py",
            f"--model_dir={folder / 'model'}",
            f"--output_dir={folder / 'exported'}",
            *case.flags,
            *([f"--max_seq_length={length}"] if length else []),
        )
        directory = str(folder / "exported")
        routes = {"fresh process": in_fresh_process}
        if config.http:
            routes["HTTP"] = functools.partial(
                over_http, clients=config.clients
            )
        for (route, predict), size in itertools.product(
            routes.items(), (32, 1)
        ):
            count = len(case.expected)
            # The hard texts come last.
            start = 0 if size > 1 else max(0, count - config.num_single)
            part = dataclasses.replace(
                case,
                inputs={k: v[start:] for k, v in case.inputs.items()},
                expected=case.expected[start:],
            )
            rows = predict(directory, batches_of(part, size))
            differences = [
                difference(part.read(row), expected)
                for row, expected in zip(rows, part.expected, strict=True)
            ]
            wrong = [
                start + i for i, x in enumerate(differences) if x > TOLERANCE
            ]
            finite = [x for x in differences if x != float("inf")]
            print(
                f"{name}, {route}, batches of {size}: {len(differences)} "
                f"examples, {len(wrong)} unequal {wrong[:10]}, largest "
                f"difference {max(finite, default=0):.2g}",
                flush=True,
            )
            is_unequal |= bool(wrong)
    return int(is_unequal)


if __name__ == "__main__":
    with smoke.flags(
        {
            "data_dir": "DATA",
            "vocab_file": "DATA/vocab.txt",
            "output_dir": "DATA/scores",
            "tasks": "classification",
            "http": True,
            "clients": 2,
            "num_single": 4,
        }
    ):
        config_flags.run(Config, main)
