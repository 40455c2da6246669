"""The flags of run_squad.py, and those by which a trained model answers."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from finetuning import flags as flags_lib
from foundation import config_flags, file_system

field = config_flags.field
NUM_SPECIAL = 3  # [CLS], [SEP], [SEP]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerSettings:
    """The windows into which paragraphs are cut, and the rules for answers."""

    max_seq_length: int = field(
        "Tokens of a window.", 384, affects="records", remembered=True
    )
    doc_stride: int = field(
        "Tokens from one window's start to the next.",
        128,
        affects="records",
        remembered=True,
        at_least=1,
    )
    max_query_length: int = field(
        "Tokens; longer questions are cut.",
        64,
        affects="records",
        remembered=True,
        at_least=1,
    )
    n_best_size: int = field(
        "Number of answers in nbest_predictions.json, and of best starts and "
        "of best ends that are considered in each window.",
        20,
        affects="evaluation",
        remembered=True,
        at_least=1,
    )
    max_answer_length: int = field(
        "The most tokens of an answer.",
        30,
        affects="evaluation",
        remembered=True,
        at_least=1,
    )
    exact_answers: bool = field(
        "Answer with the characters of the tokens instead of projecting them "
        "to words as google-research/bert does: for scripts without spaces "
        "between words.",
        False,
        affects="evaluation",
        remembered=True,
    )
    version_2_with_negative: bool | None = field(
        "Whether questions may have no answer, as in SQuAD 2.0; by default, as "
        "the model was trained, else False.",
        None,
        affects="evaluation",
        remembered=True,
    )
    null_score_diff_threshold: float | None = field(
        "Null odds above which there is no answer, in this command only; by "
        "default that stored with the model; after training, and if none is "
        "stored, the best on --predict_file.",
        None,
        affects="evaluation",
    )

    def __post_init__(self):
        """Refuses windows that a question may fill."""
        self.check_windows()

    def check_windows(self) -> None:
        """Raises ValueError for windows that a question may fill."""
        if self.max_seq_length <= self.max_query_length + NUM_SPECIAL:
            raise ValueError(
                f"--max_seq_length={self.max_seq_length}: must be greater than "
                f"--max_query_length={self.max_query_length} + {NUM_SPECIAL}: "
                "raise the one or lower the other"
            )

    @property
    def besides_length(self) -> dict[str, Any]:
        """Flag -> value, without max_seq_length, which all tasks have."""
        names = [x.name for x in dataclasses.fields(AnswerSettings)]
        return {name: getattr(self, name) for name in names[1:]}

    @property
    def threshold(self) -> float | None:
        """Null odds above which there is no answer; None in SQuAD 1.1."""
        if not self.version_2_with_negative:
            return None
        return self.null_score_diff_threshold or 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadFlags(AnswerSettings, flags_lib.FinetuningFlags):
    """Everything run_squad.py needs to know."""

    FIRST_FLAGS: ClassVar[Sequence[str]] = (
        "train_file",
        "predict_file",
        *flags_lib.FIRST_FLAGS,
    )

    train_file: str | None = field(
        "SQuAD's JSON; several files separated by commas.", None
    )
    predict_file: str | None = field(
        "SQuAD's JSON; the predictions are scored if it has answers.", None
    )
    verbose_logging: bool = field("Log all questions that are left out.", False)
    ensemble_dirs: str | None = field(
        "Directories of runs, separated by commas, whose predicted logits to "
        "average.",
        None,
    )
    question: str | None = field(
        "A question about --context.",
        None,
        needs="context",
    )
    context: str | None = field("A paragraph.", None)
    interactive: bool = field("Answer questions at a prompt.", False)

    def __post_init__(self):
        """Refuses contradictory flags."""
        flags_lib.FinetuningFlags.__post_init__(self)
        super().__post_init__()
        prompts = bool(self.question or self.interactive)
        predicts = self.do_train or self.do_predict or prompts
        flags_lib.refuse(
            (
                self.do_train and not self.train_file,
                "--do_train needs --train_file",
            ),
            (
                "dev" in self.splits and not self.predict_file,
                "--predict_file is needed to predict, for ensembles, grids "
                "and evaluations while training (--eval_every_steps)",
            ),
            (
                self.context and not prompts,
                "--context needs --question or --interactive",
            ),
            (
                not (self.splits or prompts),
                "at least one of --do_train, --do_predict, --ensemble_dirs, "
                "--interactive and --question must be given",
            ),
            (
                self.members and predicts,
                "--ensemble_dirs only averages predictions of other runs",
            ),
        )

    @property
    def members(self) -> Sequence[str]:
        """See FinetuningFlags."""
        names = self.ensemble_dirs or ""
        return file_system.split_names(names)

    @property
    def predicts(self) -> bool:
        """Whether --predict_file is predicted into files."""
        return self.do_predict or bool(self.ensemble_dirs)

    @property
    def evaluated(self) -> bool:
        """Whether a training of SQuAD 2.0 finds the threshold at its end."""
        return bool(
            self.do_train
            and not self.do_predict
            and self.version_2_with_negative
            and self.predict_file
        )

    @property
    def splits(self) -> Sequence[str]:
        """The sets that the command reads."""
        needs_dev = (
            self.predicts or self.evaluated or self.evaluates_while_training
        )
        needed = {"train": self.do_train, "dev": needs_dev}
        return [split for split, is_needed in needed.items() if is_needed]
