"""Combines the answers of several runs, as the paper's ensemble of seven.

If all runs have stored the logits of the same windows, the logits are averaged
and decoded. Otherwise, e.g. with different vocabularies, the lists of answers
are combined: the probability of a text is the mean over all runs, 0 where a
list lacks the text. For SQuAD 1.1, "no answer" is removed from lists of 2.0; a
list without another answer does not count. The sizes of windows, the tokenizer
and the settings are read from the directories of the runs.

The threshold of SQuAD 2.0 that was found for a combination is applied to later
sets, as long as the runs have the same weights:

    output_dir/ensemble_threshold.json
        {"members": [["/runs/1", "3a7b..."], ...], "threshold": -1.25}
"""

import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from data.tokenization import wordpiece
from foundation import atomic, config_flags, errors, file_system, metadata
from jobs import grid, model_card, run_directory, streaming
from jobs.outputs import Outputs
from tasks.squad import (
    blocks,
    dataset,
    decoding,
    metrics,
    outputs,
    settings,
    windowing,
)
from tasks.squad.decoding import NO_ANSWER_ODDS, NOTHING, Answer, AnswerList
from tasks.squad.task import QuestionSets, open_sets
from weights import model_directory, task_files, tokenizer_files

_THRESHOLD = "ensemble_threshold.json"
_NUMBERS = ("probability", "start_logit", "end_logit")
_Row = tuple[str, float, float, float]  # Text and _NUMBERS of an entry.


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """A run of the ensemble; a value that its directory lacks is None.

    Attributes:
      directory: directory of the run.
      weights: the digest of its weights.
      sizes: sizes of the run's windows.
      with_negative: whether questions may have no answer.
      threshold: the stored threshold of the null odds.
      tokenizer: tokenizer of the run's model.
    """

    directory: str
    weights: str | None
    sizes: settings.WindowSizes
    with_negative: bool
    threshold: float | None
    tokenizer: wordpiece.Tokenizer | None

    @property
    def identity(self) -> list[Any]:
        """The directory and the weights; a new run there has other weights."""
        directory = file_system.real(self.directory)
        return [directory, self.weights or self.threshold]


def run(config: settings.SquadConfig) -> None:
    """Writes the common predictions of --ensemble_dirs."""
    assert config.ensemble_dirs is not None
    members = open_members(
        parse_directories(config.ensemble_dirs, config.output_dir),
        sizes=config.windows,
    )
    stored = task_files.SquadSettings(
        version_2_with_negative=any(m.with_negative for m in members)
    )
    sets = open_sets(config, stored)
    store = streaming.Blocks(
        os.path.join(config.output_dir, blocks.UNFINISHED), {}, continues=False
    )
    earlier = earlier_threshold(config.output_dir, members)
    evaluation, sizes = combine(
        members, sets, config.rules, default_threshold=earlier, store=store
    )
    # The windows are the members', whatever the flags are.
    resolved = dataclasses.replace(config, windows=members[0].sizes)
    config_flags.write_run_config(resolved, config.output_dir)
    writer = Outputs(
        output_dir=config.output_dir,
        flags=config_flags.flat_values(resolved),
        given_flags=config_flags.given(config),
        results=grid.Results(config.output_dir),
    )
    outputs.write_set(evaluation, store, sizes, writer)
    _store_settings(config.output_dir, members[0], sets, evaluation, earlier)
    store.remove()
    if evaluation.threshold is not None and evaluation.threshold_found:
        store_threshold(config.output_dir, members, evaluation.threshold)
    run_directory.announce(config.output_dir)


def _store_settings(
    output_dir: str,
    member: Member,
    sets: QuestionSets,
    evaluation: outputs.Evaluation,
    earlier: float | None,
) -> None:
    """Writes settings and tokenizer, so that ensembles can be combined."""
    # A given threshold is for this command only.
    threshold = evaluation.threshold if sets.threshold is None else earlier
    task_files.write_settings(
        output_dir,
        task_files.SquadSettings(
            version_2_with_negative=sets.with_negative,
            null_score_diff_threshold=threshold,
        ),
    )
    if member.tokenizer is not None:
        tokenizer_files.save(
            member.tokenizer, output_dir, max_length=member.sizes.max_seq_length
        )


def parse_directories(ensemble_dirs: str, output_dir: str) -> list[str]:
    """Returns the directories of --ensemble_dirs.

    Raises:
      InputError: there is none, or output_dir contains a run.
    """
    names = file_system.split_names(ensemble_dirs, file_system.is_folder)
    if not names:
        raise errors.InputError("--ensemble_dirs: names no directory")
    real_dir = file_system.real(output_dir)
    is_member = real_dir in map(file_system.real, names)
    if is_member or model_directory.has_model(real_dir):
        raise errors.InputError(
            f"--output_dir={output_dir} contains a run: the answers of "
            "--ensemble_dirs need a directory of their own"
        )
    return names


