"""The flags that commands share; their config classes inherit from these.

    DeviceConfig                  devices and precision
    RunConfig(DeviceConfig)       any training run
    EncoderConfig                 a pre-trained encoder and its tokenizer
    FinetuningConfig(RunConfig, EncoderConfig)   training of a task

Names and defaults are google-research/bert's where it has them.
"""

import dataclasses
import math
from typing import Any, Literal

from foundation import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceConfig:
    """The devices, and the precision of the computation."""

    precision: Literal["auto", "float32", "bfloat16", "float16"] = field(
        "auto: bfloat16 if the hardware multiplies it, else float32.",
        "auto",
        affects="result",
    )
    use_xla: Literal["auto", "true", "false"] = field(
        "auto: use XLA on GPUs and TPUs, and for parts of a step on CPUs that "
        "multiply bfloat16.",
        "auto",
        affects="execution",
    )
    strategy: Literal[
        "auto", "one_device", "mirrored", "multi_worker_mirrored", "tpu"
    ] = field(
        "auto: the workers that TF_CONFIG names, else all GPUs, else the CPU.",
        "auto",
        affects="execution",
    )
    num_replicas: int | None = field(
        "Number of GPUs of a mirrored strategy.", None, affects="execution"
    )
    use_tpu: bool = field(
        "The same as --strategy=tpu.", False, affects="execution"
    )
    tpu_name: str | None = field(
        "The TPU's name or grpc:// address.", None, affects="execution"
    )
    tpu_zone: str | None = field("The TPU's zone.", None, affects="execution")
    gcp_project: str | None = field(
        "The TPU's project.", None, affects="execution"
    )
    master: str | None = field(
        "Address of the TPU instead of --tpu_name.", None, affects="execution"
    )
    num_tpu_cores: int = field(
        "Number of cores of the TPU.", 8, affects="execution"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(DeviceConfig):
    """The flags of any training run."""

    output_dir: str = field("Directory of checkpoints, metrics and the model.")
    init_checkpoint: str | None = field(
        "Initial weights: a model directory or a checkpoint.",
        None,
        affects="result",
    )
    learning_rate: float = field("Peak learning rate.", 5e-5, affects="result")
    optimizer: Literal["adamw", "lamb"] = field(
        "adamw is google-research/bert's; lamb is for very large batches.",
        "adamw",
        affects="result",
    )
    gradient_accumulation_steps: int = field(
        "Number of parts in which a batch is computed, to save memory.",
        1,
        affects="result",
    )
    random_seed: int = field(
        "Seed of weights, dropout and the order of the records.",
        12345,
        affects="records",
    )
    recompute: bool = field(
        "Compute activations again in the backward pass, to save memory.",
        False,
        affects="execution",
    )
    save_checkpoints_steps: int = field(
        "Steps between checkpoints.", 1000, affects="execution"
    )
    keep_checkpoint_max: int = field(
        "Number of checkpoints to keep.", 5, affects="execution"
    )
    allow_changed_data: bool = field(
        "Resume a run although its batch size, seed, input or development set "
        "has changed.",
        False,
    )
    max_train_hours: float | None = field(
        "Hours after which a run ends, each run of a grid; the learning rate "
        "then reaches 0, or after all steps if that is earlier.",
        None,
        affects="result",
    )
    log_every_steps: int = field(
        "Steps between lines of metrics.", 100, affects="execution"
    )
    iterations_per_loop: int = field(
        "Maximum number of steps per call of the device.", 1000
    )

    def __post_init__(self):
        """Refuses invalid values."""
        if not self.output_dir:
            raise ValueError("--output_dir is empty")
        for name in (
            "gradient_accumulation_steps",
            "save_checkpoints_steps",
            "keep_checkpoint_max",
            "log_every_steps",
            "iterations_per_loop",
        ):
            require(self, name, minimum=1)
        self.check_learning_rate()
        require_positive(self, "max_train_hours")

    def check_learning_rate(self) -> None:
        """Refuses an invalid learning rate."""
        if not 0 < self.learning_rate < 1:
            raise ValueError(
                f"--learning_rate={self.learning_rate}: must lie between "
                "0 and 1"
            )


def require(config: Any, name: str, *, minimum: int) -> None:
    """Refuses a number below its minimum, naming the flag."""
    value = getattr(config, name)
    if value is not None and value < minimum:
        raise ValueError(f"--{name}={value}: must be at least {minimum}")


def require_positive(config: Any, name: str) -> None:
    """Refuses a number that is not above 0, naming the flag."""
    value = getattr(config, name)
    if value is not None and not value > 0:
        raise ValueError(f"--{name}={value}: must be above 0")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """A pre-trained encoder and its tokenizer."""

    bert_config_file: str | None = field(
        "JSON of the model's hyperparameters; by default the one beside "
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
    max_seq_length: int = field(
        "Maximum number of tokens; longer texts are cut.",
        128,
        affects="records",
    )
    group_by_length: bool = field(
        "Put texts of similar length into a batch, to save padding.",
        True,
        affects="records",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuningConfig(RunConfig, EncoderConfig):
    """The flags of training a task on top of a pre-trained encoder."""

    do_train: bool = field("Whether to train.", False)
    do_predict: bool = field("Whether to predict the test set.", False)
    train_batch_size: int = field(
        "Examples per training step, over all replicas.", 32, affects="records"
    )
    predict_batch_size: int = field(
        "Examples per prediction batch, over all replicas.", 8
    )
    learning_rate: str = field(
        "Peak learning rate. Several, as in 5e-5,3e-5, make a grid; the model "
        "that is best on the development set is kept.",
        "5e-5",
        affects="result",
    )
    num_seeds: int = field(
        "Number of runs with each learning rate; their seeds count up from "
        "--random_seed.",
        1,
    )
    num_train_epochs: float = field(
        "Number of passes over the training set.", 3.0, affects="result"
    )
    warmup_proportion: float = field(
        "Fraction of the steps in which the learning rate rises.",
        0.1,
        affects="result",
    )
    write_records: bool = field(
        "Keep the tokenized examples as TFRecords in --output_dir, for later "
        "runs.",
        True,
    )
    eval_every_steps: int = field(
        "Steps between evaluations while training; 0 for none.",
        0,
        affects="result",
    )
    early_stopping_patience: int = field(
        "End after this number of evaluations without improvement, and keep "
        "the best model; 0 for no early end. Needs --eval_every_steps.",
        0,
        affects="result",
    )
    bias_correction: bool = field(
        "Correct the bias of AdamW's moments; google-research/bert does not.",
        False,
        affects="result",
    )
    layer_decay: float = field(
        "Factor between the learning rates of a layer and the one above it.",
        1.0,
        affects="result",
    )
    reinit_layers: int = field(
        "Number of top layers that start with random weights, like the pooler.",
        0,
        affects="result",
    )
    bilstm_size: int | None = field(
        "Units in each direction of a BiLSTM between encoder and head, as in "
        "the paper's left-to-right model; by default as in the checkpoint, "
        "usually none.",
        None,
        affects="result",
    )

    def __post_init__(self):
        """Refuses invalid or contradictory values."""
        super().__post_init__()
        for name in ("train_batch_size", "predict_batch_size", "num_seeds"):
            require(self, name, minimum=1)
        for name in (
            "eval_every_steps",
            "early_stopping_patience",
            "reinit_layers",
        ):
            require(self, name, minimum=0)
        if self.bilstm_size is not None:
            require(self, "bilstm_size", minimum=0)
        # Room for [CLS], a token, [SEP].
        require(self, "max_seq_length", minimum=3)
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"--{f.name}={value}: must be a finite number")
        if not self.num_train_epochs > 0:
            raise ValueError(
                f"--num_train_epochs={self.num_train_epochs}: must be above 0"
            )
        if not 0 <= self.warmup_proportion < 1:
            raise ValueError(
                f"--warmup_proportion={self.warmup_proportion}: must be at "
                "least 0 and below 1"
            )
        if not 0 < self.layer_decay <= 1:
            raise ValueError(
                f"--layer_decay={self.layer_decay}: must be above 0, at most 1"
            )
        if self.is_grid and not self.do_train:
            raise ValueError("a grid of runs needs --do_train")
        if self.early_stopping_patience and not self.eval_every_steps:
            raise ValueError(
                "--early_stopping_patience needs --eval_every_steps"
            )

    def check_learning_rate(self) -> None:
        """Refuses invalid or repeated learning rates."""
        for text in self.learning_rate.split(","):
            try:
                is_rate = 0 < float(text) < 1
            except ValueError:
                is_rate = False
            if not is_rate:
                raise ValueError(
                    f"--learning_rate={self.learning_rate}: {text!r} is no "
                    "number between 0 and 1"
                )
        rates = self.learning_rates
        if len(set(rates)) < len(rates):
            raise ValueError(
                f"--learning_rate={self.learning_rate}: one occurs twice"
            )

    @property
    def learning_rates(self) -> list[float]:
        """The learning rates of the grid, usually one."""
        return [float(text) for text in self.learning_rate.split(",")]

    @property
    def seeds(self) -> list[int]:
        """The seeds of the grid, usually one."""
        return [self.random_seed + i for i in range(self.num_seeds)]

    @property
    def is_grid(self) -> bool:
        """Whether there is more than one run."""
        return len(self.learning_rates) * self.num_seeds > 1

    @property
    def needs_evaluation(self) -> bool:
        """Whether training evaluates on the development set."""
        return self.is_grid or self.eval_every_steps > 0

    def run(
        self, *, learning_rate: float, random_seed: int, output_dir: str
    ) -> RunConfig:
        """Returns the config of one run of the grid."""
        names = [f.name for f in dataclasses.fields(RunConfig)]
        values = {name: getattr(self, name) for name in names} | {
            "learning_rate": learning_rate,
            "random_seed": random_seed,
            "output_dir": output_dir,
        }
        return RunConfig(**values)
