"""Pre-trained models: finds a model's files and loads its weights.

    open_start       flags -> Start: config, tokenizer, path of the weights
    assign           weights of a checkpoint -> a model

What the flags do not give is read from the files beside --init_checkpoint, or,
without that flag, from the trained model in --output_dir.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from absl import logging

from data.features import Features
from data.tokenization import plain_wordpiece, wordpiece
from foundation import copies, errors, file_system
from modeling.config import BertConfig
from weights import (
    checkpoint_sources,
    model_directory,
    stored_weights,
    tokenizer_files,
)
from weights.checkpoint_sources import Source

# Released tables of word embeddings are padded to multiples of 8, 64 or 128.
_PADDING = 128
_OUTPUT_LAYER = ("output_weights", "output_bias")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """The model that a run starts from.

    Attributes:
      config: the model's hyperparameters.
      tokenizer: tokenizer for the texts of the run.
      settings: what config.json beside the weights says besides.
      num_outputs: number of outputs of the weights' classifier; None without
        one.
      init_checkpoint: the path of the weights; None for random weights.
      init_layers: numbers of the layers that are used, in their order; () for
        all.
    """

    config: BertConfig
    tokenizer: plain_wordpiece.PlainTokenizer
    settings: model_directory.Settings
    init_checkpoint: str | None
    init_layers: Sequence[int] = ()
    num_outputs: int | None = None

    def check_segments(self, features: Features) -> None:
        """Refuses segment ids for which the model has no embedding."""
        num_segments = int(features.ragged["segment_ids"].max(initial=0)) + 1
        if num_segments > self.config.type_vocab_size:
            raise errors.InputError(
                f"pairs of texts need {num_segments} segments, but "
                "type_vocab_size of the model is "
                f"{self.config.type_vocab_size}: give another --init_checkpoint"
            )


def open_start(
    *,
    output_dir: str | None,
    init_checkpoint: str | Source | None = None,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    bilstm_size: int | None = None,
    max_seq_length: int | None,
    init_layers: Sequence[int] = (),
    flag: str = "init_checkpoint",
) -> Start:
    """Finds and checks the model that a run starts from.

    The arguments are the flags of these names; init_checkpoint may also be a
    checkpoint that was read already. Without init_checkpoint, the model in
    output_dir is used, if there is one; the other arguments replace
    what is beside the weights. The model must have max_seq_length positions, if
    that is given. `flag` is what gives init_checkpoint, for messages.

    Raises:
      InputError: something is missing or does not fit.
    """
    source = None
    if init_checkpoint is not None:
        source = _read_flag(flag, init_checkpoint, init_layers)
    elif output_dir and model_directory.has_model(output_dir):
        source = _read_flag("output_dir", output_dir)
    if bert_config_file is not None:
        config = read_config(bert_config_file)
    elif source is not None:
        config = source.needed_config
    else:
        where = f"there is no trained model in --output_dir={output_dir}, and "
        raise errors.InputError(
            f"{where if output_dir else ''}neither --init_checkpoint nor "
            "--bert_config_file is given"
        )
    if (max_seq_length or 0) > config.max_position_embeddings:
        raise errors.InputError(
            f"--max_seq_length={max_seq_length}: the model has only "
            f"{config.max_position_embeddings} positions"
        )
    directory = source.directory if source else None
    tokenizer = tokenizer_files.load(
        directory,
        vocab_file=vocab_file,
        init_checkpoint=source.path if source else None,
        do_lower_case=do_lower_case,
    )
    where = f"--vocab_file={vocab_file}" if vocab_file else str(directory)
    check_vocabulary(config.vocab_size, len(tokenizer.vocabulary), where)
    settings = source.settings if source else model_directory.Settings()
    if bilstm_size is not None:
        settings = dataclasses.replace(settings, bilstm_size=bilstm_size)
    scores = source.tensors.get("output_weights") if source else None
    return Start(
        config=config,
        tokenizer=tokenizer,
        settings=settings,
        init_checkpoint=source.path if source else None,
        init_layers=init_layers,
        num_outputs=scores.shape[0] if scores and scores.shape else None,
    )


def _read_flag(
    flag: str, given: str | Source, init_layers: Sequence[int] = ()
) -> Source:
    """Opens the checkpoint that a flag names; its errors name the flag.

    With init_layers, it has only these layers.
    """
    try:
        source = checkpoint_sources.read(given)
        _ = source.matched  # Refuses damaged weights before others are read.
    except errors.InputError as error:
        raise errors.InputError(f"--{flag}: {error}") from error
    return checkpoint_sources.with_layers(source, init_layers)


def read_config(path: str) -> BertConfig:
    """Reads --bert_config_file: a file, also in a bucket, or a small model."""
    name = os.path.basename(path).removesuffix(".json")
    is_file = file_system.exists(path)
    config = None if is_file else BertConfig.of_small_model(name)
    return config or BertConfig.from_json_file(copies.local(path))


def check_vocabulary(vocab_size: int, num_tokens: int, where: str) -> None:
    """Compares the size of a vocabulary with the model's embeddings.

    Logs a warning if the vocabulary, which `where` names, is smaller by more
    than padding explains.

    Raises:
      InputError: the vocabulary is larger.
    """
    if num_tokens > vocab_size:
        raise errors.InputError(
            f"{where}: the vocabulary has {num_tokens} entries, but the "
            f"model's vocab_size is {vocab_size}"
        )
    if vocab_size > -(-num_tokens // _PADDING) * _PADDING:
        errors.warn_once(  # The sets of a training have one vocabulary.
            f"{where}: the vocabulary has {num_tokens} entries, but the "
            f"model's vocab_size is {vocab_size}. Either this is the "
            "vocabulary of another model, or the model has "
            f"{vocab_size - num_tokens} embeddings that are never used: a new "
            f'model needs "vocab_size": {num_tokens} in --bert_config_file'
        )


def assign(
    model: Any,
    init_checkpoint: str | Source | None,
    *,
    tokenizer: wordpiece.Tokenizer | None = None,
    init_layers: Sequence[int] = (),
    new_output_layer: bool = False,
) -> stored_weights.Report | None:
    """Assigns the weights of --init_checkpoint, if one is given.

    Args:
      model: one of modeling.models.
      init_checkpoint: anything that `checkpoint_sources` reads, or what it
        has read.
      tokenizer: tokenizer of the run; must fit the checkpoint's. None is not
        compared.
      init_layers: numbers of the checkpoint's layers that become those of the
        model; () for all.
      new_output_layer: whether the output layer of a classifier or tagger keeps
        its initial values.

    Returns:
      What was assigned; None without a checkpoint.

    Raises:
      InputError: the checkpoint cannot be read, or belongs to another model.
    """
    if init_checkpoint is None:
        return None
    source = _read_flag("init_checkpoint", init_checkpoint, init_layers)
    if tokenizer is not None:
        tokenizer_files.check_case(
            source.path,
            source.directory,
            tokenizer.settings["do_lower_case"],
        )
    try:
        checkpoint_sources.check_config(source, model.config)
        report = stored_weights.assign(
            model,
            source.tensors,
            where=source.path,
            others=source.others,
            initial=_OUTPUT_LAYER if new_output_layer else (),
            added_tokens=len(tokenizer.vocabulary.added) if tokenizer else 0,
        )
    except errors.InputError as error:
        raise errors.InputError(f"--init_checkpoint: {error}") from error
    logging.info("weights of %s: %s", source.path, report.summary())
    if hasattr(model, "masked_lm") and (untied := source.untied_decoder):
        errors.warn_once(f"--init_checkpoint: {source.path}: {untied}")
    return report


def require_weights(init_checkpoint: str | Source | None) -> str | Source:
    """Returns the weights; refuses to evaluate a model with random ones."""
    if init_checkpoint is None:
        raise errors.InputError(
            "there is nothing to evaluate: --output_dir has no checkpoint, "
            "and neither --do_train nor --init_checkpoint is given"
        )
    return init_checkpoint