def open_members(
    directories: Sequence[str], *, sizes: settings.WindowSizes
) -> list[Member]:
    """Reads the settings of runs.

    A run that has not stored the sizes of its windows gets `sizes`.
    """
    members = []
    for directory in directories:
        stored = task_files.read_settings(directory)
        if stored is None:  # A run of google-research/bert.
            path = os.path.join(directory, outputs.NULL_ODDS)
            stored = task_files.SquadSettings(
                version_2_with_negative=file_system.exists(path)
            )
        tokenizer = None
        if tokenizer_files.has_vocabulary(directory):
            tokenizer = tokenizer_files.load(directory)
        members.append(
            Member(
                directory=directory,
                weights=model_card.weights_of(directory),
                sizes=_read_sizes(directory, sizes),
                with_negative=stored.version_2_with_negative,
                threshold=stored.null_score_diff_threshold,
                tokenizer=tokenizer,
            )
        )
    return members


def _read_sizes(
    directory: str, sizes: settings.WindowSizes
) -> settings.WindowSizes:
    stored = blocks.open_logits(directory)
    if stored is not None and stored.sizes is not None:
        return stored.sizes
    # Earlier versions did not store the sizes with the logits.
    names = list(dataclasses.asdict(sizes))
    values = run_directory.flags(directory)
    if all(isinstance(values.get(name), int) for name in names):
        return settings.WindowSizes(**{name: values[name] for name in names})
    logging.warning(
        "%s lacks sizes of windows: this command's %s are used",
        os.path.join(directory, config_flags.RUN_CONFIG),
        ", ".join(f"--{name}" for name in names),
    )
    return sizes


@dataclasses.dataclass(frozen=True)
class _Threshold:
    """The content of ensemble_threshold.json."""

    members: list[Any]
    threshold: metadata.Finite


def earlier_threshold(
    output_dir: str, members: Sequence[Member]
) -> float | None:
    """Returns the threshold of an earlier ensemble of the same weights."""
    path = os.path.join(output_dir, _THRESHOLD)
    stored = metadata.read_if_present(path, _Threshold)
    identities = [member.identity for member in members]
    if stored is None or stored.members != identities:
        return None
    return stored.threshold


def store_threshold(
    output_dir: str, members: Sequence[Member], threshold: float
) -> None:
    """Writes ensemble_threshold.json."""
    identities = [member.identity for member in members]
    atomic.write_json(
        os.path.join(output_dir, _THRESHOLD),
        {"members": identities, "threshold": threshold},
    )


def combine(
    members: Sequence[Member],
    sets: QuestionSets,
    rules: settings.AnswerRules,
    *,
    default_threshold: float | None = None,
    store: blocks.ReadableStore,
) -> tuple[outputs.Evaluation, settings.WindowSizes | None]:
    """Returns the common answers of runs, scored if the set has answers.

    Args:
      members: the runs.
      sets: the set to predict, and the threshold if given.
      rules: how answers are made from logits.
      default_threshold: the threshold if none is given and the set determines
        none; None is the mean of the runs' thresholds.
      store: the store of the blocks.

    Returns:
      The answers, and the sizes of the windows; None if the lists of answers
      were combined, without logits.
    """
    question_set, first = sets.to_predict, members[0]
    rules = dataclasses.replace(
        rules, version_2_with_negative=sets.with_negative
    )
    stored = _common_logits(members, question_set)
    if stored is not None:
        assert first.tokenizer is not None
        logging.info("averaging the logits of %d runs", len(members))
        stream = blocks.QuestionStream(
            question_set,
            first.tokenizer,
            first.sizes,
            rules,
            functools.partial(_mean_logits, stored),
            has_files=True,
        )
        streaming.run(stream, store)
    else:
        logging.info("combining the lists of %d runs", len(members))
        directories = [member.directory for member in members]
        combined = combine_lists(directories, question_set, rules)
        answered = zip(question_set.questions, combined, strict=True)
        # One block: the lists of all runs are in memory anyway.
        store.find(0, "")
        store.add(0, "", blocks.answer_parts(answered, has_files=True))
    origin = "of an earlier ensemble of these runs"
    if default_threshold is None:
        thresholds = [m.threshold for m in members if m.threshold is not None]
        default_threshold = float(np.mean(thresholds)) if thresholds else 0.0
        origin = "the mean of the runs'" if thresholds else "as none is stored"
    evaluation = outputs.evaluate(
        question_set,
        blocks.read_answers(store),
        with_negative=sets.with_negative,
        threshold=sets.threshold,
        default_threshold=default_threshold,
    )
    if evaluation.threshold == default_threshold and sets.threshold is None:
        logging.info("threshold: %g, %s", default_threshold, origin)
    return evaluation, first.sizes if stored is not None else None


def _common_logits(
    members: Sequence[Member], question_set: dataset.QuestionSet
) -> list[blocks.StoredLogits] | None:
    """Returns the logits of all runs; None unless all have the same windows."""
    first = members[0]
    if first.tokenizer is None:
        logging.warning("%s", tokenizer_files.no_vocabulary(first.directory))
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
    digest = blocks.digest_of_windows(
        question_set, first.tokenizer, first.sizes
    )
    stored = []
    for member in members:
        logits = blocks.open_logits(member.directory)
        if logits is None or logits.digest != digest:
            logging.warning(
                "%s: has no logits of these windows", member.directory
            )
            return None
        stored.append(logits)
    return stored


