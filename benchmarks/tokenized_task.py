"""A sentence task, tokenized for a peer as run_classifier.py does it."""

import os

import example_arrays


def write(
    path: str,
    task,
    split: str,
    init_checkpoint: str,
    *,
    max_seq_length: int = 128,
) -> None:
    """Tokenizes a set into a file."""
    from jobs import finetuning, run_config
    from tasks.classification import sentence_tasks

    start = finetuning.open_start(
        run_config.FinetuningConfig(
            output_dir=os.path.dirname(path), init_checkpoint=init_checkpoint
        )
    )
    features = sentence_tasks.tokenize(
        task,
        split,
        start.tokenizer,
        max_seq_length=max_seq_length,
        records_dir=None,
    )
    example_arrays.write(path, features, classes=task.num_classes)


def open_task(
    task_name: str,
    data_dir: str,
    train_file: str | None = None,
    dev_file: str | None = None,
):
    """Opens a task of GLUE from its folder, or from files in its format."""
    from tasks.classification import sentence_tasks

    data = sentence_tasks.DataFlags(
        data_dir=data_dir, files={"train": train_file, "dev": dev_file}
    )
    return sentence_tasks.open_task(task_name, data)
