"""Reads the scores of finished commands and writes the results of tables.

results.json    every value, by table, row and column
results.md      the same as Markdown: the paper's row, ours, the difference
results.html    the same as a page
"""

import dataclasses
import html
import os
import shlex
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import scipy.stats

from foundation import atomic, errors, metadata
from jobs import grid, model_card, report, run_directory
from paper.execution import Executor
from paper.protocol import Command, Finding, Score, Table, commands_of
from tasks.classification import sentence_outputs

_SIGNIFICANT = 0.05
_FEATURES = "features/"


@dataclasses.dataclass(frozen=True)
class Measured:
    """The values of one score.

    Attributes:
      values: for each pre-training, one for each restart of fine-tuning with
        the learning rate whose mean development score is best; in the units of
        the table.
      best: value of the run with the best development score at any learning
        rate.
      learning_rates: learning rate of `values` for each pre-training; None for
        a command without a grid.
    """

    values: Sequence[Sequence[float]]
    best: float
    learning_rates: Sequence[float | None] = (None,)

    @property
    def means(self) -> list[float]:
        """The mean over the restarts, for each pre-training."""
        return [statistics.fmean(restarts) for restarts in self.values]

    @property
    def mean(self) -> float:
        """The mean over the pre-trainings of `means`."""
        return statistics.fmean(self.means)

    @property
    def std(self) -> float | None:
        """The standard deviation of the sample, None for a single value.

        It is that of `means` or, with one pre-training, that of the restarts.
        """
        values = self.means if len(self.values) > 1 else self.values[0]
        return statistics.stdev(values) if len(values) > 1 else None

    @property
    def fewest_restarts(self) -> int:
        """The number of restarts of the pre-training with the fewest."""
        return min(map(len, self.values))

    def value(self, statistic: str) -> float:
        """Returns the number to compare with the paper's."""
        return self.mean if statistic == "mean" else self.best

    def text(self) -> str:
        """Returns "84.1 +- 0.3 (2 x 5)", or "84.1" for a single run."""
        if self.std is None:
            return f"{self.mean:.1f}"
        restarts = f"{self.fewest_restarts}"
        if (most := max(map(len, self.values))) > self.fewest_restarts:
            restarts += f" to {most}"  # Runs that diverged do not count.
        counts = f"{len(self.values)} x {restarts}"
        return f"{self.mean:.1f} +- {self.std:.1f} ({counts})"


@dataclasses.dataclass(frozen=True)
class _F1:
    f1: metadata.Number


@dataclasses.dataclass(frozen=True)
class _OfSplits:
    dev: _F1 | None = None


@dataclasses.dataclass(frozen=True)
class _Run:
    values: _OfSplits
    learning_rate: metadata.Number = 0.0


@dataclasses.dataclass(frozen=True)
class _Feature(_Run):
    """What is read of a choice in feature_results.json.

    Attributes:
      values: the scores; of several runs, the means.
      runs: the runs, if there are several.
    """

    runs: list[_Run] = dataclasses.field(default_factory=list)


class _Trained(NamedTuple):
    """What the fine-tunings of one pre-trained model have reached.

    Attributes:
      values: one for each restart with the best learning rate.
      best: value of the run with the best development score at any rate.
      best_score: that development score.
      learning_rate: learning rate of `values`; None without a grid.
    """

    values: list[float]
    best: float
    best_score: float
    learning_rate: float | None = None


def read(score: Score) -> Measured:
    """Reads a score from the output directories of its commands.

    Raises:
      InputError: a command did not write the metric.
    """
    trained = [_read(score, command) for command in score.commands]
    return Measured(
        [x.values for x in trained],
        best=max(trained, key=lambda x: x.best_score).best,
        learning_rates=[x.learning_rate for x in trained],
    )


def _read(score: Score, command: Command) -> _Trained:
    folder = command.flags["output_dir"]
    if score.metric.startswith(_FEATURES):
        name = score.metric.removeprefix(_FEATURES)
        path = f"{folder}/feature_results.json"
        features = metadata.read(path, dict[str, _Feature])
        if name not in features:
            raise errors.InputError(f"{path}: {name} is missing")
        rows = [
            {"learning_rate": run.learning_rate, grid.SCORE: run.values.dev.f1}
            for run in features[name].runs or [features[name]]
            if run.values.dev
        ]
        if not rows:
            raise errors.InputError(f"{path}: {name} has no dev f1")
        return _of_best_rate(rows, grid.SCORE, score.factor)
    if (all_runs := grid.rows(folder)) and score.metric in all_runs[0]:
        return _of_best_rate(all_runs, score.metric, score.factor)
    path = os.path.join(folder, run_directory.RESULTS_JSON)
    metrics = metadata.read_if_present(path, dict[str, metadata.Number]) or {}
    metrics |= model_card.metrics_of(folder)
    for key in (score.metric, f"eval_{score.metric}"):
        if key in metrics:
            value = score.factor * metrics[key]
            return _Trained([value], best=value, best_score=value)
    raise errors.InputError(f"{folder} has no metric {score.metric}")


