"""The weights of BERT as checkpoints store them: names, layouts and values.

One table has the names of every variable. Our paths are the names in the
released TF1 checkpoints. `N` is the number of a layer:

    bert/encoder/layer_N/output/dense/kernel [I, H]        TF1 and ours
    bert.encoder.layer.N.output.dense.weight [H, I]        Hugging Face

Hugging Face stores kernels transposed. Its decoder.weight and decoder.bias are
copies of tied tensors and have no row. Variables of heads that only this
project has have none either: their name is their path with dots.

The readers of all formats use the table to return tensors under our paths and
in our layout: `Matched`. `assign` sets the variables of a model. Names and
shapes are checked first; the values are read one tensor at a time.
"""

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from foundation import errors
from modeling.config import BertConfig


class NameRow(NamedTuple):
    """One kind of variable.

    path: Our path, which is the TF1 name.
    hugging_face: The name in a transformers checkpoint.
    shape: Letters, see `shapes`; None for the size of a head.
    is_transposed: Whether Hugging Face stores the transposed matrix.
    """

    path: str
    hugging_face: str
    shape: tuple[str | None, ...] = ()
    is_transposed: bool = False


def _rows(layers: str) -> list[NameRow]:
    """Returns the rows of layers, each a line with its path and its sizes."""
    rows = []
    for line in layers.strip().splitlines():
        path, *sizes = line.split()
        name = path.replace("/layer_N/", "/layer/N/").replace("/", ".")
        if path.endswith("_embeddings"):
            rows.append(NameRow(path, f"{name}.weight", tuple(sizes)))
            continue
        weight, bias = "kernel", "bias"
        if path.endswith("LayerNorm"):
            weight, bias = "gamma", "beta"
        rows += [
            NameRow(
                f"{path}/{weight}",
                f"{name}.weight",
                tuple(sizes),
                weight == "kernel",
            ),
            NameRow(f"{path}/{bias}", f"{name}.bias", tuple(sizes[-1:])),
        ]
    return rows


def _scores(path: str, name: str, *shape: str | None) -> list[NameRow]:
    return [
        NameRow(f"{path}output_weights", f"{name}.weight", shape),
        NameRow(f"{path}output_bias", f"{name}.bias", shape[:1]),
    ]


