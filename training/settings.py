"""The flags of training: devices, optimizer, loop.

Names and defaults are google-research/bert's where it has them.
"""

import dataclasses
import re
from typing import Literal

from foundation import config_flags

field = config_flags.field
Precision = Literal["auto", "float32", "bfloat16", "float16"]
Strategy = Literal[
    "auto", "one_device", "mirrored", "multi_worker_mirrored", "tpu"
]
# Flag -> the flag and its value without which it has no effect.
_NEEDED = {
    "lr_decay_power": ("lr_decay", "polynomial"),
    "bias_correction": ("optimizer", "adamw"),
    "lamb_exclude_bias_and_norm": ("optimizer", "lamb"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Devices:
    """The devices, and the precision of the computation."""

    precision: Precision = field(
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
    strategy: Strategy = field(
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer:
    """The optimizer, its schedule, and the weights that it leaves alone."""

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

    def __post_init__(self):
        """Refuses flags without effect."""
        given_flags = config_flags.given(self)
        for name, (other, value) in _NEEDED.items():
            if name in given_flags and getattr(self, other) != value:
                raise ValueError(f"--{name} needs --{other}={value}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loop:
    """The steps of a run: their memory, checkpoints, metrics and end."""

    gradient_accumulation_steps: int = field(
        "Number of parts in which a batch is computed, to save memory.",
        1,
        affects="result",
        at_least=1,
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
        """Refuses a malformed --profile_steps."""
        _ = self.profile_range

    @property
    def profile_range(self) -> tuple[int, int] | None:
        """The steps of --profile_steps."""
        if self.profile_steps is None:
            return None
        match = re.fullmatch(r"(\d+):(\d+)", self.profile_steps)
        if not match or not int(match[1]) < int(match[2]):
            raise ValueError(
                f"--profile_steps={self.profile_steps}: must be A:B, two steps "
                "with A < B"
            )
        return int(match[1]), int(match[2])
