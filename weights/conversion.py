"""Turns a checkpoint of any kind into one of the two kinds that we write.

    model_directory   config.json, bert_config.json, model.safetensors,
                      vocab.txt, tokenizer_config.json: transformers loads it
    tf1               bert_model.ckpt, bert_config.json, vocab.txt:
                      google-research/bert loads it; the other JSON files too

Values are never computed with: 32 bits in are the same 32 bits out. The files
that say how a model must be asked come along in both.
"""

import dataclasses
import math
import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from absl import logging

from data import examples
from data.tokenization import wordpiece
from foundation import errors, file_system
from modeling.config import BertConfig
from weights import (
    checkpoint_sources,
    model_directory,
    stored_weights,
    task_files,
    tensorflow_checkpoints,
    tokenizer_files,
    weight_names,
)
from weights.checkpoint_sources import Source
from weights.stored_weights import StoredTensor

MODEL_DIRECTORY, TF1 = "model_directory", "tf1"
# Without them a model runs all the same, and answers otherwise.
BESIDE = (task_files.CRF, task_files.SQUAD_SETTINGS, task_files.TRUE_CASE)
_HEADS = {
    "masked_lm": weight_names.MASKED_LM,
    "next_sentence": weight_names.NEXT_SENTENCE,
    "classifier": weight_names.CLASSIFIER,
    "span": weight_names.SPAN,
}
# Classes of transformers by the heads that they have, the usual one first.
_ARCHITECTURES = {
    "BertForPreTraining": {"masked_lm", "next_sentence"},
    "BertForMaskedLM": {"masked_lm"},
    "BertLMHeadModel": {"masked_lm"},
    "BertForNextSentencePrediction": {"next_sentence"},
    "BertForSequenceClassification": {"classifier"},
    "BertForTokenClassification": {"classifier"},
    "BertForMultipleChoice": {"classifier"},
    "BertForQuestionAnswering": {"span"},
    "BertModel": set(),
}


@dataclasses.dataclass(kw_only=True)
class Checkpoint:
    """A model in memory, on its way from one form to another.

    Attributes:
      config: the released hyperparameters.
      values: our path -> float32 values.
      tokenizer: None where the source has no vocabulary.
      architecture: the class of transformers with these heads.
      is_decoder: whether places see only those before them.
      bilstm_size: of a BiLSTM under the head; 0 is none.
      labels: names of the classes.
      problem_type: as transformers calls it.
      training_state: optimizer slots and the step, if they are kept.
      beside: name -> bytes of those of BESIDE that lie beside the weights.
      left_out: names of those that lie there and do not come along.
    """

    config: BertConfig
    values: dict[str, np.ndarray]
    tokenizer: wordpiece.Tokenizer | None
    architecture: str
    is_decoder: bool
    bilstm_size: int
    labels: list[str] | None
    problem_type: str | None
    training_state: dict[str, np.ndarray]
    beside: dict[str, bytes]
    left_out: list[str]


def load(
    source: checkpoint_sources.Source,
    *,
    config: BertConfig | None = None,
    do_lower_case: bool | None = None,
    drop_heads: bool = False,
    keep_training_state: bool = False,
) -> Checkpoint:
    """Reads everything of a source that can be written again.

    Args:
      source: the checkpoint.
      config: where none lies beside it.
      do_lower_case: where nothing beside it says so.
      drop_heads: leaves everything but encoder and pooler out, and with the
        heads what they must be asked with.
      keep_training_state: also reads optimizer slots and the step.

    Raises:
      InputError: the config is missing or another model's, or a weight is.
    """
    config = _config(source, config)
    tensors = {
        path: tensor
        for path, tensor in source.tensors.items()
        if path.startswith("bert/") or not drop_heads
    }
    heads = _heads(tensors)
    bilstm_size = _bilstm_size(source, tensors)
    _check(source.path, config, tensors, heads, bilstm_size)
    architecture = _architecture(source, heads, bilstm_size)
    labels, problem_type = _classes(source, architecture, tensors)
    state = source.training_state if keep_training_state else {}
    beside = _beside(os.path.dirname(source.path))
    return Checkpoint(
        config=config,
        values={
            path: stored_weights.values(source.path, tensor)
            for path, tensor in tensors.items()
        },
        tokenizer=_tokenizer(source.directory, do_lower_case),
        architecture=architecture,
        is_decoder=_reads_left_to_right(source),
        bilstm_size=bilstm_size,
        labels=labels,
        problem_type=problem_type,
        training_state={name: t.read() for name, t in state.items()},
        beside={} if drop_heads else beside,
        left_out=list(beside) if drop_heads else [],
    )