_EMBEDDINGS = _rows("""
    bert/embeddings/word_embeddings                V H
    bert/embeddings/token_type_embeddings          TYPES H
    bert/embeddings/position_embeddings            POSITIONS H
    bert/embeddings/LayerNorm                      H
""")
_LAYER = _rows("""
    bert/encoder/layer_N/attention/self/query        H H
    bert/encoder/layer_N/attention/self/key          H H
    bert/encoder/layer_N/attention/self/value        H H
    bert/encoder/layer_N/attention/output/dense      H H
    bert/encoder/layer_N/attention/output/LayerNorm  H
    bert/encoder/layer_N/intermediate/dense          H I
    bert/encoder/layer_N/output/dense                I H
    bert/encoder/layer_N/output/LayerNorm            H
""")
_POOLER = _rows("bert/pooler/dense H H")
MASKED_LM = [
    *_rows("""
        cls/predictions/transform/dense      H H
        cls/predictions/transform/LayerNorm  H
    """),
    NameRow("cls/predictions/output_bias", "cls.predictions.bias", ("V",)),
]
NEXT_SENTENCE = _scores(
    "cls/seq_relationship/", "cls.seq_relationship", "2", "H"
)
CLASSIFIER = _scores("", "classifier", None, None)
SPAN = _scores("cls/squad/", "qa_outputs", "2", None)
_TABLE = [
    *_EMBEDDINGS,
    *_LAYER,
    *_POOLER,
    *MASKED_LM,
    *NEXT_SENTENCE,
    *CLASSIFIER,
    *SPAN,
]
# With a row for each token.
_PER_TOKEN = ("bert/embeddings/word_embeddings", "cls/predictions/output_bias")
# A layer's number in both columns.
_NUMBER = re.compile(r"(?<=/layer_)\d+(?=/)|(?<=\.layer\.)\d+(?=\.)")
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
    last = {"gamma": "weight", "beta": "bias"}
    name = re.sub(r"(?<=LayerNorm\.)(gamma|beta)$", lambda x: last[x[0]], name)
    if name.startswith(("embeddings.", "encoder.", "pooler.")):
        name = f"bert.{name}"
    return _find("hugging_face", name)


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
      InputError: there are two encoders.
    """
    encoder = f"bert{separator}"
    words = re.compile(
        rf"(|.*\{separator})embeddings\{separator}word_embeddings(?:\.weight)?"
    )
    scopes = {found[1] for name in stored if (found := words.fullmatch(name))}
    if len(scopes) > 1 and encoder not in scopes:
        raise errors.InputError(
            f"{where}: {' and '.join(sorted(scopes))} have the word embeddings "
            f"of {len(scopes)} encoders; a checkpoint must have one"
        )
    scope = encoder if encoder in scopes else next(iter(scopes), encoder)
    if scope == encoder or scope.endswith(f"roberta{separator}"):
        return {name: name for name in stored}
    # Heads are beside the encoder: module/bert/... and module/cls/...
    outer = re.sub(rf"(^|\{separator})bert\{separator}$", r"\1", scope)
    parts = tuple(
        f"{scope}{x}{separator}" for x in ("embeddings", "encoder", "pooler")
    )
    return {
        encoder + name.removeprefix(scope)
        if name.startswith(parts)
        else name.removeprefix(outer): name
        for name in stored
    }


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
    sizes: dict[str | None, int] = {
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

    def rearranged(
        self, layout: Callable[[np.ndarray], np.ndarray]
    ) -> "StoredTensor":
        """Returns the tensor in another layout, a function of its values."""
        empty = np.broadcast_to(np.float32(0), self.shape)
        return self._replace(
            shape=np.shape(layout(empty)), read=lambda: layout(self.read())
        )


class Matched(NamedTuple):
    """The tensors of a checkpoint, sorted by purpose.

    tensors: Our path -> weight of BERT, in our layout.
    others: Name in the file -> tensor that is no weight of BERT.
    training_state: Name -> optimizer slot or step. A slot of a TF1 checkpoint
      has our path of its weight; other names are those in the file.
    num_attention_heads: Of the encoder, where the shapes show it, else None.
    kind: One of the kinds of checkpoint_sources.
    """

    tensors: dict[str, StoredTensor]
    others: dict[str, StoredTensor]
    training_state: dict[str, StoredTensor]
    num_attention_heads: int | None = None
    kind: str = ""


def with_layers(
    where: str, tensors: Mapping[str, StoredTensor], layers: Sequence[int]
) -> dict[str, StoredTensor]:
    """Returns the tensors of some layers, renumbered, and of no layer.

    Args:
      where: the file.
      tensors: our path -> tensor.
      layers: numbers of layers; the first becomes layer 0.

    Raises:
      InputError: there is no such layer.
    """
    found = {path: _NUMBER.search(path) for path in tensors}
    numbers = {path: int(x[0]) for path, x in found.items() if x}
    count = 1 + max(numbers.values(), default=-1)
    if missing := [number for number in layers if number >= count]:
        raise errors.InputError(
            f"--init_layers: {where} has {count} layers, numbered from 0; "
            f"there is no layer {missing[0]}"
        )
    places = {number: str(place) for place, number in enumerate(layers)}
    return {
        _NUMBER.sub(places.get(numbers.get(path, -1), ""), path): tensor
        for path, tensor in tensors.items()
        if path not in numbers or numbers[path] in layers
    }


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
        text = f"{len(self.loaded)} variables loaded"
        if self.initialized:
            text += f"; random at first: {', '.join(self.initialized)}"
        if unused := self.left_over:
            text += f"; in the file, not used: {len(unused)}, e.g. {unused[0]}"
        return text


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
    value = np.asarray(value, np.float32, order="C")  # Also of no axis.
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
    unused, found = {**(others or {}), **tensors}, {}
    for path, variable in variables.items():
        names = {path, stored_name(path)} & unused.keys()
        if not names or path.startswith(tuple(initial)):
            continue
        tensor, shape = unused.pop(names.pop()), tuple(variable.shape)
        added = shape[0] - tensor.shape[0] if path in _PER_TOKEN else 0
        if 0 < added <= added_tokens:
            tensor = _grown(tensor, variable)
        check_shape(where, path, tensor, shape)
        found[path] = tensor
    for path, tensor in found.items():
        variables[path].assign(values(where, tensor))
    initialized = [path for path in variables if path not in found]
    left_over = [tensors[x].name if x in tensors else x for x in unused]
    return Report(list(found), initialized, left_over)


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
        others: Names of the file's other tensors.
    """
    ours = [path for path in variables if is_encoder(path)]
    missing = [path for path in ours if path not in tensors]
    surplus = [
        tensor.name
        for path, tensor in tensors.items()
        if is_encoder(path) and path not in variables
    ]
    if missing:
        has_none = len(missing) == len(ours)
        message = "none of its weights belongs to a BERT encoder; it "
        unused = [*surplus, *others] or [x.name for x in tensors.values()]
        raise errors.InputError(
            f"{where}: {message if has_none else ''}lacks {len(missing)} of "
            f"the encoder's {len(ours)} variables, such as {missing[0]}; it "
            f"has {errors.listed(unused[:3]) or 'nothing'}"
        )
    if surplus:
        raise errors.InputError(
            f"{where}: {len(surplus)} variables are not part of this model's "
            f"encoder, such as {surplus[0]}"
        )


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
    is_needed = path.startswith(("bert/", "cls/predictions/"))
    advice = "; convert_checkpoint.py --drop_heads leaves heads out"
    raise errors.InputError(
        f"{where}: {tensor.name} is {list(tensor.shape)}, which does not fit "
        f"{path} {list(wanted)} of this model{'' if is_needed else advice}"
    )
