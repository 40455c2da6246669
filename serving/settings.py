"""How a trained model is opened: flags of export_model.py, options of Python.

None is what the model itself determines.
"""

import dataclasses
from typing import Literal

from foundation import config_flags
from tasks.squad.settings import AnswerSettings
from weights import kinds, sentence_modules

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions(AnswerSettings):
    """The model, and how it reads texts.

    Those of AnswerSettings that are not given are as the model was trained.
    """

    batch_size, new_head = 32, False

    task: str | None = field(
        "classification, regression, multilabel, multiple_choice, "
        "question_answering, token_classification, fill_mask or "
        "sentence_embedding; or the class of a task of your own, as in "
        "examples.relations:Relations. By default, the task of the model's "
        "head.",
        None,
    )
    max_seq_length: int | None = field(  # type: ignore[assignment]
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
        tasks, known = kinds.ARCHITECTURES, sentence_modules.POOLINGS
        if self.task and ":" not in self.task and self.task not in tasks:
            raise ValueError(f"--task={self.task}: none of {', '.join(tasks)}")
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
