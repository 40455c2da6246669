"""What fine-tuning starts from: the model, the tokenizer, the weights.

Whatever a flag leaves open lies beside --init_checkpoint, or in the run's own
folder where it has been trained already.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from absl import logging

from data.tokenization import wordpiece
from foundation import errors
from modeling.config import BertConfig
from weights import (
    checkpoint_sources,
    model_directory,
    model_files,
    tokenizer_files,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """What a run is built from.

    Attributes:
      config: the model's hyperparameters.
      tokenizer: what text is read with.
      attention: of the pre-training; see modeling.encoder.
      bilstm_size: of the BiLSTM under the head; 0 is none.
      labels: the classes that the weights know, or None.
      problem_type: as transformers calls it, or None.
      init_checkpoint: the weights, or None for random ones.
    """

    config: BertConfig
    tokenizer: wordpiece.Tokenizer
    attention: str
    bilstm_size: int
    labels: list[str] | None
    problem_type: str | None
    init_checkpoint: str | None


def open_start(
    *,
    output_dir: str | None,
    init_checkpoint: str | None = None,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    bilstm_size: int | None = None,
    max_seq_length: int,
) -> Start:
    """Finds and checks what a run starts from; takes the flags' values.

    Args:
      output_dir: whose model is meant without an init_checkpoint, if any is.
      init_checkpoint: a model directory or a checkpoint.
      bert_config_file: in place of what lies beside it.
      vocab_file: likewise.
      do_lower_case: likewise.
      bilstm_size: likewise.
      max_seq_length: which the model must have positions for.

    Raises:
      InputError: something is missing or does not fit.
    """
    source = _source(init_checkpoint, output_dir)
    config = _config(bert_config_file, source, init_checkpoint, output_dir)
    if max_seq_length > config.max_position_embeddings:
        raise errors.InputError(
            f"--max_seq_length={max_seq_length}: the model has only "
            f"{config.max_position_embeddings} positions"
        )
    tokenizer = _tokenizer(vocab_file, do_lower_case, source, init_checkpoint)
    where = f"--vocab_file={vocab_file}" if vocab_file else source.directory
    model_files.check_vocabulary(config.vocab_size, tokenizer, where)
    attention, labels, problem_type = "bidirectional", None, None
    if source is not None and source.has_settings:
        attention = model_directory.read_attention(source.directory)
        labels = _labels(source)
        if bilstm_size is None:
            bilstm_size = model_directory.read_bilstm_size(source.directory)
        problem_type = source.problem_type
    return Start(
        config=config,
        tokenizer=tokenizer,
        attention=attention,
        bilstm_size=bilstm_size or 0,
        labels=labels,
        problem_type=problem_type,
        init_checkpoint=source.path if source is not None else None,
    )


def warm_start(model: Any, start: Start, *, reinit_layers: int = 0) -> None:
    """Assigns the weights; the top layers may keep their random ones.

    Args:
      model: one of modeling.models, as it was made.
      start: says which weights.
      reinit_layers: how many layers start anew, and the pooler with them.
    """
    count = len(model.bert.blocks)
    if reinit_layers > count:
        raise errors.InputError(
            f"--reinit_layers={reinit_layers}: the model has {count} layers"
        )
    anew = ("bert/pooler/",) + tuple(
        f"bert/encoder/layer_{i}/" for i in range(count - reinit_layers, count)
    )
    kept = {
        variable.path: variable.numpy()
        for variable in model.weights
        if reinit_layers and variable.path.startswith(anew)
    }
    model_files.warm_start(
        model,
        start.init_checkpoint,
        do_lower_case=start.tokenizer.settings["do_lower_case"],
    )
    for variable in model.weights:
        if variable.path in kept:
            variable.assign(kept[variable.path])
    if kept:
        logging.info("started anew: %s", ", ".join(anew))


def layer_rates(num_layers: int, decay: float) -> Callable[[str], float] | None:
    """Returns the learning rate's factor by a variable's path; None for 1.

    The head and the pooler have 1, the top layer `decay`, the one below its
    square, and so on down to the embeddings.
    """
    if decay == 1.0:
        return None

    def rate(path: str) -> float:
        if path.startswith("bert/embeddings/"):
            return decay ** (num_layers + 1)
        if path.startswith("bert/encoder/layer_"):
            layer = int(path.split("/")[2].removeprefix("layer_"))
            return decay ** (num_layers - layer)
        return 1.0

    return rate


def _source(
    init_checkpoint: str | None, output_dir: str | None
) -> checkpoint_sources.Source | None:
    flag = "--init_checkpoint"
    if init_checkpoint is None:
        # A run that is over, and only asked to predict once more.
        if not output_dir or not model_files.is_here(output_dir):
            return None
        init_checkpoint, flag = output_dir, "--output_dir"
    try:
        return checkpoint_sources.read(init_checkpoint)
    except errors.InputError as error:
        raise errors.InputError(f"{flag}: {error}") from error


def _config(
    bert_config_file, source, init_checkpoint, output_dir
) -> BertConfig:
    if bert_config_file is not None:
        return model_files.read_config(bert_config_file)
    if source is not None and source.config is not None:
        return source.config
    if init_checkpoint is not None:
        raise errors.InputError(
            "--bert_config_file is required: none lies beside "
            f"--init_checkpoint={init_checkpoint}"
        )
    if not output_dir:
        raise errors.InputError(
            "neither --init_checkpoint nor --bert_config_file is given"
        )
    if model_files.is_begun(output_dir):
        raise errors.InputError(
            f"--output_dir={output_dir}: training has not ended there; the "
            "same command goes on with it, and leaves a model"
        )
    raise errors.InputError(
        f"there is no trained model in --output_dir={output_dir}, and neither "
        "--init_checkpoint nor --bert_config_file is given"
    )


def _labels(source: checkpoint_sources.Source) -> list[str] | None:
    """Returns the classes; transformers does not write LABEL_0 and LABEL_1."""
    labels = model_directory.read_labels(source.directory)
    architecture = model_directory.read_architecture(source.directory)
    weights = source.tensors.get("output_weights")
    is_classifier = (
        architecture == "BertForSequenceClassification" and weights is not None
    )
    if labels is None and is_classifier and weights.shape[0] == 2:
        return ["LABEL_0", "LABEL_1"]
    return labels


def _tokenizer(vocab_file, do_lower_case, source, init_checkpoint):
    if vocab_file is not None:
        return tokenizer_files.with_vocabulary(
            vocab_file,
            init_checkpoint=init_checkpoint,
            directory=source.directory if source is not None else None,
            do_lower_case=do_lower_case,
        )
    if source is not None and tokenizer_files.is_here(source.directory):
        return tokenizer_files.load(
            source.directory, do_lower_case=do_lower_case
        )
    raise errors.InputError(
        "--vocab_file is required: none lies beside "
        f"--init_checkpoint={init_checkpoint}"
    )
