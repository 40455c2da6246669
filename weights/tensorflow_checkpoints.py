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

TF2 checkpoints of Model Garden name objects. The
older, functional encoder numbers its layers in the order of the graph; the
newer one has attributes, whose names are those of `stored_weights`:

    encoder/layer_with_weights-4/_attention_layer/_key_dense/kernel
    encoder/_transformer_layers/0/_attention_layer/_key_dense/kernel

Their attention has kernels [H, N, D], biases [N, D] and an output kernel
[N, D, H], which are our [H, H] and [H] in the same memory order. Their score
heads are transposed. The shapes contain the number of heads N.
"""

import functools
import math
import os
import re
from collections.abc import Iterable, Mapping

import numpy as np

from foundation import errors, file_system, tensor_files
from weights import stored_weights
from weights.stored_weights import Matched, StoredTensor

PREFIX = "bert_model.ckpt"
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # In every TF2 checkpoint.
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
AVERAGE = "average"  # As training.optimizers names the slot.
# Optimizer slots and steps in TF1 checkpoints.
_TRAINING = re.compile(
    r"(.*/)?(adam_[mv]|Adam(_1)?|lamb_[mv]|LAMB(_1)?|AdamWeightDecayOptimizer"
    r"(_1)?|Momentum|beta[12]_power|global_step|save_counter|training_state"
    r"|loss_scale|good_steps|(current_)?loss_scale.*|.*_slot.*"
    rf"|{AVERAGE})"
)
_EMBEDDINGS = (
    "_embedding_layer/embeddings",
    "_position_embedding_layer/embeddings",
    "_type_embedding_layer/embeddings",
)
_NUMBERED = re.compile(r"(.*/|)layer_with_weights-(\d+)/(.+)")
_NAMED = re.compile(
    r"(.*/|)((?:_transformer_layers|_embedding_layer|_type_embedding_layer"
    r"|_position_embedding_layer|_embedding_norm_layer|_pooler_layer)/.+)"
)
# Heads are children of the root, or of the model that has the encoder. The
# pooler of a pretrainer is part of its next-sentence head.
_HEADS = (
    (r"(?:.*/|)masked_lm/(.+)", r"masked_lm/\1"),
    (
        r"(?:next_sentence|sentence_prediction)\.\.pooler_dense/(.+)",
        r"_pooler_layer/\1",
    ),
    (r"(?:.*/|)span_labeling/(?:.+/)?(kernel|bias)", r"span_labeling/\1"),
)
_SCORES = re.compile(r"(?:.*/|)classification_heads/0/out_proj/(kernel|bias)")


def find(directory: str) -> str | None:
    """Returns the prefix that the file `checkpoint` names, or the only one.

    Raises:
      InputError: there are several, and `checkpoint` names none of them.
    """
    named = tensor_files.named(directory)
    if named is not None:
        return named
    # No glob: the directory's name may have brackets.
    names = [
        name.removesuffix(tensor_files.INDEX)
        for name in sorted(file_system.entries(directory))
        if name.endswith(tensor_files.INDEX) and not name.startswith(".")
    ]
    if len(names) > 1:
        raise errors.InputError(
            f"{directory}: {len(names)} checkpoints there "
            f"({errors.listed(names)}); name one of them"
        )
    return os.path.join(directory, names[0]) if names else None


def read(prefix: str, *, needs_data: bool = True) -> dict[str, StoredTensor]:
    """Lists the tensors of a checkpoint; their values are read later.

    Args:
      prefix: the path of the checkpoint's files up to ".index".
      needs_data: whether the files with the values must exist and be complete.

    Raises:
      InputError: the index is damaged, or data is missing.
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

    if needs_data:
        floats = {name for name, dtype in dtypes.items() if dtype.is_floating}
        expected_bytes = sum(
            math.prod(shapes[n]) * dtypes[n].size for n in floats
        )
        folder, start = os.path.split(f"{prefix}.data-")
        sizes = [
            file_system.size(os.path.join(folder, file))
            for file in file_system.entries(folder or ".")
            if file.startswith(start)
        ]
        if not sizes:
            raise errors.InputError(f"{prefix}{tensor_files.DATA} is missing")
        if sum(sizes) < expected_bytes:
            raise errors.InputError(
                f"{prefix}.data-*: truncated, or a file is missing: the index "
                f"lists {expected_bytes:,} bytes of weights, but there are "
                f"{sum(sizes):,}"
            )
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
    `stored_weights.unscoped`. Checkpoints of a run with --ema_decay have the
    moving averages of the weights, which are its model.

    Raises:
      InputError: there are two encoders, or two tensors are the same weight.
    """
    matched = Matched({}, {}, {})
    for path, name in stored_weights.unscoped(where, stored, "/").items():
        average = f"{name}/{AVERAGE}"
        if stored_weights.by_path(path) is not None:
            matched.tensors[path] = stored.get(average, stored[name])
        elif _TRAINING.fullmatch(path):
            matched.training_state[path] = stored[name]
        else:
            matched.others[name] = stored[name]
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
      InputError: it contains no BERT encoder, or several.
    """
    matched, num_heads = Matched({}, {}, {}), None
    names = attributes(stored)
    _check_one_encoder(where, names.values())
    numbered = _numbered_layers(where, names.values())
    head = "next_sentence"
    if any(name.startswith("sentence_prediction.") for name in names.values()):
        head = "sentence_prediction"
    for name, tensor in stored.items():
        our_name = names.get(name, "")
        spelled = numbered.get(our_name) or _attribute_name(our_name, head)
        row = stored_weights.by_model_garden(spelled) if spelled else None
        if row is not None and row.path not in matched.tensors:
            if row.path.endswith("query/bias") and len(tensor.shape) == 2:
                num_heads = tensor.shape[0]
            matched.tensors[row.path] = _in_our_layout(row.path, tensor)
        elif not our_name or name.startswith(
            ("optimizer/", "global_step/", "save_counter/")
        ):
            matched.training_state[name] = tensor
        else:
            matched.others[name] = tensor
    if not any(stored_weights.is_encoder(path) for path in matched.tensors):
        raise errors.InputError(
            f"{where}: a TF2 checkpoint, but without the objects of Model "
            f"Garden's BERT encoder (it holds {next(iter(names), 'nothing')})"
        )
    return matched._replace(num_attention_heads=num_heads)


