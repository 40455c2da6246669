"""The flags of run_pretraining.py."""

import dataclasses
import re
from typing import Literal, NamedTuple

from finetuning import flags
from foundation import config_flags, errors

field = config_flags.field
affects_result = config_flags.affects_result
affects_execution = config_flags.affects_execution
_OF_ONE_PHASE = ("max_seq_length", "max_predictions_per_seq", "num_train_steps")


class PhaseSpec(NamedTuple):
    """A phase as the flags describe it.

    If max_predictions_per_seq is None, the phase reads the shards that have its
    sequence length; else all shards must have both lengths.
    """

    num_steps: int
    max_seq_length: int
    max_predictions_per_seq: int | None = None


def parse_phases(text: str) -> list[PhaseSpec]:
    """Parses the value of --phases.

    Raises:
      InputError: the text cannot be parsed, or a length occurs twice.
    """
    phases = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([1-9]\d*):([1-9]\d*)\s*", part)
        if not match:
            raise errors.InputError(
                f"--phases={text}: {part!r} is not LENGTH:STEPS, as in "
                "128:900000,512:100000"
            )
        phases.append(PhaseSpec(int(match[2]), int(match[1])))
    if len({x.max_seq_length for x in phases}) < len(phases):
        raise errors.InputError(f"--phases={text}: a length occurs twice")
    return phases


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingFlags(flags.RunFlags):
    """Everything run_pretraining.py needs to know."""

    is_grid = False

    bert_config_file: str = affects_execution(
        "JSON of the model's hyperparameters, or the name of a small model "
        "such as uncased_L-4_H-256_A-4."
    )
    input_file: str = field(
        "Shards to train on: comma-separated paths or globs.", affects="records"
    )
    eval_file: str | None = field(
        "Held-out shards to evaluate on; by default those of --input_file.",
        None,
        affects="evaluation",
    )
    vocab_file: str | None = affects_execution(
        "Vocabulary of the shards; by default the one that the manifest "
        "beside them names.",
        None,
    )
    do_lower_case: bool | None = affects_execution(
        "Whether the text was lower-cased, for shards without a manifest; by "
        "default as for --init_checkpoint, else false if --vocab_file has "
        "capitals.",
        None,
    )
    objective: Literal[
        "masked_lm_and_next_sentence", "masked_lm", "left_to_right"
    ] = affects_result(
        "The losses to train on.",
        "masked_lm_and_next_sentence",
    )
    next_sentence_loss_weight: float = affects_result(
        "Weight of the next-sentence loss in its sum with the masked-LM loss; "
        "the paper's is 1.",
        1.0,
        above=0,
    )
    dynamic_masking: bool = affects_result(
        "Draw the masks of training anew for every batch, by the rules of the "
        "shards' manifest.",
        False,
    )
    do_train: bool = field("Whether to train.", False)
    do_eval: bool = field("Whether to evaluate.", False)
    max_seq_length: int = affects_result(
        "Sequence length of the shards.", 128, at_least=1
    )
    max_predictions_per_seq: int = affects_result(
        "Masked positions per sequence of the shards.",
        20,
        at_least=1,
    )
    train_batch_size: int = field(
        "Sequences per training step, over all replicas.",
        32,
        affects="records",
        at_least=1,
    )
    eval_batch_size: int = affects_execution(
        "Sequences per evaluation batch, over all replicas.",
        8,
        at_least=1,
    )
    learning_rate: float = affects_result(
        "Peak learning rate.", 5e-5, above=0, below=1
    )
    num_train_steps: int = affects_result(
        "Training steps; the learning rate falls to 0 over them.",
        100000,
        at_least=1,
    )
    phases: str | None = field(
        "Phases of different sequence lengths, LENGTH:STEPS,..., instead of "
        f"--{', --'.join(_OF_ONE_PHASE)}; "
        "each reads the shards of --input_file that have its length.",
        None,
        affects="records",
        extendable=True,
    )
    num_warmup_steps: int = affects_result(
        "Steps of rising learning rate.", 10000, at_least=0
    )
    max_eval_steps: int = field(
        "Batches of one evaluation, at most; 0 for all records.",
        100,
        affects="evaluation",
        at_least=0,
    )
    eval_every_steps: int = affects_execution(
        "Training steps between evaluations; 0 evaluates only with --do_eval, "
        "at the end.",
        0,
        at_least=0,
    )

    def __post_init__(self):
        """Refuses contradictory flags."""
        super().__post_init__()
        reads_all = self.max_eval_steps == 0 and self.eval_every_steps > 0
        objective = f"--objective={self.objective}"
        flags.refuse(
            (
                not (self.do_train or self.do_eval),
                "--do_train or --do_eval must be given",
            ),
            (
                self.next_sentence_loss_weight != 1.0
                and self.objective != "masked_lm_and_next_sentence",
                f"--next_sentence_loss_weight: {objective} has no "
                "next-sentence loss",
            ),
            (
                self.dynamic_masking and self.objective == "left_to_right",
                f"--dynamic_masking: {objective} has no masks",
            ),
            (
                self.do_train and reads_all and self.eval_file is None,
                "--max_eval_steps=0: each evaluation would read all training "
                "records; give --eval_file",
            ),
            *(
                (
                    self.phases and name in config_flags.given(self),
                    f"--{name}: not together with --phases",
                )
                for name in _OF_ONE_PHASE
            ),
        )

    @property
    def phase_specs(self) -> list[PhaseSpec]:
        """The phases of the run, usually one."""
        if self.phases:
            return parse_phases(self.phases)
        return [
            PhaseSpec(
                self.num_train_steps,
                self.max_seq_length,
                self.max_predictions_per_seq,
            )
        ]
