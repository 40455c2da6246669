"""The flags that every fine-tuning runner shares, on top of those of any run.

Names and defaults are google-research/bert's where it has them.
"""

import dataclasses
import math
import os
from typing import Any

from training import config_flags, run_config

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """What there is before a task: a pre-trained encoder and its tokenizer."""

    bert_config_file: str | None = field(
        "JSON of the model; without it, that beside --init_checkpoint.", None
    )
    vocab_file: str | None = field(
        "The vocabulary; without it, that beside --init_checkpoint.", None
    )
    do_lower_case: bool | None = field(
        "Whether the model is uncased; without it, as --init_checkpoint was "
        "trained, else by the capitals of the vocabulary.",
        None,
    )
    max_seq_length: int = field("Pieces; longer texts are cut.", 128)
    group_by_length: bool = field(
        "Make batches of similar length instead of padding all to the longest.",
        True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuningConfig(run_config.RunConfig, EncoderConfig):
    """What it takes to train a task on top of a pre-trained encoder."""

    do_train: bool = field("Whether to train.", False)
    do_predict: bool = field("Whether to predict the test set.", False)
    train_batch_size: int = field("Over all replicas.", 32)
    predict_batch_size: int = field("Over all replicas.", 8)
    learning_rate: str = field(
        "Peak learning rate; several, as in 5e-5,3e-5, make a grid of which "
        "the best on the development set is kept.",
        "5e-5",
    )
    num_seeds: int = field(
        "Runs with each learning rate, from --random_seed upwards.", 1
    )
    num_train_epochs: float = field("Times that every example is seen.", 3.0)
    warmup_proportion: float = field(
        "Share of the steps in which the learning rate rises.", 0.1
    )
    write_records: bool = field(
        "Keep the features as TFRecords in --output_dir, for the next run.",
        True,
    )
    eval_every_steps: int = field(
        "Also evaluate while training, so often; 0 is never.", 0
    )
    early_stopping_patience: int = field(
        "End after so many evaluations without a better one, and keep the "
        "best; 0 is never. Needs --eval_every_steps.",
        0,
    )
    bias_correction: bool = field(
        "Correct AdamW's moments, which the released optimizer does not.",
        False,
    )
    layer_decay: float = field(
        "Factor on the learning rate from each layer to the one below.", 1.0
    )
    reinit_layers: int = field(
        "So many top layers, and the pooler, start anew.", 0
    )
    bilstm_size: int | None = field(
        "Units in each direction of a BiLSTM between encoder and head, as the "
        "paper puts on its left-to-right model; without it, as the checkpoint "
        "has, mostly none.",
        None,
    )

    def __post_init__(self):
        """Refuses numbers that no run can be made of."""
        super().__post_init__()
        for name in ("train_batch_size", "predict_batch_size", "num_seeds"):
            run_config.require(self, name, minimum=1)
        for name in (
            "eval_every_steps",
            "early_stopping_patience",
            "reinit_layers",
        ):
            run_config.require(self, name, minimum=0)
        if self.bilstm_size is not None:
            run_config.require(self, "bilstm_size", minimum=0)
        # Room for [CLS], a piece, [SEP].
        run_config.require(self, "max_seq_length", minimum=3)
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

    @property
    def outcome(self) -> dict[str, Any]:
        """What decides how a run ends, besides its rate, seed and records."""
        values = {name: getattr(self, name) for name in _OUTCOME}
        start = self.init_checkpoint
        if start is not None and "://" not in start:
            # The same from wherever the command is given.
            values["init_checkpoint"] = os.path.realpath(start)
        return values

    def run(
        self, *, learning_rate: float, random_seed: int, output_dir: str
    ) -> run_config.RunConfig:
        """Returns the config of one run of the grid."""
        names = [f.name for f in dataclasses.fields(run_config.RunConfig)]
        values = {name: getattr(self, name) for name in names}
        values["learning_rate"] = learning_rate
        values["random_seed"] = random_seed
        values["output_dir"] = output_dir
        return run_config.RunConfig(**values)


_OUTCOME = (
    "init_checkpoint",
    "max_train_hours",
    "train_batch_size",
    "max_seq_length",
    "num_train_epochs",
    "warmup_proportion",
    "optimizer",
    "precision",
    "bias_correction",
    "layer_decay",
    "reinit_layers",
    "bilstm_size",
    "eval_every_steps",
    "early_stopping_patience",
)
