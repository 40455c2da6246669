"""Predicts the tokens of masked positions, to check a pre-trained model by eye.

The man went to the [MASK] .
    ->  store 0.31   door 0.12   house 0.07
"""

import functools
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TextIO

import keras
import numpy as np
from absl import logging
from keras import ops

from data import features as features_lib
from data import text_files
from data.tokenization import wordpiece
from data.tokenization.vocabulary import Vocabulary
from finetuning import network, prediction, typed
from finetuning import task as tasks
from foundation import errors, file_system

MASK = "[MASK]"
_BATCH_SIZE = 32
_MUCH_UNKNOWN = 0.02  # Of the tokens.
_PART = "lines"  # The only part of a block.


class Candidate(NamedTuple):
    """A token for a mask and its probability."""

    token: str
    probability: float


class MaskedText(NamedTuple):
    """The ids of a text, [CLS] ... [SEP], and the positions of its masks."""

    ids: list[int]
    positions: list[int]


def encode_texts(
    tokenizer: wordpiece.Tokenizer, texts: Sequence[str], *, max_length: int
) -> list[MaskedText | errors.InputError]:
    """Tokenizes texts with [MASK] in them.

    The tokenizer would split "[MASK]" into three tokens. Therefore the parts
    between the masks are tokenized.

    Returns:
      Each text, or an error for a text without a mask, with more than
      max_length tokens, or with bytes that are not UTF-8.
    """
    vocabulary = tokenizer.vocabulary
    parts = [text.split(MASK) for text in texts]
    encoding = tokenizer.encode(list(itertools.chain.from_iterable(parts)))
    splits = iter(np.split(encoding.ids, encoding.row_splits[1:-1]))
    results: list[MaskedText | errors.InputError] = []
    for text, parts_of_text in zip(texts, parts, strict=True):
        ids = [vocabulary.cls_id]
        for tokens in itertools.islice(splits, len(parts_of_text)):
            ids += [*tokens.tolist(), vocabulary.mask_id]
        ids[-1] = vocabulary.sep_id  # There is no mask after the last part.
        positions = [i for i, x in enumerate(ids) if x == vocabulary.mask_id]
        problem = None
        if any("\ud800" <= char <= "\udfff" for char in text):
            problem = "not UTF-8 text"
        elif not positions:
            problem = f"no {MASK} in {text[:60]!r}"
        elif len(ids) > max_length:
            problem = (
                f"{len(ids)} tokens are more than the {max_length} that the "
                "model's positions or max_seq_length allow: "
                f"{text[:60]!r}"
            )
        masked = MaskedText(ids, positions)
        results.append(errors.InputError(problem) if problem else masked)
    return results


class MaskTokenizer(wordpiece.Tokenizer):
    """A tokenizer that keeps each [MASK] of a text as one token.

    It encodes the parts of a text between the masks.
    """

    def encode(self, texts: Sequence[str | bytes]) -> wordpiece.Encoding:
        """See wordpiece.Tokenizer."""
        parts = [wordpiece.valid_text(text).split(MASK) for text in texts]
        encoded = super().encode(list(itertools.chain.from_iterable(parts)))
        places, row_splits = _places(parts, encoded.row_splits)
        ids = np.insert(encoded.ids, places, self.vocabulary.mask_id)
        return wordpiece.Encoding(ids, row_splits)

    def encode_with_offsets(
        self, texts: Sequence[str]
    ) -> wordpiece.EncodingWithOffsets:
        """See wordpiece.Tokenizer."""
        parts = [text.split(MASK) for text in texts]
        encoded = super().encode_with_offsets(
            list(itertools.chain.from_iterable(parts))
        )
        places, row_splits = _places(parts, encoded.row_splits)
        begins, masks = [], []  # Of the parts and of the masks in their text.
        for parts_of_text in parts:
            begin = 0
            for part in parts_of_text:
                begins.append(begin)
                masks.append(begin + len(part))
                begin = masks[-1] + len(MASK)
            masks.pop()  # No mask is after the last part.
        shift = np.repeat(begins, np.diff(encoded.row_splits))
        ends = np.array(masks, np.int64) + len(MASK)
        return wordpiece.EncodingWithOffsets(
            np.insert(encoded.ids, places, self.vocabulary.mask_id),
            row_splits,
            np.insert(encoded.starts + shift, places, masks),
            np.insert(encoded.ends + shift, places, ends),
        )


