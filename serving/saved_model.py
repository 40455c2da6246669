"""Writes a model and its tokenizer as one SavedModel.

    saved_model.pb, variables/   the graph and the weights
    assets/vocab.txt             the vocabulary
    export.json                  what the model is; see `describe`
    README.md                    how to use it

Signatures, whose first dimension B is any number, 0 included:

    serving_default      the task's strings -> its answers
    serve                input_word_ids, input_mask, input_type_ids int32 [B, S]
                         ([B, K, S] of multiple choice) -> logits
    serve_examples       serialized tf.Examples [B] with input_ids, input_mask
                         and segment_ids, as in TFRecord shards -> logits; those
                         of tokens are 0 after a record's own length
    serve_text_examples  serialized tf.Examples [B] with the strings -> answers

The loaded object is also a preprocessor with TensorFlow Hub's text interface:

    model.tokenize(texts)                          int32 [B, None], ragged
    model.tokenize.get_special_tokens_dict()
    model.bert_pack_inputs([ids, pair_ids], seq_length=128)
    model(texts)                                   packed to length 128
    model.vocab_file, model.do_lower_case
"""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from data.tokenization import wordpiece
from foundation import atomic, errors, file_system
from serving import input_checks, model_inputs, served_model, text_graph
from weights import kinds

FORMAT_VERSION = 1
_VOCABULARY = "vocab.txt"
_HUB_LENGTH = 128  # The default of TensorFlow Hub's preprocessors.


class _Tokenize(tf.Module):
    """TensorFlow Hub's `.tokenize`."""

    def __init__(self, tokenizer: wordpiece.Tokenizer):
        super().__init__()
        self._tokenizer = tokenizer

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
    )
    def __call__(self, text):
        return self._tokenizer.encode_graph(text)

    @tf.function(input_signature=[], autograph=False)
    def get_special_tokens_dict(self):
        vocabulary = self._tokenizer.vocabulary
        values = {
            "vocab_size": len(vocabulary),
            "padding_id": vocabulary.pad_id,
            "start_of_sequence_id": vocabulary.cls_id,
            "end_of_segment_id": vocabulary.sep_id,
            "mask_id": vocabulary.mask_id,
            "unknown_id": vocabulary.unk_id,
        }
        return {k: tf.constant(v, tf.int32) for k, v in values.items()}


class _PackInputs(tf.Module):
    """TensorFlow Hub's `.bert_pack_inputs` for one and two segments."""

    def __init__(self, tokenizer: wordpiece.Tokenizer):
        super().__init__()
        self._tokenizer = tokenizer
        segment = tf.RaggedTensorSpec([None, None], tf.int32)
        for segments in ([segment], [segment, segment]):
            self.__call__.get_concrete_function(segments)
            self.__call__.get_concrete_function(
                segments, tf.TensorSpec([], tf.int32)
            )

    @tf.function(autograph=False)
    def __call__(self, inputs, seq_length=_HUB_LENGTH):
        first, *others = inputs
        sequences = model_inputs.join(
            self._tokenizer.vocabulary,
            first,
            others[0] if others else None,
            seq_length,
        )
        return {
            hub_name: tf.pad(x, [[0, 0], [0, seq_length - tf.shape(x)[1]]])
            for name, x in sequences.features().items()
            for hub_name in [served_model.HUB_NAMES[name]]
        }


class _ExportedModel(tf.Module):
    """All that a SavedModel contains."""

    def __init__(self, graph: text_graph.TextGraph, vocab_file: str):
        super().__init__()
        tokenizer = graph.tokenizer
        self.weights = [variable.value for variable in graph.model.weights]
        self.vocab_file = tf.saved_model.Asset(vocab_file)
        lowers = tokenizer.settings["do_lower_case"]
        self.do_lower_case = tf.Variable(lowers, trainable=False)
        self.tokenize = _Tokenize(tokenizer)
        self.bert_pack_inputs = _PackInputs(tokenizer)

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
    )
    def __call__(self, text):
        return self.bert_pack_inputs([self.tokenize(text)])


