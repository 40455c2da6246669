"""The kinds of tasks, by their names here and in the files of transformers.

A task is a value of --task and of export.json. The tasks of sentences differ in
the kind of their labels, which --problem_type names.
"""

CLASSIFICATION, REGRESSION = "classification", "regression"
MULTI_LABEL, MULTIPLE_CHOICE = "multi_label", "multiple_choice"
# transformers' name of a kind of label -> ours; None if it is unknown.
PROBLEM_TYPES: dict[str | None, str | None] = {
    None: None,
    "single_label_classification": CLASSIFICATION,
    "regression": REGRESSION,
    "multi_label_classification": MULTI_LABEL,
}
_OF_SENTENCES = ("BertForSequenceClassification",)
# Task -> the classes of transformers that have its head; none if an encoder
# alone is enough.
ARCHITECTURES = {
    "classification": _OF_SENTENCES,
    "regression": _OF_SENTENCES,
    "multilabel": _OF_SENTENCES,
    "multiple_choice": ("BertForMultipleChoice",),
    "question_answering": ("BertForQuestionAnswering",),
    "token_classification": ("BertForTokenClassification",),
    "fill_mask": ("BertForMaskedLM", "BertForPreTraining", "BertLMHeadModel"),
    "sentence_embedding": (),
}


def task_of(architecture: str | None) -> str | None:
    """Returns the first task of a class of transformers, if any."""
    known = ARCHITECTURES.items()
    return next((task for task, x in known if architecture in x), None)


def unnamed(count: int) -> list[str]:
    """Returns the names that transformers gives to unnamed classes."""
    return [f"LABEL_{i}" for i in range(count)]
