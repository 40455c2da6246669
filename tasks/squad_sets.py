"""SQuAD's sets as features: those to learn with records, if they are kept."""

import dataclasses
from typing import Any

from absl import logging

import errors
from data import example_records, schema, squad, squad_windows, tokenization
from data.features import Features
from data.squad_windows import Windows

_TRAIN = "train.tf_record"  # As google-research/bert names it.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of windows, by the flags' names."""

    max_seq_length: int
    doc_stride: int
    max_query_length: int


def training_features(
    found: squad.Questions,
    tokenizer: tokenization.Tokenizer,
    sizes: Sizes,
    records_dir: str | None,
    *,
    name_all: bool = False,
) -> Features:
    """Returns the windows of a training set, from its records if current.

    Args:
      found: the questions, with their answers' places.
      tokenizer: of the model.
      sizes: of windows.
      records_dir: where records are kept, or None for nowhere.
      name_all: whether to name all questions whose answer no window has.

    Raises:
      InputError: there is no window.
    """

    def make() -> Features:
        made = squad_windows.make(
            tokenizer, found, is_training=True, **dataclasses.asdict(sizes)
        )
        lost = squad_windows.not_learned(found, made)
        if lost:
            logging.warning(
                "%s: the answers to %d questions cannot be learned: %s",
                found.path,
                len(lost),
                squad.name(lost, name_all=name_all),
            )
        return made.features

    if records_dir is None:
        features = make()
    else:
        features = example_records.prepare(
            f"{records_dir}/{_TRAIN}",
            schema.question_answering(sizes.max_seq_length, is_training=True),
            _records_job(found, tokenizer, sizes),
            make,
        )
    if not len(features):
        raise errors.InputError(
            f"--train_file={found.path}: no paragraph has a piece to learn from"
        )
    return features


def prediction_windows(
    found: squad.Questions, tokenizer: tokenization.Tokenizer, sizes: Sizes
) -> Windows:
    """Returns the windows of a set to predict.

    They are always made, and leave no records as google-research/bert's do in
    eval.tf_record: answers need to know where pieces stand in the text, which
    records do not tell.
    """
    return squad_windows.make(
        tokenizer, found, is_training=False, **dataclasses.asdict(sizes)
    )


def fingerprint(found: squad.Questions | None, sizes: Sizes) -> dict[str, Any]:
    """Tells what a run trains on from anything else, by flag."""
    if found is None:
        return {}
    return {
        "train_file": digests(found),
        "doc_stride": sizes.doc_stride,
        "max_query_length": sizes.max_query_length,
    }


def digests(found: squad.Questions) -> list[str]:
    """Returns the SHA-256 of every file of a set."""
    return [example_records.digest(path) for path in found.paths]


def describe(found: squad.Questions) -> str:
    """Says what a set holds, for a model card."""
    files = ", ".join(
        f"{path.rpartition('/')[2]}, SHA-256 {digest}"
        for path, digest in zip(found.paths, digests(found), strict=True)
    )
    return f"{len(found)} questions of {files}"


def _records_job(found, tokenizer, sizes) -> dict[str, Any]:
    return {
        "task": "squad",
        "texts": digests(found),
        "questions": len(found),
        "tokenizer": example_records.tokenizer_job(tokenizer),
        **dataclasses.asdict(sizes),
    }
