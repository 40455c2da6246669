"""Small SavedModels, as other programs write them, made at once.

Their results are simple functions of the text, so that tests know them.
"""

import pathlib

import tensorflow as tf

_TEXT = tf.TensorSpec([None], tf.string)
_TEXTS = tf.TensorSpec([None, None], tf.string)


def save(
    directory: pathlib.Path,
    function,
    **inputs: tf.TensorSpec,
) -> pathlib.Path:
    """Saves a function of tensors as serving_default."""
    module = tf.Module()
    module.function = tf.function(
        function, input_signature=list(inputs.values()), autograph=False
    )
    module.serve = tf.function(
        lambda **x: module.function(*(x[name] for name in inputs)),
        autograph=False,
    )
    specs = {
        name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
        for name, spec in inputs.items()
    }
    signature = module.serve.get_concrete_function(**specs)
    tf.saved_model.save(module, str(directory), {"serving_default": signature})
    return directory


def classification(directory: pathlib.Path) -> pathlib.Path:
    """Labels texts "short" or "long", by whether they have 10 characters."""

    def classify(text):
        length = tf.strings.length(text, unit="UTF8_CHAR")
        score = tf.sigmoid(tf.cast(length - 10, tf.float32) / 5)
        probabilities = tf.stack([1 - score, score], axis=1)
        labels = tf.constant([b"short", b"long"])
        return {
            "label": tf.gather(labels, tf.argmax(probabilities, axis=1)),
            "score": tf.reduce_max(probabilities, axis=1),
            "labels": tf.repeat(labels[None], tf.shape(text)[0], axis=0),
            "probabilities": probabilities,
        }

    return save(directory, classify, text=_TEXT)


def tagging(directory: pathlib.Path) -> pathlib.Path:
    """Finds the words that begin with a capital; refuses "refused"."""

    def tag(text):
        check = tf.debugging.Assert(
            tf.reduce_all(text != b"refused"), [b"a text is refused"]
        )
        with tf.control_dependencies([check]):
            words = tf.strings.split(text, " ")
        lengths = tf.strings.length(words.values, unit="UTF8_CHAR")
        lengths = words.with_values(lengths)
        ends = tf.math.cumsum(lengths.to_tensor() + 1, axis=1) - 1
        ends = tf.RaggedTensor.from_tensor(ends, lengths.row_lengths())
        begins = ends - lengths
        is_name = tf.ragged.map_flat_values(
            tf.strings.regex_full_match, words, "[A-Z].*"
        )

        def found(values, default):
            return tf.ragged.boolean_mask(values, is_name).to_tensor(default)

        ones = tf.ragged.map_flat_values(
            lambda x: tf.ones_like(x, tf.float32), lengths
        )
        types = tf.ragged.map_flat_values(
            lambda x: tf.fill(tf.shape(x), b"NAME"), lengths
        )
        return {
            "entity": found(words, b""),
            "entity_type": found(types, b""),
            "start": found(begins, -1),
            "end": found(ends, -1),
            "score": found(ones, 0.0),
        }

    return save(directory, tag, text=_TEXT)


def multiple_choice(directory: pathlib.Path) -> pathlib.Path:
    """Chooses the longest ending."""

    def choose(context, endings):
        lengths = tf.strings.length(endings)
        scores = tf.cast(lengths + tf.strings.length(context)[:, None], "float")
        return {
            "choice": tf.argmax(lengths, axis=1, output_type=tf.int32),
            "probabilities": tf.nn.softmax(scores),
        }

    return save(directory, choose, context=_TEXT, endings=_TEXTS)


def embedding(directory: pathlib.Path) -> pathlib.Path:
    """Maps a text to its numbers of characters and of bytes."""

    def embed(text):
        counts = [
            tf.strings.length(text, unit="UTF8_CHAR"),
            tf.strings.length(text),
        ]
        return {"embedding": tf.cast(tf.stack(counts, axis=1), tf.float32)}

    return save(directory, embed, text=_TEXT)


def numbers(directory: pathlib.Path) -> pathlib.Path:
    """Adds two numbers."""

    def add(a, b):
        return {"sum": tf.cast(a, tf.float32) + b}

    return save(
        directory,
        add,
        a=tf.TensorSpec([None], tf.int32),
        b=tf.TensorSpec([None], tf.float32),
    )


MAKERS = (classification, tagging, multiple_choice, embedding, numbers)


def save_all(folder: pathlib.Path) -> None:
    """Saves each toy model under the name of its function."""
    for make in MAKERS:
        make(folder / make.__name__)
