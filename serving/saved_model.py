"""Writes a model and its tokenizer as one SavedModel.

    saved_model.pb, variables/   the graph and the weights
    README.md                    how to use it
    export.json and others       for the server, see `exported`

Signatures, whose first dimension B is any number but 0:

    serving_default      the task's strings -> its results
    serve                input_word_ids, input_mask, input_type_ids int32 [B, S]
                         ([B, K, S] of several sequences) -> logits
    serve_masks          of a masked LM, the same and masked_lm_positions int32
                         [B, P] -> logits of words [B, P, V]
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from foundation import atomic, errors, file_system
from modeling.config import BertConfig
from serving import exported, served_model, text_graph
from weights import kinds

_Tensors = dict[str, tf.Tensor]


class _ExportedModel(tf.Module):
    """All that a SavedModel contains."""

    def __init__(self, graph: text_graph.TextGraph):
        super().__init__()
        self.weights = [variable.value for variable in graph.model.weights]


def _signatures(graph: text_graph.TextGraph) -> dict[str, Any]:
    """Returns the traced signatures by name."""
    names, config = exported.HUB_NAMES, graph.setup.config
    ids = tf.TensorSpec([None] * (3 if graph.has_sequences else 2), tf.int32)
    of_ids = dict.fromkeys(names.values(), ids)

    def serve_texts(**texts: tf.Tensor) -> _Tensors:
        first, *others = texts
        checks = [
            tf.debugging.assert_equal(
                tf.shape(texts[name])[0],
                tf.shape(texts[first])[0],
                f"{name}: has other rows than {first}",
            )
            for name in others
        ]
        if "endings" in texts:
            checks.append(
                tf.debugging.assert_positive(
                    tf.shape(texts["endings"])[1], "endings: there is none"
                )
            )
        with tf.control_dependencies(checks):
            texts = {name: tf.identity(texts[name]) for name in graph.inputs}
        return graph.predict(**texts)

    def serve(**inputs: tf.Tensor) -> _Tensors:
        features = {name: inputs.pop(hub) for name, hub in names.items()}
        return graph.logits(_checked(features, config) | inputs)

    signatures = {
        "serving_default": _traced(serve_texts, graph.inputs),
        "serve": _traced(serve, of_ids),
    }
    if graph.setup.task == kinds.FILL_MASK:
        positions = {"masked_lm_positions": ids}
        signatures["serve_masks"] = _traced(serve, of_ids | positions)
    return signatures


def _checked(features: _Tensors, config: BertConfig) -> _Tensors:
    """Refuses features that the model would embed as others."""
    counts = {
        "input_ids": config.vocab_size,
        "input_mask": 2,
        "segment_ids": config.type_vocab_size,
    }
    length = tf.shape(features["input_ids"])[-1]
    longest = config.max_position_embeddings
    checks = [
        tf.debugging.assert_less_equal(
            length, longest, f"more than {longest} tokens"
        )
    ]
    for name, count in counts.items():
        hub, values = exported.HUB_NAMES[name], features[name]
        line = f"{hub}: a value is not from 0 to {count - 1}"
        checks.append(tf.debugging.assert_non_negative(values, line))
        checks.append(tf.debugging.assert_less(values, count, line))
        checks.append(
            tf.debugging.assert_equal(
                tf.shape(values),
                tf.shape(features["input_ids"]),
                f"{hub}: has another shape than input_word_ids",
            )
        )
    with tf.control_dependencies(checks):
        return {name: tf.identity(x) for name, x in features.items()}


def _traced(function: Any, specs: Mapping[str, tf.TensorSpec]) -> Any:
    """Traces a function of named tensors."""
    named = {k: tf.TensorSpec(s.shape, s.dtype, k) for k, s in specs.items()}
    traced = tf.function(function, autograph=False)
    return traced.get_concrete_function(**named)


def save(
    graph: text_graph.TextGraph,
    directory: str,
    *,
    precision: str,
    **values: Any,
) -> None:
    """Writes the SavedModel; an earlier export in the directory is replaced.

    Args:
      graph: the task.
      directory: a path on a disk.
      precision: what export.json calls the number format of the model.
      **values: further values of export.json.

    Raises:
      InputError: the directory holds something else.
    """
    check_folder(directory)
    _warn_of_path(directory)
    with atomic.replacing_folder(directory) as temporary:
        logging.info("writing the SavedModel, which can take a minute ...")
        module, signatures = _ExportedModel(graph), _signatures(graph)
        with without_notices():
            tf.saved_model.save(module, temporary, signatures=signatures)
        exported.write(
            temporary,
            graph.setup,
            graph.model,
            list(graph.inputs),
            precision=precision,
            tensorflow=tf.__version__,
            **values,
        )
        path = os.path.join(temporary, "README.md")
        atomic.write_text(path, readme(graph, precision))
    text = "exported; to serve it: serve.py --models=%s"
    logging.info(text, directory)


@contextlib.contextmanager
def without_notices() -> Iterator[None]:
    """Hides what TensorFlow and the quantizer of ONNX log below errors."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def _warn_of_path(directory: str) -> None:
    """Warns of a path from which TensorFlow itself cannot load."""
    if re.search(r"[\[\\]", os.path.abspath(directory)):
        logging.warning(
            "--output_dir=%s: TensorFlow itself loads no SavedModel from a "
            "path with [ or \\, as serve.py does: move it before you load it "
            "there",
            directory,
        )


