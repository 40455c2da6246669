"""Questions and paragraphs to windows: what the model sees of a long text.

    paragraph  the man went to the store and bought a gallon of milk
    window 0   [CLS] question [SEP] the man went to the [SEP]
    window 1   [CLS] question [SEP] to the store and bought [SEP]
    window 2   [CLS] question [SEP] and bought a gallon of [SEP]

A piece in several windows is best judged where it has most context on its
poorer side. Pieces are those of the words, cut at spaces; their characters in
the original text say which belong to an answer, so that it is found whatever
the script and the spacing.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from data import features as features_lib
from data import schema
from data.features import Features
from data.tokenization import wordpiece
from foundation import errors, file_system
from tasks.squad import dataset

FIRST_UNIQUE_ID = 1000000000
_CHUNK = 2048
_SPECIAL = 3  # [CLS], [SEP], [SEP]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Documents:
    """The pieces of M paragraphs, T in all.

    Attributes:
      ids: int32 [T].
      row_splits: int64 [M + 1].
      starts: int64 [T]; the first character of each piece in its paragraph.
      ends: int64 [T]; the character after its last.
      words: int64 [T]; number of its word in the paragraph.
    """

    ids: np.ndarray
    row_splits: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    words: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Windows:
    """W windows of N questions, in the questions' order.

    Attributes:
      questions: int64 [W]; which question each is of.
      starts: int64 [W]; its first piece in the paragraph.
      lengths: int64 [W]; how many pieces of it there are.
      offsets: int64 [W]; where the first of them stands in the window.
      documents: of the paragraphs.
      features: what the model gets.
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


def encode_documents(
    tokenizer: wordpiece.Tokenizer, contexts: Sequence[str]
) -> Documents:
    """Finds the pieces of paragraphs and where they stand."""
    parts = []
    for first in range(0, len(contexts), _CHUNK):
        chunk = contexts[first : first + _CHUNK]
        encoded = tokenizer.encode_with_offsets(chunk)
        pieces = np.diff(encoded.row_splits)
        numbers, texts = _word_numbers(chunk)
        before, base = np.repeat(texts, pieces, axis=1)
        words = numbers[base + encoded.starts] - before - 1
        parts.append((encoded, words, pieces))
    return Documents(
        ids=np.concatenate([p[0].ids for p in parts]),
        row_splits=_splits(np.concatenate([p[2] for p in parts])),
        starts=np.concatenate([p[0].starts for p in parts]),
        ends=np.concatenate([p[0].ends for p in parts]),
        words=np.concatenate([p[1] for p in parts]),
    )


