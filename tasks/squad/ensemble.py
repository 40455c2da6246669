"""Several runs' answers as one, as in the paper's ensemble of seven systems.

Where all runs have left the logits of the very same windows, the logits are
averaged and decoded. Otherwise, e.g. where vocabularies differ, lists of the
best answers are combined: a text's probability is the mean over all runs, 0
where a list lacks it. Lists of 2.0 are read as 1.1 without "no answer"; one
that says nothing else does not count. Sizes of windows, tokenizer and settings
are those that the runs have left beside their answers.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from data.tokenization import normalization, wordpiece
from foundation import errors, file_system
from jobs import run_files
from tasks.squad import (
    dataset,
    decoding,
    squad_metrics,
    squad_outputs,
    squad_windows,
)
from tasks.squad.decoding import NO_ANSWER_ODDS, NOTHING, Answers, Entry
from tasks.squad.span_task import SpanLogits
from tasks.squad.squad_windows import Windows
from weights import task_files, tokenizer_files

_NUMBERS = ("probability", "start_logit", "end_logit")
_Listed = tuple[str, float, float, float]  # Text and _NUMBERS of an entry.
_SILENCE: list[_Listed] = [(NOTHING, 1.0, 0.0, 0.0)]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """A run whose answers are combined with others'.

    Attributes:
      directory: where its answers are.
      sizes: of the windows it was asked about.
      with_negative: whether it could say that there is no answer.
      threshold: of its null odds; None where none is stored.
      tokenizer: None where the run has left none.
    """

    directory: str
    sizes: squad_windows.Sizes
    with_negative: bool
    threshold: float | None
    tokenizer: wordpiece.Tokenizer | None


def open_members(
    directories: Sequence[str], *, sizes: squad_windows.Sizes
) -> list[Member]:
    """Reads what runs tell of themselves.

    Args:
      directories: of the runs.
      sizes: of a run that does not tell its own.
    """
    return [_open_member(directory, sizes) for directory in directories]


def _open_member(directory: str, sizes: squad_windows.Sizes) -> Member:
    settings = task_files.read_settings(directory)
    with_negative, threshold, tokenizer = False, None, None
    if settings is not None:
        with_negative = settings.version_2_with_negative
        threshold = settings.null_score_diff_threshold
    else:  # As google-research/bert leaves a run.
        path = os.path.join(directory, squad_outputs.NULL_ODDS)
        with_negative = file_system.exists(path)
    if tokenizer_files.is_here(directory):
        tokenizer = tokenizer_files.load(directory)
    return Member(
        directory=directory,
        sizes=_read_sizes(directory, sizes),
        with_negative=with_negative,
        threshold=threshold,
        tokenizer=tokenizer,
    )


def _read_sizes(
    directory: str, sizes: squad_windows.Sizes
) -> squad_windows.Sizes:
    written = squad_outputs.read_sizes(directory)
    if written is not None:
        return written
    # Logits of earlier versions do not tell.
    names = [field.name for field in dataclasses.fields(sizes)]
    values = run_files.flags(directory)
    found = {n: values[n] for n in names if isinstance(values.get(n), int)}
    if len(found) == len(names):
        return squad_windows.Sizes(**found)
    path = os.path.join(directory, run_files.RUN_CONFIG)
    flags = ", ".join(f"--{name}" for name in names)
    logging.warning("%s does not say its sizes: %s are taken", path, flags)
    return sizes


def combine(
    members: Sequence[Member],
    found: dataset.Questions,
    *,
    limits: decoding.Limits,
    threshold: float | None,
    found_before: float | None = None,
) -> squad_outputs.Evaluation:
    """Returns the runs' common answers.

    Args:
      members: the runs.
      found: the questions.
      limits: of what may be an answer.
      threshold: above which there is none; None finds the best.
      found_before: what is taken where it is not known what is right; None
        takes the mean of the runs'.
    """
    directories = [member.directory for member in members]
    windows = _common_windows(members, found)
    logits, source = None, None
    if windows is not None:
        logits = average_logits(directories, windows)
    if logits is not None:
        logging.info("the logits of %d runs are averaged", len(members))
        source = squad_outputs.Source(windows, members[0].sizes, logits)
        answers = _decode(members[0].tokenizer, found, windows, logits, limits)
    else:
        logging.info("the lists of %d runs are combined", len(members))
        answers = combine_lists(directories, found, limits)
    known = [m.threshold for m in members if m.threshold is not None]
    if found_before is not None:
        known = [found_before]
    return squad_outputs.evaluate(
        found,
        answers,
        with_negative=limits.version_2_with_negative,
        threshold=threshold,
        otherwise=float(np.mean(known)) if known else 0.0,
        source=source,
    )


def _common_windows(
    members: Sequence[Member], found: dataset.Questions
) -> Windows | None:
    """Returns the windows of all runs, None if they can have no common ones."""
    first = members[0]
    if first.tokenizer is None:
        logging.warning("%s: has no vocabulary", first.directory)
        return None
    for member in members[1:]:
        if member.sizes != first.sizes:
            logging.warning(
                "%s: has other windows than %s: %s, not %s",
                member.directory,
                first.directory,
                member.sizes,
                first.sizes,
            )
            return None
    return squad_windows.prediction_windows(found, first.tokenizer, first.sizes)


def _decode(tokenizer, found, windows, logits, limits) -> list[Answers]:
    return decoding.decode(
        found,
        windows,
        logits,
        normalize=normalization.Normalization(**tokenizer.settings).words,
        pieces=tokenizer.vocabulary.tokens,
        limits=limits,
    )


def average_logits(
    directories: Sequence[str], windows: Windows
) -> SpanLogits | None:
    """Returns the mean of all runs' logits; None unless all have them."""
    total = np.zeros((2, windows.features.row_splits[-1]), np.float64)
    for directory in directories:
        logits = squad_outputs.read_logits(directory, windows)
        if logits is None:
            logging.warning("%s: has no logits of these windows", directory)
            return None
        total += np.stack(logits)
    start, end = (total / len(directories)).astype(np.float32)
    return SpanLogits(start, end)


