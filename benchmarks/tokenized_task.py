"""A sentence task as arrays, for a peer that has neither TensorFlow nor us."""

import os

import numpy as np


def write(
    folder: str,
    task_name: str,
    *,
    data_dir: str,
    init_checkpoint: str,
    max_seq_length: int = 128,
) -> dict[str, str]:
    """Tokenizes both sets as run_classifier.py does.

    Returns:
      "train" and "dev" -> the file with row_splits, input_ids, segment_ids
      and label_ids.
    """
    import finetuning_job
    from tasks import sentence_tasks
    from training import finetuning_config

    start = finetuning_job.open_start(
        finetuning_config.FinetuningConfig(
            output_dir=folder, init_checkpoint=init_checkpoint
        )
    )
    task = open_task(task_name, data_dir)
    paths = {}
    for name, split in (("train", "train"), ("dev", task.dev_splits[0])):
        features = sentence_tasks.prepare(
            task,
            split,
            start.tokenizer,
            max_seq_length=max_seq_length,
            records_dir=None,
        )
        paths[name] = os.path.join(folder, f"{name}.npz")
        np.savez(
            paths[name],
            row_splits=features.row_splits,
            label_ids=features.dense["label_ids"],
            **features.ragged,
        )
    return paths


def open_task(task_name: str, data_dir: str):
    """Opens a task of GLUE from its folder."""
    from tasks import sentence_tasks

    return sentence_tasks.open_task(
        task_name, data_dir=data_dir, files={}, columns=None, problem_type=""
    )


def read(path: str) -> dict[str, np.ndarray]:
    """Reads what `write` left."""
    with np.load(path) as file:
        return dict(file)


def padded(arrays: dict[str, np.ndarray], rows) -> dict[str, np.ndarray]:
    """Returns transformers' inputs [B, S], S of the longest of the rows."""
    splits = arrays["row_splits"]
    lengths = splits[rows + 1] - splits[rows]
    places = np.arange(lengths.max())
    is_piece = places < lengths[:, None]
    where = np.where(is_piece, splits[rows][:, None] + places, 0)
    return {
        "input_ids": np.where(is_piece, arrays["input_ids"][where], 0),
        "token_type_ids": np.where(is_piece, arrays["segment_ids"][where], 0),
        "attention_mask": is_piece.astype(np.int64),
        "labels": arrays["label_ids"][rows, 0],
    }
