"""The weights of BERT as checkpoints store them: names, layouts and values.

One table has the names of every variable. Our paths are the names in the
released TF1 checkpoints, so three columns are enough. `N` is the number of a
layer:

    bert/encoder/layer_N/output/dense/kernel [I, H]        TF1 and ours
    bert.encoder.layer.N.output.dense.weight [H, I]        Hugging Face
    _transformer_layers/N/_output_dense/kernel [I, H]      Model Garden (TF2)

Hugging Face stores kernels transposed, Model Garden the weights of score heads.
Variables without a row, those of heads that only a task of ours knows, have
their own path with dots as their name, and our layout.
Hugging Face's decoder.weight and decoder.bias are copies of tied tensors and
have no row.

The readers of all formats use the table to return tensors under our paths and
in our layout: `Matched`. `assign` sets the variables of a model. Names and
shapes are checked first; the values are read one tensor at a time.
"""

import difflib
import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from foundation import errors
from modeling.config import BertConfig


class NameRow(NamedTuple):
    """One kind of variable.

    path: Our path, which is the TF1 name.
    hugging_face: The name in a transformers checkpoint.
    model_garden: The object's name below the encoder or a head.
    shape: Letters, see `shapes`; None for the size of a head.
    is_transposed: Whether Hugging Face stores the transposed matrix.
    """

    path: str
    hugging_face: str
    model_garden: str
    shape: tuple = ()
    is_transposed: bool = False


def _rows(names: Sequence[str], *endings: tuple) -> list[NameRow]:
    """Adds endings to a layer's names, both in the order of the columns."""
    path, hugging_face, model_garden = names
    return [
        NameRow(path + a, hugging_face + b, model_garden + c, *others)
        for a, b, c, *others in endings
    ]


def _dense(*names: str, inputs: str = "H", outputs: str = "H") -> list[NameRow]:
    return _rows(
        names,
        ("/kernel", ".weight", "/kernel", (inputs, outputs), True),
        ("/bias", ".bias", "/bias", (outputs,)),
    )


def _norm(*names: str) -> list[NameRow]:
    return _rows(
        names,
        ("/gamma", ".weight", "/gamma", ("H",)),
        ("/beta", ".bias", "/beta", ("H",)),
    )


def _scores(
    *names: str, outputs: str | None, inputs: str | None = None
) -> list[NameRow]:
    return _rows(
        names,
        ("output_weights", ".weight", "/kernel", (outputs, inputs)),
        ("output_bias", ".bias", "/bias", (outputs,)),
    )


_TRANSFORM = "cls/predictions/transform"
_HF_TRANSFORM = "cls.predictions.transform"

