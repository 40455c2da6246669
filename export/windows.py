"""Runs a model over any number of windows, inside a graph.

A long text has many windows. They are computed in batches of similar length,
so that memory does not grow with the text.
"""

from collections.abc import Callable

import tensorflow as tf

from export import model_inputs

_ROWS_AT_ONCE = 32


def token_outputs(
    run: Callable[[dict[str, tf.Tensor]], tf.Tensor],
    sequences: model_inputs.Sequences,
    width: int,
) -> tf.Tensor:
    """Computes the model's outputs for all tokens of N windows.

    Args:
      run: maps features of [B, S] to float32 [B, S, width].
      sequences: N windows.
      width: number of outputs of a token.

    Returns:
      float32 [T, width], the tokens of all windows; more if N is 0.
    """
    # A loop without a first iteration has no result.
    missing = tf.maximum(1 - sequences.input_ids.nrows(), 0)
    empty = tf.zeros([missing, 1], tf.int32)
    ids, segments = (tf.concat([x, empty], axis=0) for x in sequences)
    lengths = ids.row_lengths()
    order = tf.argsort(lengths)
    count = tf.size(order)

    def step(first, outputs):
        rows = order[first : first + _ROWS_AT_ONCE]
        batch = model_inputs.Sequences(
            tf.gather(ids, rows), tf.gather(segments, rows)
        )
        values = run(batch.features())
        is_token = tf.sequence_mask(batch.input_ids.row_lengths())
        values = tf.boolean_mask(values, is_token)
        outputs = outputs.write(first // _ROWS_AT_ONCE, values)
        return first + _ROWS_AT_ONCE, outputs

    outputs = tf.TensorArray(
        tf.float32,
        size=0,
        dynamic_size=True,
        infer_shape=False,
        element_shape=[None, width],
    )
    _, outputs = tf.while_loop(
        lambda first, _: first < count,
        step,
        (0, outputs),
        parallel_iterations=1,
    )
    values = tf.RaggedTensor.from_row_lengths(
        outputs.concat(), tf.gather(lengths, order)
    )
    return tf.gather(values, tf.argsort(order)).values
