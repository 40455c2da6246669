"""Masking in a graph: draws the masks of a training step from whole records.

The distribution is that of `masking.mask`, for each instance of a record:

    input_ids   [CLS] my dog is hairy [SEP]      the original tokens
    words           0  1  2     3                each token, or each whole word
    order           2  0  3     1                random; taken while they fit
    masked      [CLS] my dog [MASK] hairy [SEP]

Every random number is a hash of (seed, step, row of the global batch, column),
so that the masks depend neither on the devices nor on interruptions.
"""

import math
from collections.abc import Mapping

import tensorflow as tf

from data import permutations
from data.pretraining.settings import Settings
from data.tokenization import vocabulary as vocabularies

# What a random number is for: another word of its key for each.
_ORDER, _KIND, _REPLACEMENT = range(3)
_KEY_BITS = 40  # Random bits of the keys by which words are sorted.


def mask(
    features: Mapping[str, tf.Tensor],
    *,
    masked_lm_prob: tf.Tensor,
    rule: Settings,
    num_instances: int,
    vocabulary: vocabularies.Vocabulary,
    seed: int,
    step: tf.Tensor,
    first_row: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Masks rows of a batch.

    Args:
      features: `input_ids` int32 [B, S], the original tokens, and `input_mask`
        int32 [B, S], the number of the token's instance or 0 for padding.
      masked_lm_prob: float64 [], the fraction of the tokens of an instance to
        predict; it replaces that of `rule`.
      rule: the rule of masking; its `max_predictions_per_seq` is P, the most
        predictions of a row.
      num_instances: the most instances of a row.
      vocabulary: vocabulary of the tokens.
      seed: seed of all random choices.
      step: int64 [].
      first_row: int [], the number of the first row in the global batch.

    Returns:
      `input_ids` int32 [B, S], `masked_lm_positions` and `masked_lm_ids` int32
      [B, P], `masked_lm_weights` float32 [B, P], as stored records have them.
    """
    ids, instance = features["input_ids"], features["input_mask"]
    count, length = ids.shape
    rows = tf.cast(first_row, tf.int64) + tf.range(count, dtype=tf.int64)
    cells = rows[:, None] * length + tf.range(length, dtype=tf.int64)

    def draw(purpose: int) -> tf.Tensor:
        """Returns int64 [B, S] of 63 random bits."""
        words = [tf.constant(seed % 2**64, tf.uint64), purpose, step]
        keys = permutations.keys(
            tf.cast(cells, tf.uint64), *(tf.cast(x, tf.uint64) for x in words)
        )
        return tf.cast(keys // 2, tf.int64)

    special = (vocabulary.cls_id, vocabulary.sep_id)
    is_candidate = instance > 0
    for token in special:
        is_candidate &= ids != token
    lengths = _sums(tf.ones_like(ids), instance, num_instances)
    limits = tf.round(tf.cast(lengths, tf.float64) * masked_lm_prob)
    limits = tf.maximum(limits, 1.0)
    is_chosen = _choose(
        is_candidate,
        _words(ids, instance, is_candidate, num_instances, vocabulary)
        if rule.do_whole_word_mask
        else None,
        instance,
        tf.cast(limits, tf.int32),
        draw(_ORDER),
    )
    chance = tf.cast(draw(_KIND), tf.float64) * 2.0**-63
    tokens = vocabulary.replacement_ids
    number = draw(_REPLACEMENT) % len(tokens)
    replacement = tf.gather(tf.constant(tokens, tf.int32), number)
    is_random = chance < rule.mask_token_prob + rule.random_token_prob
    replaced = tf.where(is_random, replacement, ids)
    is_mask = chance < rule.mask_token_prob
    replaced = tf.where(is_mask, tf.constant(vocabulary.mask_id), replaced)
    # The positions ascend, as in stored records.
    distance = length - tf.range(length)  # From the end: 0 is not a position.
    distances, _ = tf.math.top_k(
        tf.where(is_chosen, distance, 0), k=rule.max_predictions_per_seq
    )
    used = distances > 0
    positions = tf.where(used, length - distances, 0)
    labels = tf.gather(ids, positions, batch_dims=1)
    return {
        "input_ids": tf.where(is_chosen, replaced, ids),
        "masked_lm_positions": positions,
        "masked_lm_ids": tf.where(used, labels, 0),
        "masked_lm_weights": tf.cast(used, tf.float32),
    }


def _words(
    ids: tf.Tensor,
    instance: tf.Tensor,
    is_candidate: tf.Tensor,
    num_instances: int,
    vocabulary: vocabularies.Vocabulary,
) -> tf.Tensor:
    """Returns the number of each candidate's word in its row: int32 [B, S].

    A continuation token belongs to the word before it, even across a [SEP]. The
    first candidate of an instance always starts a word.
    """
    last = len(vocabulary) - 1  # The model may have more embeddings.
    continues = tf.constant(vocabulary.is_continuation)
    is_continuation = tf.gather(continues, tf.minimum(ids, last))
    one = tf.cast(is_candidate, tf.int32)
    of_instances = _sums(one, instance, num_instances)
    earlier = tf.cumsum(of_instances, axis=1, exclusive=True)
    is_first = tf.equal(
        tf.cumsum(one, axis=1, exclusive=True),
        tf.gather(earlier, instance, batch_dims=1),
    )
    starts = is_candidate & (is_first | ~is_continuation)
    number = tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1
    return tf.maximum(number, 0)


def _choose(
    is_candidate: tf.Tensor,
    word: tf.Tensor | None,
    instance: tf.Tensor,
    limits: tf.Tensor,
    keys: tf.Tensor,
) -> tf.Tensor:
    """Returns bool [B, S], True for the tokens of the chosen words.

    Args:
      is_candidate: bool [B, S].
      word: int32 [B, S], the number of each candidate's word in its row; None
        if each candidate is a word, with the number of its column.
      instance: int32 [B, S].
      limits: int32 [B, 1 + instances], the most tokens of each instance.
      keys: int64 [B, S], random, by which the words of a row are ordered.
    """
    num_instances = limits.shape[1] - 1
    sizes = tf.cast(is_candidate, tf.int32)
    owner = tf.where(is_candidate, instance, 0)
    if word is not None:
        count, length = word.shape
        cells = word + length * tf.range(count)[:, None]
        total = count * length
        sizes, owner = (
            tf.reshape(reduce(values, cells, total), [count, length])
            for reduce, values in (
                (tf.math.unsorted_segment_sum, sizes),
                (tf.math.unsorted_segment_max, owner),
            )
        )
        owner = tf.where(sizes > 0, owner, 0)
    # Numbers without a word belong to instance 0, which has no room.
    first = tf.cast(owner, tf.int64) * 2**_KEY_BITS
    order = tf.argsort(first + keys // 2 ** (63 - _KEY_BITS), axis=1)
    taken = _take(
        tf.gather(sizes, order, batch_dims=1),
        tf.gather(owner, order, batch_dims=1),
        tf.concat([tf.zeros_like(limits[:, :1]), limits[:, 1:]], axis=1),
        num_instances,
        is_repeated=word is not None,
    )
    is_taken = tf.gather(taken, tf.argsort(order, axis=1), batch_dims=1)
    if word is not None:
        is_taken = tf.gather(is_taken, word, batch_dims=1)
    return is_candidate & is_taken


def _take(
    sizes: tf.Tensor,
    owner: tf.Tensor,
    room: tf.Tensor,
    num_instances: int,
    *,
    is_repeated: bool,
) -> tf.Tensor:
    """Takes words in their order; one that exceeds the room is skipped.

    Each turn takes the words up to the next one that must be skipped. What does
    not fit now will not fit later, because the room only shrinks.

    Args:
      sizes: int32 [B, W], tokens of each word, ordered by instance.
      owner: int32 [B, W], the words' instances.
      room: int32 [B, 1 + instances], tokens that may be taken.
      num_instances: the most instances of a row.
      is_repeated: whether one turn is not enough: words have several sizes.

    Returns:
      bool [B, W], whether a word is taken.
    """

    def fitting(taken, room):
        own = tf.gather(room, owner, batch_dims=1)
        return ~taken & (sizes > 0) & (sizes <= own), own

    def turn(taken, room):
        fits, own = fitting(taken, room)
        tried = tf.where(fits, sizes, 0)
        totals = _sums(tried, owner, num_instances)
        earlier = tf.cumsum(totals, axis=1, exclusive=True)
        sums = tf.cumsum(tried, axis=1)
        sums -= tf.gather(earlier, owner, batch_dims=1)
        more = fits & (sums <= own)
        room -= _sums(tf.where(more, sizes, 0), owner, num_instances)
        return taken | more, room

    state = turn(tf.zeros_like(sizes, tf.bool), room)
    if is_repeated:
        state = tf.while_loop(
            lambda *state: tf.reduce_any(fitting(*state)[0]), turn, state
        )
    return state[0]


def _sums(
    values: tf.Tensor, instance: tf.Tensor, num_instances: int
) -> tf.Tensor:
    """Sums int32 [B, S] by instance: int32 [B, 1 + instances]."""
    is_own = tf.one_hot(instance, num_instances + 1, dtype=tf.int32)
    return tf.reduce_sum(values[:, :, None] * is_own, axis=1)


def most_predictions(
    masked_lm_prob: float, max_seq_length: int, num_instances: int
) -> int:
    """Returns P: the most predictions that a row can have.

    By rounding, each of several instances may have one prediction more.
    """
    rounding = num_instances if num_instances > 1 else 0
    most = math.ceil(max_seq_length * masked_lm_prob) + rounding
    return min(max(most, 1), max_seq_length)
