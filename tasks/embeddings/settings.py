"""The flags of run_embeddings.py."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Literal

from finetuning import flags as flags_lib
from foundation import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingsFlags(flags_lib.EvaluatedFlags):
    """Everything run_embeddings.py needs to know."""

    FIRST_FLAGS: ClassVar[Sequence[str]] = (
        "train_file",
        "dev_file",
        *flags_lib.FIRST_FLAGS,
    )

    train_file: str | None = field(
        "Training set (csv, tsv, jsonl, parquet): columns anchor, positive and "
        "perhaps negative; or sentence1, sentence2 and score, as in STS-B; or "
        "sentence1, sentence2 and gold_label, as in MNLI and SNLI.",
        None,
    )
    dev_file: str | None = field(
        "Development set, with the columns of any training set. A training "
        "evaluates it after each epoch.",
        None,
        remembered=True,
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
        remembered=True,
        above=0,
    )
    pooling: Literal["mean", "cls", "max"] | None = field(
        "How the vectors of tokens become one; by default as the files of "
        "sentence-transformers beside the model say, else mean.",
        None,
        affects="result",
        remembered=True,
    )
    normalize: bool | None = field(
        "Whether vectors have length 1; by default as the files of "
        "sentence-transformers beside the model say, else true. The losses "
        "compare directions in both cases.",
        None,
        affects="result",
        remembered=True,
    )
    scale: float = field(
        "Factor on cosines among in-batch negatives: 1 / temperature.",
        20.0,
        affects="result",
        above=0,
    )
    gradient_cache_size: int = field(
        "Number of texts that a training step encodes at once; the loss still "
        "compares all texts of the batch. Large batches then need the memory "
        "of a small one, and a third more time. 0 encodes all at once.",
        0,
        affects="result",
        at_least=0,
    )
    eval_batch_size: int = field(
        "Examples per evaluation batch, over all replicas.", 32, at_least=1
    )

    def __post_init__(self):
        """Refuses flags without effect."""
        super().__post_init__()
        if self.bilstm_size:
            raise ValueError("--bilstm_size: not for embeddings")
        if self.distillation.teacher_dir is not None:
            raise ValueError("--teacher_dir: not for embeddings")

    @property
    def evaluates_each_epoch(self) -> bool:
        """See FinetuningFlags."""
        return self.do_train and self.dev_file is not None
