"""Predicts the tokens of masked positions, to check a pre-trained model by eye.

The man went to the [MASK] .
    ->  store 0.31   door 0.12   house 0.07
"""

import functools
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
from data.tokenization import plain_wordpiece, vocabulary, wordpiece
from finetuning import network, prediction, typed
from finetuning import task as tasks
from foundation import errors, file_system

MASK = vocabulary.MASK
_BATCH_SIZE = 32
_MUCH_UNKNOWN = 0.02  # Of the tokens.
_PART = "lines"  # The only part of a block.


# The tokens for a mask with their probabilities, the best first.
Candidates = list[tuple[str, float]]


class MaskedText(NamedTuple):
    """The ids of a text, [CLS] ... [SEP], and the positions of its masks."""

    ids: list[int]
    positions: list[int]


class MaskFiller:
    """Ranks the vocabulary for every mask of a text.

    Attributes:
      tokenizer: that of the model; a [MASK] in a text is one token.
    """

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
        self.tokenizer = plain_wordpiece.PlainTokenizer(
            tokenizer.vocabulary.with_added([MASK]), **tokenizer.settings
        )
        self._model, self._offset = model, int(left_to_right)
        self._max_length = max_length or model.config.max_position_embeddings

    @property
    def made_from(self) -> dict[str, Any]:
        """What predictions are made from, besides the texts."""
        return {
            "weights": network.digest_of(self._model),
            "left_to_right": self._offset,
            **features_lib.tokenizer_recipe(self.tokenizer),
        }

    def encode(self, text: str) -> MaskedText:
        """Tokenizes a text with [MASK] in it.

        Raises:
          InputError: the text has no mask, too many tokens, or bytes that are
            not UTF-8.
        """
        words = self.tokenizer.vocabulary
        ids = self.tokenizer.encode([text]).ids.tolist()
        ids = [words.cls_id, *ids, words.sep_id]
        positions = [i for i, x in enumerate(ids) if x == words.mask_id]
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise errors.InputError("not UTF-8 text")
        if not positions:
            raise errors.InputError(f"no {MASK} in {text[:60]!r}")
        if len(ids) > self._max_length:
            raise errors.InputError(
                f"{len(ids)} tokens are more than the {self._max_length} that "
                "the model's positions or max_seq_length allow: "
                f"{text[:60]!r}"
            )
        return MaskedText(ids, positions)

    def fill(
        self, texts: Sequence[str], *, top_k: int
    ) -> list[list[Candidates]]:
        """Returns, for each mask of each text, the top_k most probable tokens.

        The masks of one text are predicted independently of each other.

        Raises:
          InputError: a text cannot be filled; see `encode`.
        """
        return self.rank(list(map(self.encode, texts)), top_k=top_k)

    def rank(
        self, texts: Sequence[MaskedText], *, top_k: int
    ) -> list[list[Candidates]]:
        """Does the same as `fill`, for tokenized texts."""
        tokens = self.tokenizer.vocabulary.tokens
        padded = functools.partial(keras.utils.pad_sequences, padding="post")
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i].ids))
        ranked: list[list[Candidates]] = [[] for _ in texts]
        for start in range(0, len(order), _BATCH_SIZE):
            rows = order[start : start + _BATCH_SIZE]
            batch = [texts[i] for i in rows]
            input_ids = padded([text.ids for text in batch])
            # Position 1 exists in every text and has one before it.
            positions = padded([text.positions for text in batch], value=1)
            outputs = self._model(
                {
                    "input_ids": input_ids,
                    "input_mask": padded([[1] * len(x.ids) for x in batch]),
                    "segment_ids": np.zeros_like(input_ids),
                    "masked_lm_positions": positions - self._offset,
                }
            )
            logits = ops.cast(outputs.masked_lm_logits, "float32")  # [B, P, V]
            logits = logits[..., : len(tokens)]  # Embeddings may be padded.
            best = ops.top_k(ops.softmax(logits), min(top_k, len(tokens)))
            values, ids = map(ops.convert_to_numpy, best)  # [B, P, top_k]
            for row, i in enumerate(rows):
                ranked[i] = [
                    [
                        (tokens[token], float(value))
                        for token, value in zip(*mask, strict=True)
                    ]
                    for mask in zip(ids[row], values[row], strict=True)
                ][: len(texts[i].positions)]
        return ranked


