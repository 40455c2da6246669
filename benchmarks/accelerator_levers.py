"""Changes of the training step that may make it faster on a GPU.

Each one is a function that takes the place of one function of the project while
a case is traced. None is used by the commands: a GPU has to show its gain first
(accelerator.py --plan=levers). Variables and checkpoints stay as they are.

    with using("qkv,vocabulary"):
        ...trace and run a step...
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf
from keras import ops

from modeling import layers, losses
from training import xla_dropout

# Tensor cores multiply tiles of at most so many rows.
_TILE = 128


def project_at_once(attention: layers.SelfAttention, x, memory) -> tuple:
    """Computes query, key and value by one product of [T, H] and [H, 3H].

    In the last block the queries are fewer than the keys: there it joins only
    key and value. Replaces SelfAttention.project; equal to rounding.
    """
    dense = [attention.query, attention.key, attention.value]
    if x is memory:
        outputs = _dense_at_once(dense, x)
    else:
        outputs = [attention.query(x), *_dense_at_once(dense[1:], memory)]
    return tuple(attention.split_heads(y) for y in outputs)


def _dense_at_once(dense: Sequence[layers.Dense], x) -> list:
    """Applies layers without activation to x by one product."""
    kernels = ops.concatenate([d.kernel for d in dense], axis=1)
    biases = ops.concatenate([d.bias for d in dense], axis=0)
    rows = ops.reshape(x, (-1, kernels.shape[0]))
    y = ops.matmul(rows, ops.cast(kernels, dense[0].compute_dtype))
    y = layers.add_bias(y, biases)
    return [
        ops.reshape(part, ops.shape(x))
        for part in ops.split(y, len(dense), axis=1)
    ]


def padded_vocabulary_scores(embeddings: layers.Embeddings, x):
    """Multiplies float [..., H] by the word table [V, H]: [..., V].

    Rows of zeros make the table a multiple of 128 rows long within the product
    only. Replaces Embeddings.vocabulary_scores; equal to rounding.
    """
    *leading, size = ops.shape(x)
    table = ops.cast(embeddings.word_embeddings, embeddings.compute_dtype)
    words = table.shape[0]
    table = ops.pad(table, ((0, -words % _TILE), (0, 0)))
    scores = ops.matmul(ops.reshape(x, (-1, size)), ops.transpose(table))
    return ops.reshape(scores[:, :words], (*leading, words))


def replace_by_comparison(x, labels, values):
    """Returns x [..., C] with values [...] at the labels.

    XLA computes a comparison inside the kernels that read the result; a scatter
    writes float32 [B * P, V] to memory, and XLA transposes it there. Replaces
    losses._replace_at_labels; equal bits.
    """
    classes = ops.arange(x.shape[-1], dtype=labels.dtype)
    is_label = ops.equal(classes, labels[..., None])
    return ops.where(is_label, values[..., None], x)


_gather = layers.gather


def gather_with_product(x, positions):
    """Selects positions, integers [B, Q], of x [B, S] or [B, S, H].

    The gradient is a product with a one-hot matrix [B, S, Q]. It is a scatter
    otherwise, for which XLA keeps the hidden states of all blocks transposed.
    Replaces layers.gather; equal to rounding where positions are repeated.
    """
    if len(x.shape) == 2:
        return _gather(x, positions)

    @ops.custom_gradient
    def select(x):
        def gradient(*arguments, upstream=None):
            if upstream is None:  # Backends pass it in different ways.
                (upstream,) = arguments
            columns = ops.arange(x.shape[1], dtype=positions.dtype)
            one_hot = ops.equal(columns[None, :, None], positions[:, None, :])
            return ops.matmul(ops.cast(one_hot, upstream.dtype), upstream)

        return _gather(x, positions), gradient

    return select(x)


def draw_two_per_word(
    seed: tf.Tensor, *, shape: Sequence[int | tf.Tensor], threshold: int
) -> tf.Tensor:
    """Draws a mask from both halves of each hash word.

    Elements 2 i and 2 i + 1 use the halves of word i. The thread of a GPU that
    computes both may hash once. Replaces xla_dropout.draw_mask: as good a mask,
    but another one, so that a resumed run would not continue exactly.
    """
    index = tf.range(math.prod(shape))
    words = xla_dropout.hash_words(
        tf.bitwise.right_shift(index, tf.ones_like(index)), seed
    )
    is_odd = tf.cast(tf.bitwise.bitwise_and(index, 1), tf.uint32)
    half = tf.bitwise.right_shift(words, is_odd * tf.constant(16, tf.uint32))
    half = tf.bitwise.bitwise_and(half, tf.constant(0xFFFF, tf.uint32))
    return tf.reshape(half >= tf.constant(threshold, tf.uint32), shape)


# Name -> where the function is, and what replaces it.
LEVERS: dict[str, tuple[object, str, Callable]] = {
    "qkv": (layers.SelfAttention, "project", project_at_once),
    "vocabulary": (
        layers.Embeddings,
        "vocabulary_scores",
        padded_vocabulary_scores,
    ),
    "masks": (xla_dropout, "draw_mask", draw_two_per_word),
    "labels": (losses, "_replace_at_labels", replace_by_comparison),
    "gather": (layers, "gather", gather_with_product),
}


@contextlib.contextmanager
def using(names: str) -> Iterator[None]:
    """Replaces the functions of a comma list of levers within its body."""
    with contextlib.ExitStack() as stack:
        for name in filter(None, names.split(",")):
            owner, attribute, function = LEVERS[name]
            original = getattr(owner, attribute)
            stack.callback(setattr, owner, attribute, original)
            setattr(owner, attribute, function)
        yield