_EMBEDDINGS = [
    NameRow(
        f"bert/embeddings/{name}_embeddings",
        f"bert.embeddings.{name}_embeddings.weight",
        f"{model_garden}/embeddings",
        (size, "H"),
    )
    for name, model_garden, size in (
        ("word", "_embedding_layer", "V"),
        ("token_type", "_type_embedding_layer", "TYPES"),
        ("position", "_position_embedding_layer", "POSITIONS"),
    )
] + _norm(
    "bert/embeddings/LayerNorm",
    "bert.embeddings.LayerNorm",
    "_embedding_norm_layer",
)
_LAYER = [
    row
    for make, name, model_garden in (
        (_dense, "attention/self/query", "_attention_layer/_query_dense"),
        (_dense, "attention/self/key", "_attention_layer/_key_dense"),
        (_dense, "attention/self/value", "_attention_layer/_value_dense"),
        (_dense, "attention/output/dense", "_attention_layer/_output_dense"),
        (_norm, "attention/output/LayerNorm", "_attention_layer_norm"),
        (
            functools.partial(_dense, outputs="I"),
            "intermediate/dense",
            "_intermediate_dense",
        ),
        (
            functools.partial(_dense, inputs="I"),
            "output/dense",
            "_output_dense",
        ),
        (_norm, "output/LayerNorm", "_output_layer_norm"),
    )
    for row in make(
        f"bert/encoder/layer_N/{name}",
        f"bert.encoder.layer.N.{name.replace('/', '.')}",
        f"_transformer_layers/N/{model_garden}",
    )
]
_POOLER = _dense("bert/pooler/dense", "bert.pooler.dense", "_pooler_layer")
MASKED_LM = [
    *_dense(f"{_TRANSFORM}/dense", f"{_HF_TRANSFORM}.dense", "masked_lm/dense"),
    *_norm(
        f"{_TRANSFORM}/LayerNorm",
        f"{_HF_TRANSFORM}.LayerNorm",
        "masked_lm/layer_norm",
    ),
    NameRow(
        "cls/predictions/output_bias",
        "cls.predictions.bias",
        "masked_lm/bias",
        ("V",),
    ),
]
NEXT_SENTENCE = _scores(
    "cls/seq_relationship/",
    "cls.seq_relationship",
    "next_sentence",
    outputs="2",
    inputs="H",
)
CLASSIFIER = _scores("", "classifier", "sentence_prediction", outputs=None)
SPAN = _scores("cls/squad/", "qa_outputs", "span_labeling", outputs="2")
# Only this project has a BiLSTM between the encoder and the head.
BILSTM = [
    NameRow(
        f"bilstm/{direction}/{name}",
        f"bilstm.{direction}.{name}",
        f"bilstm/{direction}/{name}",
    )
    for direction in ("forward", "backward")
    for name in ("kernel", "recurrent_kernel", "bias")
]
# Only this project pools the windows of a long text.
WINDOW_ATTENTION = [
    NameRow(
        "window_attention/kernel",
        "window_attention.weight",
        "window_attention/kernel",
        is_transposed=True,
    )
]

_TABLE = [
    *_EMBEDDINGS,
    *_LAYER,
    *_POOLER,
    *MASKED_LM,
    *NEXT_SENTENCE,
    *CLASSIFIER,
    *SPAN,
    *BILSTM,
    *WINDOW_ATTENTION,
]
# With a row for each token.
_PER_TOKEN = ("bert/embeddings/word_embeddings", "cls/predictions/output_bias")
# A layer's number in any of the three columns.
_NUMBER = re.compile(
    r"(?<=/layer_)\d+(?=/)|(?<=\.layer\.)\d+(?=\.)"
    r"|(?<=^_transformer_layers/)\d+(?=/)"
)
# Copies of tied tensors, and buffers of older transformers.
_DERIVED = re.compile(
    r"cls\.predictions\.decoder\.(weight|bias)|"
    r"(bert\.)?embeddings\.(position_ids|token_type_ids)"
)


def by_path(path: str) -> NameRow | None:
    """Returns the row of one of our paths, with the layer's number, or None."""
    return _find("path", path)


def stored_name(path: str) -> str:
    """Returns the name in a model directory of one of our paths."""
    row = by_path(path)
    return row.hugging_face if row else path.replace("/", ".")


def by_hugging_face(name: str) -> NameRow | None:
    """Returns the row of a Hugging Face name, or None if it is unknown.

    Names may lack "bert." and, as in old files, end in LayerNorm.gamma or
    LayerNorm.beta.
    """
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
    if name.startswith(("embeddings.", "encoder.", "pooler.")):
        name = f"bert.{name}"
    return _find("hugging_face", name)


def by_model_garden(name: str) -> NameRow | None:
    """Returns the row of a Model Garden name of the table, or None."""
    return _find("model_garden", name)


