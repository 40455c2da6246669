"""TensorFlow checkpoints: the released TF1 names, and Model Garden's objects.

    bert_model.ckpt.index                  names, shapes, offsets
    bert_model.ckpt.data-00000-of-00001    values

TensorFlow's own reader reads both, compressed blocks and partitioned variables
included. It verifies the checksums of the index and of each tensor, so that a
damaged file ends in a message. Only an index that was forged, with impossible
shapes under valid checksums, makes TensorFlow abort the process.

TF1 checkpoints of google-research/bert and of our own runs contain our paths,
optimizer slots and the step. Others have the same names under another scope,
which is found where the word embeddings are:

    module/bert/embeddings/word_embeddings, module/output_bias
    embeddings/word_embeddings, output_bias

TF2 checkpoints of Model Garden name objects. The older, functional encoder
numbers its layers in the order of the graph; the newer one has attributes:

    encoder/layer_with_weights-4/_attention_layer/_key_dense/kernel
    encoder/_transformer_layers/0/_attention_layer/_key_dense/kernel

Their attention has kernels [H, N, D], biases [N, D] and an output kernel
[N, D, H], which are our [H, H] and [H] in the same memory order. Their score
heads are transposed. The shapes contain the number of heads N.
"""

import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from foundation import errors, file_system, tensor_files
from weights import stored_weights
from weights.stored_weights import Matched, StoredTensor

PREFIX = "bert_model.ckpt"
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # In every TF2 checkpoint.
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
# Optimizer slots and steps in TF1 checkpoints.
_TRAINING = re.compile(
    r"(.*/)?(adam_[mv]|Adam(_1)?|lamb_[mv]|LAMB(_1)?|AdamWeightDecayOptimizer"
    r"(_1)?|Momentum|beta[12]_power|global_step|save_counter|training_state"
    r"|loss_scale|good_steps|(current_)?loss_scale.*|.*_slot.*)"
)
_NUMBERED = re.compile(r"(.*/|)layer_with_weights-(\d+)/(.+)")
_ATTENTION = re.compile(
    r"(.*/|)(?:layer_with_weights-|_transformer_layers/)\d+/_attention_layer/.+"
)
_QUERY_BIAS = "bert/encoder/layer_0/attention/self/query/bias"
_STATE = ("optimizer/", "global_step/", "save_counter/")
# The embeddings of a functional encoder, in the order of its graph.
_EMBEDDINGS = tuple(
    f"{name}embedding_layer" for name in ("_", "_position_", "_type_")
)


_LAYER, _OURS = r"_transformer_layers/(\d+)/", r"bert/encoder/layer_\1"
_TRANSFORM = "cls/predictions/transform"
_PATTERNS: tuple[tuple[str, str, Callable | None], ...] = (
    (
        _LAYER + "_attention_layer/_(query|key|value)_dense/kernel",
        _OURS + r"/attention/self/\2/kernel",
        lambda x: x.reshape(len(x), -1),
    ),
    (
        _LAYER + "_attention_layer/_(query|key|value)_dense/bias",
        _OURS + r"/attention/self/\2/bias",
        lambda x: x.reshape(-1),
    ),
    (
        _LAYER + "_attention_layer/_output_dense/kernel",
        _OURS + "/attention/output/dense/kernel",
        lambda x: x.reshape(-1, x.shape[-1]),
    ),
    (
        _LAYER + "_attention_layer/_output_dense/bias",
        _OURS + "/attention/output/dense/bias",
        None,
    ),
    (
        _LAYER + "_attention_layer_norm/(.+)",
        _OURS + r"/attention/output/LayerNorm/\2",
        None,
    ),
    (
        _LAYER + "_(intermediate|output)_dense/(.+)",
        _OURS + r"/\2/dense/\3",
        None,
    ),
    (_LAYER + "_output_layer_norm/(.+)", _OURS + r"/output/LayerNorm/\2", None),
    ("_embedding_layer/.+", "bert/embeddings/word_embeddings", None),
    (
        "_position_embedding_layer/.+",
        "bert/embeddings/position_embeddings",
        None,
    ),
    (
        "_type_embedding_layer/.+",
        "bert/embeddings/token_type_embeddings",
        None,
    ),
    ("_embedding_norm_layer/(.+)", r"bert/embeddings/LayerNorm/\1", None),
    # The pooler of a pretrainer is part of its next-sentence head.
    (
        r"(?:_pooler_layer|\w+\.\.pooler_dense)/(.+)",
        r"bert/pooler/dense/\1",
        None,
    ),
    ("masked_lm/dense/(.+)", _TRANSFORM + r"/dense/\1", None),
    ("masked_lm/layer_norm/(.+)", _TRANSFORM + r"/LayerNorm/\1", None),
    ("masked_lm/bias", "cls/predictions/output_bias", None),
    (
        "span_labeling/(?:.+/)?kernel",
        "cls/squad/output_weights",
        np.transpose,
    ),
    ("span_labeling/(?:.+/)?bias", "cls/squad/output_bias", None),
)
_CLASSIFICATION = (
    ("classification_heads/0/out_proj/kernel", "output_weights", np.transpose),
    ("classification_heads/0/out_proj/bias", "output_bias", None),
)


def find(directory: str) -> str | None:
    """Returns the prefix that the file `checkpoint` names, or the only one.

    Raises:
      InputError: there are several, and `checkpoint` names none of them.
    """
    named = tensor_files.named(directory)
    # No glob: the directory's name may have brackets.
    names = (
        []
        if named
        else [
            name.removesuffix(tensor_files.INDEX)
            for name in sorted(file_system.entries(directory))
            if name.endswith(tensor_files.INDEX) and not name.startswith(".")
        ]
    )
    if len(names) > 1:
        raise errors.InputError(
            f"{directory}: {len(names)} checkpoints there "
            f"({errors.listed(names)}); name one of them"
        )
    return os.path.join(directory, names[0]) if names else named


