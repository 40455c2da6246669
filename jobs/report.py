"""Builds report.html: one page about a run that needs no network.

A report is a list of sections; each task adds its own:

    report.write(path, "Pre-training", [
        report.Section("Learning curves", report.curves(lines, PANELS)),
        report.Section("Held out", report.table(["step", "loss"], rows)),
    ])
"""

import contextlib
import html
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure

from foundation import file_system

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff;
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .8rem; border-bottom: 1px solid #ddd;
         text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; }
svg { max-width: 100%; height: auto; }
"""
_MAX_POINTS = 1000  # More would only make the file larger.


class Section(NamedTuple):
    """A heading and HTML that is already escaped."""

    title: str
    body: str


class Panel(NamedTuple):
    """One plot: its title and the metrics that it draws."""

    title: str
    metrics: Sequence[str]


def read_metrics(path: str) -> list[dict[str, float]]:
    """Reads metrics.jsonl; [] if it does not exist. Skips incomplete lines."""
    if not file_system.exists(path):
        return []
    found = []
    for line in file_system.read_text(path).splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def curves(
    lines: Sequence[Mapping[str, float]], panels: Sequence[Panel]
) -> str:
    """Draws metrics over steps as an SVG, panels beside each other.

    Args:
      lines: of metrics.jsonl; a metric without values is not drawn.
      panels: the plots.
    """
    shown = [
        panel
        for panel in panels
        if any(name in line for line in lines for name in panel.metrics)
    ]
    if not shown:
        return "<p>No metrics were logged.</p>"
    figure = Figure(figsize=(4.6 * len(shown), 3.2), layout="constrained")
    for axes, panel in zip(
        figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True
    ):
        for name in panel.metrics:
            points = [(x["step"], x[name]) for x in lines if name in x]
            points = points[:: max(1, len(points) // _MAX_POINTS)]
            if points:
                marker = "o" if name.startswith("eval/") else None
                axes.plot(
                    *zip(*points, strict=True),
                    label=name,
                    marker=marker,
                    markersize=3,
                )
        axes.set_title(panel.title, fontsize=10)
        axes.set_xlabel("step", fontsize=9)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    return svg(figure)


def svg(figure: Figure) -> str:
    """Returns a figure as an <svg> element, the same bytes every time."""
    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "report"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns an HTML table; numbers are rounded and right-aligned."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(_cell(value) for value in row) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def write(path: str, title: str, sections: Sequence[Section]) -> None:
    """Writes the page, atomically."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>",
        f"<body><h1>{html.escape(title)}</h1>",
        *(f"<h2>{html.escape(s.title)}</h2>{s.body}" for s in sections),
        "</body></html>",
    ]
    file_system.write_text(path, "\n".join(parts) + "\n")


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"<td>{html.escape(str(value))}</td>"
    text = str(value) if isinstance(value, int) else f"{value:.4g}"
    return f'<td class="number">{text}</td>'
