"""Predicts the tokens of masked positions, to check a pre-trained model by eye.

The man went to the [MASK] .
    ->  store 0.31   door 0.12   house 0.07
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from absl import logging
from keras import ops

from data.tokenization import wordpiece
from foundation import errors

MASK = "[MASK]"


class Candidate(NamedTuple):
    """A token for a mask and its probability."""

    token: str
    probability: float


class MaskedText(NamedTuple):
    """The ids of a text, [CLS] ... [SEP], and the positions of its masks."""

    ids: list[int]
    positions: list[int]


def encode(
    tokenizer: wordpiece.Tokenizer, text: str, *, max_length: int
) -> MaskedText:
    """Tokenizes a text with [MASK] in it.

    The tokenizer would split "[MASK]" into three tokens. Therefore the parts
    between the masks are tokenized.

    Raises:
      InputError: the text has no mask, or more than max_length tokens.
    """
    vocabulary = tokenizer.vocabulary
    encoding = tokenizer.encode(text.split(MASK))
    ids = [vocabulary.cls_id]
    for start, end in zip(
        encoding.row_splits[:-1], encoding.row_splits[1:], strict=True
    ):
        ids += [*encoding.ids[start:end].tolist(), vocabulary.mask_id]
    ids[-1] = vocabulary.sep_id  # There is no mask after the last part.
    positions = [i for i, id_ in enumerate(ids) if id_ == vocabulary.mask_id]
    if not positions:
        raise errors.InputError(f"no {MASK} in {text[:60]!r}")
    if len(ids) > max_length:
        raise errors.InputError(
            f"{len(ids)} tokens are more than the model's {max_length} "
            f"positions: {text[:60]!r}"
        )
    return MaskedText(ids, positions)


class MaskFiller:
    """Ranks the vocabulary for every mask of a text."""

    def __init__(
        self,
        model: Any,
        tokenizer: wordpiece.Tokenizer,
        *,
        left_to_right: bool = False,
    ):
        """Creates a filler.

        Args:
          model: a `PretrainingModel`.
          tokenizer: of the model.
          left_to_right: whether the model predicts each token at the position
            before it.
        """
        self._model = model
        self._tokenizer = tokenizer
        self._offset = 1 if left_to_right else 0
        self._max_length = model.config.max_position_embeddings

    def fill(
        self, texts: Iterable[str], *, top_k: int
    ) -> list[list[list[Candidate]]]:
        """Returns, for each mask of each text, the top_k most probable tokens.

        The masks of one text are predicted independently of each other.

        Raises:
          InputError: see `encode`.
        """
        return [self._fill(text, top_k) for text in texts]

    def _fill(self, text: str, top_k: int) -> list[list[Candidate]]:
        masked = encode(self._tokenizer, text, max_length=self._max_length)
        input_ids = np.array([masked.ids], np.int32)
        positions = np.array([masked.positions], np.int32)
        outputs = self._model(
            {
                "input_ids": input_ids,
                "input_mask": np.ones_like(input_ids),
                "segment_ids": np.zeros_like(input_ids),
                "masked_lm_positions": positions - self._offset,
            }
        )
        tokens = self._tokenizer.vocabulary.tokens
        logits = ops.cast(outputs.masked_lm_logits[0], "float32")  # [P, V]
        logits = logits[:, : len(tokens)]  # Embeddings may be padded.
        best = ops.top_k(ops.softmax(logits), min(top_k, len(tokens)))
        probabilities, ids = map(ops.convert_to_numpy, best)  # [P, top_k]
        return [
            [
                Candidate(tokens[i], float(probability))
                for i, probability in zip(*mask, strict=True)
            ]
            for mask in zip(ids, probabilities, strict=True)
        ]

    def describe(self, text: str, *, top_k: int) -> str:
        """Returns the text and one line per mask with its top_k tokens.

        Raises:
          InputError: see `encode`; or the text has bytes that are not UTF-8.
        """
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise errors.InputError("not UTF-8 text")
        masks = self._fill(text, top_k)
        lines = [text]
        for number, candidates in enumerate(masks, 1):
            label = f"  mask {number}:" if len(masks) > 1 else " "
            words = [f"{c.token} {c.probability:.3f}" for c in candidates]
            lines.append(f"{label} {'  '.join(words)}")
        return "\n".join(lines)


def read_texts(name: str, lines: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Yields the position ("name:line number") and the text of each line.

    Blank lines are skipped; if there are no others, a warning is logged. Bytes
    that are not UTF-8 become surrogates, as in Python's arguments.
    """
    number = 0
    is_empty = True
    for number, line in enumerate(lines, 1):
        text = line.decode("utf-8-sig", "surrogateescape").strip()
        if text:
            is_empty = False
            yield f"{name}:{number}", text
    if is_empty:
        logging.warning("%s: no text in %d line(s)", name, number)