def write(checkpoint: Checkpoint, directory: str, output_format: str) -> str:
    """Writes it in the given form; returns what to give as --init_checkpoint.

    Raises:
      InputError: the directory holds a checkpoint already, or what another
        one must be asked with.
    """
    _refuse_another(directory, checkpoint)
    settings = {
        "architecture": checkpoint.architecture,
        "is_decoder": checkpoint.is_decoder,
        "bilstm_size": checkpoint.bilstm_size,
        "labels": checkpoint.labels,
        "problem_type": checkpoint.problem_type,
    }
    os.makedirs(directory, exist_ok=True)
    # Before the weights, which never are without them then.
    for name, data in checkpoint.beside.items():
        file_system.write_bytes(os.path.join(directory, name), data)
    written = directory
    if output_format == TF1:
        written = os.path.join(directory, tensorflow_checkpoints.PREFIX)
        if checkpoint.config.hidden_act == "gelu_erf":
            logging.warning(
                'hidden_act is "gelu_erf" in %s: google-research/bert has only '
                'the tanh form and refuses it; do not write "gelu" there, the '
                "outputs would differ",
                model_directory.RELEASED_CONFIG,
            )
        model_directory.write_configs(directory, checkpoint.config, **settings)
        tensorflow_checkpoints.write(
            written, checkpoint.values | checkpoint.training_state
        )
    else:
        model_directory.write(
            directory, checkpoint.config, checkpoint.values, **settings
        )
    if checkpoint.tokenizer is not None:
        tokenizer_files.save(
            checkpoint.tokenizer,
            directory,
            max_length=checkpoint.config.max_position_embeddings,
        )
    return written


def _config(
    source: checkpoint_sources.Source, config: BertConfig | None
) -> BertConfig:
    """Returns the given config or the one beside it, if it is its model's."""
    config = config or source.config
    if config is None:
        raise errors.InputError(
            f"{source.path}: no {model_directory.RELEASED_CONFIG} beside it; "
            "name one by --bert_config_file"
        )
    checkpoint_sources.check_config(source, config, "--bert_config_file")
    return config


def _beside(directory: str) -> dict[str, bytes]:
    """Reads what the model of a directory must be asked with."""
    found = {}
    for name in BESIDE:
        path = os.path.join(directory, name)
        if file_system.exists(path):
            with open(file_system.local(path), "rb") as file:
                found[name] = file.read()
    return found


def _refuse_another(directory: str, checkpoint: Checkpoint) -> None:
    """Refuses a directory with files of another checkpoint."""
    for name in (
        model_directory.WEIGHTS,
        f"{tensorflow_checkpoints.PREFIX}.index",
        *(name for name in BESIDE if name not in checkpoint.beside),
    ):
        if os.path.exists(os.path.join(directory, name)):
            raise errors.InputError(
                f"--output={directory}: {name} is there already; remove it or "
                "choose another directory"
            )


def _heads(tensors: dict) -> set[str]:
    """Names the heads of which anything is there."""
    return {
        name
        for name, rows in _HEADS.items()
        if any(row.path in tensors for row in rows)
    }


def _bilstm_size(source: checkpoint_sources.Source, tensors: dict) -> int:
    """Returns the size of the BiLSTM under the head, if it comes along."""
    if not any(row.path in tensors for row in weight_names.BILSTM):
        return 0
    return model_directory.read_bilstm_size(source.directory)


def _check(
    where: str,
    config: BertConfig,
    tensors: dict,
    heads: set,
    bilstm_size: int,
) -> None:
    """Refuses weights that are not those of the config's model."""
    classes = 2
    if "classifier" in heads:
        weights = tensors.get("output_weights")
        classes = weights.shape[0] if weights and weights.shape else 0
    rows = [_HEADS[name] for name in heads]
    if bilstm_size:
        rows.append(weight_names.BILSTM)
    shapes = weight_names.shapes(
        config, *rows, num_classes=classes, bilstm_size=bilstm_size
    )
    stored_weights.check_encoder(where, tensors, shapes)
    for path, shape in shapes.items():
        if path in tensors:
            stored_weights.check_shape(where, path, tensors[path], shape)
        elif not path.startswith("bert/pooler/"):
            raise errors.InputError(
                f"{where}: {path} is missing, but other weights of that head "
                "are there; --drop_heads leaves heads out"
            )


def _tokenizer(
    directory: str, do_lower_case: bool | None
) -> wordpiece.Tokenizer | None:
    """Reads the tokenizer beside the weights, if there is one."""
    if not tokenizer_files.is_here(directory):
        return None
    return tokenizer_files.load(directory, do_lower_case=do_lower_case)


