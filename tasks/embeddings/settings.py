"""The flags of run_embeddings.py."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Literal

from foundation import config_flags, errors
from jobs import run_config

field, group = config_flags.field, config_flags.group
affects_result = config_flags.affects_result


@dataclasses.dataclass(frozen=True, kw_only=True)
class Files:
    """The sets; their columns determine their kinds, see text_groups."""

    train_file: str | None = field(
        "Training set (csv, tsv, jsonl, parquet): columns anchor, positive and "
        "perhaps negative; or sentence1, sentence2 and score, as in STS-B; or "
        "sentence1, sentence2 and gold_label, as in MNLI and SNLI.",
        None,
        affects="records",
    )
    dev_file: str | None = field(
        "Development set, with the columns of any training set.",
        None,
        affects="evaluation",
    )
    test_file: str | None = field(
        "One text per line; --do_predict writes their vectors to "
        "embeddings.npz.",
        None,
    )
    max_score: float = field(
        "The score that means a cosine of 1: 5 in STS-B.",
        1.0,
        affects="records",
        above=0,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vectors:
    """How the vectors of texts are made and compared."""

    pooling: Literal["mean", "cls", "max"] | None = affects_result(
        "How the vectors of tokens become one; by default as the files of "
        "sentence-transformers beside the model say, else mean.",
        None,
    )
    normalize: bool | None = affects_result(
        "Whether vectors have length 1; by default as the files of "
        "sentence-transformers beside the model say, else true. The losses "
        "compare directions in both cases.",
        None,
    )
    scale: float = affects_result(
        "Factor on cosines among in-batch negatives: 1 / temperature.",
        20.0,
        above=0,
    )
    gradient_cache_size: int = affects_result(
        "Number of texts that a training step encodes at once; the loss still "
        "compares all texts of the batch. Large batches then need the memory "
        "of a small one, and a third more time. 0 encodes all at once.",
        0,
        at_least=0,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingsConfig(run_config.FinetuningConfig):
    """Everything run_embeddings.py needs to know."""

    FIRST_FLAGS: ClassVar[Sequence[str]] = (
        "train_file",
        "dev_file",
        *run_config.FIRST_FLAGS,
    )

    files: Files = group(Files)
    vectors: Vectors = group(Vectors)
    max_seq_length: int = field(
        "Maximum number of tokens; longer texts are cut. Without --do_train, "
        "by default as the model was trained.",
        128,
        affects="records",
        at_least=3,
    )
    do_eval: bool = field("Whether to evaluate on --dev_file.", False)
    eval_batch_size: int = field(
        "Examples per evaluation batch, over all replicas.", 32, at_least=1
    )

    def __post_init__(self):
        """Refuses contradictory flags."""
        super().__post_init__()
        if not (self.do_train or self.do_eval or self.do_predict):
            raise ValueError(
                "at least one of --do_train, --do_eval and --do_predict must "
                "be given"
            )
        if self.bilstm_size:
            raise ValueError("--bilstm_size: not for embeddings")
        if self.distillation.teacher_dir is not None:
            raise ValueError("--teacher_dir: not for embeddings")
        if self.files.test_file == "-":
            raise ValueError(
                "--test_file=-: extract_features.py reads standard input"
            )

    @property
    def remembered(self) -> Sequence[str]:
        """See FinetuningConfig."""
        return ("max_seq_length", "max_score", *["dev_file"] * self.do_eval)

    @property
    def evaluates_every_epoch(self) -> bool:
        """See FinetuningConfig; by default if there is a development set."""
        chosen = self.selection.eval_every_epoch
        return self.files.dev_file is not None if chosen is None else chosen

    @property
    def used_files(self) -> dict[str, str]:
        """The files that the command needs, by flag.

        Raises:
          InputError: a flag is missing.
        """
        is_file_needed = {
            "train_file": self.do_train,
            "dev_file": self.do_eval or self.needs_evaluation,
            "test_file": self.do_predict,
        }
        used = {}
        for flag, is_needed in is_file_needed.items():
            path = getattr(self.files, flag)
            if is_needed and path is None:
                raise errors.InputError(f"--{flag} is required")
            if is_needed:
                used[flag] = path
        return used

    @property
    def batch_sizes(self) -> dict[str, int]:
        """See FinetuningConfig."""
        sizes = super().batch_sizes
        if "dev_file" in self.used_files:
            sizes["eval_batch_size"] = self.eval_batch_size
        return sizes