def unscoped(
    where: str, stored: Collection[str], separator: str
) -> dict[str, str]:
    """Returns name with the encoder in "bert" -> name in the file.

        module/bert/encoder/...   bert/encoder/... <- module/bert/encoder/...
        module/cls/squad/...      cls/squad/...    <- module/cls/squad/...
        encoder/...               bert/encoder/... <- encoder/...

    An encoder in "bert" is the model, whatever other scopes there are. RoBERTa
    is not renamed: it has BERT's names, but counts its positions from 2.

    Args:
      where: the file.
      stored: the names in the file.
      separator: "/" of TF1's names, "." of Hugging Face's.

    Raises:
      InputError: there are two encoders, or two tensors are the same weight.
    """
    encoder = f"bert{separator}"
    parts = tuple(
        f"{x}{separator}" for x in ("embeddings", "encoder", "pooler")
    )
    words = re.compile(
        rf"(|.*\{separator})embeddings\{separator}word_embeddings(?:\.weight)?"
    )
    scopes = {
        name: found[1] for name in stored if (found := words.fullmatch(name))
    }
    if not scopes or encoder in scopes.values():
        return {name: name for name in stored}
    if len(scopes) > 1:
        raise errors.InputError(
            f"{where}: {' and '.join(scopes)} are the word embeddings of "
            f"{len(scopes)} encoders; a checkpoint must have one"
        )
    (scope,) = scopes.values()
    if scope.endswith(f"roberta{separator}"):
        return {name: name for name in stored}
    _log_scope(where, scope, encoder)
    # Heads are beside the encoder: module/bert/... and module/cls/...
    outer = scope
    if f"{separator}{scope}".endswith(f"{separator}{encoder}"):
        outer = scope.removesuffix(encoder)
    names: dict[str, str] = {}
    for name in stored:
        path = name
        if name.startswith(scope) and name[len(scope) :].startswith(parts):
            path = encoder + name.removeprefix(scope)
        elif name.startswith(outer):
            path = name.removeprefix(outer)
        is_weight = by_path(path) or by_hugging_face(path)
        if path in stored and not is_weight:
            path = name  # Two tensors that are no weights, such as steps.
        if path in names:
            raise errors.InputError(
                f"{where}: {names[path]} and {name} are the same weight"
            )
        names[path] = name
    return names


@functools.cache  # A command reads its checkpoint several times.
def _log_scope(where: str, scope: str, encoder: str) -> None:
    change = f"{scope} is replaced by" if scope else "they get the prefix"
    logging.info("%s: names of its encoder: %s %s", where, change, encoder)


def is_encoder(path: str) -> bool:
    """Returns whether every BERT has this variable; the pooler is optional."""
    return path.startswith("bert/") and not path.startswith("bert/pooler/")


def is_derived(hugging_face_name: str) -> bool:
    """Returns whether a tensor is a copy of another one, or a constant."""
    return _DERIVED.fullmatch(hugging_face_name) is not None


def shapes(
    config: BertConfig, *heads: Sequence[NameRow]
) -> dict[str, tuple[int | None, ...]]:
    """Returns path -> shape of the encoder, the pooler and the given heads.

    None stands for a size that only a head's own layer knows.
    """
    sizes = {
        "V": config.vocab_size,
        "H": config.hidden_size,
        "I": config.intermediate_size,
        "2": 2,
        "TYPES": config.type_vocab_size,
        "POSITIONS": config.max_position_embeddings,
    }
    rows = list(_EMBEDDINGS)
    for i in range(config.num_hidden_layers):
        rows += [_with_number(row, str(i)) for row in _LAYER]
    for head in (_POOLER, *heads):
        rows += head
    return {row.path: tuple(map(sizes.get, row.shape)) for row in rows}


@functools.cache
def _column(column: str) -> dict[str, NameRow]:
    return {getattr(row, column): row for row in _TABLE}


def _find(column: str, name: str) -> NameRow | None:
    number = _NUMBER.search(name)
    row = _column(column).get(_NUMBER.sub("N", name))
    return _with_number(row, number[0]) if row and number else row


def _with_number(row: NameRow, number: str) -> NameRow:
    return row._replace(
        path=row.path.replace("N", number, 1),
        hugging_face=row.hugging_face.replace("N", number, 1),
        model_garden=row.model_garden.replace("N", number, 1),
    )