def _word_numbers(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Counts words in all texts together, each of which follows a space.

    Returns:
      int64 [sum of lengths + 1]; the word of each character, from 1.
      int64 [2, N]; how many words come before each text, and where its
        characters begin.
    """
    joined = "".join(f" {text}" for text in texts) + " "
    codes = np.frombuffer(
        joined.encode("utf-32-le", "surrogatepass"), np.uint32
    )
    is_space = np.isin(codes, [ord(char) for char in dataset.WHITESPACE])
    numbers = np.cumsum(~is_space[1:] & is_space[:-1])
    lengths = np.array([len(text) + 1 for text in texts], np.int64)
    bases = np.cumsum(lengths) - lengths
    before = np.concatenate([[0], numbers])[bases]
    return numbers, np.stack([before, bases])


def make(
    tokenizer: wordpiece.Tokenizer,
    found: dataset.Questions,
    *,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
    is_training: bool,
) -> Windows:
    """Cuts paragraphs into windows behind their questions.

    Args:
      tokenizer: of the model.
      found: the questions; for training with their answers' places.
      max_seq_length: pieces of a window.
      doc_stride: pieces from one window's start to the next.
      max_query_length: pieces of a question.
      is_training: whether the features name the answers.
    """
    documents = encode_documents(tokenizer, found.contexts)
    queries = tokenizer.encode([q.text for q in found.questions])
    paragraphs = np.array([q.paragraph for q in found.questions])
    queried = np.minimum(np.diff(queries.row_splits), max_query_length)
    pieces = np.diff(documents.row_splits)[paragraphs]
    room = max_seq_length - queried - _SPECIAL
    numbers, starts, lengths = cut(pieces, room, doc_stride)
    queried = queried[numbers]
    dense = {"unique_ids": FIRST_UNIQUE_ID + np.arange(len(numbers))[:, None]}
    if is_training:
        shift = queried + 2 - starts
        dense |= _positions(
            documents, found, numbers, (starts, starts + lengths), shift
        )
    return Windows(
        questions=numbers,
        starts=starts,
        lengths=lengths,
        offsets=queried + 2,
        documents=documents,
        features=_join(
            tokenizer.vocabulary,
            (queries.ids, queries.row_splits[numbers], queried),
            (
                documents.ids,
                documents.row_splits[paragraphs[numbers]] + starts,
                lengths,
            ),
            dense,
        ),
    )


def cut(
    pieces: np.ndarray, room: np.ndarray, doc_stride: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cuts N texts of so many pieces into windows with so much room.

    Returns:
      int64 [W] each: number of the text, first piece, number of pieces.
    """
    step = np.minimum(room, doc_stride)
    more = -(-np.maximum(pieces - room, 0) // step)
    count = np.where(pieces > 0, 1 + more, 0)
    numbers = np.repeat(np.arange(len(pieces)), count)
    starts = _counting(count) * step[numbers]
    lengths = np.minimum(pieces[numbers] - starts, room[numbers])
    return numbers, starts, lengths


def max_context(
    numbers: np.ndarray, starts: np.ndarray, lengths: np.ndarray
) -> np.ndarray:
    """Says of every piece of every window whether that is its best window.

    Args:
      numbers: int [W]; of the text that a window is of, in order.
      starts: int [W]; first pieces.
      lengths: int [W]; numbers of pieces.

    Returns:
      bool [sum of lengths].
    """
    left = _counting(lengths)
    size = np.repeat(lengths, lengths)
    score = np.minimum(left, size - 1 - left) + 0.01 * size
    # Piece 5 of text 3 has a number that windows share.
    ends = np.zeros(int(numbers.max(initial=-1)) + 1, np.int64)
    np.maximum.at(ends, numbers, starts + lengths)
    base = (np.cumsum(ends) - ends)[numbers] + starts
    piece = np.repeat(base, lengths) + left
    best = np.full(int(ends.sum()), -1.0)
    np.maximum.at(best, piece, score)
    is_best = score == best[piece]
    # Of equally good windows the first.
    rows = np.flatnonzero(is_best)
    _, first = np.unique(piece[rows], return_index=True)
    result = np.zeros(len(piece), bool)
    result[rows[first]] = True
    return result


def answer_pieces(
    documents: Documents, found: dataset.Questions
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first and the last piece of every answer: int64 [N] each.

    They are all pieces that have a character of the answer; -1 where there
    is none.
    """
    lengths = [len(text) + 1 for text in found.contexts]
    bases = np.cumsum(lengths) - lengths
    shift = np.repeat(bases, np.diff(documents.row_splits))
    paragraphs = np.array([q.paragraph for q in found.questions])
    spans = np.array([q.span or (0, 0) for q in found.questions], np.int64)
    spans += bases[paragraphs][:, None]
    begin = documents.row_splits[paragraphs]
    first = np.searchsorted(documents.ends + shift, spans[:, 0], "right")
    last = np.searchsorted(documents.starts + shift, spans[:, 1], "left") - 1
    is_none = (spans[:, 0] == spans[:, 1]) | (last < first)
    return (
        np.where(is_none, -1, first - begin),
        np.where(is_none, -1, last - begin),
    )


def not_learned(
    found: dataset.Questions, windows: Windows
) -> list[tuple[str, str]]:
    """Returns ids of questions whose answer no window has, and why.

    As released, their windows are learned all the same, as if the answer were
    elsewhere in the paragraph.

    Args:
      found: questions to learn from.
      windows: of them, made for training.
    """
    is_inside = windows.features.dense["start_positions"][:, 0] > 0
    has_window, has_answer = np.zeros((2, len(found)), bool)
    has_window[windows.questions] = True
    has_answer[windows.questions[is_inside]] = True
    first, _ = answer_pieces(windows.documents, found)
    rows = []
    for number in np.flatnonzero(~has_answer).tolist():
        question = found.questions[number]
        reason = "no window has all of its answer"
        if not has_window[number]:
            reason = "its paragraph has no piece"
        elif question.is_impossible:
            continue
        elif first[number] < 0:
            reason = "its answer has no piece"
        rows.append((question.id, reason))
    return rows


def _positions(documents, found, numbers, bounds, shift) -> dict:
    """Returns where windows have their answers, 0 if they have not all of it.

    A window has the pieces from bounds[0] up to bounds[1]; piece p stands at
    p + shift.
    """
    first, last = (
        pieces[numbers] for pieces in answer_pieces(documents, found)
    )
    is_inside = (first >= 0) & (first >= bounds[0]) & (last < bounds[1])
    impossible = np.array([q.is_impossible for q in found.questions])
    columns = {
        "start_positions": np.where(is_inside, first + shift, 0),
        "end_positions": np.where(is_inside, last + shift, 0),
        "is_impossible": impossible[numbers].astype(np.int64),
    }
    return {name: column[:, None] for name, column in columns.items()}


def _join(vocabulary, query, document, dense) -> Features:
    """Writes [CLS] query [SEP] document [SEP] of all windows into one array.

    Both parts come as (ids, first [W], count [W]).
    """
    query_ids, query_first, queried = query
    document_ids, document_first, lengths = document
    row_splits = _splits(queried + lengths + _SPECIAL)
    begin = row_splits[:-1]
    ids = np.empty(row_splits[-1], np.int32)
    ids[begin] = vocabulary.cls_id
    ids[begin + 1 + queried] = vocabulary.sep_id
    ids[row_splits[1:] - 1] = vocabulary.sep_id
    ids[_ranges(begin + 1, queried)] = query_ids[_ranges(query_first, queried)]
    place = _ranges(begin + 2 + queried, lengths)
    ids[place] = document_ids[_ranges(document_first, lengths)]
    segments = np.zeros(row_splits[-1], np.int32)
    segments[_ranges(begin + 2 + queried, lengths + 1)] = 1
    return Features(
        row_splits=row_splits,
        ragged={"input_ids": ids, "segment_ids": segments},
        dense=dense,
    )


def _counting(counts: np.ndarray) -> np.ndarray:
    """Returns 0, 1, ... anew for every count."""
    ends = np.cumsum(counts)
    return np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)


def _ranges(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns first, first + 1, ... of every row."""
    return np.repeat(first, counts) + _counting(counts)


def _splits(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


# ----------------------------------------------------------------------
# SQuAD's sets as features: those to learn with records, if they are kept.

_TRAIN = "train.tf_record"  # As google-research/bert names it.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of windows, by the flags' names."""

    max_seq_length: int
    doc_stride: int
    max_query_length: int


def training_features(
    found: dataset.Questions,
    tokenizer: wordpiece.Tokenizer,
    sizes: Sizes,
    records_dir: str | None,
    *,
    name_all: bool = False,
) -> Features:
    """Returns the windows of a training set, from its records if current.

    Args:
      found: the questions, with their answers' places.
      tokenizer: of the model.
      sizes: of windows.
      records_dir: where records are kept, or None for nowhere.
      name_all: whether to name all questions whose answer no window has.

    Raises:
      InputError: there is no window.
    """

    def encode() -> Features:
        made = make(
            tokenizer, found, is_training=True, **dataclasses.asdict(sizes)
        )
        lost = not_learned(found, made)
        if lost:
            logging.warning(
                "%s: the answers to %d questions cannot be learned: %s",
                found.path,
                len(lost),
                dataset.name(lost, name_all=name_all),
            )
        return made.features

    if records_dir is None:
        features = encode()
    else:
        features = features_lib.prepare(
            f"{records_dir}/{_TRAIN}",
            schema.question_answering(sizes.max_seq_length, is_training=True),
            _records_job(found, tokenizer, sizes),
            encode,
        )
    if not len(features):
        raise errors.InputError(
            f"--train_file={found.path}: no paragraph has a piece to learn from"
        )
    return features


def prediction_windows(
    found: dataset.Questions, tokenizer: wordpiece.Tokenizer, sizes: Sizes
) -> Windows:
    """Returns the windows of a set to predict.

    They are always made, and leave no records as google-research/bert's do in
    eval.tf_record: answers need to know where pieces stand in the text, which
    records do not tell.
    """
    return make(
        tokenizer, found, is_training=False, **dataclasses.asdict(sizes)
    )


def fingerprint(
    found: dataset.Questions | None, sizes: Sizes
) -> dict[str, Any]:
    """Tells what a run trains on from anything else, by flag."""
    if found is None:
        return {}
    return {
        "train_file": digests(found),
        "doc_stride": sizes.doc_stride,
        "max_query_length": sizes.max_query_length,
    }


def digests(found: dataset.Questions) -> list[str]:
    """Returns the SHA-256 of every file of a set."""
    return [file_system.sha256(path) for path in found.paths]


def describe(found: dataset.Questions) -> str:
    """Says what a set holds, for a model card."""
    files = ", ".join(
        f"{path.rpartition('/')[2]}, SHA-256 {digest}"
        for path, digest in zip(found.paths, digests(found), strict=True)
    )
    return f"{len(found)} questions of {files}"


def _records_job(found, tokenizer, sizes) -> dict[str, Any]:
    return {
        "task": "squad",
        "texts": digests(found),
        "questions": len(found),
        "tokenizer": features_lib.tokenizer_job(tokenizer),
        **dataclasses.asdict(sizes),
    }
