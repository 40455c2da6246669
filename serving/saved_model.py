"""Writes a model and its tokenizer as one SavedModel.

    saved_model.pb, variables/   the graph and the weights
    README.md                    how to use it
    export.json and others       for the server, see `exported`

Signatures, whose first dimension B is any number but 0:

    serving_default      the task's strings -> its results; of a task without a
                         graph of texts, the same as serve
    serve                input_word_ids, input_mask, input_type_ids int32 [B, S]
                         ([B, K, S] of several sequences) -> logits
    serve_masks          of a masked LM, the same and masked_lm_positions int32
                         [B, P] -> logits of words [B, P, V]
"""

import functools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from foundation import atomic
from modeling.config import BertConfig
from serving import exported, served_model, text_graphs
from serving.opened_model import OpenedModel

_Tensors = dict[str, tf.Tensor]


def signatures(opened: OpenedModel) -> dict[str, Any]:
    """Returns the traced signatures by name."""
    names, predictor = exported.HUB_NAMES, opened.predictor
    axes = [None] * (3 if predictor.has_sequences else 2)
    of_ids = dict.fromkeys(names.values(), tf.TensorSpec(axes, tf.int32))

    def serve(**inputs: tf.Tensor) -> _Tensors:
        features = {name: inputs.pop(hub) for name, hub in names.items()}
        with tf.control_dependencies(_checks(features, opened.setup.config)):
            return opened.traced_logits(features | inputs)

    found = {"serve": _traced(serve, of_ids)}
    found[served_model.DEFAULT_SIGNATURE] = found["serve"]
    if predictor.inputs:
        of_texts = {
            x: tf.TensorSpec([None] * (1 + (x == "endings")), tf.string)
            for x in predictor.inputs
        }
        graph = text_graphs.GRAPHS[opened.setup.task]
        function = functools.partial(graph, opened)
        found[served_model.DEFAULT_SIGNATURE] = _traced(function, of_texts)
    if opened.setup.task == "fill_mask":
        positions = {"masked_lm_positions": of_ids["input_word_ids"]}
        found["serve_masks"] = _traced(serve, of_ids | positions)
    return found


def _checks(features: _Tensors, config: BertConfig) -> list[tf.Operation]:
    """Refuses features that the model would embed as others."""
    ids, longest = features["input_ids"], config.max_position_embeddings
    shape = tf.shape(ids)
    checks = [_check(shape[-1] <= longest, f"more than {longest} tokens")]
    for name, count in exported.counts(config).items():
        hub, values = exported.HUB_NAMES[name], features[name]
        checks += [
            _check(
                (values >= 0) & (values < count),
                f"{hub}: a value is not from 0 to {count - 1}",
            ),
            _check(
                tf.equal(tf.shape(values), shape),
                f"{hub}: has another shape than input_word_ids",
            ),
        ]
    return checks


def _check(is_right: tf.Tensor, line: str) -> tf.Operation:
    return tf.debugging.Assert(tf.reduce_all(is_right), [line])


def _traced(function: Any, specs: Mapping[str, tf.TensorSpec]) -> Any:
    """Traces a function of named tensors with the same number of rows."""

    def checked(**inputs: tf.Tensor) -> _Tensors:
        first, *others = (tf.shape(x)[0] for x in inputs.values())
        line = "the inputs differ in their number of rows"
        checks = [_check(tf.equal(x, first), line) for x in others]
        with tf.control_dependencies(checks):
            return function(**inputs)

    named = {k: tf.TensorSpec(s.shape, s.dtype, k) for k, s in specs.items()}
    traced = tf.function(checked, autograph=False)
    return traced.get_concrete_function(**named)


def save(opened: OpenedModel, directory: str, *, precision: str) -> None:
    """Writes the SavedModel; an earlier export in the directory is replaced.

    Args:
      opened: the model.
      directory: a path on a disk.
      precision: what export.json calls the number format of the model.

    Raises:
      InputError: the directory holds something else.
    """
    with atomic.replacing_folder(directory) as temporary:
        logging.info("writing the SavedModel, which can take a minute ...")
        module, traced = tf.Module(), signatures(opened)
        module.weights = [x.value for x in opened.model.weights]
        tf.saved_model.save(module, temporary, signatures=traced)
        exported.write(
            temporary,
            opened,
            opened.setup.config,
            _README,
            _facts(opened, traced[served_model.DEFAULT_SIGNATURE]),
            precision=precision,
            tensorflow=tf.__version__,
        )


_README = """\
# BERT for {task}

A SavedModel that takes {takes}.

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
The graph gives the best answer to a question as the characters of its tokens,
or the label of each token without a CRF. serve.py, or the code of its project,
gives complete words, the other answers, and entities:

    import numpy as np
    from serving import tensorflow_engine

    model = tensorflow_engine.ENGINE.load("path/of/this/directory")
    texts = {{name: np.array([b"..."], object) for name in {names}}}
    for row in model.predict("serving_default", texts):
        print(row)
"""


def _facts(opened: OpenedModel, function: Any) -> dict[str, Any]:
    """Returns what the README says of a model's default signature."""
    inputs = list(opened.predictor.inputs)
    values = {
        name: '[["...", "..."]]' if name == "endings" else '["..."]'
        for name in inputs
    } or dict.fromkeys(exported.HUB_NAMES.values(), "[[...]]")
    takes = (
        "text. Its tokenizer is part of the graph" if inputs else "token ids"
    )
    is_divided = opened.setup.windows or opened.predictor.per_token
    return {
        "takes": takes,
        "call": ", ".join(f"{k}=tf.constant({v})" for k, v in values.items()),
        "inputs": ", ".join(values),
        "outputs": ", ".join(function.structured_outputs),
        "max_seq_length": opened.setup.max_seq_length,
        "cut": "split into windows" if is_divided else "cut",
        "client": _CLIENT.format(names=inputs)
        if opened.predictor.per_token
        else "",
    }
