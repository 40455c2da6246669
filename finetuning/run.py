"""The life of a command that fine-tunes, from top to bottom."""

# Before any package that may be missing.
import foundation.environment  # noqa: F401

# isort: split
from typing import Any

from absl import logging

from finetuning import given_model
from finetuning.task import Task


def run(task_class: type[Task], flags: Any) -> None:
    """Trains, evaluates and predicts, as the flags say.

    The flags are parsed already. First the files of the model and the sets are
    read, checked and shown. Only then TensorFlow is imported.
    """
    model, flags = given_model.find(flags, task_class.added_tokens)
    task = task_class(flags, model)

    import foundation.tensorflow_setup  # noqa: F401
    from finetuning import prediction, session, training

    opened = session.Session(flags, task)
    trained = None
    if flags.do_train:
        network, step = training.train_all(opened)
        trained = opened.record.best["run"], step
    else:
        network, step = task.load(opened)
    if flags.evaluated:
        evaluation = opened.evaluate(network, trained)
        opened.note_evaluation(task.dev_sets[0], evaluation, step)
    for split in task.predicted_sets:
        predicted = prediction.predict(opened, network, split)
        if predicted is not None:
            opened.note_evaluation(split, predicted, step)
    # When all files are written: a killed command predicts no block twice.
    for split in task.predicted_sets:
        prediction.remove_blocks(opened, split)
    logging.info("all files are in %s", flags.output_dir)
    task.end(network)
