"""Cuts paragraphs into windows, the model's input for one question.

    paragraph  the man went to the store and bought a gallon of milk
    window 0   [CLS] question [SEP] the man went to the [SEP]
    window 1   [CLS] question [SEP] to the store and bought [SEP]
    window 2   [CLS] question [SEP] and bought a gallon of [SEP]

A token may occur in several windows. An answer may start at a token only in the
window where the token has most context on its shorter side. Tokens carry their
characters in the paragraph, so that answers are found in any script and with
any white space.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from data import features as features_lib
from data import schema, sequences
from data.features import Features
from data.tokenization import wordpiece
from foundation import errors
from tasks.squad import dataset
from tasks.squad.settings import NUM_SPECIAL, WindowSizes

FIRST_UNIQUE_ID = 1000000000
_TRAIN_RECORDS = "train"  # google-research/bert's name.
_CHUNK = 2048  # Number of texts that are tokenized together.
# Added to a window's context for each of its tokens, as released.
SIZE_WEIGHT = 0.01


class Documents(NamedTuple):
    """The T tokens of M paragraphs: int32 ids, int64 [M + 1] row_splits.

    `starts` is the first character of each token in its paragraph, `ends` the
    one after its last, `words` the index of its word: int64 [T] each.
    """

    ids: np.ndarray
    row_splits: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    words: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Windows:
    """W windows of N questions, in the order of the questions.

    Attributes:
      questions: int64 [W]; index of the window's question.
      starts: int64 [W]; first token in the paragraph.
      lengths: int64 [W]; number of the paragraph's tokens.
      offsets: int64 [W]; position of the first of them in the window.
      documents: the paragraphs.
      features: the model's inputs.
    """

    questions: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    offsets: np.ndarray
    documents: Documents
    features: Features

    def __len__(self) -> int:
        """Returns W."""
        return len(self.questions)


def training_features(
    question_set: dataset.QuestionSet,
    tokenizer: wordpiece.Tokenizer,
    sizes: WindowSizes,
    *,
    records_dir: str | None,
    list_all: bool = False,
) -> Features:
    """Returns the windows of a training set, from its records if current.

    Logs the questions whose answer is in no window: all of them, or the first
    ones.

    Raises:
      InputError: there is no window.
    """
    cache = features_lib.FeatureCache(
        records_dir,
        _TRAIN_RECORDS,
        schema.question_answering(sizes.max_seq_length, is_training=True),
        tokenizer,
        {
            "task": "squad",
            "texts": question_set.digests,
            "questions": len(question_set),
            **dataclasses.asdict(sizes),
        },
    )
    features = cache.read()
    if features is None:
        with cache.notice():
            windows = make_windows(
                question_set, tokenizer, sizes, is_training=True
            )
        dataset.warn(
            question_set,
            "the answers to %d questions cannot be learned",
            answers_in_no_window(question_set, windows),
            list_all=list_all,
        )
        features = windows.features
        cache.write(features)
    if not len(features):
        raise errors.InputError(
            f"--train_file={question_set.path}: no paragraph has a token"
        )
    return features


def warn_of_long_questions(
    question_set: dataset.QuestionSet,
    tokenizer: wordpiece.Tokenizer,
    sizes: WindowSizes,
) -> None:
    """Warns of questions that lose tokens."""
    rows = []
    for first in range(0, len(question_set), _CHUNK):
        questions = question_set.questions[first : first + _CHUNK]
        encoded = tokenizer.encode([q.text for q in questions])
        counts = np.diff(encoded.row_splits)
        for i in np.flatnonzero(counts > sizes.max_query_length).tolist():
            rows.append((questions[i].id, f"{counts[i]} tokens"))
    dataset.warn(
        question_set,
        f"%d questions are cut to --max_query_length={sizes.max_query_length}",
        rows,
    )


def make_windows(
    question_set: dataset.QuestionSet,
    tokenizer: wordpiece.Tokenizer,
    sizes: WindowSizes,
    *,
    is_training: bool = False,
) -> Windows:
    """Cuts the paragraphs of questions into windows.

    For training, the features contain the positions of the answers. Windows to
    predict are not stored as records (google-research/bert writes
    eval.tf_record), because records lack the tokens' characters.
    """
    documents = encode_documents(tokenizer, question_set.contexts)
    queries = tokenizer.encode([q.text for q in question_set.questions])
    paragraphs = np.array([q.paragraph for q in question_set.questions])
    query_lengths = np.minimum(
        np.diff(queries.row_splits), sizes.max_query_length
    )
    num_tokens = np.diff(documents.row_splits)[paragraphs]
    room = sizes.max_seq_length - query_lengths - NUM_SPECIAL
    questions, starts, lengths = cut(num_tokens, room, sizes.doc_stride)
    query_lengths = query_lengths[questions]
    offsets = query_lengths + 2
    unique_ids = FIRST_UNIQUE_ID + np.arange(len(questions))
    columns = {"unique_ids": unique_ids}
    if is_training:
        first, last = (
            tokens[questions]
            for tokens in answer_tokens(documents, question_set)
        )
        is_inside = (first >= starts) & (first >= 0) & (last < starts + lengths)
        shift = offsets - starts
        impossible = np.array(
            [q.is_impossible for q in question_set.questions], np.int64
        )
        columns["start_positions"] = np.where(is_inside, first + shift, 0)
        columns["end_positions"] = np.where(is_inside, last + shift, 0)
        columns["is_impossible"] = impossible[questions]
    first_tokens = documents.row_splits[paragraphs[questions]] + starts
    joined = sequences.join(
        tokenizer.vocabulary,
        sequences.Slices(
            queries.ids, queries.row_splits[questions], query_lengths
        ),
        sequences.Slices(documents.ids, first_tokens, lengths),
    )
    return Windows(
        questions=questions,
        starts=starts,
        lengths=lengths,
        offsets=offsets,
        documents=documents,
        features=Features(
            row_splits=joined.row_splits,
            ragged={
                "input_ids": joined.input_ids,
                "segment_ids": joined.segment_ids,
            },
            dense={name: x[:, None] for name, x in columns.items()},
        ),
    )


def encode_documents(
    tokenizer: wordpiece.Tokenizer, contexts: Sequence[str]
) -> Documents:
    """Tokenizes paragraphs and finds the characters and words of tokens."""
    parts = []
    for first in range(0, len(contexts), _CHUNK):
        chunk = contexts[first : first + _CHUNK]
        encoded = tokenizer.encode_with_offsets(chunk)
        counts = np.diff(encoded.row_splits)
        # The word of each character of all texts, counted from 1.
        joined = "".join(f" {text}" for text in chunk) + " "
        codes = np.frombuffer(
            joined.encode("utf-32-le", "surrogatepass"), np.uint32
        )
        is_space = np.isin(codes, [ord(char) for char in dataset.WHITESPACE])
        numbers = np.cumsum(~is_space[1:] & is_space[:-1])
        bases = _splits([len(text) + 1 for text in chunk])[:-1]
        before = np.concatenate([[0], numbers])[bases]
        words = numbers[np.repeat(bases, counts) + encoded.starts]
        words -= np.repeat(before, counts) + 1
        parts.append((encoded.ids, counts, encoded.starts, encoded.ends, words))
    ids, counts, *rest = map(np.concatenate, zip(*parts, strict=True))
    return Documents(ids, _splits(counts), *rest)


def cut(
    num_tokens: np.ndarray, room: np.ndarray, doc_stride: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cuts N texts into windows; a text without tokens has none.

    Args:
      num_tokens: int [N]; tokens of each text.
      room: int [N]; the most tokens of a window of each text.
      doc_stride: tokens from one window's start to the next.

    Returns:
      int64 [W] each: index of the text, first token, number of tokens.
    """
    parts = sequences.divide(num_tokens, room, doc_stride)
    has_tokens = parts.lengths > 0
    return (
        parts.texts[has_tokens],
        parts.starts[has_tokens],
        parts.lengths[has_tokens],
    )


