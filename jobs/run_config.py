"""The flags that commands share; their config classes inherit from these.

    DeviceConfig                  devices and precision
    RunConfig(DeviceConfig)       any training run
    EncoderConfig                 a pre-trained encoder and its tokenizer
    FinetuningConfig(RunConfig, EncoderConfig)   training of a task

Names and defaults are google-research/bert's where it has them.
"""

import dataclasses
import math
import re
from typing import Literal

from foundation import config_flags, file_system

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
        "Number of GPUs of a mirrored strategy; without a GPU, the number of "
        "parts of the CPU.",
        None,
        affects="execution",
    )
    use_tpu: bool = field(
        "The same as --strategy=tpu.", False, affects="execution"
    )
    tpu_name: str | None = field(
        "The TPU's name or grpc:// address, or local for one of this machine; "
        "by default the environment variable TPU_NAME.",
        None,
        affects="execution",
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
    deterministic: bool = field(
        "Use deterministic operations only: a GPU then repeats a run exactly, "
        "but is slower. A CPU is exact without it.",
        False,
        affects="execution",
    )

    def __post_init__(self):
        """Refuses two strategies."""
        if self.use_tpu and self.strategy not in ("auto", "tpu"):
            raise ValueError(
                f"--use_tpu and --strategy={self.strategy} exclude each other"
            )


# Flag -> the flag and its value without which it has no effect.
_NEEDED = {
    "lr_decay_power": ("lr_decay", "polynomial"),
    "bias_correction": ("optimizer", "adamw"),
    "lamb_exclude_bias_and_norm": ("optimizer", "lamb"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(DeviceConfig):
    """The flags of any training run."""

    output_dir: str = field("Directory of checkpoints, metrics and the model.")
    init_checkpoint: str | None = field(
        "Initial weights: a model directory or a checkpoint.",
        None,
        affects="result",
        is_path=True,
    )
    learning_rate: float = field(
        "Peak learning rate.", 5e-5, affects="result", above=0, below=1
    )
    lr_decay: Literal["linear", "polynomial", "cosine", "constant"] = field(
        "Decay of the learning rate after the warm-up.",
        "linear",
        affects="result",
    )
    lr_decay_power: float = field(
        "Power of --lr_decay=polynomial.", 1.0, affects="result", above=0
    )
    optimizer: Literal["adamw", "lamb"] = field(
        "adamw is google-research/bert's; lamb is for very large batches.",
        "adamw",
        affects="result",
    )
    weight_decay_rate: float = field(
        "Weight decay, of all weights but biases and LayerNorm.",
        0.01,
        affects="result",
        at_least=0,
    )
    adam_beta_1: float = field(
        "Decay of the mean of the gradients.",
        0.9,
        affects="result",
        at_least=0,
        below=1,
    )
    adam_beta_2: float = field(
        "Decay of the mean of the squared gradients.",
        0.999,
        affects="result",
        at_least=0,
        below=1,
    )
    adam_epsilon: float = field(
        "Added to the root of the mean of the squared gradients.",
        1e-6,
        affects="result",
        above=0,
    )
    bias_correction: bool = field(
        "Correct the bias of AdamW's moments; google-research/bert does not.",
        False,
        affects="result",
    )
    lamb_exclude_bias_and_norm: bool = field(
        "Do not adapt LAMB's rate for biases and LayerNorm, as its authors' "
        "code does.",
        False,
        affects="result",
    )
    clip_norm: float = field(
        "Largest norm of the gradients of a step; 0 for no limit.",
        1.0,
        affects="result",
        at_least=0,
    )
    ema_decay: float | None = field(
        "Decay of a moving average of the weights, e.g. 0.999; evaluations and "
        "the model of the run use the averages.",
        None,
        affects="result",
        above=0,
        below=1,
    )
    freeze_embeddings: bool = field(
        "Keep the embeddings as they are.", False, affects="result"
    )
    freeze_layers: int = field(
        "Number of lowest layers to keep as they are; --freeze_embeddings does "
        "the same with the embeddings.",
        0,
        affects="result",
        at_least=0,
    )
    gradient_accumulation_steps: int = field(
        "Number of parts in which a batch is computed, to save memory.",
        1,
        affects="result",
        at_least=1,
    )
    random_seed: int = field(
        "Seed of weights, dropout and the order of the records.",
        12345,
        affects="records",
    )
    recompute: bool = field(
        "Compute all activations again in the backward pass: the least memory, "
        "a third more time.",
        False,
        affects="execution",
    )
    recompute_attention: bool = field(
        "Compute only the attention again: for sequences of 512 tokens a "
        "quarter less memory and little more time.",
        False,
        affects="execution",
    )
    save_checkpoints_steps: int = field(
        "Steps between checkpoints.", 1000, affects="execution", at_least=1
    )
    keep_checkpoint_max: int = field(
        "Number of checkpoints to keep.", 5, affects="execution", at_least=1
    )
    allow_changed_data: bool = field(
        "Resume a run although its batch size, seed, input or development set "
        "has changed.",
        False,
    )
    max_train_hours: float | None = field(
        "Hours after which a run ends, each run of a grid, unless all steps "
        "are done earlier. Warm-up and decay of the learning rate then take "
        "the fractions of this time that they would take of all steps.",
        None,
        affects="result",
        above=0,
    )
    log_every_steps: int | None = field(
        "Steps between lines of metrics.jsonl; by default a fiftieth of the "
        "run, at most 100. The console shows one every five seconds at most.",
        None,
        affects="execution",
        at_least=1,
    )
    iterations_per_loop: int = field(
        "Maximum number of steps per call of the device.", 1000, at_least=1
    )
    profile_steps: str | None = field(
        "Steps A:B of which to write a profile for TensorBoard.", None
    )

    peak_tflops: float | None = field(
        "Peak TFLOPS of one device, to report the utilization of hardware "
        "that is not known, and the time in a dry run.",
        None,
        affects="execution",
        above=0,
    )
    dry_run: bool = field(
        "Instead of training, check all inputs and report the cost: memory, "
        "operations, a batch size that fits, and hours.",
        False,
    )

    def __post_init__(self):
        """Refuses invalid values, and flags without effect."""
        super().__post_init__()
        if not self.output_dir:
            raise ValueError("--output_dir is empty")
        file_system.check_output_folder(self.output_dir, "output_dir")
        config_flags.check_bounds(self)
        given = config_flags.given(self)
        for name, (other, value) in _NEEDED.items():
            if name in given and getattr(self, other) != value:
                raise ValueError(f"--{name} needs --{other}={value}")
        _ = self.profile_range

    @property
    def profile_range(self) -> tuple[int, int] | None:
        """The steps of --profile_steps."""
        if self.profile_steps is None:
            return None
        found = re.fullmatch(r"(\d+):(\d+)", self.profile_steps)
        if not found or not int(found[1]) < int(found[2]):
            raise ValueError(
                f"--profile_steps={self.profile_steps}: must be A:B, two steps "
                "with A < B"
            )
        return int(found[1]), int(found[2])


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
    # Room for [CLS], a token, [SEP].
    max_seq_length: int = field(
        "Maximum number of tokens; longer texts are cut.",
        128,
        affects="records",
        at_least=3,
    )
    group_by_length: bool = field(
        "Put texts of similar length into a batch, to save padding.",
        True,
        affects="records",
    )


# Flags of which a grid may have several values, besides the learning rate.
_AXES: dict[str, tuple[type, str]] = {
    "train_batch_size": (int, "at least 1"),
    "num_train_epochs": (float, "above 0"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuningConfig(RunConfig, EncoderConfig):
    """The flags of training a task on top of a pre-trained encoder."""

    do_train: bool = field("Whether to train.", False)
    do_predict: bool = field("Whether to predict the test set.", False)
    # A single value becomes a number; see `axis`.
    train_batch_size: str = field(
        "Examples per training step, over all replicas. Several, as in 16,32, "
        "make a grid.",
        "32",
        affects="records",
    )
    predict_batch_size: int = field(
        "Examples per prediction batch, over all replicas.", 8, at_least=1
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
        at_least=1,
    )
    num_train_epochs: str = field(
        "Number of passes over the training set. Several, as in 2,3,4, make a "
        "grid.",
        "3.0",
        affects="result",
    )
    warmup_proportion: float = field(
        "Fraction of the steps in which the learning rate rises.",
        0.1,
        affects="result",
        at_least=0,
        below=1,
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
        at_least=0,
    )
    early_stopping_patience: int = field(
        "End after this number of evaluations without improvement, and keep "
        "the best model; 0 for no early end. Needs --eval_every_steps.",
        0,
        affects="result",
        at_least=0,
    )
    layer_decay: float = field(
        "Factor between the learning rates of a layer and the one above it.",
        1.0,
        affects="result",
        above=0,
        at_most=1,
    )
    reinit_layers: int = field(
        "Number of top layers that start with random weights; the pooler then "
        "does, too.",
        0,
        affects="result",
        at_least=0,
    )
    bilstm_size: int | None = field(
        "Units in each direction of a BiLSTM between encoder and head, as in "
        "the paper's left-to-right model; by default as in the checkpoint, "
        "usually none.",
        None,
        affects="result",
        at_least=0,
    )

    def __post_init__(self):
        """Refuses invalid or contradictory values."""
        super().__post_init__()
        self._check_learning_rates()
        for name in _AXES:
            values = self.axis(name)
            if len(values) == 1:
                object.__setattr__(self, name, values[0])
        if self.dry_run:  # A dry run writes nothing.
            object.__setattr__(self, "write_records", False)
        if self.is_grid and not self.do_train:
            raise ValueError("a grid of runs needs --do_train")
        if self.early_stopping_patience and not self.eval_every_steps:
            raise ValueError(
                "--early_stopping_patience needs --eval_every_steps"
            )

    def _check_learning_rates(self) -> None:
        """Refuses invalid or repeated learning rates."""
        for text in self.learning_rate.split(","):
            try:
                is_rate = 0 < float(text) < 1
            except ValueError:
                is_rate = False
            if not is_rate:
                raise ValueError(
                    f"--learning_rate={self.learning_rate}: {text!r} is no "
                    "number above 0 and below 1"
                )
        rates = self.learning_rates
        if len(set(rates)) < len(rates):
            raise ValueError(
                f"--learning_rate={self.learning_rate}: one occurs twice"
            )

    def axis(self, name: str) -> list[float]:
        """Returns the values of a flag that may have several, usually one.

        Raises:
          ValueError: one is invalid, or occurs twice.
        """
        kind, lowest = _AXES[name]
        text = str(getattr(self, name))
        try:
            values = [kind(x) for x in text.split(",")]
        except ValueError:
            raise ValueError(f"--{name}={text}: not a number") from None
        if not all(map(math.isfinite, values)):
            raise ValueError(f"--{name}={text}: must be a finite number")
        if min(values) <= 0:
            raise ValueError(f"--{name}={text}: must be {lowest}")
        if len(set(values)) < len(values):
            raise ValueError(f"--{name}={text}: one occurs twice")
        return values

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
        counts = [len(self.axis(name)) for name in _AXES]
        return len(self.learning_rates) * self.num_seeds * max(counts) > 1

    @property
    def needs_evaluation(self) -> bool:
        """Whether training evaluates on the development set."""
        return self.is_grid or self.eval_every_steps > 0

    @property
    def standard_input_flag(self) -> str | None:
        """The flag that makes the command read standard input, if any."""
        return None

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
