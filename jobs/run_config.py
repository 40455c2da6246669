"""The flags that every training runner shares: hardware, optimizer, saving.

A runner's config inherits these fields, so that a name and a default are
written once. Names and defaults are google-research/bert's where it has them.
"""

import dataclasses
import math
from typing import Any, Literal

from foundation import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceConfig:
    """Where something is computed, and in which numbers."""

    precision: Literal["auto", "float32", "bfloat16", "float16"] = field(
        "auto: bfloat16 where the hardware multiplies it, else float32.",
        "auto",
        affects="result",
    )
    use_xla: Literal["auto", "true", "false"] = field(
        "auto: on GPUs and TPUs, and in part on CPUs that multiply bfloat16.",
        "auto",
        affects="execution",
    )
    strategy: Literal[
        "auto", "one_device", "mirrored", "multi_worker_mirrored", "tpu"
    ] = field(
        "auto: several workers where TF_CONFIG names them, else all GPUs, "
        "else the CPU.",
        "auto",
        affects="execution",
    )
    num_replicas: int | None = field(
        "GPUs of a mirrored strategy.", None, affects="execution"
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
        "An address in place of --tpu_name.", None, affects="execution"
    )
    num_tpu_cores: int = field("Cores of the TPU.", 8, affects="execution")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(DeviceConfig):
    """What any training run needs to know, whatever it trains."""

    output_dir: str = field("Folder of checkpoints, metrics and the model.")
    init_checkpoint: str | None = field(
        "What to start from: a model directory or a TensorFlow checkpoint.",
        None,
        affects="result",
    )
    learning_rate: float = field("Peak learning rate.", 5e-5, affects="result")
    optimizer: Literal["adamw", "lamb"] = field(
        "adamw is the released one; lamb is for very large batches.",
        "adamw",
        affects="result",
    )
    gradient_accumulation_steps: int = field(
        "Parts in which each batch is computed, to save memory.",
        1,
        affects="result",
    )
    random_seed: int = field(
        "Of weights, dropout and the order of the records.",
        12345,
        affects="records",
    )
    recompute: bool = field(
        "Compute activations twice instead of keeping them.",
        False,
        affects="execution",
    )
    save_checkpoints_steps: int = field(
        "Steps between checkpoints.", 1000, affects="execution"
    )
    keep_checkpoint_max: int = field(
        "How many checkpoints stay.", 5, affects="execution"
    )
    allow_changed_data: bool = field(
        "Resume although batch size, seed, input or development set are not "
        "the run's.",
        False,
    )
    max_train_hours: float | None = field(
        "End in so many hours, in a grid each run: the learning rate reaches "
        "0 then, or after all steps, whichever comes first.",
        None,
        affects="result",
    )
    log_every_steps: int = field(
        "Steps between lines of metrics.", 100, affects="execution"
    )
    iterations_per_loop: int = field(
        "Steps per call of the device, at most.", 1000
    )

    def __post_init__(self):
        """Refuses what no run can be made of."""
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
        """Refuses a rate that cannot be meant; a grid has several to check."""
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


# ----------------------------------------------------------------------
# The flags that every fine-tuning runner shares, on top of those of any run.
#
# Names and defaults are google-research/bert's where it has them.


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """What there is before a task: a pre-trained encoder and its tokenizer."""

    bert_config_file: str | None = field(
        "JSON of the model; without it, that beside --init_checkpoint.", None
    )
    vocab_file: str | None = field(
        "The vocabulary; without it, that beside --init_checkpoint.",
        None,
        affects="records",
    )
    do_lower_case: bool | None = field(
        "Whether the model is uncased; without it, as --init_checkpoint was "
        "trained, else by the capitals of the vocabulary.",
        None,
        affects="records",
    )
    max_seq_length: int = field(
        "Pieces; longer texts are cut.", 128, affects="records"
    )
    group_by_length: bool = field(
        "Make batches of similar length instead of padding all to the longest.",
        True,
        affects="records",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuningConfig(RunConfig, EncoderConfig):
    """What it takes to train a task on top of a pre-trained encoder."""

    do_train: bool = field("Whether to train.", False)
    do_predict: bool = field("Whether to predict the test set.", False)
    train_batch_size: int = field("Over all replicas.", 32, affects="records")
    predict_batch_size: int = field("Over all replicas.", 8)
    learning_rate: str = field(
        "Peak learning rate; several, as in 5e-5,3e-5, make a grid of which "
        "the best on the development set is kept.",
        "5e-5",
        affects="result",
    )
    num_seeds: int = field(
        "Runs with each learning rate, from --random_seed upwards.", 1
    )
    num_train_epochs: float = field(
        "Times that every example is seen.", 3.0, affects="result"
    )
    warmup_proportion: float = field(
        "Share of the steps in which the learning rate rises.",
        0.1,
        affects="result",
    )
    write_records: bool = field(
        "Keep the features as TFRecords in --output_dir, for the next run.",
        True,
    )
    eval_every_steps: int = field(
        "Also evaluate while training, so often; 0 is never.",
        0,
        affects="result",
    )
    early_stopping_patience: int = field(
        "End after so many evaluations without a better one, and keep the "
        "best; 0 is never. Needs --eval_every_steps.",
        0,
        affects="result",
    )
    bias_correction: bool = field(
        "Correct AdamW's moments, which the released optimizer does not.",
        False,
        affects="result",
    )
    layer_decay: float = field(
        "Factor on the learning rate from each layer to the one below.",
        1.0,
        affects="result",
    )
    reinit_layers: int = field(
        "So many top layers, and the pooler, start anew.", 0, affects="result"
    )
    bilstm_size: int | None = field(
        "Units in each direction of a BiLSTM between encoder and head, as the "
        "paper puts on its left-to-right model; without it, as the checkpoint "
        "has, mostly none.",
        None,
        affects="result",
    )

    def __post_init__(self):
        """Refuses numbers that no run can be made of."""
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
        # Room for [CLS], a piece, [SEP].
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
        """Refuses rates that cannot be meant."""
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
        """The rates of the grid, most often one."""
        return [float(text) for text in self.learning_rate.split(",")]

    @property
    def seeds(self) -> list[int]:
        """The seeds of the grid, most often one."""
        return [self.random_seed + i for i in range(self.num_seeds)]

    @property
    def is_grid(self) -> bool:
        """Whether there is more than one run."""
        return len(self.learning_rates) * self.num_seeds > 1

    @property
    def needs_evaluation(self) -> bool:
        """Whether training looks at the development set."""
        return self.is_grid or self.eval_every_steps > 0

    def run(
        self, *, learning_rate: float, random_seed: int, output_dir: str
    ) -> RunConfig:
        """Returns the config of one run of the grid."""
        names = [f.name for f in dataclasses.fields(RunConfig)]
        values = {name: getattr(self, name) for name in names}
        values["learning_rate"] = learning_rate
        values["random_seed"] = random_seed
        values["output_dir"] = output_dir
        return RunConfig(**values)