def max_context(
    numbers: np.ndarray, starts: np.ndarray, lengths: np.ndarray
) -> np.ndarray:
    """Returns whether each token of each window has most context in it.

    Args:
      numbers: int [W], sorted; the text of each window.
      starts: int [W]; first token of each window.
      lengths: int [W]; number of tokens of each window.

    Returns:
      bool [sum of lengths].
    """
    left = sequences.ranges(np.zeros_like(lengths), lengths)
    # Number the tokens of all texts, so that a token has the same number in
    # all of its windows.
    ends = np.zeros(int(numbers.max(initial=-1)) + 1, np.int64)
    np.maximum.at(ends, numbers, starts + lengths)
    base = (np.cumsum(ends) - ends)[numbers] + starts
    return sequences.has_most_context(
        np.repeat(base, lengths) + left,
        left,
        np.repeat(lengths, lengths) - 1 - left,
        size_weight=SIZE_WEIGHT,
    )


def answer_tokens(
    documents: Documents, question_set: dataset.QuestionSet
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first and the last token of each answer: int64 [N] each.

    The tokens of an answer are all tokens with a character of the answer; -1 if
    there is none.
    """
    bases = _splits([len(text) + 1 for text in question_set.contexts])
    shift = np.repeat(bases[:-1], np.diff(documents.row_splits))
    questions = question_set.questions
    paragraphs = np.array([q.paragraph for q in questions])
    spans = np.array([q.span or (0, 0) for q in questions], np.int64)
    spans += bases[paragraphs][:, None]
    begin = documents.row_splits[paragraphs]
    first = np.searchsorted(documents.ends + shift, spans[:, 0], "right")
    last = np.searchsorted(documents.starts + shift, spans[:, 1], "left") - 1
    is_none = (spans[:, 0] == spans[:, 1]) | (last < first)
    first, last = np.where(is_none, -1, [first - begin, last - begin])
    return first, last


def answers_in_no_window(
    question_set: dataset.QuestionSet, windows: Windows
) -> list[tuple[str, str]]:
    """Returns (id, reason) of training questions whose answer is in no window.

    As in the released code, their windows are training examples nevertheless,
    with the labels of an answer outside of the window.
    """
    is_inside = windows.features.dense["start_positions"][:, 0] > 0
    has_window, has_answer = np.zeros((2, len(question_set)), bool)
    has_window[windows.questions] = True
    has_answer[windows.questions[is_inside]] = True
    first, _ = answer_tokens(windows.documents, question_set)
    rows = []
    for number in np.flatnonzero(~has_answer).tolist():
        question = question_set.questions[number]
        if not has_window[number]:
            rows.append((question.id, "its paragraph has no token"))
        elif first[number] < 0 and not question.is_impossible:
            rows.append((question.id, "its answer has no token"))
        elif not question.is_impossible:
            rows.append((question.id, "no window has all of its answer"))
    return rows


def _splits(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
