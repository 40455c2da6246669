"""Proves that a report is complete, self-contained and escapes what it shows.

python -m pytest tests/jobs/report_test.py
"""

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

from jobs import report
from tasks.pretraining import pretraining_report

LINES = [
    {"step": 10, "train/loss": 3.0},
    {"step": 20, "train/loss": 2.0, "eval/loss": 2.5},
]


@pytest.fixture(scope="module", autouse=True)
def shared_charts():
    """Every chart is drawn here."""


def _ticks(drawn):
    """The number of ticks, which are drawn by <use>, as markers are."""
    return len(re.findall(r'<g id="[xy]tick_', drawn))


def test_curves_are_svgs_and_leave_out_what_nobody_logged():
    panels = [report.Panel("Loss", ["train/loss", "eval/loss"])]
    unknown = report.Panel("F1", ["eval/f1"])
    drawn = report.curves(LINES, [*panels, unknown])
    (figure,) = ElementTree.fromstring(drawn)
    assert figure[0].tag.endswith("svg")
    assert drawn == report.curves(LINES, panels)


def test_one_curve_has_no_legend_and_a_single_point_has_a_marker():
    one = report.curves(LINES, [report.Panel("Loss", ["train/loss"])])
    both = ["train/loss", "eval/loss"]
    two = report.curves(LINES, [report.Panel("Loss", both)])
    assert 'id="legend_1"' not in one and 'id="legend_1"' in two
    line = report.Panel("Loss", ["train/loss"])
    single = report.curves(LINES[:1], [line])
    assert single.count("<use ") == one.count("<use ") + 1 - (
        _ticks(one) - _ticks(single)
    )
    # A value that is no number is no point.
    nan = [{"step": 5, "train/loss": float("nan")}, *LINES[:1]]
    assert report.curves(nan, [line]) == single


def test_a_page_fits_a_phone_and_follows_the_dark_mode(tmp_path):
    path = str(tmp_path / "report.html")
    table = report.table(["a"] * 30, [[1] * 30])
    report.write(path, "A <run>", [report.Section("T", table)], {"steps": 1200})
    page = (tmp_path / "report.html").read_text()
    assert '<meta name="viewport" content="width=device-width' in page
    assert "prefers-color-scheme: dark" in page
    assert '<div class="scroll"><table>' in page
    assert "<h1>A &lt;run&gt;</h1>" in page
    assert "<b>1,200</b><span>steps</span>" in page


def test_flags_that_were_not_given_are_folded():
    shown = report.flags({"seed": 7}, {"use_tpu": False, "<x>": None})
    before, folded = shown.split("<details>")
    assert "seed" in before and "use_tpu" not in before
    assert "2 flags with their default values" in folded
    assert "use_tpu" in folded and "&lt;x&gt;" in folded
    assert "<details>" not in report.flags({"seed": 7}, {})


def test_marked_spans_keep_the_text():
    spans = [report.Span(4, 7, "bad", "right <one>"), report.Span(0, 1, 40)]
    assert report.highlight("a & <b> c", spans) == (
        '<mark class="type" style="--hue:40">a</mark> &amp; '
        '<mark class="bad">&lt;b&gt;<sub>right &lt;one&gt;</sub></mark> c'
    )


def test_cells_of_a_heat_map_show_the_part_of_their_row():
    shown = report.heat_map("true", ["x", "y"], [[3, 1], [0, 0]])
    found = re.findall(r"--heat:([\d.]+)\">(\d+)<", shown)
    assert found == [("0.750", "3"), ("0.250", "1"), *[("0.000", "0")] * 2]


def cells(table):
    """The texts of a table's cells, row by row."""
    found = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    return [re.findall(r"<td.*?>(.*?)</td>", row) for row in found[1:]]


