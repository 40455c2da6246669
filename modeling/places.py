"""Some places of each row, in place of all S."""

from keras import ops


def gather(x, positions):
    """Picks places.

    Args:
        x: any dtype, [B, S] or [B, S, H].
        positions: int32 or int64 [B, R], in any order.

    Returns:
        [B, R] or [B, R, H].
    """
    batch, length = ops.shape(x)[:2]
    offsets = ops.arange(batch, dtype="int32") * length
    rows = ops.reshape(x, (-1, *ops.shape(x)[2:]))
    indices = ops.cast(positions, "int32") + offsets[:, None]
    return ops.take(rows, indices, axis=0)
