"""The table of the kinds of tasks: their names here and elsewhere.

    KINDS["multi_label"].export_name    "multilabel"
    KINDS["multi_label"].problem_type   "multi_label_classification"
    BY_EXPORT_NAME["multilabel"].name   "multi_label"

A model directory has the names of transformers, an export those of export.json
and of --task. In this code, a kind has one name, which --problem_type uses too.
This table has names only; tasks/ has the code of each kind, and
serving/ the code by which it is exported and served.
"""

import dataclasses
from collections.abc import Mapping

from data import examples

QUESTION_ANSWERING = "question_answering"
TOKEN_CLASSIFICATION = "token_classification"
FILL_MASK, SENTENCE_EMBEDDING = "fill_mask", "sentence_embedding"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of task.

    Attributes:
      name: name of the kind in this code, and as a value of --problem_type.
      export_name: name of the kind in export.json, and as a value of --task.
      title: words for the kind in reports and model cards.
      architecture: the class of transformers with the head; None if an encoder
        alone is enough.
      other_architectures: classes of transformers that have the head, too.
      head: how the names of the head's tensors begin in transformers; "" if an
        encoder alone is enough.
      problem_type: transformers' name for the kind of classification.
      pipeline_tag: the Hub's name for the kind.
    """

    name: str
    export_name: str
    title: str
    architecture: str | None
    other_architectures: tuple[str, ...] = ()
    head: str = ""
    problem_type: str | None = None
    pipeline_tag: str


def _sentence_kind(name: str, **fields) -> Kind:
    """Returns a kind whose head has outputs for texts or pairs."""
    defaults = {
        "export_name": name,
        "architecture": "BertForSequenceClassification",
        "head": "classifier.",
        "pipeline_tag": "text-classification",
    }
    return Kind(name=name, **(defaults | fields))


_KINDS = (
    _sentence_kind(
        examples.CLASSIFICATION,
        title="sentence classification",
        problem_type="single_label_classification",
    ),
    _sentence_kind(
        examples.REGRESSION,
        title="regression",
        problem_type="regression",
    ),
    _sentence_kind(
        examples.MULTI_LABEL,
        export_name="multilabel",
        title="multi-label classification",
        problem_type="multi_label_classification",
    ),
    _sentence_kind(
        examples.MULTIPLE_CHOICE,
        title="multiple choice",
        architecture="BertForMultipleChoice",
        pipeline_tag="multiple-choice",
    ),
    Kind(
        name=QUESTION_ANSWERING,
        export_name=QUESTION_ANSWERING,
        title="question answering",
        architecture="BertForQuestionAnswering",
        head="qa_outputs.",
        pipeline_tag="question-answering",
    ),
    Kind(
        name=TOKEN_CLASSIFICATION,
        export_name=TOKEN_CLASSIFICATION,
        title="named entities",
        architecture="BertForTokenClassification",
        head="classifier.",
        pipeline_tag="token-classification",
    ),
    Kind(
        name=FILL_MASK,
        export_name=FILL_MASK,
        title="masked words",
        architecture="BertForMaskedLM",
        other_architectures=("BertForPreTraining", "BertLMHeadModel"),
        head="cls.predictions.",
        pipeline_tag="fill-mask",
    ),
    Kind(
        name=SENTENCE_EMBEDDING,
        export_name=SENTENCE_EMBEDDING,
        title="sentence embedding",
        architecture=None,
        pipeline_tag="sentence-similarity",
    ),
)
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _KINDS}
BY_EXPORT_NAME: Mapping[str, Kind] = {x.export_name: x for x in _KINDS}
EXPORT_NAMES = tuple(BY_EXPORT_NAME)
SENTENCE_KINDS = (
    examples.CLASSIFICATION,
    examples.REGRESSION,
    examples.MULTI_LABEL,
)


def by_architecture(name: str | None) -> Kind | None:
    """Returns the first kind with a class of transformers, if any."""
    classes = ((x, (x.architecture, *x.other_architectures)) for x in _KINDS)
    return next((x for x, names in classes if name and name in names), None)
