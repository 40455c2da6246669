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
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import scipy.stats

from foundation import errors, file_system
from jobs import grid, report
from paper.execution import Executor
from paper.protocol import Command, Score, Table

_SIGNIFICANT = 0.05
_FEATURES = "features/"


@dataclasses.dataclass(frozen=True)
class Measured:
    """The values of one score, of the runs with the best learning rate.

    Attributes:
      values: one for each seed, in the units of the table.
      learning_rate: of these runs; None for a command without a grid.
    """

    values: Sequence[float]
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
        return self.mean if statistic == "mean" else max(self.values)

    def text(self) -> str:
        """Returns "84.1 +- 0.3 (5)", or "84.1" for a single run."""
        if self.std is None:
            return f"{self.mean:.1f}"
        return f"{self.mean:.1f} +- {self.std:.1f} ({len(self.values)})"


def read(score: Score) -> Measured:
    """Reads a score from the output directory of its command.

    Of a grid, the runs of the learning rate with the best mean development
    score are used.

    Raises:
      InputError: the command did not write the metric.
    """
    folder = score.command.flags["output_dir"]
    if score.metric.startswith(_FEATURES):
        name = score.metric.removeprefix(_FEATURES)
        found = file_system.read_json(f"{folder}/feature_results.json")
        return Measured([score.factor * found[name]["values"]["dev"]["f1"]])
    path = os.path.join(folder, "grid_results.json")
    if file_system.exists(path):
        runs = file_system.read_json(path)["runs"]
        by_rate: dict[float, list[Mapping[str, Any]]] = {}
        for run in runs:
            by_rate.setdefault(run["learning_rate"], []).append(run)
        rate, runs = max(
            by_rate.items(),
            key=lambda item: statistics.fmean(r[grid.SCORE] for r in item[1]),
        )
        if score.metric in runs[0]:
            return Measured(
                [score.factor * r[score.metric] for r in runs], rate
            )
    for name in ("eval_results.json", "card.json"):
        path = os.path.join(folder, name)
        if file_system.exists(path):
            found = file_system.read_json(path)
            found = found.get("metrics", found)
            for key in (score.metric, f"eval_{score.metric}"):
                if key in found:
                    return Measured([score.factor * found[key]])
    raise errors.InputError(f"{folder} has no metric {score.metric}")


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


