"""Exported taggers: text to entities.

    texts -> sentences and words -> tokens -> windows -> logits of words
          -> tags (the best, or the best sequence of a CRF) -> entities

The results are those of run_ner.py --do_predict --text_file, with
--doc_stride=0. Arrays named *_splits hold the first index of each item, and the
number of all.
"""

from typing import NamedTuple

import tensorflow as tf

from modeling import crf
from serving import model_inputs, raw_text, text_graph
from serving.opened_model import OpenedModel
from tasks.ner import tag_spans

_NUM_SPECIAL = 2  # [CLS] and [SEP].


class TaggingGraph(text_graph.TextGraph):
    """Named entity recognition, and any other tagging of words."""

    task = "token_classification"
    inputs = {"text": tf.TensorSpec([None], tf.string)}

    def __init__(self, opened: OpenedModel):
        """Loads a tagger, with its CRF if it has one."""
        task_model, labels = opened.tagger()
        super().__init__(opened, task_model.model)
        self._labels = self.labels = labels
        windows = opened.tagger_windows
        self.settings = {"document_context": windows.document_context}
        self._has_context = windows.has_context
        self._room = opened.max_seq_length - _NUM_SPECIAL
        self._scores = getattr(self.model, "scores", None)
        self._split = raw_text.WordSplitter()
        self._is_plain = tag_spans.scheme_of(labels) == tag_spans.PLAIN
        self._tags = [tag_spans.split_tag(label) for label in self._labels]

    def predict(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps text string [B] to its entities.

        Returns:
          entity and entity_type string [B, E], start and end int32 [B, E] in
          characters, score float32 [B, E], the product of the probabilities of
          its words. E is the largest number of entities; rows are padded with
          "", -1 and 0.
        """
        text = tf.strings.unicode_transcode(
            text, "UTF-8", "UTF-8", errors="ignore"
        )
        words = self._split(text)
        logits = self._word_logits(words)
        if self._scores is not None:
            tags = best_sequences(logits, words.sentence_splits, self._scores)
        else:
            tags = tf.argmax(logits, axis=1)
        is_start, is_inside = self._spans(tags, words.sentence_splits)
        probabilities = tf.nn.softmax(tf.cast(logits, tf.float64))
        probabilities = tf.gather(probabilities, tags, batch_dims=1)
        first = tf.where(is_start)[:, 0]
        number = tf.cumsum(tf.cast(is_start, tf.int64)) - 1
        number = tf.boolean_mask(number, is_inside)
        inside = tf.where(is_inside)[:, 0]
        last = tf.math.segment_max(inside, number)
        score = tf.math.segment_prod(tf.gather(probabilities, inside), number)
        rows = tf.gather(words.texts, first)
        start = tf.cast(tf.gather(words.starts, first), tf.int32)
        end = tf.cast(tf.gather(words.ends, last), tf.int32)
        types = tf.constant(
            self._labels if self._is_plain else [kind for _, kind in self._tags]
        )
        entity = tf.strings.substr(
            tf.gather(text, rows), start, end - start, unit="UTF8_CHAR"
        )
        outputs = {
            "entity": (entity, ""),
            "entity_type": (tf.gather(types, tf.gather(tags, first)), ""),
            "start": (start, -1),
            "end": (end, -1),
            "score": (tf.cast(score, tf.float32), 0.0),
        }
        count = tf.size(text, tf.int64)
        return {
            name: tf.RaggedTensor.from_value_rowids(
                values, rows, count
            ).to_tensor(padding)
            for name, (values, padding) in outputs.items()
        }

    def _word_logits(self, words: raw_text.Words) -> tf.Tensor:
        """Returns float32 [W, C], the logits of each word's first token."""
        vocabulary = self.tokenizer.vocabulary
        ids = self.tokenizer.encode_graph(words.strings)
        # A word without a token becomes [UNK].
        is_empty = tf.cast(tf.equal(ids.row_lengths(), 0), tf.int64)
        unknown = tf.fill([tf.reduce_sum(is_empty)], vocabulary.unk_id)
        unknown = tf.RaggedTensor.from_row_lengths(unknown, is_empty)
        ids = tf.concat([ids, unknown], axis=1)
        ids = model_inputs.take(ids, tf.minimum(ids.row_lengths(), self._room))
        splits = ids.row_splits
        windows = find_windows(words, splits, self._room, self._has_context)
        firsts = tf.gather(splits, windows.first)
        sequences = model_inputs.join(
            vocabulary,
            model_inputs.gather_ranges(
                ids.values, firsts, tf.gather(splits, windows.last)
            ),
            None,
            self._room + _NUM_SPECIAL,
        )
        logits = model_inputs.token_outputs(
            self.model, sequences, len(self._labels)
        )
        # [CLS] precedes the tokens of a window.
        shift = sequences.input_ids.row_starts() + 1 - firsts
        return tf.gather(logits, splits[:-1] + tf.gather(shift, windows.owner))

    def _spans(
        self, tags: tf.Tensor, sentence_splits: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns whether each word begins an entity, and is in one: bool [W].

        See `tag_spans.spans`.
        """
        if self._is_plain:
            is_all = tf.ones_like(tags, tf.bool)
            return is_all, is_all
        prefixes, kinds = zip(*self._tags, strict=True)
        prefix = tf.gather(tf.constant(prefixes), tags)
        kind = tf.gather(tf.constant(kinds), tags)
        is_inside = tf.not_equal(prefix, tag_spans.OUTSIDE)
        continuing = tf.constant([x in "IE" for x in prefixes])
        followed = tf.constant([x not in ("E", "S") for x in prefixes])
        continues = tf.gather(continuing, tags[1:])
        continues &= tf.gather(followed, tags[:-1])
        continues &= tf.equal(kind[1:], kind[:-1])
        count = tf.size(tags, tf.int64)
        is_first = tf.scatter_nd(
            sentence_splits[:-1, None],
            tf.ones_like(sentence_splits[:-1]),
            [count],
        )
        continues = tf.concat([[False], continues], 0)[:count]
        continues &= tf.equal(is_first, 0)
        return is_inside & ~continues, is_inside


class Windows(NamedTuple):
    """N windows over W words.

    Attributes:
      first: int64 [N]; the first word of each window.
      last: int64 [N]; the word after its last.
      owner: int64 [W]; the window in which each word is predicted.
    """

    first: tf.Tensor
    last: tf.Tensor
    owner: tf.Tensor


def find_windows(
    words: raw_text.Words, splits: tf.Tensor, room: int, document_context: bool
) -> Windows:
    """Arranges words in windows as tasks.ner.windowing does.

    Args:
      words: the sentences and words.
      splits: int64 [W + 1]; the first token of each word.
      room: the most tokens of a window.
      document_context: whether windows contain other sentences of the text.
    """
    begin, end = words.sentence_splits[:-1], words.sentence_splits[1:]
    low, high = begin, end
    if document_context:
        texts = tf.gather(words.texts, begin)
        low = tf.searchsorted(words.texts, texts, out_type=tf.int64)
        high = tf.searchsorted(
            words.texts, texts, side="right", out_type=tf.int64
        )
    middles = _middles(begin, end, low, high, splits, room)
    begin, end, low, high = tf.unstack(tf.gather(splits, middles), axis=1)
    start = tf.maximum(low, begin - (room - (end - begin)) // 2)
    stop = tf.minimum(high, start + room)
    start = tf.maximum(low, stop - room)
    # A word that is cut at either end is left out.
    first = tf.searchsorted(splits, start, out_type=tf.int64)
    last = tf.searchsorted(splits, stop, side="right", out_type=tf.int64) - 1
    inside = tf.ragged.range(first, last)
    word, window = inside.values, inside.value_rowids()
    before = tf.gather(splits, word) - tf.gather(
        splits, tf.gather(first, window)
    )
    after = tf.gather(splits, tf.gather(last, window)) - tf.gather(
        splits, word + 1
    )
    is_best = model_inputs.has_most_context(word, before, after)
    # The words of a window follow those of the window before.
    owner = tf.boolean_mask(window, is_best)
    used, owner = tf.unique(owner, out_idx=tf.int64)
    return Windows(tf.gather(first, used), tf.gather(last, used), owner)


def _middles(begin, end, low, high, splits, room) -> tf.Tensor:
    """Returns int64 [M, 4]: the words [0, 1) in the middle of a window.

    They are sentences, or parts of half a window of longer ones, with the
    bounds [2, 3) of the window.
    """
    is_long = tf.gather(splits, end) - tf.gather(splits, begin) > room

    def step(begin, middles):
        half = tf.gather(splits, begin) + room // 2
        stop = tf.searchsorted(splits, half, side="right", out_type=tf.int64)
        stop = tf.minimum(tf.maximum(stop - 1, begin + 1), end)
        stop = tf.where(is_long, stop, end)
        rows = tf.stack([begin, stop, low, high], axis=1)
        rows = tf.boolean_mask(rows, begin < end)
        return stop, tf.concat([middles, rows], 0)

    _, middles = tf.while_loop(
        lambda begin, _: tf.reduce_any(begin < end),
        step,
        (begin, tf.zeros([0, 4], tf.int64)),
        shape_invariants=(begin.shape, tf.TensorShape([None, 4])),
    )
    return tf.gather(middles, tf.argsort(middles[:, 0]))


def best_sequences(
    logits: tf.Tensor, sentence_splits: tf.Tensor, scores: crf.Scores
) -> tf.Tensor:
    """Returns the tags of each sentence with the highest score: int64 [W].

    The same as tasks.ner.tagging.viterbi, for all sentences together.

    Args:
      logits: float32 [W, C], of the words of S sentences.
      sentence_splits: int64 [S + 1]; where each sentence begins.
      scores: scores of tag sequences, NumPy arrays.
    """
    transitions, start, end = map(tf.constant, scores)
    # One more sentence, so that there is at least one.
    splits = tf.concat([sentence_splits, sentence_splits[-1:] + 1], 0)
    rows = tf.RaggedTensor.from_row_splits(
        tf.pad(logits, [[0, 1], [0, 0]]), splits
    )
    lengths = tf.cast(rows.row_lengths(), tf.int32)
    padded = tf.transpose(rows.to_tensor(), [1, 0, 2])  # [words, S + 1, C]
    count = tf.shape(padded)[0]
    same = tf.range(logits.shape[1])

    def forward(word, score, came_from):
        paths = score[:, :, None] + transitions
        is_word = (word < lengths)[:, None]
        best = tf.argmax(paths, axis=1, output_type=tf.int32)
        came_from = came_from.write(word, tf.where(is_word, best, same))
        longer = tf.reduce_max(paths, axis=1) + padded[word]
        return word + 1, tf.where(is_word, longer, score), came_from

    _, score, came_from = tf.while_loop(
        lambda word, *_: word < count,
        forward,
        (1, start + padded[0], tf.TensorArray(tf.int32, count)),
    )

    def backward(word, tag, tags):
        before = tf.gather(came_from.read(word), tag, batch_dims=1)
        return word - 1, before, tags.write(word - 1, before)

    last = tf.argmax(score + end, axis=1, output_type=tf.int32)
    tags = tf.TensorArray(tf.int32, count).write(count - 1, last)
    _, _, tags = tf.while_loop(
        lambda word, *_: word > 0, backward, (count - 1, last, tags)
    )
    is_word = tf.sequence_mask(lengths, count)
    tags = tf.boolean_mask(tf.transpose(tags.stack()), is_word)
    return tf.cast(tags[:-1], tf.int64)
