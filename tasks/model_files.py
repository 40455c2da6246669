"""Model directories as runners use them: weights and tokenizer together."""

import os
from typing import Any

from absl import logging

import errors
from data import tokenization
from modeling import model_directory, models
from modeling.config import BertConfig
from tasks import tokenizer_files


def load_pretrained(
    directory: str,
) -> tuple[models.PretrainingModel, tokenization.Tokenizer]:
    """Loads a model that can fill masks, and its tokenizer.

    Raises:
      InputError: the directory is no model directory, or the model has no
        masked-LM head.
    """
    if not os.path.isdir(directory):
        raise errors.InputError(f"{directory}: no such directory")
    config = model_directory.read_config(directory)
    tokenizer = tokenizer_files.load(directory)
    check_vocabulary(config.vocab_size, tokenizer, directory)
    model = models.PretrainingModel(
        config,
        attention=model_directory.read_attention(directory),
        next_sentence=False,
    )
    report = model_directory.load_weights(model, directory)
    if report.initialized:
        raise errors.InputError(
            f"{directory}: the model has no masked-LM head "
            f"({report.initialized[0]} is missing)"
        )
    return model, tokenizer


def save(
    model: Any,
    tokenizer: tokenization.Tokenizer | None,
    directory: str,
    labels: list[str] | None = None,
) -> None:
    """Writes a model directory; without a tokenizer, says what is missing."""
    model_directory.save(model, directory, labels=labels)
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


def warm_start(model: Any, init_checkpoint: str | None) -> None:
    """Assigns the weights of --init_checkpoint, if one is given.

    Raises:
      InputError: it is no model directory, is of another size, or holds
        nothing that this model has a place for.
    """
    if init_checkpoint is None:
        return
    if not os.path.isdir(init_checkpoint):
        raise errors.InputError(
            f"--init_checkpoint={init_checkpoint}: no such directory"
        )
    report = model_directory.load_weights(model, init_checkpoint)
    if not report.loaded:
        raise errors.InputError(
            f"--init_checkpoint={init_checkpoint}: none of its weights "
            "belongs to this model"
        )
    logging.info("warm start from %s: %s", init_checkpoint, report.summary())


def require_weights(init_checkpoint: str | None) -> None:
    """Refuses to evaluate a model of random weights."""
    if init_checkpoint is None:
        raise errors.InputError(
            "there is nothing to evaluate: --output_dir has no checkpoint, "
            "and neither --do_train nor --init_checkpoint is given"
        )


def check_output_dir(output_dir: str, config: BertConfig) -> None:
    """Refuses to write over a model of another shape."""
    if not os.path.exists(
        os.path.join(output_dir, model_directory.RELEASED_CONFIG)
    ):
        return
    found = model_directory.read_config(output_dir)
    for name, value in config.to_dict().items():
        other = getattr(found, name)
        if other != value:
            raise errors.InputError(
                f"--output_dir={output_dir} holds another model: its {name} "
                f"is {other}, not {value}"
            )


def check_vocabulary(
    vocab_size: int, tokenizer: tokenization.Tokenizer, where: str
) -> None:
    """Refuses a vocabulary with ids beyond the model's embeddings."""
    found = len(tokenizer.vocabulary)
    if found > vocab_size:
        raise errors.InputError(
            f"{where}: the vocabulary has {found} entries, but the model's "
            f"vocab_size is {vocab_size}"
        )
