"""Proves that a new kind of task is one class: it trains, predicts, serves.

The toy task tells whether a text has a good word. It has what the documentation
asks of a task (docs/architecture.md, "How to add another kind of task").

python -m pytest tests/jobs/toy_task_test.py
"""

import dataclasses
import shutil

import numpy as np
import pytest
import tiny_runs
from keras import ops

import export_model
from data import features as features_lib
from data import schema
from foundation import config_flags
from jobs import finetuning, grid, report, run_config, runner
from jobs.outputs import Card, Description, Scores
from modeling import losses, models
from serving import tensorflow_engine
from weights import model_directory

GOOD, OTHER = ["good", "fine"], [f"w{i}" for i in range(9)]
field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToyConfig(run_config.FinetuningConfig):
    """The flags of the toy task."""

    train_file: str | None = field("Lines of text.", None, affects="records")
    test_file: str | None = field("Lines of text.", None)
    max_seq_length: int = field("In tokens.", 16, affects="records")


class ToyObjective:
    """Two classes of texts."""

    stored = {"labels": ["no", "yes"]}

    def __init__(self, config):
        """Takes the encoder's hyperparameters."""
        self.config = config

    def make_model(self, **options):
        return models.ClassificationModel(self.config, num_classes=2, **options)

    def load_files(self, model, folder):
        return ()

    def loss_weights(self, features):
        count = ops.shape(features["input_ids"])[0]
        return {"loss_of_toys": ops.cast(count, "float32")}

    def forward(self, model, features, dropout_seed=None):
        logits = model(features, dropout_seed=dropout_seed)
        labels = ops.reshape(features["label_ids"], (-1,))
        return {"loss_of_toys": losses.classification(logits, labels)}, {}

    def predict(self, model, features):
        return {"logits": model(features)}


@dataclasses.dataclass
class ToyEvaluation:
    """The metrics of a set."""

    values: dict


class ToyTask:
    """Texts, a line each; the label is a function of the text."""

    dev_splits = ("train",)
    num_examples = None
    evaluation_settings = {}

    def __init__(self, config, source):
        """Reads the texts."""
        self.config, self.tokenizer = config, source.start.tokenizer
        self.objective = ToyObjective(source.start.config)
        self.max_seq_length = config.max_seq_length
        self.evaluates_at_end = config.do_train
        path = config.train_file if config.do_train else config.test_file
        with open(path, encoding="utf-8") as file:
            self.texts = file.read().splitlines()

    @property
    def data_settings(self):
        return {"train_file": " ".join(self.texts)[:99]}

    def encode(self, texts):
        return features_lib.encode(
            self.tokenizer, texts, None, max_seq_length=self.max_seq_length
        )

    def features(self, split, records_dir):
        labels = [[int(any(x in GOOD for x in t.split()))] for t in self.texts]
        kind = schema.classification(self.max_seq_length, schema.LABEL)
        cache = features_lib.FeatureCache(
            records_dir, split, kind, self.tokenizer, {"texts": self.texts}
        )
        features = cache.read()
        if features is None:
            features = dataclasses.replace(
                self.encode(self.texts), dense={"label_ids": np.array(labels)}
            )
            cache.write(features)
        return features

    def evaluate(self, task_model, features):
        logits = task_model.predict(features["train"], 8)["logits"]
        labels = features["train"].dense["label_ids"][:, 0]
        score = float((logits.argmax(axis=1) == labels).mean())
        return ToyEvaluation({"score": score, "loss": 1 - score})

    def save(self, model, directory, tokenizer, *, is_same=False):
        labels = self.objective.stored["labels"]
        model_directory.save(model, directory, tokenizer, labels=labels)

    def card(self, flags):
        data = {"train": f"{len(self.texts)} texts"}
        return Card("BERT for toys", data, "text-classification")

    def scores(self, values, step):
        named = {f"eval_{k}": x for k, x in values.items()}
        return Scores("train", "toys", {"train": "toys"}, named)

    def describe(self, evaluation, step, flags):
        return Description(
            scores=self.scores(evaluation.values, step),
            digest="1",
            title="toys",
            panels=[report.Panel("Loss", ("train/loss",))],
            sections=[],
            facts={"steps": step},
        )

    def complete_training(self, task_model, output):
        pass

    def predicted_sets(self, task_model, step):
        if self.config.do_predict:
            yield ToySet(self, task_model)

    def prompt(self, task_model):
        pass


class ToySet:
    """The texts of --test_file."""

    folder = "toys.incomplete"
    settings = {}
    block_items = 4
    unit = "texts"

    def __init__(self, task, task_model):
        """Takes the texts of the task."""
        self.task, self.task_model = task, task_model
        self.total = len(task.texts)

    @property
    def stream(self):
        return self

    def read(self):
        return self.task.texts

    def key(self, item):
        return item

    def rows_of(self, item):
        return 1

    def encode(self, items):
        return self.task.encode(items)

    def predict(self, encoded):
        return self.task_model.predict(encoded, 8)["logits"]

    def parts(self, items, encoded, predicted):
        labels = self.task.objective.stored["labels"]
        lines = [f"{labels[i]}\n" for i in predicted.argmax(axis=1)]
        return {"labels": "".join(lines).encode()}

    def end(self):
        pass

    def write(self, blocks, output):
        (path,) = output.keep_other_sets(
            "labels.txt", set_name="toys", digest="1"
        )
        blocks.write("labels", path)


