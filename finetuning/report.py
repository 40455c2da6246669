"""Builds report.html: one page about a run that needs no network.

A report is a list of sections; each task adds its own:

    report.write(path, "Pre-training", [
        report.Section("Learning curves", report.curves(directory)),
        report.Section("Held out", report.table(["step", "loss"], rows)),
    ])

The HTML is in report.html beside this file, which escapes everything but the
bodies.
"""

import contextlib
import functools
import io
import json
import math
import numbers
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import cycler
import jinja2
import matplotlib
from markupsafe import Markup, escape
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from foundation import atomic, file_system
from training import metric_writer

_MAX_POINTS = 1000  # More would only make the file larger.
_LONG_TEXT = 40  # Characters of a cell.
_SMALL = 0.01  # A column of smaller numbers, such as learning rates.
# Text and axes get the color of the page's text, light or dark.
_INK = "#010203"
_COLORS = {"training": "#2f81f7", "held out": "#e8590c"}
_KINDS = {"train": "training", "eval": "held out"}
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "report",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "axes.prop_cycle": cycler.cycler(color=_COLORS.values()),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.titlesize": 11,
    "grid.alpha": 0.25,
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


def read_lines(path: str) -> Iterator[dict[str, Any]]:
    """Yields the objects of a file of JSON lines, without incomplete ones."""
    if file_system.exists(path):
        for line in file_system.read_text(path).splitlines():
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def curves(directory: str) -> Markup:
    """Draws the metrics of a run over its steps, each as an SVG.

    A metric of training and of held-out data is one drawing. `directory` has
    metrics.jsonl.
    """
    series: dict[str, dict[str, list[tuple[int, float]]]] = {}
    lines = read_lines(os.path.join(directory, metric_writer.METRICS))
    for line in lines:
        for name, value in line.items():
            kind, _, metric = name.partition("/")
            if metric and name not in _NOT_DRAWN and math.isfinite(value):
                points = series.setdefault(metric, {}).setdefault(kind, [])
                points.append((line["step"], value))
    if not series:
        return Markup("<p>No metrics were logged.</p>")
    return charts([_chart(name, kinds) for name, kinds in series.items()])


_NOT_DRAWN = {"train/seconds_per_step", "train/tokens_per_second"}


def _chart(metric: str, kinds: Mapping[str, Sequence[tuple]]) -> Markup:
    def draw(axes: Any) -> None:
        for kind, points in kinds.items():
            label = _KINDS.get(kind, kind)
            is_sparse = kind == "eval" or len(points) == 1
            axes.plot(
                *zip(*points[:: 1 + len(points) // _MAX_POINTS], strict=True),
                label=label,
                color=_COLORS.get(label),
                marker="o" if is_sparse else None,
                markersize=4,
            )
        axes.set_title(capitalized(metric_writer.name_in_words(metric)))
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.legend(fontsize=8, framealpha=0)

    return plot(draw)


def plot(draw: Callable[[Any], None]) -> Markup:
    """Returns a figure as an <svg> element, the same bytes every time.

    `draw` is called with the axes.
    """
    file = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(4.6, 3.1), layout="constrained")
        draw(figure.subplots())
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
) -> Markup:
    """Returns a table; numbers are right-aligned, with equal decimals.

    On a phone, a table with a column of long texts shows its rows as lists.

    Args:
      header: names of the columns.
      rows: texts, numbers and the results of `heat`; "" is an empty cell.
      minor: names of the columns that a phone does not show.
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
        is_long and len(header) > 2,
    )


def _shown(column: Sequence[Any]) -> list[str | Markup]:
    """Returns the texts of a column, all numbers with the same decimals."""
    values = [x["value"] if isinstance(x, Mapping) else x for x in column]
    floats = [
        x
        for x in values
        if _is_number(x) and not isinstance(x, numbers.Integral)
    ]
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


def _is_number(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, numbers.Number) and not isinstance(value, bool)


def _number(value: Any, decimals: int | None) -> str:
    if isinstance(value, numbers.Integral):
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
    return shown + _template().folded(f"{len(others)} other flags", rest)


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
