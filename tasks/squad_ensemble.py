"""Several runs' answers as one, as in the paper's ensemble of seven systems.

Where all runs have left the logits of the very same windows, the logits are
averaged and decoded. Otherwise, e.g. where vocabularies differ, lists of the
best answers are combined: a text's probability is the mean over all runs, 0
where a list lacks it.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

import errors
from data import normalization, squad
from data.squad_windows import Windows
from tasks import (
    squad_decoding,
    squad_metrics,
    squad_predictions,
    squad_sets,
    tokenizer_files,
)
from tasks.question_answering import SpanLogits
from tasks.squad_decoding import NO_ANSWER_ODDS, Answers, Entry


def combine(
    directories: Sequence[str],
    found: squad.Questions,
    *,
    sizes: squad_sets.Sizes,
    limits: squad_decoding.Limits,
    threshold: float | None,
) -> squad_predictions.Judgment:
    """Returns the runs' common answers.

    Args:
      directories: of the runs.
      found: the questions.
      sizes: of the windows that runs were asked about.
      limits: of what may be an answer.
      threshold: above which there is none; None finds the best.
    """
    windows, logits = None, None
    if tokenizer_files.is_here(directories[0]):
        tokenizer = tokenizer_files.load(directories[0])
        windows = squad_sets.prediction_windows(found, tokenizer, sizes, None)
        logits = average_logits(directories, windows)
    if logits is not None:
        logging.info("the logits of %d runs are averaged", len(directories))
        answers = squad_decoding.decode(
            found,
            windows,
            logits,
            normalize=normalization.Normalization(**tokenizer.settings).words,
            pieces=tokenizer.vocabulary.tokens,
            limits=limits,
        )
    else:
        logging.info("the lists of %d runs are combined", len(directories))
        answers = combine_lists(directories, found, limits)
    return squad_predictions.judge(
        found,
        answers,
        with_negative=limits.version_2_with_negative,
        threshold=threshold,
        windows=windows,
        logits=logits,
    )


def average_logits(
    directories: Sequence[str], windows: Windows
) -> SpanLogits | None:
    """Returns the mean of all runs' logits; None unless all have them."""
    total = np.zeros((2, windows.features.row_splits[-1]), np.float64)
    for directory in directories:
        logits = squad_predictions.read_logits(directory, windows)
        if logits is None:
            return None
        total += np.stack(logits)
    start, end = (total / len(directories)).astype(np.float32)
    return SpanLogits(start, end)


def combine_lists(
    directories: Sequence[str],
    found: squad.Questions,
    limits: squad_decoding.Limits,
) -> list[Answers]:
    """Returns answers from what every run has written.

    Args:
      directories: of the runs.
      found: the questions.
      limits: of the lists.

    Raises:
      InputError: a run lacks a file, or a question.
    """
    lists = [_read(d, squad_predictions.N_BEST, list) for d in directories]
    odds: list[Mapping[str, Any]] = []
    if limits.version_2_with_negative:
        name = squad_predictions.NULL_ODDS
        odds = [_read(d, name, (int, float)) for d in directories]
    result = []
    for question in found.questions:
        parts = [
            _of(question.id, values, directory)
            for values, directory in zip(lists, directories, strict=True)
        ]
        nulls = [
            _of(question.id, values, directory)
            for values, directory in zip(odds, directories, strict=False)
        ]
        null = float(np.mean(nulls)) if nulls else NO_ANSWER_ODDS
        result.append(Answers(_merge(parts, limits.n_best_size), null))
    return result


def _merge(parts: Sequence[list[dict]], n_best_size: int) -> list[Entry]:
    texts: dict[str, list[tuple[float, float, float]]] = {}
    for entries in parts:
        for entry in entries:
            row = tuple(
                float(entry[name])
                for name in ("probability", "start_logit", "end_logit")
            )
            texts.setdefault(entry["text"], []).append(row)
    merged = []
    for text, rows in texts.items():
        shares, starts, ends = zip(*rows, strict=True)
        share = sum(shares) / len(parts)
        start, end = float(np.mean(starts)), float(np.mean(ends))
        merged.append(Entry(text, share, start, end, None))
    merged.sort(key=lambda entry: -entry.probability)
    kept = merged[:n_best_size]
    # As in every list of 2.0: no answer is always a choice.
    return kept + [e for e in merged[n_best_size:] if not e.text]


def _read(directory: str, name: str, kind: Any) -> dict[str, Any]:
    path = os.path.join(directory, name)
    if not os.path.exists(path):
        raise errors.InputError(
            f"--ensemble_dirs: {path} is missing: run it with --do_predict"
        )
    return squad_metrics.read_json(path, kind)


def _of(number: str, values: Mapping[str, Any], directory: str) -> Any:
    if number not in values:
        raise errors.InputError(
            f"--ensemble_dirs: {directory} has no answer to question "
            f"{number!r}: it predicted another file"
        )
    return values[number]
