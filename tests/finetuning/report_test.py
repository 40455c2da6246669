"""Tests the parts of reports; the tests of the commands read whole ones.

python -m pytest tests/finetuning/report_test.py
"""

from finetuning import report


def test_the_text_around_marks_is_complete():
    spans = [report.Span(4, 5, "bad", "X"), report.Span(1, 3)]
    assert report.highlight("a<b&c.", spans) == (
        'a<mark class="neutral">&lt;b</mark>&amp;'
        '<mark class="bad">c<sub>X</sub></mark>.'
    )
