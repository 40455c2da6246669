"""Writes and reads model directories, which transformers loads as they are.

    config.json         the architecture, as transformers spells it
    bert_config.json    the hyperparameters, as google-research/bert does
    model.safetensors   the weights under Hugging Face's names

The vocabulary and tokenizer settings beside them are the caller's.
"""

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import numpy as np
import safetensors
import safetensors.numpy

import errors
from modeling import config as bert_config
from modeling import models, weight_names
from modeling.config import BertConfig

CONFIG = "config.json"
RELEASED_CONFIG = "bert_config.json"
WEIGHTS = "model.safetensors"


class Report(NamedTuple):
    """What became of the weights of a file and the variables of a model.

    loaded: Paths of variables that got their value from the file.
    initialized: Paths of variables that the file lacks.
    left_over: Names in the file that the model has no place for.
    """

    loaded: list
    initialized: list
    left_over: list

    def summary(self) -> str:
        """Says it in one line."""
        parts = [f"{len(self.loaded)} variables loaded"]
        if self.initialized:
            parts.append("initialized: " + ", ".join(self.initialized))
        if self.left_over:
            parts.append("not used: " + ", ".join(self.left_over))
        return "; ".join(parts)


def save(
    model: keras.Model, directory: str, labels: Sequence[str] | None = None
) -> None:
    """Writes the three files; each appears whole or not at all.

    Args:
        model: One of modeling.models.
        directory: Is made if need be.
        labels: Names of the classes, for classifiers and taggers.
    """
    os.makedirs(directory, exist_ok=True)
    tensors = {}
    for variable in model.weights:
        name, transpose = weight_names.to_hugging_face(variable.path)
        value = keras.ops.convert_to_numpy(variable)
        tensors[name] = np.ascontiguousarray(value.T if transpose else value)

    def write_weights(path):
        # transformers refuses files that do not name a format.
        metadata = {"format": "pt"}
        try:
            safetensors.numpy.save_file(tensors, path, metadata=metadata)
        except safetensors.SafetensorError as error:  # A full disk, mostly.
            raise OSError(f"{directory}: {error}") from error

    _write(os.path.join(directory, WEIGHTS), write_weights)
    _write_json(
        os.path.join(directory, RELEASED_CONFIG), model.config.to_dict()
    )
    _write_json(os.path.join(directory, CONFIG), _config(model, labels))


def read_config(directory: str) -> BertConfig:
    """Reads config.json, or bert_config.json where there is no other."""
    for name in (CONFIG, RELEASED_CONFIG):
        path = os.path.join(directory, name)
        if os.path.exists(path):
            return BertConfig.from_json_file(path)
    raise errors.InputError(
        f"{directory}: no model directory ({CONFIG} is missing)"
    )


def read_attention(directory: str) -> str:
    """Reads which way the model looks: a BertEncoder's `attention`."""
    path = os.path.join(directory, CONFIG)
    values = _read_json_object(path) if os.path.exists(path) else {}
    return "left_to_right" if values.get("is_decoder") else "bidirectional"


def read_labels(directory: str) -> list[str] | None:
    """Reads the names of the classes, or None where there are none."""
    values = _read_json_object(os.path.join(directory, CONFIG))
    labels = values.get("id2label")
    if labels is None:
        return None
    return [labels[key] for key in sorted(labels, key=int)]


def load_weights(model: keras.Model, directory: str) -> Report:
    """Sets the model's variables from model.safetensors.

    Args:
        model: One of modeling.models; variables that the file lacks keep
            their values.
        directory: With a model.safetensors under Hugging Face's names.

    Returns:
        Report.
    """
    path = os.path.join(directory, WEIGHTS)
    if not os.path.exists(path):
        raise errors.InputError(f"{directory}: {WEIGHTS} is missing")
    variables = {variable.path: variable for variable in model.weights}
    loaded, left_over = [], []
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            found = _match(path, file, variables, left_over)
            for target, (name, transpose) in found.items():
                value = file.get_tensor(name)
                variables[target].assign(value.T if transpose else value)
                loaded.append(target)
    except safetensors.SafetensorError as error:
        raise errors.InputError(f"{path}: {error}") from error
    initialized = [name for name in variables if name not in found]
    return Report(loaded, initialized, left_over)


def _match(path: str, file, variables: dict, left_over: list) -> dict:
    """Finds each variable's tensor; checks shapes before anything is read."""
    found = {}
    for name in file.keys():  # noqa: SIM118 (safe_open is no dict)
        if weight_names.is_derived(name):
            continue
        target, transpose = weight_names.from_hugging_face(name) or ("", False)
        if target not in variables:
            left_over.append(name)
            continue
        shape = tuple(file.get_slice(name).get_shape())
        wanted = tuple(variables[target].shape)
        if (shape[::-1] if transpose else shape) != wanted:
            raise errors.InputError(
                f"{path}: {name} is {list(shape)}, which does not fit "
                f"{target} {list(wanted)} of this model"
            )
        if target in found:
            raise errors.InputError(
                f"{path}: {found[target][0]} and {name} are the same weight"
            )
        found[target] = (name, transpose)
    return found


def _config(model: keras.Model, labels: Sequence[str] | None) -> dict:
    """Builds config.json."""
    causal = model.bert.attention == "left_to_right"
    values = {"architectures": [_architecture(model, causal)]}
    values |= model.config.to_hugging_face()
    if causal:
        values["is_decoder"] = True
    count = getattr(model, "num_classes", None)
    if labels is None and count is not None:
        labels = [f"LABEL_{i}" for i in range(count)]
    if labels is not None:
        values["id2label"] = {str(i): label for i, label in enumerate(labels)}
        values["label2id"] = {label: i for i, label in enumerate(labels)}
    if isinstance(model, models.ClassificationModel) and count == 1:
        values["problem_type"] = "regression"
    return values


def _architecture(model: keras.Model, causal: bool) -> str:
    """Names the class of transformers that has the same heads."""
    if isinstance(model, models.PretrainingModel):
        if model.next_sentence is not None:
            return "BertForPreTraining"
        return "BertLMHeadModel" if causal else "BertForMaskedLM"
    return {
        models.ClassificationModel: "BertForSequenceClassification",
        models.MultipleChoiceModel: "BertForMultipleChoice",
        models.QuestionAnsweringModel: "BertForQuestionAnswering",
        models.TaggingModel: "BertForTokenClassification",
    }[type(model)]


def _read_json_object(path: str) -> dict:
    """Reads a JSON file that must hold an object."""
    values = bert_config.read_json(path)
    if not isinstance(values, dict):
        raise errors.InputError(f"{path}: not a JSON object")
    return values


def _write_json(path: str, values: dict) -> None:
    """Writes an object as indented JSON."""

    def write(temporary):
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(values, file, indent=2)
            file.write("\n")

    _write(path, write)


def _write(path: str, write: Callable[[str], None]) -> None:
    """Calls write(temporary) beside the place, then moves the file there."""
    directory, name = os.path.split(path)
    handle, temporary = tempfile.mkstemp(dir=directory, prefix=f".{name}.")
    os.close(handle)
    try:
        write(temporary)
        # mkstemp makes files that only their owner may read.
        os.chmod(temporary, 0o644)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise
