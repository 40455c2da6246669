"""Guesses the words behind [MASK], as one checks a pre-trained model by eye.

The man went to the [MASK] .
    ->  store 0.31   door 0.12   house 0.07
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from data.tokenization import wordpiece
from foundation import errors

MASK = "[MASK]"


class Candidate(NamedTuple):
    """One piece that may stand at a mask."""

    token: str
    probability: float


class MaskedText(NamedTuple):
    """A text as ids, [CLS] ... [SEP], and where its masks are."""

    ids: list[int]
    positions: list[int]


def encode(
    tokenizer: wordpiece.Tokenizer, text: str, *, max_length: int
) -> MaskedText:
    """Turns a text with [MASK] in it into ids.

    The released tokenizer would split "[MASK]" into three pieces, so the text
    between the masks is tokenized and the masks are put in between.

    Raises:
      InputError: the text has no mask or more than max_length pieces.
    """
    vocabulary = tokenizer.vocabulary
    encoding = tokenizer.encode(text.split(MASK))
    ids = [vocabulary.cls_id]
    for start, end in zip(
        encoding.row_splits[:-1], encoding.row_splits[1:], strict=True
    ):
        ids += [*encoding.ids[start:end].tolist(), vocabulary.mask_id]
    ids[-1] = vocabulary.sep_id  # There is one mask less than parts.
    positions = [i for i, id_ in enumerate(ids) if id_ == vocabulary.mask_id]
    if not positions:
        raise errors.InputError(f"no {MASK} in {text[:60]!r}")
    if len(ids) > max_length:
        raise errors.InputError(
            f"{len(ids)} pieces are more than the model's {max_length} "
            f"positions: {text[:60]!r}"
        )
    return MaskedText(ids, positions)


class MaskFiller:
    """Ranks the vocabulary at every mask of a text."""

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
          tokenizer: that it was trained with.
          left_to_right: whether a word is read off the place before it.
        """
        self._model = model
        self._tokenizer = tokenizer
        self._offset = 1 if left_to_right else 0
        self._max_length = model.config.max_position_embeddings

    def fill(
        self, texts: Sequence[str], *, top_k: int, batch_size: int = 16
    ) -> list[list[list[Candidate]]]:
        """Returns for each text, for each of its masks, the likeliest pieces.

        Several masks of one text are guessed independently of each other.

        Raises:
          InputError: see `encode`.
        """
        encoded = [
            encode(self._tokenizer, text, max_length=self._max_length)
            for text in texts
        ]
        filled = []
        for start in range(0, len(encoded), batch_size):
            batch = encoded[start : start + batch_size]
            filled += self._fill_batch(batch, top_k)
        return filled

    def _fill_batch(
        self, batch: Sequence[MaskedText], top_k: int
    ) -> list[list[list[Candidate]]]:
        tokens = self._tokenizer.vocabulary.tokens
        features = _pad(batch, self._tokenizer.vocabulary.pad_id)
        positions = features["masked_lm_positions"] - self._offset
        features["masked_lm_positions"] = np.maximum(positions, 0)  # Padding.
        outputs = self._model(features)
        logits = ops.cast(outputs.masked_lm_logits, "float32")
        logits = logits[..., : len(tokens)]  # Tables may be padded.
        best = ops.top_k(ops.softmax(logits), min(top_k, len(tokens)))
        values, indices = map(ops.convert_to_numpy, best)  # [B, P, top_k]
        return [
            [
                [
                    Candidate(tokens[index], float(value))
                    for value, index in zip(*at, strict=True)
                ]
                for at in zip(
                    values[row][: len(text.positions)],
                    indices[row][: len(text.positions)],
                    strict=True,
                )
            ]
            for row, text in enumerate(batch)
        ]


def _pad(batch: Sequence[MaskedText], pad_id: int) -> dict[str, np.ndarray]:
    length = max(len(text.ids) for text in batch)
    masks = max(len(text.positions) for text in batch)
    input_ids = np.full([len(batch), length], pad_id, np.int32)
    input_mask = np.zeros([len(batch), length], np.int32)
    positions = np.zeros([len(batch), masks], np.int32)
    for row, text in enumerate(batch):
        input_ids[row, : len(text.ids)] = text.ids
        input_mask[row, : len(text.ids)] = 1
        positions[row, : len(text.positions)] = text.positions
    return {
        "input_ids": input_ids,
        "input_mask": input_mask,
        "segment_ids": np.zeros_like(input_ids),
        "masked_lm_positions": positions,
    }
