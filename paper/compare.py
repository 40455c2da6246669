"""Reads eval_results.txt of finished commands: the paper's number, ours.

    | Table 6        |            | perplexity | MNLI-m           |
    |---|---|---|---|
    | 12/768/12      | paper      | 3.99       | 84.4             |
    |                | ours       | 4.1        | 84.1 +- 0.3 (5)  |
    |                | difference | +0.1       | -0.3             |

Ours is the mean and the standard deviation over the seeds, and their number.
"""

import os
import re
import statistics
from collections.abc import Container, Sequence

from foundation import errors, file_system
from paper.tables import Command, Row, Table

# These programs write fractions, run_squad.py percentages.
_FRACTIONS = ("run_classifier.py", "run_ner.py")


def value(command: Command, metric: str) -> float:
    """Returns a metric that a finished command has written, in percent.

    Raises:
      InputError: the command did not write it.
    """
    name, pattern = "eval_results.txt", rf"^(?:eval_)?{metric} = (\S+)$"
    is_fraction = command.program in _FRACTIONS
    if metric == "test_f1":  # conlleval's output, in percent.
        name, pattern, is_fraction = "scores_test.txt", r"FB1: +(\S+)", False
    path = os.path.join(command.flags["output_dir"], name)
    match = re.search(pattern, file_system.read(path).decode(), re.MULTILINE)
    if match is None:
        raise errors.InputError(f"{path} has no {metric}")
    return float(match[1]) * (100 if is_fraction else 1)


def markdown(
    name: str, table: Table, rows: Sequence[Row], finished: Container[str]
) -> str:
    """Returns a table as text; scores without a command are "not run"."""
    columns = list(dict.fromkeys(column for row in rows for column in row.ours))
    heading = f"Table {name}".replace("Table figure", "Figure ")
    lines = [f"## {heading}: {table.title}", "", table.note, ""]
    lines += [
        _line(heading, "", *columns),
        _line(*["---"] * (2 + len(columns))),
    ]
    for label, papers, scores in rows:
        texts = dict.fromkeys(columns, ("", "", ""))
        for paper, (column, (commands, metric)) in zip(
            papers, scores.items(), strict=True
        ):
            ours, difference = "not run", ""
            ran = [x for x in commands if x.name in finished]
            if values := [value(command, metric) for command in ran]:
                mean = statistics.fmean(values)
                ours = f"{mean:.1f}"
                if len(values) > 1:
                    ours += (
                        f" +- {statistics.stdev(values):.1f} ({len(values)})"
                    )
                difference = f"{mean - paper:+.1f}" if paper else ""
            texts[column] = f"{paper or ''}", ours, difference
        kinds = ("paper", "ours", "difference")
        for kind, *cells in zip(kinds, *texts.values(), strict=True):
            if any(cells):
                lines.append(_line(label, kind, *cells))
                label = ""
    return "\n".join(lines) + "\n"


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