def _of_best_rate(
    rows: Sequence[Mapping[str, float]], metric: str, factor: float
) -> _Trained:
    """Returns a metric of the runs of the rate with the best mean score.

    Args:
      rows: settings and metrics of each run; "learning_rate" and "score" are
        among them.
      metric: name of the metric.
      factor: factor on its values.
    """
    by_rate: dict[float, list[Mapping[str, float]]] = {}
    for row in rows:
        by_rate.setdefault(row["learning_rate"], []).append(row)
    rate, chosen = max(
        by_rate.items(),
        key=lambda item: statistics.fmean(row[grid.SCORE] for row in item[1]),
    )
    best = max(rows, key=lambda row: row[grid.SCORE])
    return _Trained(
        [factor * row[metric] for row in chosen],
        best=factor * best[metric],
        best_score=best[grid.SCORE],
        learning_rate=rate or None,
    )


def verdict(
    larger: Measured, smaller: Measured, *, same_pretraining: bool = False
) -> str:
    """Returns whether one score is larger than another, with the numbers.

    Rows that are pre-trained differently are compared by Welch's t-test over
    the means of their pre-trainings. Restarts of fine-tuning from one
    pre-trained model are no independent samples of a row: if pre-trainings
    differ as much as restarts do, a test over three restarts of each row finds
    19 % of the differences between equal rows significant, instead of 5 %. With
    two pre-trainings of each row the test finds 2 %, and half of the
    differences of six standard deviations (simulated with normal values).

    The test is not paired. The n-th pre-trainings of two rows have the same
    seed, hence the same order of the records and, in models of one size, the
    same initial weights, but whether this makes their results similar is
    unknown. A similarity makes the test more careful. Pairs would have half of
    the degrees of freedom: with two pre-trainings, t would have to exceed 12.7
    instead of 4.3, which finds fewer differences unless more than about half of
    the variance is common to both rows.

    Two ways to fine-tune the same pre-trained models are compared over the
    restarts, since the models are not what differs. The result is one about
    these models.

    Args:
      larger: the score that the paper found larger.
      smaller: the other score.
      same_pretraining: whether both start from the same pre-trained models.
    """
    numbers = f"{larger.text()} and {smaller.text()}"
    if same_pretraining:
        if min(larger.fewest_restarts, smaller.fewest_restarts) < 3:
            return (
                f"single runs: {numbers}; fewer than three seeds decide nothing"
            )
        p_value = welch_test(larger.values, smaller.values)
    else:
        if min(len(larger.values), len(smaller.values)) < 2:
            return (
                f"single pre-trainings: {numbers}; fewer than two of each row "
                "decide nothing"
            )
        p_value = welch_test([larger.means], [smaller.means])
    if p_value >= _SIGNIFICANT:
        return f"within noise: {numbers}"
    is_confirmed = larger.mean > smaller.mean
    return f"{'confirmed' if is_confirmed else 'not confirmed'}: {numbers}"


def welch_test(
    left: Sequence[Sequence[float]], right: Sequence[Sequence[float]]
) -> float:
    """Returns the p-value of Welch's t-test, two-sided, of means of groups.

    The mean of a side is the mean of the means of its groups; only deviations
    within a group are noise. With one group on each side it is Welch's test.
    If no value deviates, nothing is known about the noise, and it returns 1.

    Args:
      left: groups of at least two values.
      right: groups of at least two values.
    """
    variances = [  # Of the terms of both means, with their degrees of freedom.
        (statistics.variance(x) / len(x) / len(groups) ** 2, len(x) - 1)
        for groups in (left, right)
        for x in groups
    ]
    variance = sum(v for v, _ in variances)
    if not variance:
        return 1.0
    left_mean, right_mean = (
        statistics.fmean(map(statistics.fmean, groups))
        for groups in (left, right)
    )
    t = (left_mean - right_mean) / variance**0.5
    # The Welch-Satterthwaite equation.
    freedom = variance**2 / sum(v**2 / n for v, n in variances)
    return float(2 * scipy.stats.t.sf(abs(t), freedom))