def check_folder(directory: str) -> None:
    """Raises InputError if an export would overwrite something else."""
    file_system.refuse_remote(
        directory, "output_dir", "copy the complete directory afterwards"
    )
    file_system.check_output_folder(directory, "output_dir")
    if (
        file_system.exists(directory)
        and not file_system.exists(
            os.path.join(directory, served_model.DESCRIPTION)
        )
        and os.listdir(directory)
    ):
        raise errors.InputError(
            f"--output_dir={directory}: exists and is no exported model"
        )
    if os.path.ismount(directory):
        raise errors.InputError(
            f"--output_dir={directory}: a mount point cannot be replaced; name "
            "a directory in it"
        )


_README = """\
# BERT for {task}

A SavedModel that takes text. Its tokenizer is part of the graph.

    import tensorflow as tf
    import tensorflow_text  # Registers the tokenizer's operations.

    model = tf.saved_model.load("path/of/this/directory")
    predict = model.signatures["serving_default"]
    outputs = predict({call})

Inputs: {inputs}. Outputs: {outputs}.
{labels}
Longer texts than {max_seq_length} tokens are {cut}. Precision: {precision}.
{client}
`export.json` describes the model. The signature `serve` takes token ids.
"""
_CLIENT = """
The graph gives {gives}. serve.py, or the code of its project,
gives {more}:

    import numpy as np
    from serving import tensorflow_engine

    model = tensorflow_engine.ENGINE.load("path/of/this/directory")
    texts = {{name: np.array([b"..."], object) for name in {names}}}
    for row in model.predict("serving_default", texts):
        print(row)
"""
# Task -> what its graph gives, and what is made of it outside.
_OUTSIDE = {
    kinds.QUESTION_ANSWERING: (
        "the best answer, the characters of its tokens",
        "complete words and the other answers",
    ),
    kinds.TOKEN_CLASSIFICATION: (
        "the label of each token, without a CRF",
        "entities",
    ),
}


def readme(graph: text_graph.TextGraph, precision: str) -> str:
    """Returns the README of an exported model."""
    setup, inputs = graph.setup, list(graph.inputs)
    values = {
        name: '[["...", "..."]]' if name == "endings" else '["..."]'
        for name in inputs
    }
    client, labels = "", setup.labels
    if setup.task in _OUTSIDE:
        gives, more = _OUTSIDE[setup.task]
        client = _CLIENT.format(gives=gives, more=more, names=inputs)
    is_divided = setup.windows or setup.task in _OUTSIDE
    return _README.format(
        task=setup.task.replace("_", " "),
        call=", ".join(f"{k}=tf.constant({v})" for k, v in values.items()),
        inputs=", ".join(inputs),
        outputs=", ".join(graph.outputs),
        labels=f"Labels: `{'`, `'.join(labels)}`.\n" if labels else "",
        max_seq_length=setup.max_seq_length,
        cut="split into windows" if is_divided else "cut",
        precision=precision,
        client=client,
    )
