"""Model directories as runners use them: weights and tokenizer together."""

import os
from typing import Any

from absl import logging

from data.tokenization import wordpiece
from foundation import errors, file_system
from modeling import models
from modeling.config import BertConfig
from weights import (
    checkpoint_sources,
    model_directory,
    stored_weights,
    tokenizer_files,
)

_TASKS = {
    f"BertFor{name}"
    for name in (
        "SequenceClassification",
        "MultipleChoice",
        "QuestionAnswering",
        "TokenClassification",
    )
}
# In the order in which a model directory gets them.
_MODEL = (
    model_directory.WEIGHTS,
    model_directory.RELEASED_CONFIG,
    model_directory.CONFIG,
)
# TensorFlow's note of a run's latest checkpoint.
_CHECKPOINT = "checkpoint"


def load_pretrained(
    path: str,
) -> tuple[models.PretrainingModel, wordpiece.Tokenizer]:
    """Loads a model that can fill masks, and its tokenizer.

    Args:
      path: a model directory, or any other checkpoint with its config and its
        vocabulary beside it.

    Raises:
      InputError: it is none, or the model has no masked-LM head.
    """
    source = checkpoint_sources.read(path)
    if source.config is None:
        raise errors.InputError(
            f"{source.directory}: no {model_directory.CONFIG} or "
            f"{model_directory.RELEASED_CONFIG} beside the weights"
        )
    tokenizer = tokenizer_files.load(source.directory)
    check_vocabulary(source.config.vocab_size, tokenizer, path)
    model = models.PretrainingModel(
        source.config,
        attention=model_directory.read_attention(source.directory),
        next_sentence=False,
    )
    report = stored_weights.assign(model, source.tensors, where=source.path)
    untied = [x for x in source.others if x.endswith(".decoder.weight")]
    if untied:
        raise errors.InputError(
            f"{path}: {untied[0]} is another matrix than the word embeddings, "
            "with which BERT's masked-LM head scores words"
        )
    if report.initialized:
        raise errors.InputError(
            f"{path}: the model has no masked-LM head "
            f"({report.initialized[0]} is missing)"
        )
    return model, tokenizer


def read_config(path: str) -> BertConfig:
    """Reads what --bert_config_file names, on a disk or in a bucket."""
    return BertConfig.from_json_file(file_system.local(path))


def save(
    model: Any,
    tokenizer: wordpiece.Tokenizer | None,
    directory: str,
    labels: list[str] | None = None,
    problem_type: str | None = None,
) -> None:
    """Writes a model directory; without a tokenizer, says what is missing."""
    with file_system.local_output(directory, _MODEL) as folder:
        model_directory.save(
            model, folder, labels=labels, problem_type=problem_type
        )
    if tokenizer is None:
        logging.warning(
            "%s has no vocab.txt: no manifest beside the shards names the "
            "vocabulary; --vocab_file does",
            directory,
        )
        return
    tokenizer_files.save(
        tokenizer,
        directory,
        max_length=model.config.max_position_embeddings,
    )


def warm_start(
    model: Any,
    init_checkpoint: str | None,
    *,
    do_lower_case: bool | None = None,
) -> stored_weights.Report | None:
    """Assigns the weights of --init_checkpoint, if one is given.

    Args:
      model: one of modeling.models.
      init_checkpoint: anything that `checkpoint_sources` reads.
      do_lower_case: what text is read with, to be compared with what the
        checkpoint was trained with; None compares nothing.

    Returns:
      What was assigned.

    Raises:
      InputError: it cannot be read, or belongs to another model.
    """
    if init_checkpoint is None:
        return None
    try:
        source = checkpoint_sources.read(init_checkpoint)
    except errors.InputError as error:
        raise errors.InputError(f"--init_checkpoint: {error}") from error
    if do_lower_case is not None:
        tokenizer_files.check_case(
            init_checkpoint, source.directory, do_lower_case
        )
    try:
        checkpoint_sources.check_config(
            source, model.config, "--bert_config_file"
        )
        report = stored_weights.assign(
            model, source.tensors, where=source.path, others=source.others
        )
    except errors.InputError as error:
        raise errors.InputError(f"--init_checkpoint: {error}") from error
    logging.info("warm start from %s: %s", source.path, report.summary())
    return report


def is_begun(directory: str) -> bool:
    """Tells whether a run has left checkpoints in a directory."""
    return file_system.exists(os.path.join(directory, _CHECKPOINT))


def is_here(directory: str) -> bool:
    """Tells whether a run has left its model in a directory."""
    return file_system.exists(os.path.join(directory, model_directory.WEIGHTS))


def require_weights(init_checkpoint: str | None) -> None:
    """Refuses to evaluate a model of random weights."""
    if init_checkpoint is None:
        raise errors.InputError(
            "there is nothing to evaluate: --output_dir has no checkpoint, "
            "and neither --do_train nor --init_checkpoint is given"
        )


def check_task(model: Any, weights: str) -> None:
    """Refuses weights whose head, of the same shape, has another task."""
    directory = file_system.local_folder(
        file_system.folder_of(weights), _MODEL[1:]
    )
    if not os.path.exists(os.path.join(directory, model_directory.CONFIG)):
        return
    own = model_directory.architecture(model)
    found = model_directory.read_architecture(directory)
    if found != own and {found, own} <= _TASKS:
        raise errors.InputError(
            f"{weights} has been trained for another task: it is a {found}, "
            f"not a {own}"
        )


def check_not_the_start(
    output_dir: str, init_checkpoint: str | None, *, is_grid: bool = False
) -> None:
    """Refuses to train over the only copy of what a run starts from.

    A folder with a run's checkpoints is resumed, whatever it has begun with;
    but not by a grid, whose runs have folders of their own.
    """
    if init_checkpoint is None or (is_begun(output_dir) and not is_grid):
        return
    start = file_system.folder_of(init_checkpoint)
    if file_system.real(start) == file_system.real(output_dir):
        raise errors.InputError(
            f"--output_dir={output_dir} is where --init_checkpoint lies, which "
            "training would write over; choose another"
        )


def check_output_dir(output_dir: str, config: BertConfig) -> None:
    """Refuses to write over a model of another shape."""
    folder = file_system.local_folder(output_dir, _MODEL[1:])
    if not os.path.exists(
        os.path.join(folder, model_directory.RELEASED_CONFIG)
    ):
        return
    found = model_directory.read_config(folder)
    for name, value in config.to_dict().items():
        other = getattr(found, name)
        if other != value:
            raise errors.InputError(
                f"--output_dir={output_dir} holds another model: its {name} "
                f"is {other}, not {value}"
            )


def check_vocabulary(
    vocab_size: int, tokenizer: wordpiece.Tokenizer, where: str
) -> None:
    """Refuses a vocabulary with ids beyond the model's embeddings."""
    found = len(tokenizer.vocabulary)
    if found > vocab_size:
        raise errors.InputError(
            f"{where}: the vocabulary has {found} entries, but the model's "
            f"vocab_size is {vocab_size}"
        )
