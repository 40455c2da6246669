"""Which model does a command use?

    resolve(config) -> ModelSource

The first of these cases that applies. Their order is important:

    TRAINED_NOW  the command trains, from --init_checkpoint or from random
                 weights of --bert_config_file. A run that was stopped continues
                 from its checkpoints, in --output_dir or --output_dir/runs. The
                 model in --output_dir is never the start: the next run of a
                 grid would start from the best run's model.
    FINISHED     the model of a finished training in --output_dir (kept.json)
    UNFINISHED   the checkpoint of a training in --output_dir that was stopped,
                 with the labels that the checkpoint stores
    STORED       a model in --output_dir that was not trained there
    GIVEN        --init_checkpoint
"""

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import Any, Literal

from absl import logging

from data.tokenization import wordpiece
from foundation import config_flags, file_system, hub, stamp
from jobs import grid, run_config, run_directory
from training import checkpoints, loop
from weights import model_directory, pretrained

Case = Literal["TRAINED_NOW", "FINISHED", "UNFINISHED", "STORED", "GIVEN"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSource:
    """The model that a command starts from or uses.

    Attributes:
      case: see the module's docstring.
      start: its hyperparameters, tokenizer and labels, and the path of the
        weights.
      folder: the folder of the weights, which may have files of the task; None
        for random weights.
      step: the training step of a FINISHED model; 0 in other cases.
      trained: the flags with which these weights were trained, {} if they are
        unknown.
      stored: what the checkpoint of an unfinished training stores about its
        task; {} in other cases.
      last_prediction_dir: --output_dir, if the last command there used the
        same weights and may have stored a threshold for them; else None.
    """

    case: Case
    start: pretrained.Start
    folder: str | None
    step: int = 0
    trained: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    stored: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    last_prediction_dir: str | None = None

    @functools.cached_property
    def settings(self) -> Mapping[str, Any]:
        """The settings that the training of these weights has stored.

        They are {} if they are unknown, and for a training that begins.
        """
        if self.case == "TRAINED_NOW" or self.folder is None:
            return {}
        if self.case == "UNFINISHED":
            return loop.last_state(self.folder).get("settings", {})
        return grid.settings_of_kept(self.folder)

    def with_trained_flags(
        self, config: run_config.AnyConfig
    ) -> run_config.AnyConfig:
        """Returns a config whose missing flags are those of the training.

        These are `config.remembered`. The config of a training is returned as
        it is.
        """
        values = config.remembered_values(self.trained)
        if values:
            texts = [f"--{name}={value}" for name, value in values.items()]
            logging.info("as the model was trained: %s", " ".join(texts))
        return config_flags.replace_unchecked(config, **values)

    def warn_of_other_flags(self, values: Mapping[str, Any]) -> None:
        """Warns if the model was trained with other values of flags."""
        if self.case == "TRAINED_NOW":
            return
        for name, value in values.items():
            before = self.trained.get(name)
            if before not in (None, value):
                logging.warning(
                    "the model was trained with --%s=%s, but %s is used now",
                    name,
                    before,
                    value,
                )


def resolve(config: run_config.FinetuningConfig) -> ModelSource:
    """Finds the model that a command uses.

    Raises:
      InputError: there is no model, or something does not fit.
    """
    case = _case(config)
    output_dir = config.output_dir
    if config.has_frozen_encoder:
        trained = run_directory.training_flags(output_dir)
        values = config.remembered_values(trained)
        config = config_flags.replace_unchecked(config, **values)
    init_checkpoint = config.initial_weights
    if case == "TRAINED_NOW":
        model_directory.check_not_the_start(
            output_dir, init_checkpoint, is_grid=config.is_grid
        )
    elif model_directory.has_model(output_dir):
        _warn_of_other_model(output_dir, init_checkpoint)
        init_checkpoint = None
    start = pretrained.open_start(
        output_dir=None if case == "TRAINED_NOW" else output_dir,
        init_checkpoint=init_checkpoint,
        bert_config_file=config.pretrained.bert_config_file,
        vocab_file=config.pretrained.vocab_file,
        do_lower_case=config.pretrained.do_lower_case,
        bilstm_size=config.bilstm_size,
        max_seq_length=None,
        init_layers=config.init_layers or (),
    )
    folder: str | None = None
    if (
        case in ("FINISHED", "UNFINISHED", "STORED")
        or config.has_frozen_encoder
    ):
        folder = output_dir
    elif start.init_checkpoint is not None:
        folder = file_system.folder_of(start.init_checkpoint)
    had_same_weights = _last_command_used(
        init_checkpoint, weights=start.init_checkpoint, output_dir=output_dir
    )
    trained = run_directory.training_flags(folder) if folder else {}
    pretrained.check_positions(
        start.config,
        config.remembered_values(trained).get(
            "max_seq_length", config.max_seq_length
        ),
    )
    step = 0
    stored: Mapping[str, Any] = {}
    if case == "GIVEN":
        _warn_of_unfinished(output_dir, init_checkpoint)
    elif case == "FINISHED":
        kept_record = grid.kept(output_dir)
        assert kept_record is not None  # This is the case FINISHED.
        step = kept_record["step"]
    elif case == "UNFINISHED":
        state = loop.last_state(output_dir)
        tokenizer = tokenizer_settings(start.tokenizer)
        stamp.refuse(
            tokenizer.difference(state.get("settings", {})),
            f"the training in {output_dir} has not ended; its model needs the "
            "flags with which it was begun",
        )
        stored = state.get("task_settings") or {}
    if stored:
        start = dataclasses.replace(
            start,
            labels=stored.get("labels"),
            problem_type=stored.get("problem_type"),
            num_outputs=None,
        )
    return ModelSource(
        case=case,
        start=start,
        folder=folder,
        step=step,
        trained=trained,
        stored=stored,
        last_prediction_dir=output_dir if had_same_weights else None,
    )


def given(
    init_checkpoint: str,
    *,
    pretrained_flags: run_config.Pretrained | None = None,
    max_seq_length: int | None = None,
) -> ModelSource:
    """Opens a checkpoint for a caller that has no run: the case GIVEN.

    Args:
      init_checkpoint: the path of a model directory or a checkpoint.
      pretrained_flags: files that replace those beside the weights.
      max_seq_length: a length in tokens for which the model must have
        positions; None if there is no such bound.

    Raises:
      InputError: there is no model, or something does not fit.
    """
    flags = pretrained_flags or run_config.Pretrained()
    start = pretrained.open_start(
        output_dir=None,
        init_checkpoint=init_checkpoint,
        bert_config_file=flags.bert_config_file,
        vocab_file=flags.vocab_file,
        do_lower_case=flags.do_lower_case,
        max_seq_length=max_seq_length,
    )
    assert start.init_checkpoint is not None  # It has been read.
    folder = file_system.folder_of(start.init_checkpoint)
    return ModelSource(
        case="GIVEN",
        start=start,
        folder=folder,
        trained=run_directory.training_flags(folder),
    )


def _case(config: run_config.FinetuningConfig) -> Case:
    if config.do_train:
        return "TRAINED_NOW"
    has_model = model_directory.has_model(config.output_dir)
    if has_model and grid.kept(config.output_dir) is not None:
        return "FINISHED"
    if checkpoint_folder(config, config.output_dir) is not None:
        return "UNFINISHED"
    return "STORED" if has_model else "GIVEN"


def checkpoint_folder(
    config: run_config.FinetuningConfig, output_dir: str
) -> str | None:
    """Returns the folder of the checkpoint with a run's weights, if any.

    It is best/ in a run that stops early, else the run's directory.

    Args:
      config: the flags of the command, whose --output_dir has the flags of the
        training if the command does not train.
      output_dir: directory of the run, which in a grid is not --output_dir.
    """
    patience = config.selection.early_stopping_patience
    if not config.do_train:
        trained = run_directory.training_flags(config.output_dir)
        patience = trained.get("early_stopping_patience", patience)
    folders = [output_dir]
    if patience:
        folders.insert(0, os.path.join(output_dir, checkpoints.BEST))
    for folder in folders:
        if checkpoints.Checkpoints(folder).latest() is not None:
            return folder
    return None


def _warn_of_other_model(output_dir: str, init_checkpoint: str | None) -> None:
    """Warns if --init_checkpoint is not the model in --output_dir."""
    if init_checkpoint is None:
        return
    equal_paths = [
        output_dir,
        os.path.join(output_dir, model_directory.WEIGHTS),
    ]
    if (kept_record := grid.kept(output_dir)) is not None:
        equal_paths.append(checkpoints.path_of(output_dir, kept_record["step"]))
    if file_system.real(init_checkpoint) not in map(
        file_system.real, equal_paths
    ):
        logging.warning(
            "using the model in --output_dir=%s, not --init_checkpoint=%s",
            output_dir,
            init_checkpoint,
        )


def _warn_of_unfinished(output_dir: str, init_checkpoint: str | None) -> None:
    """Warns if a training in output_dir has left no weights to use."""
    trained = run_directory.training_flags(output_dir)
    if init_checkpoint is None or not trained:
        return
    # With --features, taggers of frozen activations are trained in other
    # directories, so --init_checkpoint is always used as it is.
    if trained.get("features", "none") == "none":
        logging.warning(
            "the training in --output_dir=%s has not ended; using "
            "--init_checkpoint=%s as it is",
            output_dir,
            init_checkpoint,
        )


def tokenizer_settings(tokenizer: wordpiece.Tokenizer) -> stamp.Stamp:
    """Returns what runs compare of their tokenizers.

    Earlier versions have stored the first two only, which are flags.
    """
    switches = tokenizer.settings
    flags = {
        "vocab_file": tokenizer.vocabulary.sha256,
        "do_lower_case": switches["do_lower_case"],
    }
    facts = {
        "strip_accents": tokenizer.strips_accents,
        "tokenize_chinese_chars": switches["tokenize_chinese_chars"],
    }
    return stamp.flags("records", flags) | stamp.facts("records", facts)


def _last_command_used(
    init_checkpoint: str | None, *, weights: str | None, output_dir: str
) -> bool:
    """Returns whether the last command in a directory used these weights.

    `weights` is the path that --init_checkpoint names; None for random ones.
    """
    earlier = run_directory.flags(output_dir).get("init_checkpoint")
    if earlier is None or weights is None:
        return False
    if hub.is_name(earlier):  # The weights are in the cache.
        return earlier == init_checkpoint
    # The flag may have named the folder of the weights.
    path, before = map(file_system.real, (weights, earlier))
    return f"{path}/".startswith(f"{before}/")