def read(prefix: str) -> dict[str, StoredTensor]:
    """Lists the tensors of a checkpoint; their values are read later.

    Args:
      prefix: the path of the checkpoint's files up to ".index".

    Raises:
      InputError: the index is damaged.
    """
    readable = functools.partial(
        tensor_files.reading, advice="it is damaged or no checkpoint"
    )
    with readable(f"{prefix}.index"):
        reader = tensor_files.open_reader(prefix)
        shapes = reader.get_variable_to_shape_map()
        dtypes = reader.get_variable_to_dtype_map()

    def load(name: str) -> np.ndarray:
        with readable(f"{prefix}: {name}"):
            value = reader.get_tensor(name)
        # NumPy's kind of bfloat16 is not "f". float32 has all of its values.
        is_bfloat16 = dtypes[name].name == "bfloat16"
        return value.astype(np.float32) if is_bfloat16 else value

    return {
        name: StoredTensor(
            name,
            tuple(shapes[name]),
            dtypes[name].name,
            functools.partial(load, name),
        )
        for name in sorted(shapes)
    }


def match_tf1(where: str, stored: Mapping[str, StoredTensor]) -> Matched:
    """Sorts the tensors of a TF1 checkpoint, which has our paths.

    The paths may have another scope than "bert/", see
    `stored_weights.unscoped`.

    Raises:
      InputError: there are two encoders.
    """
    matched = Matched({}, {}, {})
    for path, name in stored_weights.unscoped(where, stored, "/").items():
        if stored_weights.by_path(path) is not None:
            matched.tensors[path] = stored[name]
        elif _TRAINING.fullmatch(path):
            matched.training_state[path] = stored[name]
        else:
            matched.others[path] = stored[name]
    return matched


def attributes(stored: Iterable[str]) -> dict[str, str]:
    """Returns name -> path of attributes of a TF2 checkpoint's objects.

    Optimizer slots are left out.
    """
    return {
        name: name.removesuffix(_VALUE)
        for name in stored
        if name.endswith(_VALUE) and ".OPTIMIZER_SLOT" not in name
    }


def match_model_garden(
    where: str, stored: Mapping[str, StoredTensor]
) -> Matched:
    """Translates the tensors of a TF2 checkpoint to our paths and layout.

    Raises:
      InputError: it contains several encoders.
    """
    matched, names = Matched({}, {}, {}), attributes(stored)
    roots = {x[1]: x[0] for x in map(_ATTENTION.fullmatch, names.values()) if x}
    if len(roots) > 1:
        raise errors.InputError(
            f"{where}: {errors.listed(roots.values())} are weights of "
            f"{len(roots)} encoders; a checkpoint must have one"
        )
    numbered = _numbered_layers(names.values())
    is_classifier = any(x.startswith("sentence_pred") for x in names.values())
    head = "" if is_classifier else "cls/seq_relationship/"
    heads = ((x, head + path, layout) for x, path, layout in _CLASSIFICATION)
    patterns = [*_PATTERNS, *heads]
    for name, tensor in stored.items():
        spelled = numbered.get(names.get(name, ""), names.get(name, ""))
        path, translated = _translated(patterns, spelled, tensor)
        if path and path not in matched.tensors:
            matched.tensors[path] = translated
        elif not spelled or name.startswith(_STATE):
            matched.training_state[name] = translated
        else:
            matched.others[name] = translated
    bias = matched.tensors.get(_QUERY_BIAS)
    shape = stored[bias.name].shape if bias else ()
    return matched._replace(
        num_attention_heads=shape[0] if len(shape) == 2 else None
    )


def _translated(
    patterns: Iterable[tuple[str, str, Callable | None]],
    name: str,
    tensor: StoredTensor,
) -> tuple[str | None, StoredTensor]:
    """Returns our path of an object's variable, if any, and our layout."""
    for pattern, path, layout in patterns:
        if match := re.fullmatch(rf"(?:.*/|){pattern}", name):
            if layout is not None:
                tensor = tensor.rearranged(layout)
            return match.expand(path), tensor
    return None, tensor


def _numbered_layers(names: Iterable[str]) -> dict[str, str]:
    """Maps the names of a functional encoder's layers to attribute names."""
    found = [x for x in map(_NUMBERED.fullmatch, names) if x]
    roots = {x[1] for x in found if _ATTENTION.fullmatch(x[0])}
    layers = {x[0]: x for x in found if x[1] in roots}

    def numbers(of_kind: Callable[[str], object]) -> list[int]:
        return sorted({int(x[2]) for x in layers.values() if of_kind(x[0])})

    blocks = numbers(_ATTENTION.fullmatch)
    tables = numbers(lambda name: name.endswith("embeddings"))
    places = {n: f"_transformer_layers/{i}" for i, n in enumerate(blocks)}
    places |= dict(zip(tables, _EMBEDDINGS, strict=False))
    renamed = {}
    for name, layer in layers.items():
        # Before 2.3, the attention layer lacked its output projection.
        number, rest = (
            int(layer[2]),
            layer[3].replace(
                "_attention_output_dense", "_attention_layer/_output_dense"
            ),
        )
        is_norm = number < blocks[0]
        other = "_embedding_norm_layer" if is_norm else "_pooler_layer"
        renamed[name] = f"{places.get(number, other)}/{rest}"
    return renamed
