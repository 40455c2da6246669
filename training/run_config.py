"""The flags that every training runner shares: hardware, optimizer, saving.

A runner's config inherits these fields, so that a name and a default are
written once. Names and defaults are google-research/bert's where it has them.
"""

import dataclasses
from typing import Any, Literal

from training import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceConfig:
    """Where something is computed, and in which numbers."""

    precision: Literal["auto", "float32", "bfloat16", "float16"] = field(
        "auto: bfloat16 where the hardware multiplies it, else float32.",
        "auto",
    )
    use_xla: Literal["auto", "true", "false"] = field(
        "auto: on GPUs and TPUs, and in part on CPUs that multiply bfloat16.",
        "auto",
    )
    strategy: Literal[
        "auto", "one_device", "mirrored", "multi_worker_mirrored", "tpu"
    ] = field(
        "auto: several workers where TF_CONFIG names them, else all GPUs, "
        "else the CPU.",
        "auto",
    )
    num_replicas: int | None = field("GPUs of a mirrored strategy.", None)
    use_tpu: bool = field("The same as --strategy=tpu.", False)
    tpu_name: str | None = field("The TPU's name or grpc:// address.", None)
    tpu_zone: str | None = field("The TPU's zone.", None)
    gcp_project: str | None = field("The TPU's project.", None)
    master: str | None = field("An address in place of --tpu_name.", None)
    num_tpu_cores: int = field("Cores of the TPU.", 8)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(DeviceConfig):
    """What any training run needs to know, whatever it trains."""

    output_dir: str = field("Folder of checkpoints, metrics and the model.")
    init_checkpoint: str | None = field(
        "What to start from: a model directory or a TensorFlow checkpoint.",
        None,
    )
    learning_rate: float = field("Peak learning rate.", 5e-5)
    optimizer: Literal["adamw", "lamb"] = field(
        "adamw is the released one; lamb is for very large batches.", "adamw"
    )
    gradient_accumulation_steps: int = field(
        "Parts in which each batch is computed, to save memory.", 1
    )
    random_seed: int = field(
        "Of weights, dropout and the order of the records.", 12345
    )
    recompute: bool = field(
        "Compute activations twice instead of keeping them.", False
    )
    save_checkpoints_steps: int = field("Steps between checkpoints.", 1000)
    keep_checkpoint_max: int = field("How many checkpoints stay.", 5)
    allow_changed_data: bool = field(
        "Resume although batch size, seed, input or development set are not "
        "the run's.",
        False,
    )
    max_train_hours: float | None = field(
        "End in so many hours, in a grid each run: the learning rate reaches "
        "0 then, or after all steps, whichever comes first.",
        None,
    )
    log_every_steps: int = field("Steps between lines of metrics.", 100)
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

    def settings(self) -> dict[str, Any]:
        """Returns the flags that a resumed run is compared by."""
        values = dataclasses.asdict(self)
        return {k: v for k, v in values.items() if k not in _MAY_CHANGE}


# Flags that change nothing of what is computed, or not of the run itself.
_MAY_CHANGE = (
    "allow_changed_data",
    "do_eval",
    "do_train",
    "input_file",  # Its shards are compared instead.
    "iterations_per_loop",
    "output_dir",
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
