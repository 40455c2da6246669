"""Masking: chooses the tokens that the masked-LM objective predicts.

    input_ids   [CLS] my dog is hairy [SEP] he ##ll bark [SEP]
    masked      [CLS] my dog is [MASK] [SEP] he ##ll apple [SEP]
    positions   4 8       ids   hairy bark        weights 1.0 1.0

The rules are google-research/bert's. The number of predictions is 15 % of the
length, special tokens included, rounded half to even, at least one and at most
max_predictions_per_seq. Every set of candidates has the same probability. Each
chosen token becomes [MASK] or a random entry of the vocabulary, or is kept, by
its own draw. Whole words are chosen in random order; a word that would exceed
the number is skipped, and smaller ones are still tried.
"""

import numpy as np

from data.pretraining.settings import Settings


def mask(
    input_ids: np.ndarray,
    is_candidate: np.ndarray,
    lengths: np.ndarray,
    *,
    rule: Settings,
    vocabulary,
    rng: np.random.Generator,
    is_continuation: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Masks a batch of sequences.

    Args:
      input_ids: int32 [N, S].
      is_candidate: bool [N, S], True where a token may be predicted.
      lengths: int [N], with [CLS] and both [SEP].
      rule: rates and limits.
      vocabulary: has mask_id, replacement_ids and is_continuation.
      rng: makes all random choices.
      is_continuation: bool [N, S], the tokens that continue a word; by default
        those whose token in the vocabulary does.

    Returns:
      input_ids: int32 [N, S].
      masked_lm_positions: int32 [N, P], ascending; rows with fewer predictions
        end in zeros, here and below.
      masked_lm_ids: int32 [N, P], the original tokens.
      masked_lm_weights: float32 [N, P].
    """
    limits = prediction_counts(lengths, rule)
    if rule.do_whole_word_mask:
        if is_continuation is None:
            is_continuation = vocabulary.is_continuation[input_ids]
        chosen = _choose_words(is_candidate, is_continuation, limits, rng)
        totals = chosen.sum(axis=1)
        used = np.arange(rule.max_predictions_per_seq) < totals[:, None]
        positions = np.zeros(used.shape, np.int64)
        positions[used] = np.nonzero(chosen)[1]
    else:
        positions, used = _choose_tokens(
            is_candidate, limits, rule.max_predictions_per_seq, rng
        )
    labels = np.take_along_axis(input_ids, positions, 1) * used
    draw = rng.random(positions.shape)
    replacements = vocabulary.replacement_ids[
        rng.integers(0, len(vocabulary.replacement_ids), positions.shape)
    ]
    replaced = np.where(draw < rule.mask_token_prob, vocabulary.mask_id, labels)
    is_random = (draw >= rule.mask_token_prob) & (
        draw < rule.mask_token_prob + rule.random_token_prob
    )
    replaced = np.where(is_random, replacements, replaced)
    masked = input_ids.copy()
    rows, columns = np.nonzero(used)
    masked[rows, positions[rows, columns]] = replaced[rows, columns]
    return {
        "input_ids": masked,
        "masked_lm_positions": (positions * used).astype(np.int32),
        "masked_lm_ids": labels.astype(np.int32),
        "masked_lm_weights": used.astype(np.float32),
    }


def prediction_counts(lengths: np.ndarray, rule: Settings) -> np.ndarray:
    """Returns the largest number of predictions of each sequence: int [N]."""
    rounded = np.rint(np.asarray(lengths, np.float64) * rule.masked_lm_prob)
    return np.clip(rounded, 1, rule.max_predictions_per_seq).astype(np.int64)


def _choose_tokens(is_candidate, limits, width, rng):
    """Returns ascending positions [N, width] and which of them are used."""
    count, length = is_candidate.shape
    limits = np.minimum(limits, is_candidate.sum(axis=1))
    used = np.arange(width) < limits[:, None]
    order = _random_order(is_candidate, rng)
    chosen = np.full((count, width), length, order.dtype)
    kept = min(width, length)
    chosen[:, :kept] = order[:, :kept]
    chosen[~used] = length
    chosen.sort(axis=1)
    return np.where(used, chosen, 0).astype(np.int64), used


def _random_order(valid, rng):
    """Returns for each row its valid columns in random order, then others.

    Every column gets a random key whose low bits are the column itself, and
    the keys are sorted. At least 20 bits of a key are random, so ties, which
    the left column would win, are negligible.
    """
    count, length = valid.shape
    bits = int(length).bit_length()
    dtype = np.uint32 if bits <= 12 else np.uint64
    low = dtype((1 << bits) - 1)
    per_draw = 8 // np.dtype(dtype).itemsize
    raw = rng.integers(
        0, 1 << 64, -(-count * length // per_draw), np.uint64
    ).astype("<u8", copy=False)
    keys = raw.view(dtype)[: count * length].reshape(count, length) & ~low
    keys |= np.arange(length, dtype=dtype)
    keys[~valid] = np.iinfo(dtype).max
    keys.sort(axis=1)
    return keys & low


def _choose_words(is_candidate, is_continuation, limits, rng):
    """Returns bool [N, S], True for the tokens of the chosen words.

    A continuation token belongs to the word before it, even across a [SEP], as
    released. The first candidate always starts a word.
    """
    count, length = is_candidate.shape
    every = np.arange(count)
    starts = is_candidate & ~is_continuation
    starts[every, is_candidate.argmax(axis=1)] = is_candidate.any(axis=1)
    word = np.cumsum(starts, axis=1) - 1  # [N, S], the word of each position
    cell = every[:, None] * length + word
    sizes = np.bincount(cell[is_candidate], minlength=count * length)
    sizes = sizes.reshape(count, length)
    order = _random_order(sizes > 0, rng)
    chosen = np.zeros((count, length), bool)
    room = limits.copy()
    for tried in order[:, : int((sizes > 0).sum(axis=1).max())].T:
        tried = np.minimum(tried, length - 1)  # Rows that ran out of words.
        size = sizes[every, tried]
        fits = (size > 0) & (size <= room) & ~chosen[every, tried]
        chosen[every, tried] |= fits
        room -= size * fits
        if not room.any():
            break
    return is_candidate & np.take_along_axis(chosen, np.maximum(word, 0), 1)
