"""Builds report.html: one page about a run that needs no network.

A report is a list of sections; each task adds its own:

    report.write(path, "Pre-training", [
        report.Section("Learning curves", report.curves(lines, PANELS)),
        report.Section("Held out", report.table(["step", "loss"], rows)),
    ])

The HTML is in report.html beside this file, which escapes everything but the
bodies.
"""

import contextlib
import functools
import io
import math
import numbers
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import cycler
import jinja2
import matplotlib
import numpy as np
from markupsafe import Markup, escape
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from foundation import atomic, errors, file_system, metadata

T = TypeVar("T")

_MAX_POINTS = 1000  # More would only make the file larger.
_LONG_TEXT = 40  # Characters of a cell.
_SMALL = 0.01  # A column of smaller numbers, such as learning rates.
# Text and axes get the color of the page's text, light or dark.
_INK = "#010203"
_COLORS = ["#2f81f7", "#e8590c", "#2da44e", "#bf3989", "#8250df"]
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "report",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "axes.prop_cycle": cycler.cycler(color=_COLORS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    **dict.fromkeys(
        [
            "text.color",
            "axes.edgecolor",
            "axes.labelcolor",
            "xtick.color",
            "ytick.color",
        ],
        _INK,
    ),
}


class Section(NamedTuple):
    """A heading and HTML that is already escaped."""

    title: str
    body: str


class Panel(NamedTuple):
    """One plot: its title and the metrics that it draws."""

    title: str
    metrics: Sequence[str]


class Span(NamedTuple):
    """A part of a text to mark.

    Attributes:
      start: the first character.
      end: the character behind the last one.
      kind: "good", "bad" or "neutral", or the hue of a color, 0 to 359.
      label: shown behind the text.
    """

    start: int
    end: int
    kind: str | int = "neutral"
    label: str = ""

    def overlaps(self, other: "Span") -> bool:
        """Returns whether a character belongs to both."""
        return self.start < other.end and other.start < self.end


_Values = dict[str, metadata.Number]  # A line of metrics.jsonl.


def read_metrics(path: str) -> list[dict[str, float]]:
    """Reads metrics.jsonl; see read_lines."""
    return read_lines(path, _Values)


def read_lines(path: str, kind: type[T]) -> list[T]:
    """Reads a file of JSON lines; [] if it does not exist.

    Lines of another type than `kind`, see foundation.metadata, and incomplete
    ones are left out.
    """
    if not file_system.exists(path):
        return []
    lines = []
    for line in file_system.read_text(path).splitlines():
        with contextlib.suppress(errors.InputError):
            values = file_system.parse_json(line.encode(), path)
            lines.append(metadata.convert(values, kind, path))
    return lines


def curves(
    lines: Sequence[Mapping[str, float]], panels: Sequence[Panel]
) -> Markup:
    """Draws metrics over steps, each panel as an SVG.

    A metric without values in the lines of metrics.jsonl is not drawn.
    """
    drawn = []
    for panel in panels:
        series = {}
        for name in panel.metrics:
            points = [
                (x["step"], x[name])
                for x in lines
                if math.isfinite(x.get(name, math.nan))
            ]
            if points:
                series[name] = points[:: max(1, len(points) // _MAX_POINTS)]
        if series:
            drawn.append(_chart(panel, series))
    if not drawn:
        return Markup("<p>No metrics were logged.</p>")
    return charts(drawn)


def _chart(panel: Panel, series: Mapping[str, Sequence[tuple]]) -> Markup:
    kinds = {"train": "training", "eval": "held out"}
    names = [name.partition("/")[::2] for name in series]
    labels = [kinds.get(kind, kind) for kind, _ in names]
    title = panel.title
    colors: Sequence[str | None] = [None] * len(labels)
    if len({leaf for _, leaf in names}) > 1:
        labels = [
            f"{label} {leaf.replace('_', ' ')}"
            for label, (_, leaf) in zip(labels, names, strict=True)
        ]
    else:
        colors = [_COLORS[x == "held out"] for x in labels]
        if len(series) < len(panel.metrics):
            title = f"{title}, {labels[0]}"
    with style():
        figure = Figure(figsize=(4.6, 3.1), layout="constrained")
        axes = figure.subplots()
        for label, color, points in zip(
            labels, colors, series.values(), strict=True
        ):
            is_sparse = label.startswith("held out") or len(points) == 1
            axes.plot(
                *zip(*points, strict=True),
                label=label,
                color=color,
                marker="o" if is_sparse else None,
                markersize=4,
            )
        axes.set_title(title)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.grid(alpha=0.25)
        if len(series) > 1:
            axes.legend(fontsize=8, framealpha=0)
        return svg(figure)


def style() -> contextlib.AbstractContextManager[None]:
    """Returns the context in which all figures are drawn."""
    return matplotlib.rc_context(_STYLE)


def svg(figure: Figure) -> Markup:
    """Returns a figure as an <svg> element, the same bytes every time."""
    file = io.StringIO()
    with style():
        figure.savefig(
            file, format="svg", metadata={"Date": None}, transparent=True
        )
    text = file.getvalue().replace(_INK, "currentColor")
    return Markup(text[text.index("<svg") :])


def charts(drawn: Iterable[Markup]) -> Markup:
    """Returns SVGs beside each other, on a phone below each other."""
    return _template().charts(list(drawn))


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    minor: Sequence[str] = (),
    as_lists: bool = False,
) -> Markup:
    """Returns a table; numbers are right-aligned, with equal decimals.

    On a phone, a table with a column of long texts shows its rows as lists.

    Args:
      header: names of the columns.
      rows: texts, numbers and the results of `heat`; "" is an empty cell.
      minor: names of the columns that a phone does not show.
      as_lists: whether a phone shows the rows as lists anyway.
    """
    rows = [list(row) for row in rows]
    columns = [list(column) for column in zip(*rows, strict=True)]
    columns = columns or [[] for _ in header]
    is_number = [any(map(_is_number, column)) for column in columns]
    shown = [_shown(column) for column in columns]
    is_long = any(len(text) > _LONG_TEXT for column in shown for text in column)
    return _template().table(
        list(zip(header, is_number, (x in minor for x in header), strict=True)),
        [
            list(zip(texts, row, strict=True))
            for texts, row in zip(zip(*shown, strict=True), rows, strict=True)
        ],
        as_lists or (is_long and len(header) > 2),
    )


def _shown(column: Sequence[Any]) -> list[str | Markup]:
    """Returns the texts of a column, all numbers with the same decimals."""
    values = [x["value"] if isinstance(x, Mapping) else x for x in column]
    floats = [x for x in values if _is_number(x) and not _is_integer(x)]
    decimals = _decimals(floats)
    return [
        _number(x, decimals) if _is_number(x) else escape(x) for x in values
    ]


def _decimals(values: Sequence[float]) -> int | None:
    """Returns how many decimals to show; None shows three significant digits.

    A column of large and small numbers has enough decimals for the small ones.
    """
    magnitudes = [abs(x) for x in values if math.isfinite(x) and x]
    if magnitudes and max(magnitudes) < _SMALL:
        return None
    is_mixed = magnitudes and max(magnitudes) > 100 * min(magnitudes)
    return 3 if is_mixed or not magnitudes or max(magnitudes) < 10 else 2


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral)