def _signatures(graph: text_graph.TextGraph) -> dict[str, Any]:
    """Returns the traced signatures by name."""
    limits, max_seq_length = _limits(graph), graph.max_seq_length
    predict, logits = (
        tf.function(model_inputs.for_any_count(function), autograph=False)
        for function in (graph.predict, lambda **x: graph.logits(x))
    )
    # Multiple choice has an axis of choices.
    rank = max(spec.shape.rank for spec in graph.inputs.values())
    names = served_model.HUB_NAMES

    def serve_texts(**texts):
        texts = {name: texts[name] for name in graph.inputs}
        return predict(**input_checks.texts(texts))

    def serve(**hub_inputs):
        features = {name: hub_inputs[hub] for name, hub in names.items()}
        return logits(**input_checks.features(features, names, limits))

    def serve_examples(examples):
        spec = dict.fromkeys(names, tf.io.RaggedFeature(tf.int64))
        parsed = tf.io.parse_example(examples, spec)
        parsed = input_checks.records(
            parsed, limits, max_seq_length if rank == 2 else None
        )
        # Records are padded to the longest sequence.
        dense = {k: tf.cast(x.to_tensor(), tf.int32) for k, x in parsed.items()}
        if rank == 2:
            choices = tf.shape(dense["input_ids"])[1] // max_seq_length
            shape = [tf.shape(examples)[0], choices, max_seq_length]
            dense = {k: tf.reshape(x, shape) for k, x in dense.items()}
        outputs = logits(**dense)
        if kinds.BY_EXPORT_NAME[graph.task].is_of_tokens:
            lengths = parsed["input_ids"].row_lengths()
            outputs = {
                k: tf.RaggedTensor.from_tensor(x, lengths).to_tensor()
                for k, x in outputs.items()
            }
        return outputs

    def serve_text_examples(examples):
        several = tf.io.RaggedFeature(tf.string)
        parsed = tf.io.parse_example(
            examples, dict.fromkeys(graph.inputs, several)
        )
        return predict(**input_checks.text_records(parsed, graph.inputs))

    ids = tf.TensorSpec([None] * (rank + 1), tf.int32)
    examples = {"examples": tf.TensorSpec([None], tf.string)}
    return {
        "serving_default": _concrete(serve_texts, graph.inputs),
        "serve": _concrete(serve, dict.fromkeys(names.values(), ids)),
        "serve_examples": _concrete(serve_examples, examples),
        "serve_text_examples": _concrete(serve_text_examples, examples),
    }


def _limits(graph: text_graph.TextGraph) -> input_checks.Limits:
    """Reads the sizes of the model's tables."""
    rows = {
        variable.path.rpartition("/")[2]: variable.shape[0]
        for variable in graph.model.weights
    }
    return input_checks.Limits(
        num_words=rows["word_embeddings"],
        num_segments=rows["token_type_embeddings"],
        num_positions=rows["position_embeddings"],
    )


def _concrete(function, specs: Mapping[str, tf.TensorSpec]):
    """Traces a function of named tensors."""
    named = {k: tf.TensorSpec(s.shape, s.dtype, k) for k, s in specs.items()}
    traced = tf.function(function, autograph=False)
    return traced.get_concrete_function(**named)


def describe(graph: text_graph.TextGraph, precision: str) -> dict[str, Any]:
    """Returns the content of export.json, with the weights' precision."""
    return {
        "format_version": FORMAT_VERSION,
        "task": graph.task,
        "inputs": list(graph.inputs),
        "labels": graph.labels,
        "max_seq_length": graph.max_seq_length,
        "do_lower_case": graph.tokenizer.settings["do_lower_case"],
        "precision": precision,
        "settings": dict(graph.settings),
        "source": graph.opened.description,
        "tensorflow": tf.__version__,
    }


def save(
    graph: text_graph.TextGraph, directory: str, *, precision: str
) -> None:
    """Writes the SavedModel; an earlier export in the directory is replaced.

    Args:
      graph: the task.
      directory: a path on a disk.
      precision: what export.json calls the number format of the model.

    Raises:
      InputError: the directory holds something else.
    """
    check_folder(directory)
    _warn_of_path(directory)
    description = describe(graph, precision)
    with atomic.replacing_folder(directory) as temporary:
        with tempfile.TemporaryDirectory() as scratch:
            vocab_file = os.path.join(scratch, _VOCABULARY)
            graph.tokenizer.vocabulary.to_file(vocab_file)
            module = _ExportedModel(graph, vocab_file)
            logging.info("writing the SavedModel, which can take a minute ...")
            signatures = _signatures(graph)
            with without_notices():
                tf.saved_model.save(module, temporary, signatures=signatures)
        path = os.path.join(temporary, "README.md")
        atomic.write_text(path, readme(description))
        atomic.write_json(
            os.path.join(temporary, served_model.DESCRIPTION), description
        )
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

`export.json` describes the model. Other signatures: `serve` (token ids),
`serve_examples` and `serve_text_examples` (serialized tf.Examples). The loaded
model is also a preprocessor with TensorFlow Hub's text interface:
`model.tokenize`, `model.bert_pack_inputs`.
"""


def readme(description: Mapping[str, Any]) -> str:
    """Returns the README of an exported model; takes its export.json."""
    inputs, labels = description["inputs"], description["labels"]
    values = {
        name: '[["...", "..."]]' if name == "endings" else '["..."]'
        for name in inputs
    }
    kind = kinds.BY_EXPORT_NAME[description["task"]]
    return _README.format(
        task=kind.export_name.replace("_", " "),
        call=", ".join(f"{k}=tf.constant({v})" for k, v in values.items()),
        inputs=", ".join(inputs),
        outputs=", ".join(kind.outputs),
        labels=f"Labels: `{'`, `'.join(labels)}`.\n" if labels else "",
        max_seq_length=description["max_seq_length"],
        cut="split into windows" if kind.has_windows else "cut",
        precision=description["precision"],
    )
