"""The flags of run_pretraining.py."""

import dataclasses
import re
from typing import Literal, NamedTuple

from foundation import config_flags, errors
from jobs import run_config

field = config_flags.field
affects_result = config_flags.affects_result
affects_execution = config_flags.affects_execution
_OF_ONE_PHASE = ("max_seq_length", "max_predictions_per_seq", "num_train_steps")


class PhaseSpec(NamedTuple):
    """A phase as the flags describe it.

    If max_predictions_per_seq is None, the phase reads the shards that have its
    sequence length; else all shards must have both lengths. A left-to-right
    phase predicts each token from those before it, whatever the objective.
    """

    num_steps: int
    max_seq_length: int
    max_predictions_per_seq: int | None = None
    left_to_right: bool = False


def parse_phases(text: str) -> list[PhaseSpec]:
    """Parses the value of --phases.

    Raises:
      InputError: the text cannot be parsed, a length occurs twice, or no
        masked-LM phase is the last.
    """
    phases = []
    for part in text.split(","):
        match = re.fullmatch(
            r"\s*([1-9]\d*):([1-9]\d*)(:left_to_right)?\s*", part
        )
        if not match:
            raise errors.InputError(
                f"--phases={text}: {part!r} is neither LENGTH:STEPS nor "
                "LENGTH:STEPS:left_to_right, as in 128:900000,512:100000"
            )
        length, steps = int(match[1]), int(match[2])
        phases.append(
            PhaseSpec(steps, length, left_to_right=match[3] is not None)
        )
    if len({x[1:] for x in phases}) < len(phases):
        raise errors.InputError(f"--phases={text}: a length occurs twice")
    if phases[-1].left_to_right:
        raise errors.InputError(
            f"--phases={text}: the last phase must be one of --objective, not "
            "left to right"
        )
    return phases


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingConfig(run_config.RunConfig):
    """Everything run_pretraining.py needs to know."""

    bert_config_file: str = affects_execution(
        "JSON of the model's hyperparameters."
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
    mask_schedule: str | None = affects_result(
        "Draw the masks of training again in every step, for this fraction of "
        "the tokens; FIRST:LAST changes it linearly from the first step to the "
        "last, as 0.30:0.15. By default the stored masks are used.",
        None,
    )
    do_whole_word_mask: bool | None = affects_result(
        "With --mask_schedule, mask all tokens of a word; by default as the "
        "manifest of the shards says.",
        None,
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
        "each reads the shards of --input_file that have its length. A phase "
        "LENGTH:STEPS:left_to_right predicts each token from those before it.",
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
        if not (self.do_train or self.do_eval):
            raise ValueError("--do_train or --do_eval must be given")
        if (
            self.next_sentence_loss_weight != 1.0
            and self.objective != "masked_lm_and_next_sentence"
        ):
            raise ValueError(
                f"--next_sentence_loss_weight: --objective={self.objective} "
                "has no next-sentence loss"
            )
        if self.mask_fractions is None and self.do_whole_word_mask is not None:
            raise ValueError("--do_whole_word_mask: needs --mask_schedule")
        if self.mask_fractions and self.objective == "left_to_right":
            raise ValueError(
                f"--mask_schedule={self.mask_schedule}: "
                "--objective=left_to_right has no masks"
            )
        reads_all = self.max_eval_steps == 0 and self.eval_every_steps > 0
        if self.do_train and reads_all and self.eval_file is None:
            raise ValueError(
                "--max_eval_steps=0: each evaluation would read all training "
                "records; give --eval_file"
            )
        if self.phases:
            given = config_flags.given(self)
            for name in _OF_ONE_PHASE:
                if name in given:
                    raise ValueError(f"--{name}: not together with --phases")
        causal = [x for x in self.phase_specs if x.left_to_right]
        if causal and self.objective == "left_to_right":
            raise ValueError(
                f"--phases={self.phases}: with --objective=left_to_right, all "
                "phases are left to right: leave out :left_to_right"
            )

    @property
    def mask_fractions(self) -> tuple[float, float] | None:
        """The first and the last fraction of --mask_schedule."""
        if self.mask_schedule is None:
            return None
        parts = self.mask_schedule.split(":")
        try:
            values = [float(part) for part in parts]
        except ValueError:
            values = []
        if not 1 <= len(values) <= 2 or not all(0 < x <= 1 for x in values):
            raise ValueError(
                f"--mask_schedule={self.mask_schedule}: one fraction or two, "
                "above 0 and at most 1, as 0.15 or 0.30:0.15"
            )
        return values[0], values[-1]

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
