"""Which model does a command start from or use? Its files, without TensorFlow.

The first of these cases that applies; their order is important:

    --do_train              --init_checkpoint, or random weights of
                            --bert_config_file. A run that was stopped continues
                            from its own checkpoints, whatever this finds.
    a model in output_dir
    a checkpoint there      of a training that was stopped
    --init_checkpoint
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from absl import logging

from data.tokenization import plain_wordpiece
from finetuning import flags as flags_lib
from finetuning import record
from foundation import config_flags, file_system, hub, tensor_files
from modeling.config import BertConfig
from weights import checkpoint_sources, model_directory, pretrained


@dataclasses.dataclass(frozen=True, kw_only=True)
class GivenModel:
    """A model before it is built.

    Attributes:
      config: the hyperparameters.
      tokenizer: the tokenizer, of which one kind reads all texts.
      labels: the names of the outputs; None if they have none.
      weights: the path of the weights; None for random ones.
      start: these and what else its files say.
      record: the journal of the directory of the weights.
      unfinished_dir: the directory of the training that has not ended and whose
        last checkpoint has the weights; None for other weights.
    """

    config: BertConfig
    tokenizer: plain_wordpiece.PlainTokenizer
    labels: Sequence[str] | None
    weights: str | None
    start: pretrained.Start
    record: record.RunRecord
    unfinished_dir: str | None


def find(
    flags: flags_lib.AnyFlags, added_tokens: Sequence[str] = ()
) -> tuple[GivenModel, flags_lib.AnyFlags]:
    """Returns a command's model, and its flags with what the model remembers.

    Args:
      flags: the flags of the command.
      added_tokens: tokens that the task needs; the vocabulary and the word
        embeddings grow by those that they lack.

    Raises:
      InputError: there is no model, or something does not fit.
    """
    output_dir, own = flags.output_dir, record.RunRecord(flags.output_dir)
    has_model = model_directory.has_model(output_dir)
    pointer = os.path.join(output_dir, tensor_files.POINTER)
    is_unfinished = not (flags.do_train or own.best) and file_system.is_file(
        pointer
    )
    uses_own = not flags.do_train and (has_model or is_unfinished)
    weights = flags.initial_weights
    if flags.members and weights is None and not uses_own:
        weights = flags.members[0]
    if uses_own and not is_unfinished:
        real = file_system.real
        if weights and not real(weights).startswith(real(output_dir)):
            logging.warning(
                "using the model in --output_dir=%s, not --init_checkpoint=%s",
                output_dir,
                weights,
            )
        weights = None
    beside = own
    if weights is not None and not is_unfinished:
        beside = record.RunRecord(folder_of(weights))
    if not flags.do_train:
        flags, changes = flags_lib.with_remembered(flags, beside.flags)
        if changes:
            texts = [f"--{name}={value}" for name, value in changes.items()]
            logging.info("as the model was trained: %s", " ".join(texts))
        if is_unfinished:  # Its files are those that its training began with.
            names = ("bert_config_file", "vocab_file", "do_lower_case")
            values = {name: own.flags.get(name) for name in names}
            flags = config_flags.replace_unchecked(flags, **values)
            weights = own.flags.get("init_checkpoint")
    elif weights is not None:
        model_directory.check_not_the_start(
            output_dir, weights, is_grid=flags.is_grid
        )
    start = pretrained.open_start(
        output_dir=None if flags.do_train else output_dir,
        init_checkpoint=weights,
        bert_config_file=flags.bert_config_file,
        vocab_file=flags.vocab_file,
        do_lower_case=flags.do_lower_case,
        bilstm_size=flags.bilstm_size,
        max_seq_length=flags.max_seq_length,
        init_layers=flags.init_layers or (),
    )
    unfinished_dir = output_dir if is_unfinished else None
    return _given(start, added_tokens, beside, unfinished_dir), flags


def read(
    weights: str,
    flag: str = "init_checkpoint",
    *,
    max_seq_length: int | None = None,
    **files: Any,
) -> GivenModel:
    """Opens a model that `flag` names, such as a teacher.

    Args:
      weights: a model directory or a checkpoint.
      flag: the flag, for messages.
      max_seq_length: a number of positions that the model must have, if any.
      **files: bert_config_file, vocab_file and do_lower_case; see open_start.

    Raises:
      InputError: there is no model, or something of it is missing.
    """
    start = pretrained.open_start(
        output_dir=None,
        init_checkpoint=weights,
        max_seq_length=max_seq_length,
        flag=flag,
        **files,
    )
    return _given(start, (), record.RunRecord(folder_of(weights)), None)


def _given(
    start: pretrained.Start,
    added_tokens: Sequence[str],
    journal: record.RunRecord,
    unfinished_dir: str | None,
) -> GivenModel:
    """Returns a model, to whose vocabulary tokens are added."""
    tokenizer = start.tokenizer
    if added_tokens:
        vocabulary = tokenizer.vocabulary.with_added(added_tokens)
        tokenizer = plain_wordpiece.PlainTokenizer(
            vocabulary, **tokenizer.settings
        )
    size = max(start.config.vocab_size, len(tokenizer.vocabulary))
    config = dataclasses.replace(start.config, vocab_size=size)
    labels = start.settings.labels
    if unfinished_dir is not None:
        labels = journal.made_from.get("labels")
    return GivenModel(
        config=config,
        tokenizer=tokenizer,
        labels=labels,
        weights=start.init_checkpoint,
        start=dataclasses.replace(start, tokenizer=tokenizer, config=config),
        record=journal,
        unfinished_dir=unfinished_dir,
    )


def folder_of(weights: str) -> str:
    """Returns the folder of the files beside weights."""
    folder = file_system.folder_of(hub.local(weights))
    return checkpoint_sources.snapshot(folder)
