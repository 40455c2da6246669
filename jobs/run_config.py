"""The flags that the training commands share.

    RunConfig                     any training run
    FinetuningConfig(RunConfig)   training of a task on a pre-trained encoder
    Pretrained, Grid, Selection, Distillation    groups of the latter's flags

Names and defaults are google-research/bert's where it has them.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from foundation import config_flags, file_system
from training import settings

field, group = config_flags.field, config_flags.group
affects_result = config_flags.affects_result
affects_execution = config_flags.affects_execution
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
AnyConfig = TypeVar("AnyConfig", bound="FinetuningConfig")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The flags of any training run."""

    output_dir: str = field("Directory of checkpoints, metrics and the model.")
    init_checkpoint: str | None = affects_result(
        "Initial weights: a model directory, a checkpoint, or a name of the "
        "Hugging Face Hub such as hf://google-bert/bert-base-uncased.",
        None,
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
class Pretrained:
    """A pre-trained encoder and its tokenizer."""

    bert_config_file: str | None = field(
        "JSON of the model's hyperparameters, or the name of a small model "
        "such as uncased_L-4_H-256_A-4; by default the one beside "
        "--init_checkpoint.",
        None,
    )
    vocab_file: str | None = field(
        "Vocabulary; by default the one beside --init_checkpoint.",
        None,
        affects="records",
    )
    do_lower_case: bool | None = field(
        "Whether to lower-case the text; by default as --init_checkpoint was "
        "trained, else true if the vocabulary has no capitals.",
        None,
        affects="records",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grid:
    """The runs of a grid: several values of a flag make several runs."""

    learning_rate: tuple[float, ...] = affects_result(
        "Peak learning rate. Several, as in 5e-5,3e-5, make a grid; the model "
        "that is best on the development set is kept.",
        (5e-5,),
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
    num_train_epochs: tuple[float, ...] = affects_result(
        "Number of passes over the training set. Several, as in 2,3,4, make a "
        "grid.",
        (3.0,),
        above=0,
    )
    num_seeds: int = field(
        "Number of runs with each learning rate; their seeds count up from "
        "--random_seed.",
        1,
        at_least=1,
    )

    @property
    def num_runs(self) -> int:
        """The number of runs."""
        axes = (
            self.learning_rate,
            self.train_batch_size,
            self.num_train_epochs,
        )
        return math.prod(map(len, axes)) * self.num_seeds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """Evaluations while training, and the model that they select."""

    eval_every_steps: int = affects_result(
        "Steps between evaluations while training, which keep the best model "
        "in best/; 0 for none.",
        0,
        at_least=0,
    )
    eval_every_epoch: bool | None = affects_execution(
        "Evaluate after every epoch, for the learning curves; by default with "
        "the development set of your own tables.",
        None,
    )
    early_stopping_patience: int = affects_result(
        "End after this number of evaluations without improvement, and keep "
        "the best model; 0 for no early end. Needs --eval_every_steps.",
        0,
        at_least=0,
    )

    keep_optimizer: bool = field(
        "Keep the last checkpoints when the training has ended; with false, "
        "only the model stays, about a quarter of the size.",
        True,
    )

    def __post_init__(self):
        """Refuses a flag without effect."""
        if self.early_stopping_patience and not self.eval_every_steps:
            raise ValueError(
                "--early_stopping_patience needs --eval_every_steps"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distillation:
    """A teacher, and how much a student learns of it."""

    teacher_dir: str | None = affects_result(
        "A larger model that was trained for the task: its outputs on the "
        "training set are targets beside the labels.",
        None,
        is_path=True,
    )
    distillation_temperature: float | None = affects_result(
        "Divides the logits of both models before they are compared; by "
        "default 2.",
        None,
        above=0,
    )
    distillation_weight: float | None = affects_result(
        "Weight of the teacher's targets in the loss; the labels have the "
        "rest. By default 0.5.",
        None,
        at_least=0,
        at_most=1,
    )

    def __post_init__(self):
        """Refuses flags without effect."""
        for name in ("distillation_temperature", "distillation_weight"):
            if self.teacher_dir is None and getattr(self, name) is not None:
                raise ValueError(f"--{name} needs --teacher_dir")

    @property
    def temperature(self) -> float:
        """The temperature with its default."""
        given = self.distillation_temperature
        return 2.0 if given is None else given

    @property
    def weight(self) -> float:
        """The weight with its default."""
        given = self.distillation_weight
        return 0.5 if given is None else given


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuningConfig(RunConfig):
    """The flags of training a task on top of a pre-trained encoder."""

    pretrained: Pretrained = group(Pretrained)
    grid: Grid = group(Grid)
    selection: Selection = group(Selection)
    distillation: Distillation = group(Distillation)
    do_train: bool = field("Whether to train.", False)
    do_predict: bool = field("Whether to predict the test set.", False)
    predict_batch_size: int = field(
        "Examples per prediction batch, over all replicas.", 8, at_least=1
    )
    warmup_proportion: float = affects_result(
        "Fraction of the steps in which the learning rate rises.",
        0.1,
        at_least=0,
        below=1,
    )
    group_by_length: bool = field(
        "Put texts of similar length into a batch, to save padding.",
        True,
        affects="records",
    )
    write_records: bool = field(
        "Keep the tokenized examples as TFRecords in --output_dir, for later "
        "runs.",
        True,
    )
    layer_decay: float = affects_result(
        "Factor between the learning rates of a layer and the one above it.",
        1.0,
        above=0,
        at_most=1,
    )
    init_layers: tuple[int, ...] | None = affects_result(
        "Layers of --init_checkpoint, without it of --teacher_dir, that a "
        "smaller model starts from, as in 0,2,4 (the first is 0).",
        None,
        at_least=0,
    )
    reinit_layers: int = affects_result(
        "Number of top layers that start with random weights; the pooler then "
        "does, too.",
        0,
        at_least=0,
    )
    bilstm_size: int | None = affects_result(
        "Units in each direction of a BiLSTM between encoder and head, as in "
        "the paper's left-to-right model; by default as in the checkpoint, "
        "usually none.",
        None,
        at_least=0,
    )

    def __post_init__(self):
        """Refuses contradictory flags."""
        super().__post_init__()
        if self.is_grid and not self.do_train:
            raise ValueError("a grid of runs needs --do_train")
        for name, value in (
            ("teacher_dir", self.distillation.teacher_dir),
            ("init_layers", self.init_layers),
        ):
            if value is not None and not self.do_train:
                raise ValueError(f"--{name} needs --do_train")
        if self.init_layers is not None and self.initial_weights is None:
            raise ValueError("--init_layers needs --init_checkpoint")

    @property
    def initial_weights(self) -> str | None:
        """What --init_layers are layers of, without it --init_checkpoint."""
        if self.init_checkpoint is None and self.init_layers is not None:
            return self.distillation.teacher_dir
        return self.init_checkpoint

    @property
    def max_seq_length(self) -> int:
        """Tokens of the model's inputs, at most; a flag of each task."""
        raise NotImplementedError

    @property
    def has_frozen_encoder(self) -> bool:
        """Whether a model that reads --init_checkpoint is trained, not itself.

        Then --output_dir has the flags of the training, but no encoder.
        """
        return False

    @property
    def remembered(self) -> Sequence[str]:
        """Flags that have the value of the training if they are not given."""
        return ()

    def remembered_values(self, trained: Mapping[str, Any]) -> dict[str, Any]:
        """Returns flag -> value of the training, to be used instead of this.

        These are the `remembered` flags that are not given and had another
        value; none for a config that trains.

        Args:
          trained: the flags of the model's training, {} if they are unknown.
        """
        if self.do_train:
            return {}
        values = config_flags.flat_values(self)
        chosen = config_flags.chosen(self)
        return {
            name: trained[name]
            for name in self.remembered
            if name not in chosen
            and trained.get(name) not in (None, values[name])
            # run_directory.flags refuses a value of another type.
            and isinstance(trained[name], config_flags.kind_of(self, name))
        }

    @property
    def batch_sizes(self) -> dict[str, int]:
        """The sizes, by flag, of batches that are predicted."""
        return {"predict_batch_size": self.predict_batch_size}

    @property
    def is_grid(self) -> bool:
        """Whether there is more than one run."""
        return self.grid.num_runs > 1

    @property
    def evaluates_every_epoch(self) -> bool:
        """Whether a training evaluates at least after every epoch."""
        return bool(self.selection.eval_every_epoch)

    @property
    def evaluates_while_training(self) -> bool:
        """Whether the command trains, and evaluates before its end."""
        return self.do_train and (
            self.selection.eval_every_steps > 0 or self.evaluates_every_epoch
        )

    @property
    def needs_evaluation(self) -> bool:
        """Whether training needs a development set.

        It evaluates while it trains, or compares the runs of a grid.
        """
        return self.evaluates_while_training or (self.do_train and self.is_grid)

    @property
    def selects_by_evaluation(self) -> bool:
        """Whether evaluations decide which weights training keeps.

        Those of the best run of a grid, or of the best step of a run.
        """
        return self.do_train and (
            self.is_grid or self.selection.eval_every_steps > 0
        )

    @property
    def standard_input_flag(self) -> str | None:
        """The flag that makes the command read standard input, if any."""
        return None