def _mean_logits(
    stored: Sequence[blocks.StoredLogits], windows: windowing.Windows
) -> decoding.SpanLogits:
    """Returns the mean of all runs' logits of the next windows."""
    count = windows.features.row_splits[-1]
    total = np.zeros((2, count), np.float64)
    for logits in stored:
        total += np.stack(logits.read(count))
    return decoding.SpanLogits(*(total / len(stored)).astype(np.float32))


def combine_lists(
    directories: Sequence[str],
    question_set: dataset.QuestionSet,
    rules: settings.AnswerRules,
) -> Iterator[AnswerList]:
    """Combines the lists of answers of several runs, question by question.

    Of the rules, n_best_size and version_2_with_negative are used.

    Raises:
      InputError: a run lacks a file or a question.
    """
    with_negative = rules.version_2_with_negative
    lists = [_read(d, outputs.N_BEST, list, question_set) for d in directories]
    odds: list[Mapping[str, float]] = []
    if with_negative:
        odds = [
            _read(d, outputs.NULL_ODDS, (int, float), question_set)
            for d in directories
        ]
    for question in question_set.questions:
        parts = [
            _rows(question.id, values[question.id], directory)
            for values, directory in zip(lists, directories, strict=True)
        ]
        null_odds = NO_ANSWER_ODDS
        if with_negative:
            null_odds = mean_odds([values[question.id] for values in odds])
        else:
            parts = [rows for rows in map(_without_null, parts) if rows]
            parts = parts or [[(NOTHING, 1.0, 0.0, 0.0)]]
        yield AnswerList(_merge(parts, rules.n_best_size), null_odds)


def mean_odds(odds: Sequence[float]) -> float:
    """Returns the mean of several runs' odds of no answer.

    A run whose only answer is "no answer" counts with the highest odds of the
    other runs, because NO_ANSWER_ODDS would decide alone.
    """
    finite_odds = [value for value in odds if value < NO_ANSWER_ODDS]
    if not finite_odds:
        return NO_ANSWER_ODDS
    return float(np.mean(np.minimum(odds, max(finite_odds))))


def _read(
    directory: str, name: str, kind: Any, question_set: dataset.QuestionSet
) -> dict[str, Any]:
    """Reads a file of a run, which has a value for every question."""
    path = os.path.join(directory, name)
    if not file_system.exists(path):
        raise errors.InputError(
            f"--ensemble_dirs: {path} is missing: run it with --do_predict"
        )
    values = metrics.read_json(path, kind)
    missing = [q.id for q in question_set.questions if q.id not in values]
    if missing:
        raise errors.InputError(
            f"--ensemble_dirs: {directory} has no answer to question "
            f"{missing[0]!r}: it predicted another file"
        )
    return values


def _rows(number: str, entries: list[Any], directory: str) -> list[_Row]:
    """Returns the entries of a question's list after checking them."""
    what = f"--ensemble_dirs: {os.path.join(directory, outputs.N_BEST)}"
    rows = []
    for i, entry in enumerate(entries, 1):
        entry = entry if isinstance(entry, dict) else {}
        text, *numbers = map(entry.get, ("text", *_NUMBERS))
        if not isinstance(text, str) or not all(
            isinstance(value, (int, float)) for value in numbers
        ):
            raise errors.InputError(
                f"{what}: question {number!r}: entry {i} lacks text or one of "
                f"the numbers {', '.join(_NUMBERS)}"
            )
        probability, start, end = (float(entry[name]) for name in _NUMBERS)
        rows.append((text, probability, start, end))
    if not rows:
        raise errors.InputError(
            f"{what}: the list of question {number!r} is empty"
        )
    return rows


def _without_null(rows: Sequence[_Row]) -> list[_Row]:
    """Returns a list for 1.1: without "", with scaled probabilities.

    Returns [] for a list whose only entry is the released "empty", which stands
    for no answer.
    """
    if [(text, *ends) for text, _, *ends in rows] == [(NOTHING, 0.0, 0.0)]:
        return []
    texts = [row for row in rows if row[0]]
    if len(texts) == len(rows):
        return texts
    total = sum(probability for _, probability, *_ in texts) or 1.0
    return [
        (text, probability / total, start, end)
        for text, probability, start, end in texts
    ]


def _merge(parts: Sequence[Sequence[_Row]], n_best_size: int) -> list[Answer]:
    """Averages the lists of several runs."""
    texts: dict[str, list[tuple[float, ...]]] = {}
    for rows in parts:
        for text, *numbers in rows:
            texts.setdefault(text, []).append(tuple(numbers))
    merged = []
    for text, values in texts.items():
        probabilities, *logits = zip(*values, strict=True)
        start, end = (float(np.mean(x)) for x in logits)
        probability = sum(probabilities) / len(parts)
        merged.append(Answer(text, probability, start, end, None))
    merged.sort(key=lambda entry: -entry.probability)
    # As in every list of 2.0, "no answer" always remains.
    best = merged[:n_best_size]
    return best + [e for e in merged[n_best_size:] if not e.text]
