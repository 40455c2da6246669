"""Tiny models of every task, their exports, and texts that are hard to read."""

import pathlib
from collections.abc import Callable

import tensorflow as tf
import tiny_runs

import export_model
from foundation import config_flags
from modeling import models
from serving import opened_model, saved_model
from weights import model_directory

WORDS = [
    *tiny_runs.SPECIAL,
    *"the cat dog sat on mat mary lives in paris . , ? ! ' s".split(),
    *"##s ##ing ##ly a b c x ##x ##a cafe \u05e9\u05dc\u05d5\u05dd".split(),
    *"\u4e2d \u6587 \U0001f600 1 2 ##2 - ( ) who where".split(),
]
TEXTS = [
    "The cat sat on the mat.",
    "",
    "Mary lives in Paris, the cat's paris!",
    "the cat sat on the mat " * 435,  # 10,005 characters.
    "x" * 10000,
    "\U0001f600 cat \U0001f600\u200d\U0001f525 dogs",
    "\u05e9\u05dc\u05d5\u05dd \u202bthe cat\u202c \u05e9\u05dc\u05d5\u05dd",
    "Cafe\u0301 CAF\u00c9\u3000\u4e2d\u6587\u4e2d mat\u0000s",
    " \u00a0 ",
    "?",
]


def save_model(
    directory: pathlib.Path,
    make_model: type,
    words: list[str] = WORDS,
    *,
    labels: list[str] | None = None,
    problem_type: str | None = None,
    positions: int = 48,
    layers: int = 1,
    **arguments,
) -> pathlib.Path:
    """Saves a model with large random weights and its vocabulary."""
    config = tiny_runs.config(
        words,
        num_hidden_layers=layers,
        max_position_embeddings=positions,
        initializer_range=0.4,
    )
    model = make_model(config, seed=5, **arguments)
    # Released vocabularies may be longer than a model's own lines.
    model_directory.save(
        model, str(directory), labels=labels, problem_type=problem_type
    )
    (directory / "vocab.txt").write_text("\n".join(words) + "\n")
    return directory


def export(model_dir: pathlib.Path, output_dir: pathlib.Path, **flags):
    """Calls export_model.py; returns the directory of the SavedModel."""
    tiny_runs.run(
        export_model,
        export_model.ExportConfig,
        model_dir=model_dir,
        output_dir=output_dir,
        **flags,
    )
    return output_dir


def opened(model_dir: pathlib.Path, **flags) -> opened_model.OpenedModel:
    """Opens a model with flags of export_model.py."""
    config = config_flags.parse(
        export_model.ExportConfig,
        [
            "export_model.py",
            f"--model_dir={model_dir}",
            "--output_dir=unused",
            *(f"--{k}={v}" for k, v in flags.items() if v is not None),
        ],
    )
    return opened_model.OpenedModel(str(model_dir), config)


def graph(model_dir: pathlib.Path, **flags) -> Callable:
    """Returns the default signature, without the SavedModel around it.

    It maps lists of strings to arrays.
    """
    signatures = saved_model.signatures(opened(model_dir, **flags))
    function = signatures["serving_default"]

    def call(**texts):
        inputs = {k: tf.constant(v, tf.string) for k, v in texts.items()}
        return {k: v.numpy() for k, v in function(**inputs).items()}

    return call


CLASSIFIER = models.ClassificationModel
LABELS = ["bad", "good", "so-so"]
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def save_all(folder: pathlib.Path) -> pathlib.Path:
    """Saves a model directory of each task, of random weights."""
    for task, count, labels, problem_type in (
        ("classification", 3, LABELS, None),
        ("regression", 1, None, "regression"),
        ("multilabel", 3, LABELS, "multi_label_classification"),
    ):
        save_model(
            folder / task,
            CLASSIFIER,
            num_classes=count,
            labels=labels,
            problem_type=problem_type,
        )
    save_model(
        folder / "token_classification",
        models.TaggingModel,
        num_classes=len(TAGS),
        labels=TAGS,
    )
    for task, make, layers in (
        ("multiple_choice", models.MultipleChoiceModel, 1),
        ("question_answering", models.QuestionAnsweringModel, 1),
        ("fill_mask", models.PretrainingModel, 2),
    ):
        save_model(folder / task, make, layers=layers)
    # As a training with this flag leaves it.
    path = folder / "question_answering" / "run.json"
    path.write_text('{"flags": {"max_query_length": 8}}')
    return folder
