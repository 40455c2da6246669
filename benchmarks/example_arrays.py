"""Tokenized examples in a file, for a peer without TensorFlow and us."""

import numpy as np


def write(path: str, features, **others) -> str:
    """Writes Features, and what else a peer needs; returns the path."""
    np.savez(
        path,
        row_splits=features.row_splits,
        **features.ragged,
        **features.dense,
        **others,
    )
    return path


def read(path: str) -> dict[str, np.ndarray]:
    """Reads what `write` left."""
    with np.load(path) as file:
        return dict(file)


def to_features(arrays: dict[str, np.ndarray], count: int | None = None):
    """Returns the Features again, or the first `count` of them."""
    from data.features import Features

    splits = arrays["row_splits"]
    count = len(splits) - 1 if count is None else min(count, len(splits) - 1)
    columns = {k: x for k, x in arrays.items() if x.ndim and k != "row_splits"}
    pieces = len(arrays["input_ids"])
    is_ragged = {k: len(x) == pieces for k, x in columns.items()}
    return Features(
        row_splits=splits[: count + 1],
        ragged={
            k: x[: splits[count]] for k, x in columns.items() if is_ragged[k]
        },
        dense={k: x[:count] for k, x in columns.items() if not is_ragged[k]},
    )


def padded(arrays: dict[str, np.ndarray], rows) -> dict[str, np.ndarray]:
    """Returns transformers' inputs [B, S], S of the longest of the rows.

    Labels are of the pieces [B, S], -100 where there is none, or of the rows
    [B].
    """
    rows = np.asarray(rows)
    splits = arrays["row_splits"]
    lengths = splits[rows + 1] - splits[rows]
    places = np.arange(lengths.max())
    is_piece = places < lengths[:, None]
    where = np.where(is_piece, splits[rows][:, None] + places, 0)
    labels = arrays["label_ids"]
    if labels.ndim == 1:
        labels = np.where(is_piece, labels[where], -1)
        labels = np.where(labels < 0, -100, labels)
    else:
        labels = labels[rows, 0]
    return {
        "input_ids": np.where(is_piece, arrays["input_ids"][where], 0),
        "token_type_ids": np.where(is_piece, arrays["segment_ids"][where], 0),
        "attention_mask": is_piece.astype(np.int64),
        "labels": labels,
    }
