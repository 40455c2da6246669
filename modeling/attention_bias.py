"""What is added to attention scores so that some places are not seen.

Made once per batch and used by every layer that computes all places:

    bidirectional   input_mask 1 1 1 0 -> 0 0 0 -10000, the same for all rows
    left_to_right   besides, row i does not see the places after i
    packed          row i sees the places with its own instance number only
"""

from keras import ops

from modeling import places

# https://github.com/google-research/bert/blob/master/modeling.py#L709
# It fits into float16, and is enough to make a probability zero.
HIDDEN = -10000.0


def attention_bias(
    input_mask, *, left_to_right: bool, packed: bool, positions=None
):
    """Computes the float32 bias.

    Args:
        input_mask: int32 [B, S], 1 = real, 0 = padding. If packed, instance
            numbers 1, 2, ... and 0 for padding.
        left_to_right: Hides what comes later.
        packed: Hides other instances of the same row.
        positions: int32 [B, R], the rows that are wanted, or None for all.

    Returns:
        float32 [B, 1, 1, S] or, where rows differ, [B, 1, S or R, S].
    """
    columns = input_mask[:, None, None, :]
    if packed:
        rows = input_mask
        if positions is not None:
            rows = places.gather(rows, positions)
        rows = rows[:, None, :, None]
        visible = ops.logical_and(ops.equal(rows, columns), columns > 0)
    else:
        # As released: also a padding row sees the real places.
        visible = columns > 0  # [B, 1, 1, S]
    if left_to_right:
        order = ops.arange(ops.shape(input_mask)[1], dtype="int32")
        rows = order[None, :] if positions is None else positions
        is_past = order <= rows[:, None, :, None]
        visible = ops.logical_and(visible, is_past)
    return (1.0 - ops.cast(visible, "float32")) * HIDDEN
