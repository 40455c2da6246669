"""Writes and reads model directories, which transformers loads as they are.

    config.json         the architecture, as transformers spells it
    bert_config.json    the hyperparameters, as google-research/bert does
    model.safetensors   the weights under Hugging Face's names

The vocabulary and tokenizer settings beside them are the caller's.
"""

import os
from collections.abc import Mapping, Sequence

import keras
import numpy as np
import safetensors
import safetensors.numpy

from foundation import errors, file_system
from modeling import config as bert_config
from modeling import models
from modeling.config import BertConfig
from weights import hugging_face, stored_weights, weight_names

CONFIG = "config.json"
RELEASED_CONFIG = "bert_config.json"
WEIGHTS = hugging_face.NAME


def save(
    model: keras.Model,
    directory: str,
    labels: Sequence[str] | None = None,
    problem_type: str | None = None,
) -> None:
    """Writes the three files; each appears whole or not at all.

    Args:
        model: One of modeling.models.
        directory: Is made if need be.
        labels: Names of the classes, for classifiers and taggers.
        problem_type: As transformers calls it, where the model does not show.
    """
    causal = model.bert.attention == "left_to_right"
    count = getattr(model, "num_classes", None)
    if labels is None and count is not None:
        labels = [f"LABEL_{i}" for i in range(count)]
    is_classifier = isinstance(model, models.ClassificationModel)
    if problem_type is None and is_classifier and count == 1:
        problem_type = "regression"
    write(
        directory,
        model.config,
        {v.path: keras.ops.convert_to_numpy(v) for v in model.weights},
        architecture=architecture(model),
        is_decoder=causal,
        labels=labels,
        problem_type=problem_type,
        bilstm_size=getattr(model, "bilstm_size", 0),
    )


def write(
    directory: str,
    config: BertConfig,
    values: Mapping[str, np.ndarray],
    *,
    architecture: str,
    is_decoder: bool = False,
    labels: Sequence[str] | None = None,
    problem_type: str | None = None,
    bilstm_size: int = 0,
) -> None:
    """Writes the three files of weights that need not be in a model.

    Args:
        directory: Is made if need be.
        config: The released hyperparameters.
        values: Our path -> float32 values.
        architecture: The class of transformers with the same heads.
        is_decoder: Whether places see only those before them.
        labels: Names of the classes.
        problem_type: As transformers calls it, where it must be told.
        bilstm_size: Of a BiLSTM under the head; transformers knows none.
    """
    os.makedirs(directory, exist_ok=True)
    tensors = {}
    for path, value in values.items():
        name, transpose = weight_names.to_hugging_face(path)
        tensors[name] = np.ascontiguousarray(value.T if transpose else value)

    # transformers refuses files that do not name a format.
    metadata = {"format": "pt"}
    with file_system.replacing(os.path.join(directory, WEIGHTS)) as path:
        try:
            safetensors.numpy.save_file(tensors, path, metadata=metadata)
        except safetensors.SafetensorError as error:  # A full disk, mostly.
            raise OSError(f"{directory}: {error}") from error
    write_configs(
        directory,
        config,
        architecture=architecture,
        is_decoder=is_decoder,
        labels=labels,
        problem_type=problem_type,
        bilstm_size=bilstm_size,
    )


def write_configs(
    directory: str,
    config: BertConfig,
    *,
    architecture: str,
    is_decoder: bool = False,
    labels: Sequence[str] | None = None,
    problem_type: str | None = None,
    bilstm_size: int = 0,
) -> None:
    """Writes bert_config.json and config.json; takes what `write` takes."""
    values = {"architectures": [architecture]} | config.to_hugging_face()
    if is_decoder:
        values["is_decoder"] = True
    if labels is not None:
        values["id2label"] = {str(i): label for i, label in enumerate(labels)}
        values["label2id"] = {label: i for i, label in enumerate(labels)}
    if problem_type is not None:
        values["problem_type"] = problem_type
    if bilstm_size:
        values["bilstm_size"] = bilstm_size
    file_system.write_json(
        os.path.join(directory, RELEASED_CONFIG), config.to_dict()
    )
    file_system.write_json(os.path.join(directory, CONFIG), values)


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


def read_bilstm_size(directory: str) -> int:
    """Reads the size of the BiLSTM under the head; 0 where there is none."""
    path = os.path.join(directory, CONFIG)
    size = _read_json_object(path).get("bilstm_size", 0)
    if not isinstance(size, int) or size < 0:
        raise errors.InputError(f"{path}: bilstm_size must not be {size!r}")
    return size


def read_labels(directory: str) -> list[str] | None:
    """Reads the names of the classes, or None where there are none."""
    path = os.path.join(directory, CONFIG)
    labels = _read_json_object(path).get("id2label")
    if labels is None:
        return None
    try:
        return [str(labels[key]) for key in sorted(labels, key=int)]
    except (TypeError, ValueError) as error:
        raise errors.InputError(
            f"{path}: id2label must map numbers to names"
        ) from error


def read_architecture(directory: str) -> str | None:
    """Reads the name of transformers' class, or None."""
    path = os.path.join(directory, CONFIG)
    names = _read_json_object(path).get("architectures")
    is_list = isinstance(names, list) and names and isinstance(names[0], str)
    return names[0] if is_list else None


def read_problem_type(directory: str) -> str | None:
    """Reads whether labels are scores, classes or several at once, if told."""
    path = os.path.join(directory, CONFIG)
    return _read_json_object(path).get("problem_type")


def load_weights(model: keras.Model, directory: str) -> stored_weights.Report:
    """Sets the model's variables from model.safetensors.

    Args:
        model: One of modeling.models; variables that the file lacks keep
            their values.
        directory: With a model.safetensors under Hugging Face's names.

    Returns:
        What was loaded, initialized and left over.
    """
    stored = hugging_face.read_directory(directory)
    where = os.path.join(directory, WEIGHTS)
    matched = stored_weights.from_hugging_face(where, stored)
    return stored_weights.assign(
        model, matched.tensors, where=where, others=matched.others
    )


def architecture(model: keras.Model) -> str:
    """Names the class of transformers that has the same heads."""
    model = getattr(model, "tagger", model)  # Under a CRF.
    causal = model.bert.attention == "left_to_right"
    if isinstance(model, models.PretrainingModel):
        if model.next_sentence is not None:
            return "BertForPreTraining"
        return "BertLMHeadModel" if causal else "BertForMaskedLM"
    if model.bilstm_size:
        return "BertModel"  # Of which it holds the weights, and more.
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