def _classes(
    source: checkpoint_sources.Source, architecture: str, tensors: dict
) -> tuple[list[str] | None, str | None]:
    """Returns a classifier's labels and problem type, None where unneeded."""
    if "output_weights" not in tensors:
        return None, None
    if architecture == "BertForMultipleChoice":
        return None, source.problem_type
    count = tensors["output_weights"].shape[0]
    is_score = architecture == "BertForSequenceClassification" and count == 1
    problem_type = source.problem_type or ("regression" if is_score else None)
    labels = None
    if source.has_settings:
        labels = model_directory.read_labels(source.directory)
    if labels is None or len(labels) != count:
        if labels is not None:
            logging.warning(
                "%s names %d labels, but the classifier has %d",
                source.directory,
                len(labels),
                count,
            )
        labels = examples.unnamed(count)
    return labels, problem_type


def _architecture(
    source: checkpoint_sources.Source, heads: set, bilstm_size: int
) -> str:
    """Chooses the class of transformers: the declared one, if it fits."""
    declared = None
    if source.has_settings:
        declared = model_directory.read_architecture(source.directory)
    if bilstm_size:
        return "BertModel"  # Of which it holds the weights, and more.
    if _ARCHITECTURES.get(declared) == heads:
        return declared
    if _reads_left_to_right(source) and heads == {"masked_lm"}:
        return "BertLMHeadModel"
    for name, theirs in _ARCHITECTURES.items():
        if theirs == heads:
            return name
    if declared in _ARCHITECTURES and _ARCHITECTURES[declared] <= heads:
        return declared
    return "BertForPreTraining"


def _reads_left_to_right(source: checkpoint_sources.Source) -> bool:
    """Tells whether places see only those before them."""
    attention = model_directory.read_attention(source.directory)
    return attention == "left_to_right"


# ----------------------------------------------------------------------
# Says in lines of text what a checkpoint holds, or how two of them differ.


class Comparison(NamedTuple):
    """How two checkpoints differ.

    lines: one per variable that differs, and a summary.
    is_equal: whether nothing differs by more than the tolerance.
    """

    lines: list[str]
    is_equal: bool


def contents(source: Source) -> Iterator[str]:
    """Lists names, shapes, types and parameter counts."""
    yield f"{source.path}: {source.kind}"
    if source.config is not None:
        values = source.config.to_dict().items()
        yield "config: " + ", ".join(f"{k}={v}" for k, v in values)
    for path in sorted(source.tensors):
        tensor = source.tensors[path]
        alias = "" if tensor.name == path else f"  <- {tensor.name}"
        yield _line(path, tensor) + alias
    for title, tensors in (
        ("no place in BERT", source.others),
        ("of training", source.training_state),
    ):
        for name in sorted(tensors):
            yield f"{_line(name, tensors[name])}  ({title})"
    total = sum(math.prod(t.shape) for t in source.tensors.values())
    yield f"{len(source.tensors)} variables, {total:,} parameters"


def compare(one: Source, other: Source, tolerance: float) -> Comparison:
    """Compares by value, whatever forms the two have."""
    lines, largest, is_equal = [], 0.0, True
    for path in sorted(one.tensors.keys() | other.tensors.keys()):
        if path not in one.tensors or path not in other.tensors:
            where = one if path in one.tensors else other
            lines.append(f"{path}  only in {where.path}")
            is_equal = False
            continue
        a = stored_weights.values(one.path, one.tensors[path])
        b = stored_weights.values(other.path, other.tensors[path])
        if a.shape != b.shape:
            lines.append(f"{path}  {list(a.shape)} and {list(b.shape)}")
            is_equal = False
            continue
        difference = float(np.max(np.abs(a - b), initial=0.0))
        largest = max(largest, difference)
        if difference > 0:
            lines.append(f"{path}  max |difference| {difference:.3g}")
    if one.config is not None and other.config is not None:
        for key in checkpoint_sources.MUST_AGREE:
            ours, theirs = (getattr(x.config, key) for x in (one, other))
            if ours != theirs:
                lines.append(f"config: {key} is {ours} and {theirs}")
                is_equal = False
    common = len(one.tensors.keys() & other.tensors.keys())
    is_equal = is_equal and largest <= tolerance and common > 0
    if one.others or other.others:
        lines.append(
            f"not compared, as they have no place in BERT: {len(one.others)} "
            f"and {len(other.others)} tensors"
        )
    verdict = "equal" if is_equal else "DIFFERENT"
    lines.append(
        f"{verdict}: {common} variables in both, max |difference| {largest:.3g}"
    )
    return Comparison(lines, is_equal)


def _line(name: str, tensor: StoredTensor) -> str:
    """Describes one tensor."""
    shape = ", ".join(map(str, tensor.shape))
    return f"{name}  {tensor.dtype} [{shape}]  {math.prod(tensor.shape):,}"
