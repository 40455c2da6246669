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
from typing import Any

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
      values: one for each seed, of the runs with the learning rate whose mean
        development score is best; in the units of the table.
      best: value of the run with the best development score at any learning
        rate, whose model is kept.
      learning_rate: learning rate of `values`; None for a command without a
        grid.
    """

    values: Sequence[float]
    best: float
    learning_rate: float | None = None

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return statistics.fmean(self.values)

    @property
    def std(self) -> float | None:
        """The standard deviation of the sample, None for a single value."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def value(self, statistic: str) -> float:
        """Returns the number to compare with the paper's."""
        return self.mean if statistic == "mean" else self.best

    def text(self) -> str:
        """Returns "84.1 +- 0.3 (5)", or "84.1" for a single run."""
        if self.std is None:
            return f"{self.mean:.1f}"
        return f"{self.mean:.1f} +- {self.std:.1f} ({len(self.values)})"


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


def read(score: Score) -> Measured:
    """Reads a score from the output directory of its command.

    Raises:
      InputError: the command did not write the metric.
    """
    folder = score.command.flags["output_dir"]
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
            return _single(score.factor * metrics[key])
    raise errors.InputError(f"{folder} has no metric {score.metric}")


def _of_best_rate(
    rows: Sequence[Mapping[str, float]], metric: str, factor: float
) -> Measured:
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
    return Measured(
        [factor * row[metric] for row in chosen],
        best=factor * best[metric],
        learning_rate=rate or None,
    )


def _single(value: float) -> Measured:
    """Returns the measurement of a single run."""
    return Measured([value], best=value)


def verdict(larger: Measured, smaller: Measured) -> str:
    """Returns whether one score is larger than another, with the numbers.

    Welch's t-test over the seeds decides whether a difference is noise.
    """
    numbers = f"{larger.text()} and {smaller.text()}"
    if min(len(larger.values), len(smaller.values)) < 3:
        return f"single runs: {numbers}; fewer than three seeds decide nothing"
    test = scipy.stats.ttest_ind(larger.values, smaller.values, equal_var=False)
    if not test.pvalue < _SIGNIFICANT:
        return f"within noise: {numbers}"
    is_confirmed = larger.mean > smaller.mean
    return f"{'confirmed' if is_confirmed else 'not confirmed'}: {numbers}"


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
            score: read(score)
            for score in scores
            if score.command in self._records
        }
        self._findings = [
            (finding.statement, self._verdict(finding))
            for finding in table.findings
        ]
        self._cells = self._make_cells()

    def _verdict(self, finding: Finding) -> str:
        if not {finding.larger, finding.smaller} <= self._measured.keys():
            return "not run"
        return verdict(
            self._measured[finding.larger], self._measured[finding.smaller]
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
            f"{self.table.protocol} Ours: mean +- standard deviation (number "
            f"of seeds). The difference is that of the {compared}. "
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