def describe(text: str, masks: Sequence[Candidates]) -> str:
    """Returns the text and one line per mask with its tokens."""
    lines = [text]
    for number, candidates in enumerate(masks, 1):
        label = f"  mask {number}:" if len(masks) > 1 else " "
        words = [f"{token} {x:.3f}" for token, x in candidates]
        lines.append(f"{label} {'  '.join(words)}")
    return "\n".join(lines)


def as_json(text: str, masks: Sequence[Candidates]) -> str:
    """Returns a JSON object with the text and the tokens of each mask."""
    ranked = [
        [
            {"token": token, "probability": round(x, 6)}
            for token, x in candidates
        ]
        for candidates in masks
    ]
    record = {"text": text, "masks": ranked}
    return json.dumps(record, ensure_ascii=False)


def fill_text(filler: MaskFiller, text: str, *, top_k: int) -> str:
    """Returns --text and its tokens, as `describe` does.

    Raises:
      InputError: the text cannot be filled; see MaskFiller.encode.
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
    is_typed = stream.isatty()
    if is_typed:
        sys.stderr.write("Type texts with [MASK] in them; Ctrl-D ends.\n")
    number, has_text, are_filled = 0, False, True
    for number, line in enumerate(typed.lines(stream, sys.stdout), 1):
        text = line.decode("utf-8", "surrogateescape").strip()
        if not text:
            continue
        has_text = True
        try:
            (masks,) = filler.fill([text], top_k=top_k)
        except errors.InputError as error:
            are_filled = False
            sys.stderr.write(f"standard input:{number}: {error}\n")
        else:
            sys.stdout.write(f"{describe(text, masks)}\n")
            sys.stdout.flush()
    if not has_text:
        logging.warning("standard input: no text in %d line(s)", number)
    return 0 if are_filled or is_typed else 2


class Line(NamedTuple):
    """A line with masks.

    where: file and line.
    text: its text.
    label: None.
    """

    where: str
    text: str
    label: None = None


class MaskedLines(tasks.Task):
    """Lines whose masks are filled, and what fills them."""

    def __init__(self, filler: MaskFiller, top_k: int, *, as_text: bool):
        """Takes what fills, and whether `describe` or `as_json` shows it."""
        self._filler, self._top_k = filler, top_k
        self._form = describe if as_text else as_json

    def encode(self, example: Line) -> Any:
        """See Task: a MaskedText.

        Raises:
          InputError: the line cannot be filled; names file and line.
        """
        try:
            return self._filler.encode(example.text)
        except errors.InputError as error:
            raise errors.InputError(f"{example.where}: {error}") from None

    def features(
        self, encoded: Iterable[tuple[Line, Any]], *, with_targets: bool
    ) -> Any:
        """See Task: the texts."""
        return [masked for _, masked in encoded]

    def predict(
        self, features: list[MaskedText], batch_size: int
    ) -> list[list[Candidates]]:
        """Returns the tokens for each mask of each text."""
        return self._filler.rank(features, top_k=self._top_k)

    def decode(self, encoded: tasks.Encoded, outputs: Any) -> dict[str, bytes]:
        """See Task."""
        texts = [example.text for example in encoded.examples]
        lines = map(self._form, texts, outputs)
        return {_PART: "".join(f"{line}\n" for line in lines).encode()}


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
        unknown += ids.count(filler.tokenizer.vocabulary.unk_id)
    if not total:
        logging.warning("%s: no text in %d line(s)", lines.name, lines.total)
        return
    if unknown > _MUCH_UNKNOWN * total:
        logging.warning(
            "%s: %.0f %% of its tokens are [UNK]",
            lines.name,
            100 * unknown / total,
        )
    layout, folder = tasks.Layout(_PART), f"{output_file}.blocks"
    if output_file is None:
        prediction.print_blocks(
            task, task, examples, layout, batch_size=_BATCH_SIZE
        )
        return
    made_from = filler.made_from | {"top_k": top_k}
    paths = prediction.predict_blocks(
        task, task, examples, folder, made_from, batch_size=_BATCH_SIZE
    )
    prediction.write_file(output_file, layout, paths)
    file_system.remove_folder(folder)
