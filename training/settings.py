"""The flags of training: devices, optimizer, loop.

Names and defaults are google-research/bert's where it has them.
"""

import dataclasses
import re
from typing import Literal

from foundation import config_flags

field = config_flags.field
affects_result = config_flags.affects_result
affects_execution = config_flags.affects_execution
Decay = Literal["linear", "cosine", "constant"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]
Strategy = Literal[
    "auto", "one_device", "mirrored", "multi_worker_mirrored", "tpu"
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Devices:
    """The devices, and the precision of the computation."""

    precision: Precision = affects_result(
        "auto: bfloat16 if the hardware multiplies it, else float32.", "auto"
    )
    use_xla: Literal["auto", "true", "false"] = affects_execution(
        "auto: use XLA on GPUs and TPUs, and for parts of a step on CPUs that "
        "multiply bfloat16.",
        "auto",
    )
    strategy: Strategy = affects_execution(
        "auto: the workers that TF_CONFIG names, else all GPUs, else the CPU.",
        "auto",
    )
    num_replicas: int | None = affects_execution(
        "Number of GPUs of a mirrored strategy; without a GPU, the number of "
        "parts of the CPU.",
        None,
    )
    use_tpu: bool = affects_execution("The same as --strategy=tpu.", False)
    tpu_name: str | None = affects_execution(
        "The TPU's name or grpc:// address, or local for one of this machine; "
        "by default the environment variable TPU_NAME.",
        None,
    )
    tpu_zone: str | None = affects_execution("The TPU's zone.", None)
    gcp_project: str | None = affects_execution("The TPU's project.", None)
    master: str | None = affects_execution(
        "Address of the TPU instead of --tpu_name.", None
    )
    num_tpu_cores: int = affects_execution("Number of cores of the TPU.", 8)
    deterministic: bool = affects_execution(
        "Use deterministic operations only: a GPU then repeats a run exactly, "
        "but is slower. A CPU is exact without it.",
        False,
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

    lr_decay: Decay = affects_result(
        "Decay of the learning rate after the warm-up.", "linear"
    )
    optimizer: Literal["adamw", "lamb"] = affects_result(
        "adamw is google-research/bert's; lamb is for very large batches.",
        "adamw",
    )
    weight_decay_rate: float = affects_result(
        "Weight decay, of all weights but biases and LayerNorm.",
        0.01,
        at_least=0,
    )
    adam_beta_1: float = affects_result(
        "Decay of the mean of the gradients.", 0.9, at_least=0, below=1
    )
    adam_beta_2: float = affects_result(
        "Decay of the mean of the squared gradients.",
        0.999,
        at_least=0,
        below=1,
    )
    adam_epsilon: float = affects_result(
        "Added to the root of the mean of the squared gradients.", 1e-6, above=0
    )
    bias_correction: bool = affects_result(
        "Correct the bias of AdamW's moments; google-research/bert does not.",
        False,
        needs="optimizer=adamw",
    )
    clip_norm: float = affects_result(
        "Largest norm of the gradients of a step; 0 for no limit.",
        1.0,
        at_least=0,
    )
    freeze_layers: int | None = affects_result(
        "Keep the embeddings and this number of the lowest layers as they are; "
        "0 keeps only the embeddings.",
        None,
        at_least=0,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loop:
    """The steps of a run: their memory, checkpoints, metrics and end."""

    gradient_accumulation_steps: int = affects_result(
        "Number of parts in which a batch is computed, to save memory.",
        1,
        at_least=1,
    )
    recompute: Literal["none", "attention", "all"] = affects_execution(
        "What the backward pass computes again, to save memory: attention (for "
        "sequences of 512 tokens a quarter less, and little more time) or all "
        "activations (the least, and a third more time).",
        "none",
    )
    save_checkpoints_steps: int = affects_execution(
        "Steps between checkpoints.", 1000, at_least=1
    )
    keep_checkpoint_max: int = affects_execution(
        "Number of checkpoints to keep; 0 keeps none of a run that has ended.",
        5,
        at_least=0,
    )
    iterations_per_loop: int = field(
        "Maximum number of steps per call of the device, and between lines of "
        "metrics.jsonl, of which a run has about 50.",
        1000,
        at_least=1,
    )
    profile_steps: str | None = field(
        "Steps A:B of which to write a profile for TensorBoard.", None
    )
    dry_run: bool = field(
        "Instead of training, check all inputs, measure two steps and report "
        "how long the run would take.",
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