def _places(
    parts: Sequence[Sequence[str]], row_splits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns where masks are inserted into the tokens of parts.

    Args:
      parts: the parts of each text.
      row_splits: row splits of the tokens of all parts.

    Returns:
      The number of the part tokens before each mask, and the row splits of the
      texts with their masks, int64 [N + 1].
    """
    counts = np.array(list(map(len, parts)), np.int64)
    last = np.cumsum(counts) - 1  # The last part of each text.
    is_before_mask = np.ones(counts.sum(), bool)
    is_before_mask[last] = False
    num_masks = np.cumsum(counts - 1)
    ends = row_splits[1:]
    return ends[is_before_mask], np.concatenate([[0], ends[last] + num_masks])


class MaskFiller:
    """Ranks the vocabulary for every mask of a text."""

    def __init__(
        self,
        model: Any,
        tokenizer: wordpiece.Tokenizer,
        *,
        left_to_right: bool = False,
        max_length: int | None = None,
    ):
        """Creates a filler.

        Args:
          model: a `PretrainingModel`.
          tokenizer: tokenizer of the model.
          left_to_right: whether the model predicts each token at the position
            before it.
          max_length: the most tokens of a text; by default, the number of the
            model's positions.
        """
        self._model = model
        self._tokenizer = tokenizer
        self._offset = 1 if left_to_right else 0
        self._max_length = max_length or model.config.max_position_embeddings

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's vocabulary."""
        return self._tokenizer.vocabulary

    @property
    def settings(self) -> dict[str, Any]:
        """What predictions are made from, besides the texts."""
        return {
            "the model's weights": network.digest_of(self._model),
            **features_lib.tokenizer_recipe(self._tokenizer),
            "left_to_right": bool(self._offset),
        }

    def fill(
        self, texts: Sequence[str], *, top_k: int
    ) -> list[list[list[Candidate]]]:
        """Returns, for each mask of each text, the top_k most probable tokens.

        The masks of one text are predicted independently of each other.

        Raises:
          InputError: a text cannot be filled; see encode_texts.
        """
        return self.rank(_fillable(self.encode(texts)), top_k=top_k)

    def encode(
        self, texts: Sequence[str]
    ) -> list[MaskedText | errors.InputError]:
        """Tokenizes texts; see encode_texts."""
        return encode_texts(self._tokenizer, texts, max_length=self._max_length)

    def rank(
        self, texts: Sequence[MaskedText], *, top_k: int
    ) -> list[list[list[Candidate]]]:
        """Does the same as `fill`, for tokenized texts."""
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i].ids))
        ranked: list[list[list[Candidate]]] = [[] for _ in texts]
        for start in range(0, len(order), _BATCH_SIZE):
            rows = order[start : start + _BATCH_SIZE]
            batch = [texts[i] for i in rows]
            for i, candidates in zip(
                rows, self._rank(batch, top_k), strict=True
            ):
                ranked[i] = candidates
        return ranked

    def _rank(
        self, texts: Sequence[MaskedText], top_k: int
    ) -> list[list[list[Candidate]]]:
        """Ranks the tokens for one batch."""
        padded = functools.partial(keras.utils.pad_sequences, padding="post")
        input_ids = padded([text.ids for text in texts])
        mask = padded([[1] * len(text.ids) for text in texts])
        # Position 1 exists in every text and has one before it.
        positions = padded([text.positions for text in texts], value=1)
        outputs = self._model(
            {
                "input_ids": input_ids,
                "input_mask": mask,
                "segment_ids": np.zeros_like(input_ids),
                "masked_lm_positions": positions - self._offset,
            }
        )
        tokens = self._tokenizer.vocabulary.tokens
        logits = ops.cast(outputs.masked_lm_logits, "float32")  # [B, P, V]
        logits = logits[..., : len(tokens)]  # Embeddings may be padded.
        best = ops.top_k(ops.softmax(logits), min(top_k, len(tokens)))
        probabilities, ids = map(ops.convert_to_numpy, best)  # [B, P, top_k]
        return [
            [
                [
                    Candidate(tokens[i], float(probability))
                    for i, probability in zip(
                        ids[row, mask], probabilities[row, mask], strict=True
                    )
                ]
                for mask in range(len(text.positions))
            ]
            for row, text in enumerate(texts)
        ]


def describe(text: str, masks: Sequence[Sequence[Candidate]]) -> str:
    """Returns the text and one line per mask with its tokens."""
    lines = [text]
    for number, candidates in enumerate(masks, 1):
        label = f"  mask {number}:" if len(masks) > 1 else " "
        words = [f"{c.token} {c.probability:.3f}" for c in candidates]
        lines.append(f"{label} {'  '.join(words)}")
    return "\n".join(lines)


def as_json(text: str, masks: Sequence[Sequence[Candidate]]) -> str:
    """Returns a JSON object with the text and the tokens of each mask."""
    ranked = [
        [{"token": c.token, "probability": round(c.probability, 6)} for c in x]
        for x in masks
    ]
    record = {"text": text, "masks": ranked}
    return json.dumps(record, ensure_ascii=False)


def fill_text(filler: MaskFiller, text: str, *, top_k: int) -> str:
    """Returns --text and its tokens, as `describe` does.

    Raises:
      InputError: the text cannot be filled; see encode_texts.
    """
    try:
        (masks,) = filler.fill([text], top_k=top_k)
    except errors.InputError as error:
        raise errors.InputError(f"--text: {error}") from error
    return describe(text, masks)


