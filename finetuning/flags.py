"""The flags that the training commands share.

    RunFlags                     any training, also pre-training
    FinetuningFlags(RunFlags)    a task on a pre-trained encoder
    EvaluatedFlags               the same, with a development set

Names and defaults are google-research/bert's where it has them. A flag that is
`remembered` has the value of the training when a later command uses the model.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from foundation import config_flags, file_system
from training import settings

field, group = config_flags.field, config_flags.group
# What --help begins with, after a task's files.
FIRST_FLAGS = (
    "init_checkpoint",
    "output_dir",
    "do_train",
    "do_predict",
    "num_train_epochs",
    "train_batch_size",
    "learning_rate",
    "max_seq_length",
)
AnyFlags = TypeVar("AnyFlags", bound="FinetuningFlags")


def refuse(*cases: tuple[Any, str]) -> None:
    """Raises ValueError with the message of the first case that is true."""
    for is_wrong, message in cases:
        if is_wrong:
            raise ValueError(message)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFlags:
    """The flags of any training run."""

    output_dir: str = field("Directory of checkpoints, metrics and the model.")
    init_checkpoint: str | None = field(
        "Initial weights: a model directory, a checkpoint, or a name of the "
        "Hugging Face Hub such as hf://google-bert/bert-base-uncased.",
        None,
        affects="result",
        is_path=True,
    )
    random_seed: int = field(
        "Seed of weights, dropout and the order of the records.",
        12345,
        affects="records",
    )
    devices: settings.Devices = group(settings.Devices)
    optimizer: settings.Optimizer = group(settings.Optimizer)
    loop: settings.Loop = group(settings.Loop)

    def __post_init__(self):
        """Refuses an --output_dir that cannot be a folder."""
        if not self.output_dir:
            raise ValueError("--output_dir is empty")
        file_system.check_output_folder(self.output_dir, "output_dir")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distillation:
    """A teacher, and how much a student learns of it."""

    teacher_dir: str | None = field(
        "A larger model that was trained for the task: its outputs on the "
        "training set are targets beside the labels.",
        None,
        affects="result",
        is_path=True,
        needs="do_train",
    )
    distillation_temperature: float = field(
        "Divides the logits of both models before they are compared.",
        2.0,
        affects="result",
        above=0,
        needs="teacher_dir",
    )
    distillation_weight: float = field(
        "Weight of the teacher's targets in the loss; the labels have the "
        "rest.",
        0.5,
        affects="result",
        at_least=0,
        at_most=1,
        needs="teacher_dir",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFlags:
    """What --init_checkpoint may lack."""

    bert_config_file: str | None = field(
        "JSON of the model's hyperparameters, or the name of a small model "
        "such as uncased_L-4_H-256_A-4; by default the one beside "
        "--init_checkpoint.",
        None,
    )
    vocab_file: str | None = field(
        "Vocabulary; by default the one beside --init_checkpoint.", None
    )
    do_lower_case: bool | None = field(
        "Whether to lower-case the text; by default as --init_checkpoint was "
        "trained, else true if the vocabulary has no capitals.",
        None,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuningFlags(ModelFlags, RunFlags):
    """The flags of a task on top of a pre-trained encoder."""

    max_seq_length: int = field(
        "Maximum number of tokens; longer texts are cut.",
        128,
        affects="records",
        remembered=True,
        at_least=3,  # Room for [CLS], a token, [SEP].
    )
    do_train: bool = field("Whether to train.", False)
    do_predict: bool = field("Whether to predict the test set.", False)
    learning_rate: tuple[float, ...] = field(
        "Peak learning rate. Several, as in 5e-5,3e-5, make a grid; the model "
        "that is best on the development set is kept.",
        (5e-5,),
        affects="result",
        above=0,
        below=1,
    )
    train_batch_size: tuple[int, ...] = field(
        "Examples per training step, over all replicas. Several, as in 16,32, "
        "make a grid.",
        (32,),
        affects="records",
        at_least=1,
    )
    num_train_epochs: tuple[float, ...] = field(
        "Number of passes over the training set. Several, as in 2,3,4, make a "
        "grid.",
        (3.0,),
        affects="result",
        above=0,
    )
    num_seeds: int = field(
        "Number of runs with each learning rate; their seeds count up from "
        "--random_seed.",
        1,
        at_least=1,
    )
    eval_every_steps: int = field(
        "Steps between evaluations while training, of which the best model is "
        "kept; 0 for none.",
        0,
        affects="result",
        at_least=0,
    )
    early_stopping_patience: int = field(
        "End after this number of evaluations without improvement; 0 for no "
        "early end. Needs --eval_every_steps.",
        0,
        affects="result",
        at_least=0,
        needs="eval_every_steps",
    )
    predict_batch_size: int = field(
        "Examples per prediction batch, over all replicas.", 8, at_least=1
    )
    warmup_proportion: float = field(
        "Fraction of the steps in which the learning rate rises.",
        0.1,
        affects="result",
        at_least=0,
        below=1,
    )
    layer_decay: float = field(
        "Factor between the learning rates of a layer and the one above it.",
        1.0,
        affects="result",
        above=0,
        at_most=1,
    )
    init_layers: tuple[int, ...] | None = field(
        "Layers of --init_checkpoint, without it of --teacher_dir, that a "
        "smaller model starts from, as in 0,2,4 (the first is 0).",
        None,
        affects="result",
        at_least=0,
        needs="do_train",
    )
    bilstm_size: int | None = field(
        "Units in each direction of a BiLSTM between encoder and head, as in "
        "the paper's left-to-right model; by default as in the checkpoint, "
        "usually none.",
        None,
        affects="result",
        at_least=0,
    )
    distillation: Distillation = group(Distillation)
    # The state of the optimizer is three times as large as the model.
    loop: settings.Loop = group(settings.Loop, keep_checkpoint_max=0)

    def __post_init__(self):
        """Refuses contradictory flags."""
        super().__post_init__()
        refuse(
            (
                self.is_grid and not self.do_train,
                "a grid of runs needs --do_train",
            ),
            (
                self.init_layers is not None and self.initial_weights is None,
                "--init_layers needs --init_checkpoint",
            ),
        )

    @property
    def initial_weights(self) -> str | None:
        """What --init_layers are layers of, without it --init_checkpoint."""
        if self.init_checkpoint is None and self.init_layers is not None:
            return self.distillation.teacher_dir
        return self.init_checkpoint

    @property
    def is_grid(self) -> bool:
        """Whether there are several runs, of which the best is kept."""
        axes = (
            self.learning_rate,
            self.train_batch_size,
            self.num_train_epochs,
        )
        return math.prod(map(len, axes)) * self.num_seeds > 1

    @property
    def members(self) -> Sequence[str]:
        """The directories of models whose outputs are averaged, if any."""
        return ()

    @property
    def evaluates_each_epoch(self) -> bool:
        """Whether training evaluates after each epoch.

        A development set of your own is evaluated so; released sets at the end
        of the training, as google-research/bert does.
        """
        return False

    @property
    def evaluates_while_training(self) -> bool:
        """Whether training needs the development set."""
        return self.do_train and (
            self.is_grid
            or self.eval_every_steps > 0
            or self.evaluates_each_epoch
        )

    @property
    def evaluation_batch_size(self) -> int:
        """Examples per batch of the development set."""
        return self.predict_batch_size


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluatedFlags(FinetuningFlags):
    """The flags of a task with a development set and a test set."""

    # Of which a command has one at least.
    MODES: ClassVar[Sequence[str]] = ("do_train", "do_eval", "do_predict")

    do_eval: bool = field("Whether to evaluate on the development set.", False)
    eval_batch_size: int = field(
        "Examples per evaluation batch, over all replicas.", 8, at_least=1
    )

    def __post_init__(self):
        """Refuses a command that does nothing."""
        super().__post_init__()
        if not any(getattr(self, mode) for mode in self.MODES):
            modes = ", ".join(f"--{mode}" for mode in self.MODES)
            raise ValueError(f"at least one of {modes} must be given")

    @property
    def splits(self) -> Sequence[str]:
        """The sets that the command reads."""
        needs_dev = self.do_eval or self.evaluates_while_training
        needed = {
            "train": self.do_train,
            "dev": needs_dev,
            "test": self.do_predict,
        }
        return [split for split, is_needed in needed.items() if is_needed]

    @property
    def evaluated(self) -> bool:
        """Whether the command evaluates on the development set at its end."""
        return self.do_eval

    @property
    def evaluation_batch_size(self) -> int:
        """See FinetuningFlags."""
        return self.eval_batch_size


def with_remembered(
    flags: AnyFlags, trained: Mapping[str, Any]
) -> tuple[AnyFlags, dict[str, Any]]:
    """Returns flags in which those that were not given are the training's.

    Args:
      flags: the flags of a command that does not train.
      trained: flag -> JSON value of the model's training, {} if unknown.

    Returns:
      The flags, and those that differ by name.
    """
    config_class: Any = type(flags)
    declared = config_flags.flags_of(config_class)
    now, chosen = config_flags.flat_values(flags), config_flags.chosen(flags)
    changes = {
        name: trained[name]
        for name, flag in declared.items()
        if flag.remembered
        and name not in chosen
        and trained.get(name) not in (None, now[name])
    }
    return config_flags.replace_unchecked(flags, **changes), changes
