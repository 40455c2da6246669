"""Writes a model directory as ONNX, for onnxruntime and other runtimes.

    model.onnx              the encoder, its head and the weights
    config.json             as transformers reads it; also bert_config.json
    vocab.txt, tokenizer_config.json
    crf.json                scores of tag sequences, if a tagger has them
    export.json, README.md  what the model is

The texts are tokenized, divided into windows and decoded outside of the graph.
`save` compares the outputs of the written file with those of our model, and
writes nothing if they differ.
"""

import dataclasses
import os

import numpy as np
import onnx
import onnxruntime
import tensorflow as tf
from absl import logging
from onnxruntime import quantization
from onnxruntime.quantization import quant_utils

from foundation import atomic, errors
from serving import exported, onnx_graph, served_directories
from serving.opened_model import OpenedModel

_FILE = served_directories.FILES["onnxruntime"]
# Of the largest logit, at least of 1; rounding alone gives 1e-6.
_FLOAT_BOUND = 1e-4
# Root mean square relative to the outputs'. Real models have 0.15; more than
# half is noise.
_INT8_BOUND = 0.5
_CHECKED_ROWS, _CHECKED_LENGTH = 4, 64


def save(opened: OpenedModel, directory: str, *, precision: str) -> None:
    """Writes the directory; an earlier export in it is replaced.

    Args:
      opened: the model; its outputs are what those of the file must equal.
      directory: a path on a disk.
      precision: "float32" or "int8".

    Raises:
      InputError: the model cannot be written, the outputs of the file differ
        from those of the model, or the directory holds something else.
    """
    config, options = opened.setup.config, {}
    if modules := getattr(opened.head, "modules", None):
        count = opened.setup.settings["layer"] % config.num_hidden_layers + 1
        config = dataclasses.replace(config, num_hidden_layers=count)
        options = {"num_layers": count, "modules": modules}
    model = onnx_graph.make(opened.model, **options)
    with atomic.replacing_folder(directory) as temporary:
        os.makedirs(temporary, exist_ok=True)
        path = os.path.join(temporary, _FILE)
        _write(model, path, precision)
        _check(opened, path, precision)
        outputs = [f"`{x.name}` [{_axes(x)}]" for x in model.graph.output]
        exported.write(
            temporary,
            opened,
            config,
            _README,
            {
                "axes": _axes(model.graph.input[0]),
                "outputs": ", ".join(outputs),
            },
            precision=precision,
            format="onnx",
            onnx=onnx.__version__,
        )


def _write(model: onnx.ModelProto, path: str, precision: str) -> None:
    """Writes model.onnx."""
    if precision == "float32":
        onnx.save(model, path)
        return
    # The quantizer needs all types.
    model = onnx.shape_inference.infer_shapes(model)
    quant_utils.add_pre_process_metadata(model)
    # A scale for each column of a matrix halves the error. Weights of 7 bits,
    # because sums of 8 bits overflow on processors without VNNI.
    quantization.quantize_dynamic(
        model,
        path,
        weight_type=quantization.QuantType.QInt8,
        per_channel=True,
        reduce_range=True,
        # The quantizer takes Attention for an older operator of that name.
        op_types_to_quantize=["MatMul", "Gather"],
    )


def _check(opened: OpenedModel, path: str, precision: str) -> None:
    """Compares the outputs of the file with those of the model.

    Raises:
      InputError: they differ by more than rounding explains.
    """
    features = _random_features(opened)
    with tf.device("CPU"):
        wanted = opened.logits(
            {name: tf.constant(x, tf.int32) for name, x in features.items()}
        )
    session = onnxruntime.InferenceSession(
        path, providers=["CPUExecutionProvider"]
    )
    written = session.run(
        [*wanted],
        {
            exported.ONNX_NAMES[name]: x.astype(np.int64)
            for name, x in features.items()
        },
    )
    values = np.concatenate([np.ravel(x) for x in wanted.values()])
    error = np.concatenate([np.ravel(x) for x in written]) - values
    largest = np.abs(error).max()
    relative = np.sqrt(
        np.square(error).mean() / max(np.square(values).mean(), 1e-12)
    )
    logging.info(
        "%s: the outputs in %s differ from the model's by at most %.2g, and by "
        "%.2g of their size (root mean square)",
        _FILE,
        precision,
        largest,
        relative,
    )
    is_equal = largest <= _FLOAT_BOUND * max(1.0, np.abs(values).max())
    if precision == "int8":
        is_equal = relative <= _INT8_BOUND
    if not is_equal:  # Also for NaN.
        raise errors.InputError(
            f"--precision={precision}: the outputs of {_FILE} "
            f"differ from those of {opened.path} by {largest:.2g}, "
            f"{relative:.2g} of their size, so it is not written"
        )


def _random_features(opened: OpenedModel) -> dict[str, np.ndarray]:
    """Returns rows of random tokens with padding, [B, S] or [B, K, S]."""
    random = np.random.default_rng(0)
    length = min(_CHECKED_LENGTH, opened.setup.max_seq_length)
    shape = [_CHECKED_ROWS, *[2] * opened.predictor.has_sequences, length]
    lengths = random.integers(1, length + 1, shape[:-1])
    lengths.flat[0] = length
    mask = (np.arange(length) < lengths[..., None]).astype(np.int32)
    config, words = opened.setup.config, opened.setup.tokenizer.vocabulary
    segments = random.integers(0, min(2, config.type_vocab_size), shape)
    return {
        "input_ids": random.integers(0, len(words), shape) * mask,
        "input_mask": mask,
        "segment_ids": segments * mask,
    }


_README = """\
# BERT for {task}

An ONNX model. Its inputs `input_ids`, `attention_mask` and `token_type_ids` are
int64 [{axes}]; the texts are tokenized before.

    import onnxruntime

    session = onnxruntime.InferenceSession("path/of/this/directory/model.onnx")
    outputs = session.run(None, {{"input_ids": ..., ...}})

Outputs: {outputs}.
{labels}
Precision: {precision}. `export.json` describes the model, `vocab.txt` and
`tokenizer_config.json` the tokenizer.
"""


def _axes(info: onnx.ValueInfoProto) -> str:
    """Returns the names or sizes of the axes of an input or output."""
    dims = info.type.tensor_type.shape.dim
    return ", ".join(x.dim_param or str(x.dim_value) for x in dims)
