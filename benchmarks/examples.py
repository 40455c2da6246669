"""Tokenized examples in a .npz file, which both sides of a comparison read."""

import numpy as np


def write(path: str, features, **others) -> str:
    """Writes Features and other arrays to a file; returns its path."""
    np.savez(
        path,
        row_splits=features.row_splits,
        **features.ragged,
        **features.dense,
        **others,
    )
    return path


def read(path: str) -> dict[str, np.ndarray]:
    """Reads a file of `write`."""
    with np.load(path) as file:
        return dict(file)


def to_features(arrays: dict[str, np.ndarray], count: int | None = None):
    """Returns the Features of a file, or the first `count` of them."""
    from data.features import Features

    splits = arrays["row_splits"]
    count = len(splits) - 1 if count is None else min(count, len(splits) - 1)
    columns = {k: x for k, x in arrays.items() if x.ndim and k != "row_splits"}
    tokens = len(arrays["input_ids"])
    ragged = {k: x for k, x in columns.items() if len(x) == tokens}
    return Features(
        row_splits=splits[: count + 1],
        ragged={k: x[: splits[count]] for k, x in ragged.items()},
        dense={k: x[:count] for k, x in columns.items() if k not in ragged},
    )


def padded(arrays: dict[str, np.ndarray], rows) -> dict[str, np.ndarray]:
    """Returns a batch for transformers, padded to its longest row.

    Args:
      arrays: from `read`.
      rows: numbers of the B examples.

    Returns:
      input_ids, token_type_ids and attention_mask, int [B, S], and, unless it
      is a test set, labels: [B, S] with -100 at positions without a label, or
      one per example [B].
    """
    rows = np.asarray(rows)
    splits = arrays["row_splits"]
    lengths = splits[rows + 1] - splits[rows]
    positions = np.arange(lengths.max())
    is_token = positions < lengths[:, None]
    where = np.where(is_token, splits[rows][:, None] + positions, 0)
    batch = {
        "input_ids": np.where(is_token, arrays["input_ids"][where], 0),
        "token_type_ids": np.where(is_token, arrays["segment_ids"][where], 0),
        "attention_mask": is_token.astype(np.int64),
    }
    if "label_ids" not in arrays:
        return batch
    labels = arrays["label_ids"]
    if labels.ndim == 1:
        labels = np.where(is_token, labels[where], -1)
        labels = np.where(labels < 0, -100, labels)
    else:
        labels = labels[rows, 0]
    return {**batch, "labels": labels}


def numbered_labels(arrays: dict[str, np.ndarray]) -> list[str]:
    """Returns a name for each of the outputs of the file's task."""
    return [str(i) for i in range(int(arrays["classes"]))]


def open_sentence_task(
    task_name: str,
    data_dir: str,
    train_file: str | None = None,
    dev_file: str | None = None,
):
    """Opens a GLUE task from its directory, or from files in its format."""
    from tasks.classification import sentence_tasks, settings

    files = settings.Files(
        data_dir=data_dir, train_file=train_file, dev_file=dev_file
    )
    return sentence_tasks.open_task(task_name, files)


def tokenize_sentence_task(
    path: str,
    task,
    split: str,
    init_checkpoint: str,
    *,
    max_seq_length: int = 128,
) -> None:
    """Tokenizes a split as run_classifier.py does and writes it to a file.

    A test set has no labels, so that its file has no label_ids.
    """
    from data import features as features_lib
    from tasks.classification import sentence_tasks
    from weights import pretrained

    start = pretrained.open_start(
        output_dir=None,
        init_checkpoint=init_checkpoint,
        max_seq_length=max_seq_length,
    )
    if split in task.test_splits:
        features = sentence_tasks.encode(
            task.read(split),
            start.tokenizer,
            max_seq_length=max_seq_length,
            statistics=features_lib.TokenizationStatistics(),
        )
    else:
        features = sentence_tasks.tokenize(
            task,
            split,
            start.tokenizer,
            max_seq_length=max_seq_length,
            records_dir=None,
        )
    write(path, features, classes=len(task.labels) or 1)