class StoredTensor(NamedTuple):
    """One tensor of a file.

    name: As in the file.
    shape: Of what `read` returns.
    dtype: As the file's format calls it, for listings.
    read: Returns the values.
    """

    name: str
    shape: tuple
    dtype: str
    read: Callable[[], np.ndarray]

    def transposed(self) -> "StoredTensor":
        """Returns the transposed tensor."""
        return self._replace(shape=self.shape[::-1], read=lambda: self.read().T)


class Matched(NamedTuple):
    """The tensors of a checkpoint, sorted by purpose.

    tensors: Our path -> weight of BERT, in our layout.
    others: Name in the file -> tensor that is no weight of BERT.
    training_state: Name -> optimizer slot or step. A slot of a TF1 checkpoint
      has our path of its weight; other names are those in the file.
    num_attention_heads: Of the encoder, where the shapes show it, else None.
    """

    tensors: dict[str, StoredTensor]
    others: dict[str, StoredTensor]
    training_state: dict[str, StoredTensor]
    num_attention_heads: int | None = None


def with_layers(
    tensors: Mapping[str, StoredTensor], layers: Sequence[int]
) -> tuple[dict[str, StoredTensor], int]:
    """Returns the tensors of some layers, renumbered, and of no layer.

    Args:
      tensors: our path -> tensor.
      layers: numbers of layers; the first becomes layer 0.

    Returns:
      The tensors, and the number of all layers.
    """
    found: dict[str, StoredTensor] = {}
    count = 0
    for path, tensor in tensors.items():
        match = _NUMBER.search(path)
        if match is None:
            found[path] = tensor
            continue
        number = int(match[0])
        count = max(count, number + 1)
        if number in layers:
            new = str(layers.index(number))
            found[_NUMBER.sub(new, path)] = tensor
    return found, count


class Report(NamedTuple):
    """The result of assigning a checkpoint's tensors to a model.

    loaded: Paths of variables that got their values from the file.
    initialized: Paths of variables that the file lacks.
    left_over: Names of tensors that the model has no variable for.
    """

    loaded: list
    initialized: list
    left_over: list

    def summary(self) -> str:
        """Returns the report as one line."""
        parts = [f"{len(self.loaded)} variables loaded"]
        if self.initialized:
            parts.append("initialized: " + ", ".join(self.initialized))
        if self.left_over:
            shown, more = self.left_over[:1], len(self.left_over) - 1
            shown += [f"{more} other(s)"] if more else []
            parts.append("not used: " + " and ".join(shown))
        return "; ".join(parts)


def values(where: str, tensor: StoredTensor) -> np.ndarray:
    """Reads a weight as a contiguous array of finite float32.

    Raises:
        InputError: the tensor, in the file `where`, does not hold floats, or
            holds NaN or infinity.
    """
    value = tensor.read()
    if value.dtype.kind != "f":
        raise errors.InputError(
            f"{where}: {tensor.name} is {tensor.dtype}; weights must be floats"
        )
    value = np.ascontiguousarray(value, np.float32)
    # The sum is fast, and not finite if any value is not. It may overflow
    # though all values are finite; only then is each value checked. Both
    # infinities have no sum, of which NumPy would warn.
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.sum(value)
    if not np.isfinite(total) and not np.isfinite(value).all():
        raise errors.InputError(
            f"{where}: {tensor.name} holds NaN or infinite values"
        )
    return value


