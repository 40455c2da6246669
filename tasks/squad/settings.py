"""The flags of run_squad.py."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from foundation import config_flags
from jobs import run_config

field, group = config_flags.field, config_flags.group
NUM_SPECIAL = 3  # [CLS], [SEP], [SEP]


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowSizes:
    """The windows into which paragraphs are cut, in tokens."""

    max_seq_length: int = field(
        "Tokens of a window. Without --do_train, this and the other flags of "
        "windows and answers are by default as the model was trained.",
        384,
        affects="records",
    )
    doc_stride: int = field(
        "Tokens from one window's start to the next.",
        128,
        affects="records",
        at_least=1,
    )
    max_query_length: int = field(
        "Tokens; longer questions are cut.", 64, affects="records", at_least=1
    )

    def __post_init__(self):
        """Refuses windows that a question may fill."""
        self.check()

    def check(self) -> None:
        """Raises ValueError for windows that a question may fill."""
        if self.max_seq_length <= self.max_query_length + NUM_SPECIAL:
            raise ValueError(
                f"--max_seq_length={self.max_seq_length}: must be greater than "
                f"--max_query_length={self.max_query_length} + {NUM_SPECIAL}: "
                "raise the one or lower the other"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerRules:
    """How answers are made from logits."""

    n_best_size: int = field(
        "Number of answers in nbest_predictions.json, and of best starts and "
        "of best ends that are considered in each window.",
        20,
        affects="evaluation",
        at_least=1,
    )
    max_answer_length: int = field(
        "The most tokens of an answer.", 30, affects="evaluation", at_least=1
    )
    exact_answers: bool = field(
        "Answer with the characters of the tokens instead of projecting them "
        "to words as google-research/bert does: for scripts without spaces "
        "between words.",
        False,
        affects="evaluation",
    )
    version_2_with_negative: bool | None = field(
        "Whether questions may have no answer, as in SQuAD 2.0; by default, as "
        "the model was trained, else False.",
        None,
        affects="evaluation",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerSettings:
    """All settings by which a trained model answers questions."""

    windows: WindowSizes = group(WindowSizes)
    rules: AnswerRules = group(AnswerRules)
    null_score_diff_threshold: float = field(
        "Null odds above which there is no answer, in SQuAD 2.0.", 0.0
    )

    @property
    def besides_length(self) -> dict[str, Any]:
        """Flag -> value, without max_seq_length, which all tasks have."""
        values = config_flags.flat_values(self)
        del values["max_seq_length"]
        return values

    @property
    def threshold(self) -> float | None:
        """Null odds above which there is no answer; None in SQuAD 1.1."""
        if not self.rules.version_2_with_negative:
            return None
        return self.null_score_diff_threshold


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadConfig(run_config.FinetuningConfig):
    """Everything run_squad.py needs to know."""

    FIRST_FLAGS: ClassVar[Sequence[str]] = (
        "train_file",
        "predict_file",
        *run_config.FIRST_FLAGS,
    )

    train_file: str | None = field(
        "SQuAD's JSON; several files separated by commas.",
        None,
        affects="records",
    )
    predict_file: str | None = field(
        "SQuAD's JSON; the predictions are scored if it has answers.",
        None,
        affects="evaluation",
    )
    windows: WindowSizes = group(WindowSizes)
    rules: AnswerRules = group(AnswerRules)
    null_score_diff_threshold: float | None = field(
        "Null odds above which there is no answer, in this command only; by "
        "default that stored with the model; after training, and if none is "
        "stored, the best on --predict_file.",
        None,
        affects="evaluation",
    )
    verbose_logging: bool = field("Log all questions that are left out.", False)
    ensemble_dirs: str | None = field(
        "Directories of runs, separated by commas, to combine.", None
    )
    question: str | None = field("A question about --context.", None)
    context: str | None = field("A paragraph.", None)
    interactive: bool = field("Answer questions at a prompt.", False)

    def __post_init__(self):
        """Checks the flags and their combinations."""
        super().__post_init__()
        if self.do_train and not self.train_file:
            raise ValueError("--do_train needs --train_file")
        predicts = (
            self.do_predict or self.ensemble_dirs or self.needs_evaluation
        )
        if predicts and not self.predict_file:
            raise ValueError(
                "--predict_file is needed to predict, for ensembles, grids "
                "and evaluations while training (--eval_every_steps)"
            )
        for name in ("question", "context"):
            text = getattr(self, name) or ""
            # Python's form of bytes on the command line that are not UTF-8.
            if any("\ud800" <= char <= "\udfff" for char in text):
                raise ValueError(f"--{name}: not UTF-8 text")
        if self.question and not self.context:
            raise ValueError("--question needs --context")
        if self.context and not self.prompts:
            raise ValueError("--context needs --question or --interactive")
        if not (self.do_train or predicts or self.prompts):
            raise ValueError(
                "at least one of --do_train, --do_predict, --ensemble_dirs, "
                "--interactive and --question must be given"
            )
        if self.ensemble_dirs and (
            self.do_train or self.do_predict or self.prompts
        ):
            raise ValueError(
                "--ensemble_dirs only combines predictions of other runs"
            )

    @property
    def remembered(self) -> Sequence[str]:
        """See FinetuningConfig."""
        windows = dataclasses.fields(WindowSizes)
        rules = ("n_best_size", "max_answer_length", "exact_answers")
        return (*(x.name for x in windows), *rules)

    @property
    def max_seq_length(self) -> int:
        """See FinetuningConfig."""
        return self.windows.max_seq_length

    @property
    def standard_input_flag(self) -> str | None:
        """See FinetuningConfig."""
        return "interactive" if self.interactive else None

    @property
    def prompts(self) -> bool:
        """Whether single questions are answered."""
        return bool(self.question or self.interactive)