def combine_lists(
    directories: Sequence[str],
    found: dataset.Questions,
    limits: decoding.Limits,
) -> list[Answers]:
    """Returns answers from what every run has written.

    Args:
      directories: of the runs.
      found: the questions.
      limits: of the lists.

    Raises:
      InputError: a run lacks a file, or a question.
    """
    lists = [_read(d, squad_outputs.N_BEST, list) for d in directories]
    odds: list[Mapping[str, Any]] = []
    if limits.version_2_with_negative:
        name = squad_outputs.NULL_ODDS
        odds = [_read(d, name, (int, float)) for d in directories]
    result = []
    for question in found.questions:
        parts = [
            _rows(question.id, values, directory)
            for values, directory in zip(lists, directories, strict=True)
        ]
        null = NO_ANSWER_ODDS
        if odds:
            null = mean_odds(
                [
                    _of(question.id, values, directory)
                    for values, directory in zip(odds, directories, strict=True)
                ]
            )
        if not limits.version_2_with_negative:
            parts = [rows for rows in map(_answering, parts) if rows]
        merged = _merge(parts or [_SILENCE], limits.n_best_size)
        result.append(Answers(merged, null))
    return result


def mean_odds(odds: Sequence[float]) -> float:
    """Returns the mean of several runs' odds of no answer.

    A run that had nothing else to say is as sure as the surest of the others;
    its NO_ANSWER_ODDS would outvote them all.
    """
    others = [value for value in odds if value < NO_ANSWER_ODDS]
    if not others:
        return NO_ANSWER_ODDS
    return float(np.mean(np.minimum(odds, max(others))))


def _rows(
    number: str, values: Mapping[str, Any], directory: str
) -> list[_Listed]:
    """Returns a list's entries."""
    rows = []
    for place, entry in enumerate(_of(number, values, directory), 1):
        row = _row(entry)
        if row is None:
            path = os.path.join(directory, squad_outputs.N_BEST)
            raise errors.InputError(
                f"--ensemble_dirs: {path}: question {number!r}: entry {place} "
                f"has not text and the numbers {', '.join(_NUMBERS)}"
            )
        rows.append(row)
    if not rows:
        raise errors.InputError(
            f"--ensemble_dirs: {directory}: the list of question {number!r} is "
            "empty"
        )
    return rows


def _row(entry: Any) -> _Listed | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
        return None
    numbers = [entry.get(name) for name in _NUMBERS]
    if not all(isinstance(number, (int, float)) for number in numbers):
        return None
    return (entry["text"], *map(float, numbers))


def _answering(rows: Sequence[_Listed]) -> list[_Listed]:
    """Returns what a list answers, as in 1.1: without "", the shares scaled.

    A list of 1.1 that had nothing to say is released as one "empty".
    """
    if [(text, *ends) for text, _, *ends in rows] == [(NOTHING, 0.0, 0.0)]:
        return []
    kept = [row for row in rows if row[0]]
    if len(kept) == len(rows):
        return kept
    total = sum(share for _, share, *_ in kept) or 1.0
    return [(text, share / total, *rest) for text, share, *rest in kept]


def _merge(parts: Sequence[Sequence[_Listed]], n_best_size: int) -> list[Entry]:
    texts: dict[str, list[tuple[float, ...]]] = {}
    for rows in parts:
        for text, *numbers in rows:
            texts.setdefault(text, []).append(tuple(numbers))
    merged = []
    for text, values in texts.items():
        shares, starts, ends = zip(*values, strict=True)
        share = sum(shares) / len(parts)
        start, end = float(np.mean(starts)), float(np.mean(ends))
        merged.append(Entry(text, share, start, end, None))
    merged.sort(key=lambda entry: -entry.probability)
    kept = merged[:n_best_size]
    # As in every list of 2.0: no answer is always a choice.
    return kept + [e for e in merged[n_best_size:] if not e.text]


def _read(directory: str, name: str, kind: Any) -> dict[str, Any]:
    path = os.path.join(directory, name)
    if not file_system.exists(path):
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