def assign(
    model: Any,
    tensors: Mapping[str, StoredTensor],
    *,
    where: str,
    others: Mapping[str, StoredTensor] | None = None,
    initial: Sequence[str] = (),
    added_tokens: int = 0,
) -> Report:
    """Sets the model's variables; those that the file lacks keep their values.

    Args:
      model: a Keras model.
      tensors: our path -> tensor.
      where: the file.
      others: the file's other tensors, among them those of heads that are
        stored under their own paths.
      initial: how the paths of variables begin that keep their values.
      added_tokens: how many rows the embeddings of the model may have more,
        which keep their values.

    Raises:
        InputError: a shape differs, or the encoders differ. Only heads and the
            pooler may be missing or left over.
    """
    variables = {variable.path: variable for variable in model.weights}
    check_encoder(where, tensors, variables, others or ())
    found, left_over = {}, dict(others or {})
    used = {x for x in variables if not x.startswith(tuple(initial))}
    for path, tensor in tensors.items():
        if path in used:
            found[path] = tensor
        else:
            left_over[tensor.name] = tensor
    for path in used - tensors.keys():
        for name in {path, stored_name(path)} & left_over.keys():
            found[path] = left_over.pop(name)
    for path in filter(found.__contains__, _PER_TOKEN):
        missing = variables[path].shape[0] - found[path].shape[0]
        if 0 < missing <= added_tokens:
            found[path] = _grown(found[path], variables[path])
    for path, tensor in found.items():
        check_shape(where, path, tensor, tuple(variables[path].shape))
    for path, tensor in found.items():
        variables[path].assign(values(where, tensor))
    initialized = [path for path in variables if path not in found]
    return Report(list(found), initialized, list(left_over))


def _grown(tensor: StoredTensor, variable: Any) -> StoredTensor:
    """Returns a tensor with the last rows of a variable at its end."""

    def read() -> np.ndarray:
        value = tensor.read()
        return np.concatenate([value, variable.numpy()[len(value) :]])

    return tensor._replace(shape=tuple(variable.shape), read=read)


def check_encoder(
    where: str,
    tensors: Mapping[str, StoredTensor],
    variables: Collection[str],
    others: Iterable[str],
) -> None:
    """Raises InputError unless both have the same variables of an encoder.

    Args:
        where: The file.
        tensors: Our path -> weight in the file.
        variables: The paths of the model.
        others: Names of the file's other tensors, of which a message names the
            one that is most similar to the first missing path.
    """
    ours = [path for path in variables if is_encoder(path)]
    theirs = [path for path in tensors if is_encoder(path)]
    missing = [path for path in ours if path not in tensors]
    surplus = [path for path in theirs if path not in variables]
    if missing:
        unused = [*(tensors[path].name for path in surplus), *others]
        used = [tensor.name for tensor in tensors.values()]
        nearest = difflib.get_close_matches(missing[0], unused, 1)
        nearest = nearest or difflib.get_close_matches(
            missing[0], unused + used, 1, cutoff=0.0
        )
        message = f"lacks {missing[0]}{_and_more(missing)}"
        if len(missing) == len(ours):
            message = (
                f"none of its weights belongs to a BERT encoder; it {message}"
            )
        message += f", of the encoder's {len(ours)} variables"
        if nearest:
            message += f"; its most similar name is {nearest[0]}"
        raise errors.InputError(f"{where}: {message}")
    if surplus:
        raise errors.InputError(
            f"{where}: not part of this model's encoder: "
            f"{tensors[surplus[0]].name}{_and_more(surplus)}"
        )


def _and_more(paths: Sequence[str]) -> str:
    return f" and {len(paths) - 1} more" if len(paths) > 1 else ""


def check_shape(
    where: str, path: str, tensor: StoredTensor, wanted: Sequence[int | None]
) -> None:
    """Raises InputError if a tensor does not have the wanted shape.

    None stands for any size.
    """
    shape = tuple(tensor.shape)
    if len(shape) == len(wanted) and all(
        b in (a, None) for a, b in zip(shape, wanted, strict=True)
    ):
        return
    advice = ""
    if not path.startswith(("bert/", "cls/predictions/")):
        advice = "; convert_checkpoint.py --drop_heads leaves heads out"
    raise errors.InputError(
        f"{where}: {tensor.name} is {list(tensor.shape)}, which does not fit "
        f"{path} {list(wanted)} of this model{advice}"
    )