class Results:
    """The results of tables, of the commands that have finished so far."""

    def __init__(self, tables: Sequence[Table], executor: Executor):
        """Reads nothing yet."""
        self._tables = tables
        self._executor = executor

    def write(self, output_dir: str, title: str) -> str:
        """Writes all files; returns the tables as Markdown."""
        shown = {table: self._markdown(table) for table in self._tables}
        parts = [f"{text}\n{_commands(t)}" for t, text in shown.items()]
        file_system.write_text(
            f"{output_dir}/results.md", "\n".join([f"# {title}\n", *parts])
        )
        file_system.write_json(
            f"{output_dir}/results.json",
            {table.name: self._values(table) for table in self._tables},
        )
        sections = [
            report.Section(f"{_heading(table)}", self._page(table))
            for table in self._tables
        ]
        report.write(f"{output_dir}/results.html", title, sections)
        return "\n".join(shown.values())

    def write_submissions(self, output_dir: str) -> list[str]:
        """Zips the complete directories of GLUE's files; returns the paths."""
        made = []
        by_folder: dict[str, list[Command]] = {}
        for table in self._tables:
            for command in table.commands():
                if folder := command.flags.get("glue_submission"):
                    by_folder.setdefault(folder, []).append(command)
        for folder, commands in by_folder.items():
            if all(map(self._executor.record, commands)):
                suffix = os.path.basename(folder).removeprefix(
                    "glue_submission"
                )
                path = f"{output_dir}/submission{suffix}.zip"
                with (
                    file_system.replacing(path) as beside,
                    zipfile.ZipFile(beside, "w") as archive,
                ):
                    for name in sorted(os.listdir(folder)):
                        archive.write(os.path.join(folder, name), name)
                made.append(path)
        return made

    def _measured(self, score: Score | None) -> Measured | None:
        """Returns a score, None if its command has not finished."""
        if score is None or self._executor.record(score.command) is None:
            return None
        return read(score)

    def _grid(self, table: Table) -> tuple[list[str], list[list[str]]]:
        """Returns the header and three rows for each row of a table."""
        columns = list(
            dict.fromkeys(
                name
                for row in table.rows
                for name in {**row.paper, **row.scores}
            )
        )
        lines = []
        for row in table.rows:
            found = {
                name: self._measured(score)
                for name, score in row.scores.items()
            }
            ours, differences = [], []
            for name in columns:
                measured = found.get(name)
                if measured is None:
                    ours.append("not run" if name in row.scores else "")
                    differences.append("")
                else:
                    ours.append(measured.text())
                    paper = row.paper.get(name)
                    value = measured.value(table.statistic)
                    differences.append(
                        "" if paper is None else f"{value - paper:+.1f}"
                    )
            paper = [str(row.paper.get(name, "")) for name in columns]
            lines.append([row.label, "paper", *paper])
            lines.append(["", "ours", *ours])
            if any(differences):
                lines.append(["", "difference", *differences])
        return ["", "", *columns], lines

    def _findings(self, table: Table) -> list[tuple[str, str]]:
        found = []
        for finding in table.findings:
            sides = [
                self._measured(score)
                for score in (finding.larger, finding.smaller)
            ]
            text = "not run" if None in sides else verdict(*sides)
            found.append((finding.statement, text))
        return found

    def _seconds(self, table: Table) -> tuple[float, int, int]:
        """Returns seconds, and numbers of finished and of all commands."""
        commands = table.commands()
        records = [x for x in map(self._executor.record, commands) if x]
        return sum(x["seconds"] for x in records), len(records), len(commands)

    def _summary(self, table: Table) -> str:
        seconds, finished, total = self._seconds(table)
        return (
            f"{table.protocol} Ours: mean +- standard deviation (number of "
            f"seeds). The difference is that of the {table.statistic}. "
            f"{finished} of {total} commands have finished, in "
            f"{seconds / 3600:.2f} hours."
        )

    def _markdown(self, table: Table) -> str:
        header, rows = self._grid(table)
        lines = [f"## {_heading(table)}", "", self._summary(table), ""]
        lines += [_markdown_row(header), _markdown_row(["---"] * len(header))]
        lines += [_markdown_row(row) for row in rows] + [""]
        lines += [f"* {a}: {b}." for a, b in self._findings(table)]
        lines += [f"* {note}" for note in table.notes]
        return "\n".join(lines) + "\n"

    def _page(self, table: Table) -> str:
        commands = [
            [command.name, shlex.join(["python", *command.arguments()])]
            for command in table.commands()
        ]
        return "".join(
            (
                f"<p>{html.escape(self._summary(table))}</p>",
                report.table(*self._grid(table)),
                report.table(["statement", "result"], self._findings(table)),
                *(f"<p>{html.escape(note)}</p>" for note in table.notes),
                "<details><summary>Commands</summary>",
                report.table(["name", "command"], commands),
                "</details>",
            )
        )

    def _values(self, table: Table) -> dict[str, Any]:
        seconds, finished, total = self._seconds(table)
        return {
            "title": table.title,
            "statistic": table.statistic,
            "seconds": seconds,
            "finished_commands": finished,
            "commands": total,
            "rows": [
                {
                    "label": row.label,
                    "paper": dict(row.paper),
                    "ours": {
                        name: dataclasses.asdict(found)
                        for name, score in row.scores.items()
                        if (found := self._measured(score)) is not None
                    },
                }
                for row in table.rows
            ],
            "findings": dict(self._findings(table)),
        }


def _commands(table: Table) -> str:
    lines = [
        f"    python {shlex.join(command.arguments())}"
        for command in table.commands()
    ]
    return "\n".join(["Commands:", "", *lines, ""])


def _heading(table: Table) -> str:
    kind = "Figure 5" if table.name == "figure5" else f"Table {table.name}"
    return f"{kind}: {table.title}"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