def test_numbers_of_a_column_have_the_same_decimals():
    rows = [[0.75, 5e-5, 12.5, 0.5, 3], [1.0, 1e-4, 100.0, 150.0, 1200]]
    assert cells(report.table(list("abcde"), rows)) == [
        ["0.750", "5e-05", "12.50", "0.500", "3"],
        ["1.000", "0.0001", "100.00", "150.000", "1,200"],
    ]
    heated = [[report.heat(1.0, 1.0)], [report.heat(0.5, 0.5)], [""]]
    assert cells(report.table(["f1"], heated)) == [["1.000"], ["0.500"], [""]]


def test_a_phone_lists_rows_with_long_texts_and_omits_minor_columns():
    rows = [["a.csv:7", 0.5, "x" * 50]]
    text = report.table(["line", "loss", "text"], rows, minor=["loss"])
    assert '<table class="long">' in text
    assert '<td class="text" data-column="text">xxx' in text
    assert '<td class="number" data-column="loss" data-minor>0.500' in text
    assert '<th class="number" data-minor>loss</th>' in text
    assert '"long"' not in report.table(["flag", "value"], [["a", "x" * 50]])
    assert '"long"' in report.table(["a", "b"], [[1, 2]], as_lists=True)


def test_length_groups_do_not_overlap():
    lengths = [16, 11, 16, 106, 16, 18, 12, 30, 16]
    groups = report.length_groups(lengths, 3)
    assert [name for name, _ in groups] == ["11\u201316", "18\u2013106"]
    found = [sorted(members.tolist()) for _, members in groups]
    assert found == [[0, 1, 2, 4, 6, 8], [3, 5, 7]]
    ((name, members),) = report.length_groups([106, 106], 5)
    assert name == "106" and members.tolist() == [0, 1]


def test_the_ticks_of_steps_are_integers():
    lines = [{"step": step, "train/loss": 1.0} for step in (1, 2, 3)]
    drawn = report.curves(lines, [report.Panel("Loss", ["train/loss"])])
    ticks = re.findall(r'id="text_\d+">.*?<text[^>]*>(.*?)</text>', drawn, re.S)
    assert ticks[:3] == ["1", "2", "3"]


def test_a_single_curve_is_named_in_the_title():
    both = ["train/f1", "eval/f1"]
    lines = [{"step": 5, "eval/f1": 0.5}]
    assert "F1, held out</text>" in report.curves(
        lines, [report.Panel("F1", both)]
    )
    lines = [{"step": 5, "train/start_accuracy": 0.5, "train/end_accuracy": 1}]
    names = ["train/start_accuracy", "train/end_accuracy"]
    drawn = report.curves(lines, [report.Panel("Accuracy", names)])
    assert "training end accuracy</text>" in drawn


def test_tables_escape_text_and_round_numbers():
    text = report.table(["a<b"], [["<script>"], [0.123456], [7], [True]])
    assert "a&lt;b" in text and "&lt;script&gt;" in text
    assert '<td class="number">0.123</td>' in text
    assert '<td class="number">7</td>' in text
    assert "<td>True</td>" in text


def test_a_pretraining_job_needs_nothing_from_elsewhere(tmp_path):
    text = "".join(json.dumps(line) + "\n" for line in LINES)
    (tmp_path / "metrics.jsonl").write_text(text)
    pretraining_report.write(
        str(tmp_path),
        flags=report.flags({"learning_rate": 1e-4}, {}),
        results=pretraining_report.Results(),
    )
    page = (tmp_path / "report.html").read_text()
    assert "learning_rate" in page and "<svg" in page
    assert (
        "<script" not in page and 'src="' not in page and "@import" not in page
    )
    assert [path.name for path in tmp_path.glob("*.tmp")] == []


def test_a_run_without_metrics_still_gets_its_report(tmp_path):
    pretraining_report.write(
        str(tmp_path),
        flags=report.flags({}, {}),
        results=pretraining_report.Results(),
    )
    assert "No metrics" in (tmp_path / "report.html").read_text()