def fill_stream(filler: MaskFiller, stream: TextIO, *, top_k: int) -> int:
    """Prints the tokens for each line from a keyboard or a pipe, at once.

    Blank lines are skipped. A line that cannot be filled gets a message on
    standard error.

    Returns:
      The exit code: 2 if a line of a pipe cannot be filled, else 0.
    """
    if stream.isatty():
        sys.stderr.write("Type texts with [MASK] in them; Ctrl-D ends.\n")
        lines = typed.lines(stream, sys.stdout)
        blocks: Iterator[list[bytes]] = ([line] for line in lines)
    else:
        blocks = typed.available(stream)
    read, has_text, are_filled = 0, False, True
    for block in blocks:
        texts = []
        for number, line in enumerate(block, read + 1):
            text = line.decode("utf-8", "surrogateescape").strip()
            if text:
                texts.append((f"standard input:{number}", text))
        read += len(block)
        has_text = has_text or bool(texts)
        are_filled = _fill_named(filler, texts, top_k) and are_filled
    if not has_text:
        logging.warning("standard input: no text in %d line(s)", read)
    return 0 if are_filled or stream.isatty() else 2


def _fill_named(
    filler: MaskFiller, texts: Sequence[tuple[str, str]], top_k: int
) -> bool:
    """Prints the tokens of (name, text); returns whether all are filled."""
    encoded = filler.encode([text for _, text in texts])
    good = [x for x in encoded if not isinstance(x, errors.InputError)]
    masks = iter(filler.rank(good, top_k=top_k))
    for (name, text), masked in zip(texts, encoded, strict=True):
        if isinstance(masked, errors.InputError):
            sys.stderr.write(f"{name}: {masked}\n")
            sys.stderr.flush()
        else:
            sys.stdout.write(f"{describe(text, next(masks))}\n")
            sys.stdout.flush()
    return len(good) == len(texts)


def _fillable(
    encoded: Sequence[MaskedText | errors.InputError],
) -> list[MaskedText]:
    """Returns the texts; raises the first error among them."""
    texts = []
    for text in encoded:
        if isinstance(text, errors.InputError):
            raise text
        texts.append(text)
    return texts


class Line(NamedTuple):
    """A line with masks.

    where: file and line.
    text: its text.
    label: None.
    """

    where: str
    text: str
    label: None = None


class MaskedLines:
    """Lines whose masks are filled, for finetuning.prediction."""

    def __init__(self, filler: MaskFiller, top_k: int, *, as_text: bool):
        """Takes what fills, and whether `describe` or `as_json` shows it."""
        self._filler, self._top_k = filler, top_k
        self._form = describe if as_text else as_json

    def size(self, example: Line) -> int:
        """See Task."""
        return 1

    def encode(self, example: Line) -> MaskedText:
        """Tokenizes a line.

        Raises:
          InputError: it cannot be filled; names file and line.
        """
        (masked,) = self._filler.encode([example.text])
        if isinstance(masked, errors.InputError):
            raise errors.InputError(f"{example.where}: {masked}")
        return masked

    def features(
        self, encoded: Iterable[tuple[Line, MaskedText]], *, with_targets: bool
    ) -> list[MaskedText]:
        """See Task."""
        return [masked for _, masked in encoded]

    def predict(
        self, features: list[MaskedText], batch_size: int
    ) -> list[list[list[Candidate]]]:
        """Returns the tokens for each mask of each text."""
        return self._filler.rank(features, top_k=self._top_k)

    def decode(self, encoded: tasks.Encoded, outputs: Any) -> dict[str, bytes]:
        """See Task."""
        texts = [example.text for example in encoded.examples]
        pairs = zip(texts, outputs, strict=True)
        lines = [f"{self._form(text, masks)}\n" for text, masks in pairs]
        return {_PART: "".join(lines).encode()}


def fill_file(
    filler: MaskFiller,
    lines: text_files.Lines,
    *,
    top_k: int,
    output_file: str | None,
) -> None:
    """Fills the masks of all lines; blank lines are skipped.

    It writes JSON lines to `output_file`; None prints what `describe` returns.

    Raises:
      InputError: a line cannot be filled; then no line is filled.
    """

    def read() -> Iterator[Line]:
        for line in lines.read():
            if text := line.text.strip():
                yield Line(line.where, text)

    examples = tasks.Examples(lines.name, read)
    task = MaskedLines(filler, top_k, as_text=output_file is None)
    unknown = total = 0
    for example in examples:  # Before any is filled.
        ids = task.encode(example).ids
        total += len(ids)
        unknown += ids.count(filler.vocabulary.unk_id)
    if not total:
        logging.warning("%s: no text in %d line(s)", lines.name, lines.total)
        return
    if unknown > _MUCH_UNKNOWN * total:
        logging.warning(
            "%s: %.0f %% of its tokens are [UNK]",
            lines.name,
            100 * unknown / total,
        )
    layout = tasks.Layout(_PART)
    if output_file is None:
        prediction.print_blocks(
            task, task, examples, layout, batch_size=_BATCH_SIZE
        )
        return
    folder = f"{output_file}.blocks"
    paths = prediction.predict_blocks(
        task,
        task,
        examples,
        folder,
        filler.settings | {"top_k": top_k},
        batch_size=_BATCH_SIZE,
    )
    prediction.write_file(output_file, layout, paths)
    file_system.remove_folder(folder)