def _check_one_encoder(where: str, names: Iterable[str]) -> None:
    """Raises InputError if two objects have transformer layers."""
    roots: dict[str, str] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name) or _NAMED.fullmatch(name)
        if match and "_attention_layer/" in match[0][len(match[1]) :]:
            roots.setdefault(match[1], name)
    if len(roots) > 1:
        raise errors.InputError(
            f"{where}: {errors.listed(roots.values())} are weights of "
            f"{len(roots)} encoders; a checkpoint must have one"
        )


def _numbered_layers(where: str, names: Iterable[str]) -> dict[str, str]:
    """Maps the names of a functional encoder's layers to attribute names."""
    roots: dict[str, dict[str, tuple[int, str]]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match:
            root, number, rest = match.groups()
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
        attributes = {}
        for name, (layer_number, rest) in layers.items():
            if layer_number in blocks:
                # Before 2.3, the attention layer lacked its output projection.
                rest = rest.replace(
                    "_attention_output_dense", "_attention_layer/_output_dense"
                )
                layer = f"_transformer_layers/{blocks.index(layer_number)}"
                attributes[name] = f"{layer}/{rest}"
            elif layer_number in tables:
                attributes[name] = _EMBEDDINGS[tables.index(layer_number)]
            elif layer_number < blocks[0]:
                attributes[name] = f"_embedding_norm_layer/{rest}"
            else:
                attributes[name] = f"_pooler_layer/{rest}"
        return attributes
    return {}


def _attribute_name(name: str, head: str) -> str | None:
    """Returns the name in `stored_weights` of an object's variable, or None."""
    match = _NAMED.fullmatch(name)
    if match:
        return match[2]
    match = _SCORES.fullmatch(name)
    if match:
        return f"{head}/{match[1]}"
    for pattern, template in _HEADS:
        match = re.fullmatch(pattern, name)
        if match:
            return match.expand(template)
    return None


def _in_our_layout(path: str, tensor: StoredTensor) -> StoredTensor:
    """Merges the axes of attention heads; transposes score heads."""
    shape = tensor.shape
    our_shape: tuple[int, ...]
    if path.endswith("output_weights"):
        return tensor.transposed()
    if "/attention/" not in path or not path.endswith(("/kernel", "/bias")):
        return tensor
    if path.endswith("/bias"):
        our_shape = (math.prod(shape),)
    elif "/attention/output/" in path:
        our_shape = (math.prod(shape[:-1]), shape[-1])
    else:
        our_shape = (shape[0], math.prod(shape[1:]))
    return tensor._replace(
        shape=our_shape, read=lambda: tensor.read().reshape(our_shape)
    )
