"""Proves that a report is complete, self-contained and escapes what it shows.

python -m pytest tests/jobs/report_test.py
"""

import json
import xml.etree.ElementTree as ElementTree

from jobs import report
from tasks.pretraining import pretraining_job

LINES = [
    {"step": 10, "train/loss": 3.0},
    {"step": 20, "train/loss": 2.0, "eval/loss": 2.5},
]


def test_curves_are_one_svg_and_leave_out_what_nobody_logged():
    panels = [report.Panel("Loss", ["train/loss", "eval/loss"])]
    unknown = report.Panel("F1", ["eval/f1"])
    drawn = report.curves(LINES, [*panels, unknown])
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert drawn == report.curves(LINES, panels)


def test_tables_escape_text_and_round_numbers():
    text = report.table(["a<b"], [["<script>"], [0.123456], [7], [True]])
    assert "a&lt;b" in text and "&lt;script&gt;" in text
    assert '<td class="number">0.1235</td>' in text
    assert '<td class="number">7</td>' in text
    assert "<td>True</td>" in text


def test_a_pretraining_job_needs_nothing_from_elsewhere(tmp_path):
    text = "".join(json.dumps(line) + "\n" for line in LINES)
    (tmp_path / "metrics.jsonl").write_text(text)
    pretraining_job.write_report(str(tmp_path), {"learning_rate": 1e-4})
    page = (tmp_path / "report.html").read_text()
    assert "learning_rate" in page and "<svg" in page
    assert (
        "<script" not in page and 'src="' not in page and "@import" not in page
    )
    assert [path.name for path in tmp_path.glob("*.tmp")] == []


def test_a_run_without_metrics_still_gets_its_report(tmp_path):
    pretraining_job.write_report(str(tmp_path), {})
    assert "No metrics" in (tmp_path / "report.html").read_text()