def _is_number(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, numbers.Number) and not isinstance(value, bool)


def _number(value: Any, decimals: int | None) -> str:
    if _is_integer(value):
        return f"{value:,}"
    return f"{value:.3g}" if decimals is None else f"{value:,.{decimals}f}"


def capitalized(text: str) -> str:
    """Returns the text with a capital first letter and all else as it is."""
    return text[:1].upper() + text[1:]


def heat(value: float, fraction: float) -> dict[str, float]:
    """Returns a cell whose color grows with `fraction`, from 0 to 1."""
    shown = fraction if math.isfinite(fraction) else 0.0
    return {"value": value, "fraction": shown}


def heat_map(
    corner: str, names: Sequence[str], counts: Sequence[Sequence[int]]
) -> Markup:
    """Returns true (rows) by predicted classes, colored by parts of a row.

    Args:
      corner: what the rows are, such as "true label".
      names: names of the C classes.
      counts: int [C, C].
    """
    rows = [
        [(f"{n:,}", heat(n, n / max(sum(row), 1))) for n in row]
        for row in counts
    ]
    return _template().heat_map(corner, names, rows)


def length_groups(
    lengths: Sequence[int] | np.ndarray, most: int
) -> list[tuple[str, np.ndarray]]:
    """Divides items into groups of similar length and about equal size.

    Args:
      lengths: int [N]; items of the same length are in the same group.
      most: number of groups.

    Returns:
      The shortest and the longest length of each group, as text, and the
      indices of its items.
    """
    lengths = np.asarray(lengths)
    fractions = np.linspace(0, 1, most + 1)[1:-1]
    bounds = np.unique(np.quantile(lengths, fractions, method="lower"))
    groups = np.searchsorted(bounds, lengths)
    named_groups = []
    for number in np.unique(groups):
        (chosen,) = np.nonzero(groups == number)
        low, high = lengths[chosen].min(), lengths[chosen].max()
        name = f"{low}" if low == high else f"{low}\u2013{high}"
        named_groups.append((name, chosen))
    return named_groups


def highlight(text: str, spans: Sequence[Span]) -> Markup:
    """Returns a text with marked spans, which must not overlap."""
    parts, at = [], 0
    for start, end, kind, label in sorted(spans):
        look = f'class="{kind}"'
        if isinstance(kind, int):
            look = f'class="type" style="--hue:{kind}"'
        note = Markup("<sub>{}</sub>").format(label) if label else ""
        mark = Markup(f"<mark {look}>{{}}{{}}</mark>")
        parts += [escape(text[at:start]), mark.format(text[start:end], note)]
        at = end
    return Markup("").join([*parts, escape(text[at:])])


def items(paragraphs: Iterable[Sequence[Markup | str]]) -> Markup:
    """Returns a box with paragraphs for each item; "None." without items."""
    boxes = [
        Markup('<div class="item">{}</div>').format(
            Markup("").join(Markup("<p>{}</p>").format(x) for x in item)
        )
        for item in paragraphs
    ]
    return Markup("\n").join(boxes) or Markup("<p>None.</p>")


def flags(given: Mapping[str, Any], others: Mapping[str, Any]) -> Markup:
    """Returns a table of the given flags; the table of the others is folded."""
    header = ["flag", "value"]
    shown = table(header, [[k, str(v)] for k, v in given.items()])
    if not others:
        return shown
    rest = table(header, [[k, str(v)] for k, v in others.items()])
    title = f"{len(others)} flags with their default values"
    return shown + _template().folded(title, rest)


def write(
    path: str,
    title: str,
    sections: Sequence[Section],
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Writes the page, atomically; `facts` are shown below its title."""
    shown = {name: _shown([value])[0] for name, value in (facts or {}).items()}
    page = _template().page(title, shown, sections)
    atomic.write_text(path, str(page))


@functools.cache
def _template() -> Any:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.dirname(__file__)),
        autoescape=True,
    )
    return environment.get_template("report.html").module
