"""Understands the TF2 checkpoints of TensorFlow Model Garden.

They name objects, not variables, and the names depend on how the encoder was
put together. The encoder that is a functional model numbers its layers in the
order of the graph; the newer one has attributes, whose names are the ones in
`weight_names`:

    encoder/layer_with_weights-4/_attention_layer/_key_dense/kernel
    encoder/_transformer_layers/0/_attention_layer/_key_dense/kernel

Attention has [H, N, D] kernels, [N, D] biases and an [N, D, H] output kernel:
the same numbers in the same order as [H, H] and [H]. Tables of scores are
transposed. The shapes say how many heads there are.
"""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from foundation import errors
from weights import weight_names
from weights.stored_weights import Matched, StoredTensor

_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_EMBEDDINGS = (
    "_embedding_layer/embeddings",
    "_position_embedding_layer/embeddings",
    "_type_embedding_layer/embeddings",
)
_NUMBERED = re.compile(r"(.*/|)layer_with_weights-(\d+)/(.+)")
_NAMED = re.compile(
    r"(?:.*/|)((?:_transformer_layers|_embedding_layer|_type_embedding_layer"
    r"|_position_embedding_layer|_embedding_norm_layer|_pooler_layer)/.+)"
)
# Heads below the root, or below the model that holds the encoder. The pooler
# of a pretrainer is in its next-sentence head.
_HEADS = (
    (r"(?:.*/|)masked_lm/(.+)", r"masked_lm/\1"),
    (
        r"(?:next_sentence|sentence_prediction)\.\.pooler_dense/(.+)",
        r"_pooler_layer/\1",
    ),
    (r"(?:.*/|)span_labeling/(?:.+/)?(kernel|bias)", r"span_labeling/\1"),
)
_SCORES = re.compile(r"(?:.*/|)classification_heads/0/out_proj/(kernel|bias)")


class ModelGarden(NamedTuple):
    """What a checkpoint holds, and the number of heads that it shows."""

    matched: Matched
    num_attention_heads: int


def read(where: str, stored: Mapping[str, StoredTensor]) -> ModelGarden:
    """Renames, reshapes and transposes a TF2 checkpoint's weights.

    Raises:
      InputError: there is no BERT encoder in it.
    """
    names = {
        name: name[: -len(_SUFFIX)]
        for name in stored
        if name.endswith(_SUFFIX) and ".OPTIMIZER_SLOT" not in name
    }
    numbered = _numbered_layers(where, names.values())
    head = "next_sentence"
    if any(name.startswith("sentence_prediction.") for name in names.values()):
        head = "sentence_prediction"
    tensors: dict[str, StoredTensor] = {}
    others, heads = {}, 0
    for name, tensor in stored.items():
        known = names.get(name)
        spelled = numbered.get(known) or _spelled(known or "", head)
        path = weight_names.from_model_garden(spelled) if spelled else None
        if path is None or path in tensors:
            others[name] = tensor
            continue
        if path.endswith("query/bias") and len(tensor.shape) == 2:
            heads = tensor.shape[0]
        tensors[path] = _in_our_layout(path, tensor)
    if not any(weight_names.is_encoder(path) for path in tensors):
        raise errors.InputError(
            f"{where}: a TF2 checkpoint, but without the objects of Model "
            f"Garden's BERT encoder (it holds {next(iter(names), 'nothing')})"
        )
    return ModelGarden(Matched(tensors, others), heads)


def is_training_state(name: str) -> bool:
    """Tells an optimizer's and the file's own entries from weights."""
    return (
        not name.endswith(_SUFFIX)
        or ".OPTIMIZER_SLOT" in name
        or name.startswith(("optimizer/", "global_step/", "save_counter/"))
    )


def _numbered_layers(where: str, names) -> dict[str, str]:
    """Finds the functional encoder; says what its numbered layers are."""
    roots: dict[str, dict[str, tuple]] = {}
    for name in names:
        found = _NUMBERED.fullmatch(name)
        if found:
            root, number, rest = found.groups()
            roots.setdefault(root, {})[name] = (int(number), rest)
    for layers in roots.values():
        blocks = sorted(
            {n for n, rest in layers.values() if "_attention_layer/" in rest}
        )
        if not blocks:
            continue
        tables = sorted(
            n for n, rest in layers.values() if rest.endswith("embeddings")
        )
        if len(tables) != len(_EMBEDDINGS) or tables[-1] > blocks[0]:
            raise errors.InputError(
                f"{where}: {len(tables)} embeddings before the first of "
                f"{len(blocks)} transformer layers, where BERT has 3"
            )
        return {
            name: _spelled_layer(number, rest, tables, blocks)
            for name, (number, rest) in layers.items()
        }
    return {}


def _spelled_layer(number: int, rest: str, tables: list, blocks: list) -> str:
    """Returns the newer name of what a numbered layer holds."""
    if number in blocks:
        # Before 2.3, the output projection stood beside the attention.
        rest = rest.replace(
            "_attention_output_dense", "_attention_layer/_output_dense"
        )
        return f"_transformer_layers/{blocks.index(number)}/{rest}"
    if number in tables:
        return _EMBEDDINGS[tables.index(number)]
    if number < blocks[0]:
        return f"_embedding_norm_layer/{rest}"
    return f"_pooler_layer/{rest}"


def _spelled(name: str, head: str) -> str | None:
    """Returns the table's name of an attribute or a head, or None."""
    found = _NAMED.fullmatch(name)
    if found:
        return found[1]
    found = _SCORES.fullmatch(name)
    if found:
        return f"{head}/{found[1]}"
    for pattern, spelling in _HEADS:
        found = re.fullmatch(pattern, name)
        if found:
            return found.expand(spelling)
    return None


def _in_our_layout(path: str, tensor: StoredTensor) -> StoredTensor:
    """Joins the axes of heads; transposes tables of scores."""
    shape = tuple(tensor.shape)
    if path.endswith("output_weights"):
        return tensor._replace(shape=shape[::-1], read=lambda: tensor.read().T)
    if "/attention/" in path and path.endswith(("/kernel", "/bias")):
        if path.endswith("/bias"):
            wanted = (math.prod(shape),)
        elif "/attention/output/" in path:
            wanted = (math.prod(shape[:-1]), shape[-1])
        else:
            wanted = (shape[0], math.prod(shape[1:]))
        return tensor._replace(
            shape=wanted, read=lambda: tensor.read().reshape(wanted)
        )
    return tensor