class TableResults:
    """The results of one table, of the commands that have finished so far.

    Everything is read once, when the object is made.
    """

    def __init__(self, table: Table, executor: Executor):
        """Reads the records and the scores of the finished commands."""
        self.table = table
        self._commands = table.commands()
        records = {c: executor.record(c) for c in self._commands}
        self._records = {c: x for c, x in records.items() if x}
        scores = [score for row in table.rows for score in row.scores.values()]
        self._measured = {
            score: read(dataclasses.replace(score, commands=finished))
            for score in scores
            if (finished := [c for c in score.commands if c in self._records])
        }
        self._findings = [
            (finding.statement, self._verdict(finding))
            for finding in table.findings
        ]
        self._cells = self._make_cells()

    def _verdict(self, finding: Finding) -> str:
        larger, smaller = finding.larger, finding.smaller
        commands = {*larger.commands, *smaller.commands}
        if not commands <= self._records.keys():
            return "not run"
        return verdict(
            self._measured[larger],
            self._measured[smaller],
            same_pretraining=larger.pretrained == smaller.pretrained,
        )

    def _make_cells(self) -> list[list[str]]:
        """Returns the header, and up to three lines for each row."""
        table = self.table
        columns = list(
            dict.fromkeys(
                name
                for row in table.rows
                for name in {**row.paper, **row.scores}
            )
        )
        lines = [["", "", *columns]]
        for row in table.rows:
            ours, differences = [], []
            for name in columns:
                text = difference = ""
                if name in row.scores:
                    text = "not run"
                    measured = self._measured.get(row.scores[name])
                    if measured is not None:
                        text = measured.text()
                        if name in row.paper:
                            value = measured.value(table.statistic)
                            difference = f"{value - row.paper[name]:+.1f}"
                ours.append(text)
                differences.append(difference)
            label = row.label
            if row.paper:
                paper = [str(row.paper.get(name, "")) for name in columns]
                lines.append([label, "paper", *paper])
                label = ""
            lines.append([label, "ours", *ours])
            if any(differences):
                lines.append(["", "difference", *differences])
        return lines

    @property
    def _seconds(self) -> float:
        return sum(record["seconds"] for record in self._records.values())

    @property
    def _summary(self) -> str:
        is_best = self.table.statistic == "best"
        compared = "best run at any learning rate" if is_best else "mean"
        return (
            f"{self.table.protocol} Ours: mean +- standard deviation "
            "(pre-trainings x restarts of fine-tuning); the deviation is that "
            "between pre-trainings, or between restarts if there is one "
            f"pre-training. The difference is that of the {compared}. "
            f"{len(self._records)} of {len(self._commands)} commands have "
            f"finished, in {self._seconds / 3600:.2f} hours."
        )

    def markdown(self) -> str:
        """Returns the table, its findings and its notes."""
        header, *rows = self._cells
        lines = [f"## {self.table.heading}", "", self._summary, ""]
        lines += [_markdown_row(header), _markdown_row(["---"] * len(header))]
        lines += [_markdown_row(row) for row in rows] + [""]
        lines += [f"* {a}: {b}." for a, b in self._findings]
        lines += [f"* {note}" for note in self.table.notes]
        return "\n".join(lines) + "\n"

    def markdown_commands(self) -> str:
        """Returns the command lines."""
        lines = [
            f"    python {shlex.join(command.arguments())}"
            for command in self._commands
        ]
        return "\n".join(["Commands:", "", *lines, ""])

    def section(self) -> report.Section:
        """Returns the same for the page."""
        header, *rows = self._cells
        commands = [
            [command.name, shlex.join(["python", *command.arguments()])]
            for command in self._commands
        ]
        body = "".join(
            (
                f"<p>{html.escape(self._summary)}</p>",
                report.table(header, rows, as_lists=len(header) > 5),
                report.table(["statement", "result"], self._findings)
                if self._findings
                else "",
                *(f"<p>{html.escape(note)}</p>" for note in self.table.notes),
                "<details><summary>Commands</summary>",
                report.table(["name", "command"], commands),
                "</details>",
            )
        )
        return report.Section(self.table.heading, body)

    def values(self) -> dict[str, Any]:
        """Returns every value, for results.json."""
        return {
            "title": self.table.title,
            "statistic": self.table.statistic,
            "seconds": self._seconds,
            "finished_commands": len(self._records),
            "commands": len(self._commands),
            "rows": [
                {
                    "label": row.label,
                    "paper": dict(row.paper),
                    "ours": {
                        name: dataclasses.asdict(self._measured[score])
                        for name, score in row.scores.items()
                        if score in self._measured
                    },
                }
                for row in self.table.rows
            ],
            "findings": dict(self._findings),
        }


def write(
    tables: Sequence[Table], executor: Executor, output_dir: str, title: str
) -> str:
    """Writes all files; returns the tables as Markdown."""
    results = [TableResults(table, executor) for table in tables]
    shown = [result.markdown() for result in results]
    parts = [
        f"{text}\n{result.markdown_commands()}"
        for text, result in zip(shown, results, strict=True)
    ]
    atomic.write_text(
        f"{output_dir}/results.md", "\n".join([f"# {title}\n", *parts])
    )
    atomic.write_json(
        f"{output_dir}/results.json",
        {result.table.name: result.values() for result in results},
    )
    report.write(
        f"{output_dir}/results.html", title, [x.section() for x in results]
    )
    return "\n".join(shown)


def submissions(tables: Sequence[Table], executor: Executor) -> list[str]:
    """Returns the paths of GLUE's zip files that are complete."""
    by_folder: dict[str, list[Command]] = {}
    for command in commands_of(tables):
        if folder := command.flags.get("glue_submission"):
            by_folder.setdefault(folder, []).append(command)
    return [
        os.path.join(folder, sentence_outputs.ARCHIVE)
        for folder, commands in by_folder.items()
        if all(map(executor.record, commands))
    ]


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