def run(root, **flags):
    common = {"output_dir": str(root / "out"), "precision": "float32"}
    config = config_flags.build(ToyConfig, **common | flags)
    runner.run(config, ToyTask)


def train(root, **flags):
    common = {
        "do_train": True,
        "train_file": str(root / "train.txt"),
        "init_checkpoint": str(root / "encoder"),
        "learning_rate": (1e-3, 5e-3),
        "train_batch_size": (8,),
        "num_train_epochs": (6.0,),
    }
    run(root, **common | flags)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("toys")
    words = tiny_runs.SPECIAL + GOOD + OTHER
    tiny_runs.save_encoder(root / "encoder", words)
    rng = np.random.default_rng(1)
    rows = [rng.choice(OTHER, 4).tolist() for _ in range(160)]
    for i in range(1, len(rows), 2):
        rows[i][0] = GOOD[i % 4 // 2]
    lines = map(" ".join, rows)
    (root / "train.txt").write_text("\n".join(lines))
    train(root)
    return root


def test_a_grid_trains_it_and_keeps_the_best_model(root):
    out = root / "out"
    assert len(list((out / "runs").iterdir())) == 2
    assert tiny_runs.eval_results(out)["eval_score"] > 0.9
    for name in ("model.safetensors", "report.html", "README.md", "kept.json"):
        assert (out / name).exists(), name


def test_what_a_kill_at_the_end_of_a_run_left_is_removed(root):
    (run_dir, _) = (root / "out" / "runs").iterdir()
    left = [run_dir / f"model.ckpt-9.{x}" for x in ("index", "data-00000-of-1")]
    for path in left:
        path.write_bytes(b"")
    (run_dir / "best").mkdir(exist_ok=True)
    left.append(run_dir / "best" / "model.ckpt-9.index")
    left[-1].write_bytes(b"")
    train(root)
    assert not any(path.exists() for path in left)


class Killed(BaseException):
    """Ends a command at once, as a signal does."""


SMALLER = {"learning_rate": (1e-4, 2e-4), "num_train_epochs": (2.0,)}


@pytest.fixture(scope="module")
def smaller_grid(root):
    """The directory of a grid whose runs learn little."""
    train(root, output_dir=str(root / "smaller"), **SMALLER)
    return root / "smaller"


@pytest.mark.parametrize("moment", ["after keep", "after save"])
def test_a_smaller_grid_never_reports_the_model_of_a_killed_run(
    root, smaller_grid, monkeypatch, moment
):
    out = shutil.copytree(smaller_grid, root / moment)
    smaller = SMALLER | {"output_dir": str(out)}
    scores = tiny_runs.eval_results(out)
    weights = (out / "model.safetensors").read_bytes()
    keep, save = grid.Results.keep, finetuning._save_model

    def keep_and_end(self, kept):
        keep(self, kept)
        if moment == "after keep":
            raise Killed

    def save_and_end(*arguments):
        save(*arguments)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(grid.Results, "keep", keep_and_end)
        patch.setattr(finetuning, "_save_model", save_and_end)
        with pytest.raises(Killed):
            train(root, **smaller | {"learning_rate": (1e-4, 2e-4, 5e-3)})
    train(root, **smaller)
    assert (out / "model.safetensors").read_bytes() == weights
    assert tiny_runs.eval_results(out) == scores


def test_a_killed_prediction_with_the_kept_model_continues(root, monkeypatch):
    (root / "test.txt").write_text("w1 w2\ngood w1\n" * 5)
    flags = {"do_predict": True, "test_file": str(root / "test.txt")}
    predict, calls = ToySet.predict, []

    def fail_in_the_second_block(self, encoded):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return predict(self, encoded)

    monkeypatch.setattr(ToySet, "predict", fail_in_the_second_block)
    with pytest.raises(KeyboardInterrupt):
        run(root, **flags)
    run(root, **flags)
    assert len(calls) == 2 + 2  # 10 texts in blocks of 4, one of them kept.
    lines = (root / "out" / "labels.txt").read_text().splitlines()
    assert lines == ["no", "yes"] * 5
    assert not (root / "out" / ToySet.folder).exists()


def test_its_export_answers_as_the_command_did(root, tmp_path):
    """Its head is that of a classifier, so it is exported and served as one."""
    tiny_runs.run(
        export_model,
        export_model.ExportConfig,
        model_dir=root / "out",
        output_dir=tmp_path / "toys",
    )
    texts = (root / "test.txt").read_text().splitlines()
    model = tensorflow_engine.ENGINE.load(str(tmp_path / "toys"))
    rows = {"text": np.array([text.encode() for text in texts], object)}
    answers = model.predict("serving_default", rows)
    expected = (root / "out" / "labels.txt").read_text().splitlines()
    assert [x.decode() for x in answers["label"]] == expected
