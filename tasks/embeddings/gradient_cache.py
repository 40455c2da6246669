"""Encodes a large batch in parts, with the gradients of the complete batch.

A loss that compares all texts of a batch needs all their vectors at once, but
not all activations of the encoder (Gao et al. 2021, arXiv 2101.06983):

    forward     vectors of one part after the other, without activations
    loss        of all vectors; its gradient by each vector
    backward    each part again, with activations, and its share of the gradient

Memory is that of one part; the encoder runs forward twice.
"""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from modeling import dropout

Encode = Callable[[Mapping[str, tf.Tensor], tf.Tensor | None], tf.Tensor]


def encode(
    function: Encode,
    features: Mapping[str, tf.Tensor],
    dropout_seed: tf.Tensor | None,
    *,
    size: int,
) -> tf.Tensor:
    """Encodes rows in parts of `size`.

    Args:
        function: maps rows and a seed to float32 [rows, H].
        features: integers by name, each [N, ...].
        dropout_seed: int32 [2], or None for inference. Each part has masks of
            its own, the same in both passes.
        size: the number of rows that are encoded at once.

    Returns:
        float32 [N, H], differentiable by the variables that `function` uses.
    """
    names = list(features)
    count = tf.shape(features[names[0]])[0]
    num_parts = -(-count // size)
    # The last part repeats the last row; the repetitions have no gradient.
    rows = tf.minimum(tf.range(num_parts * size), count - 1)
    parts = [
        tf.reshape(
            tf.gather(features[name], rows),
            tf.concat(
                [[num_parts, size], tf.shape(features[name])[1:]], axis=0
            ),
        )
        for name in names
    ]
    first_seed = dropout.fold_in(dropout_seed, 0)

    def encode_part(i: tf.Tensor, *tensors: tf.Tensor) -> tf.Tensor:
        seed = None if first_seed is None else first_seed + tf.stack([0, i])
        values = zip(names, tensors, strict=True)
        part = {
            name: tf.ensure_shape(x[i], (size, *features[name].shape[1:]))
            for name, x in values
        }
        return function(part, seed)

    @tf.custom_gradient
    def encode_all(*tensors: tf.Tensor) -> Any:
        vectors = tf.map_fn(
            lambda i: encode_part(i, *tensors),
            tf.range(num_parts),
            fn_output_signature=tf.float32,
            parallel_iterations=1,
        )

        def gradient(upstream: tf.Tensor, variables: Any = ()) -> Any:
            def add_part(i, *sums):
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(variables)
                    part = encode_part(i, *tensors)
                shares = tape.gradient(
                    part,
                    variables,
                    output_gradients=upstream[i],
                    unconnected_gradients="zero",
                )
                return i + 1, *(
                    total + tf.convert_to_tensor(share)
                    for total, share in zip(sums, shares, strict=True)
                )

            zeros = [tf.zeros(v.shape, v.dtype) for v in variables]
            _, *sums = tf.while_loop(
                lambda i, *_: i < num_parts,
                add_part,
                (tf.constant(0), *zeros),
                parallel_iterations=1,
            )
            return [None] * len(tensors), sums

        return vectors, gradient

    vectors = encode_all(*parts)
    return tf.reshape(vectors, (-1, vectors.shape[-1]))[:count]
