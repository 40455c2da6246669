"""How a trained model is opened: flags of export_model.py, options of Python.

None is what the model itself determines.
"""

import dataclasses
from typing import Literal

from foundation import config_flags
from weights import kinds, sentence_modules

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The model, and how it reads texts."""

    batch_size, new_head = 32, False

    task: str | None = field(
        "classification, regression, multilabel, multiple_choice, "
        "question_answering, token_classification, fill_mask or "
        "sentence_embedding; or the class of a task of your own, as in "
        "examples.relations:Relations. By default, the task of the model's "
        "head.",
        None,
    )
    max_seq_length: int | None = field(
        "Maximum number of tokens; by default, as the model was trained. "
        "fill_mask uses all positions of the model.",
        None,
        at_least=3,
    )
    precision: str = field(
        "float32 or bfloat16, which is faster on hardware that multiplies it.",
        "float32",
    )
    text_pair: bool | None = field(
        "Whether the input is a pair of texts; by default, as the model was "
        "trained.",
        None,
    )
    label_names: tuple[str, ...] | None = field(
        "Comma-separated labels in the order of the model's outputs, if its "
        "classes have no names.",
        None,
    )
    doc_stride: int | None = field(
        "Tokens from one window's start to the next, in question answering. "
        "By default, this and the next six are as the model was trained.",
        None,
        at_least=1,
    )
    max_query_length: int | None = field(
        "Tokens of a question.", None, at_least=1
    )
    n_best_size: int | None = field("Answers to a question.", None, at_least=1)
    max_answer_length: int | None = field(
        "Tokens of an answer.", None, at_least=1
    )
    version_2_with_negative: bool | None = field(
        "Whether questions may have no answer.", None
    )
    null_score_diff_threshold: float | None = field(
        "Null odds above which there is no answer.", None
    )
    exact_answers: bool | None = field(
        "Answer with the characters of the tokens instead of complete words.",
        None,
    )
    document_context: Literal["none", "maximal"] = field(
        "maximal: fill the windows of a tagger with the sentences around.",
        "none",
    )
    top_k: int = field("Number of words for each mask.", 5, at_least=1)
    pooling: str | None = field(
        "How sentence embeddings are made from the vectors of tokens, e.g. "
        "cls, mean or cls,mean; by default as the files of "
        "sentence-transformers say, mean without them.",
        None,
    )
    layer: int = field("Layer of sentence embeddings; -1 is the last.", -1)
    normalize: bool | None = field(
        "Scale every sentence embedding to length 1; by default as the files "
        "of sentence-transformers say.",
        None,
    )

    def __post_init__(self):
        """Refuses an unknown task or pooling."""
        if self.task and ":" not in self.task:
            if self.task not in kinds.EXPORT_NAMES:
                raise ValueError(
                    f"--task={self.task}: none of "
                    f"{', '.join(kinds.EXPORT_NAMES)}"
                )
        known = sentence_modules.POOLINGS
        names = str(self.pooling or "mean").split(",")
        if not {*names} <= {*known}:
            raise ValueError(
                f"--pooling={self.pooling}: none of {', '.join(known)}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadOptions(ModelOptions):
    """What Python's `load` has besides."""

    batch_size: int = field("Texts that are computed together.", 32, at_least=1)
    new_head: bool = field("Whether the outputs get random weights.", False)
