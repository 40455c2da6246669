"""Proves that all schemes mean the same spans, and conlleval's scores.

python -m pytest tests/tasks/ner/tag_spans_test.py
"""

import pytest

from tasks.ner import tag_spans

IOB1 = "I-PER I-PER O I-LOC B-LOC O I-ORG".split()
BIO2 = "B-PER I-PER O B-LOC B-LOC O B-ORG".split()
IOBES = "B-PER E-PER O S-LOC S-LOC O S-ORG".split()
BILOU = "B-PER L-PER O U-LOC U-LOC O U-ORG".split()
SPANS = [(0, 2, "PER"), (3, 4, "LOC"), (4, 5, "LOC"), (6, 7, "ORG")]
SCHEMES = {"iob1": IOB1, "bio2": BIO2, "iobes": IOBES}
# Worked by hand with conlleval's rules: phrases LOC 2, PER 1, ORG 1; found
# LOC 1 (right), PER 2 (one of them right), MISC 1.
TRUE = ["I-LOC O I-PER I-PER O".split(), "B-LOC O I-ORG".split()]
FOUND = ["I-LOC O I-PER I-PER O".split(), "I-PER O I-MISC".split()]
PRINTED = """\
processed 8 tokens with 4 phrases; found: 4 phrases; correct: 2.
accuracy:  75.00%; precision:  50.00%; recall:  50.00%; FB1:  50.00
              LOC: precision: 100.00%; recall:  50.00%; FB1:  66.67  1
             MISC: precision:   0.00%; recall:   0.00%; FB1:   0.00  1
              ORG: precision:   0.00%; recall:   0.00%; FB1:   0.00  0
              PER: precision:  50.00%; recall: 100.00%; FB1:  66.67  2
"""


@pytest.mark.parametrize("scheme", [*SCHEMES, "bilou"])
def test_every_scheme_means_the_same_spans(scheme):
    tags = SCHEMES.get(scheme, BILOU)
    assert tag_spans.spans(tags) == SPANS
    for other, expected in SCHEMES.items():
        assert tag_spans.convert_tags(tags, other) == expected


@pytest.mark.parametrize("scheme", [*SCHEMES, "bilou"])
def test_the_scheme_is_recognized(scheme):
    tags = SCHEMES.get(scheme, BILOU)
    expected = scheme if scheme in SCHEMES else "iobes"
    assert tag_spans.recognize([tags, ["O"]]) == expected


def test_bmes_is_iobes_with_another_letter():
    tags = "B-PER M-PER M-PER E-PER S-LOC".split()
    assert tag_spans.recognize([tags]) == "iobes"
    assert tag_spans.spans(tags) == [(0, 4, "PER"), (4, 5, "LOC")]
    converted = tag_spans.convert_tags(tags, "bio2")
    assert converted == "B-PER I-PER I-PER I-PER B-LOC".split()


def test_a_stray_tag_does_not_change_the_scheme():
    assert tag_spans.recognize([BIO2, ["O", "I-PER"]]) == "bio2"
    assert tag_spans.recognize([IOB1, ["O", "B-PER"]]) == "iob1"
    assert tag_spans.recognize([["I-PER"], ["O", "I-PER"]]) == "iob1"


def test_tags_without_prefix_are_plain_and_only_o_is_none():
    assert tag_spans.recognize([["NNP", "O", "VBZ"]]) == "plain"
    assert tag_spans.recognize([["O"], ["O"]]) == "bio2"
    assert tag_spans.recognize([]) == "bio2"


@pytest.mark.parametrize(
    "labels, scheme",
    [
        # No two persons are neighbors in eng.train, which so has no B-PER.
        (["O", "I-LOC", "I-PER", "B-LOC"], "iob1"),
        (["I-PER", "O"], "iob1"),
        (["O", "B-PER", "B-LOC", "I-PER"], "bio2"),
        (["O", "B-PER", "I-PER", "E-LOC"], "iobes"),
        (["O", "I-PER", "NNP"], "plain"),
        (["O"], "bio2"),
    ],
)
def test_the_scheme_of_labels_is_recognized(labels, scheme):
    assert tag_spans.scheme_of(labels) == scheme


@pytest.mark.parametrize(
    ("tags", "scheme", "spans"),
    [
        ("O B I O B", tag_spans.BIO2, [(1, 3), (4, 5)]),
        ("O I I O B", tag_spans.IOB1, [(1, 3), (4, 5)]),
        ("B M E S B E", tag_spans.IOBES, [(0, 3), (3, 4), (4, 6)]),
    ],
)
def test_prefixes_alone_mark_spans_of_one_type(tags, scheme, spans):
    tags = tags.split()
    if scheme == tag_spans.BIO2:
        assert tag_spans.recognize([tags]) == scheme
    assert tag_spans.spans(tags) == [(*span, "_") for span in spans]
    converted = tag_spans.convert_tags(tags, tag_spans.BIO2)
    assert set(converted) <= {*tag_spans.labels(["_"], tag_spans.BIO2)}
    assert tag_spans.labels(["_"], tag_spans.BIO2) == ["O", "B", "I"]
    assert tag_spans.scheme_of(["O", "B", "I"]) == tag_spans.BIO2
    assert tag_spans.spans(converted) == tag_spans.spans(tags)
    assert tag_spans.score([tags], [tags]).total.f1 == 1


@pytest.mark.parametrize("tags", ["B X O", "S L", "NN B"])
def test_letters_among_other_tags_are_plain(tags):
    tags = tags.split()
    assert tag_spans.recognize([tags]) == tag_spans.PLAIN
    assert tag_spans.scheme_of(tags) == tag_spans.PLAIN


def test_the_text_is_conllevals():
    assert tag_spans.score(TRUE, FOUND).text() == PRINTED


def test_a_document_counts_as_a_right_word():
    scores = tag_spans.score(TRUE, FOUND, boundaries=2)
    assert scores.text().startswith("processed 10 tokens")
    assert scores.accuracy == 0.8


@pytest.mark.parametrize(
    "tags, expected",
    [
        ("I-A I-A", {(0, 2, "A")}),
        ("I-A B-A", {(0, 1, "A"), (1, 2, "A")}),
        ("I-A I-B", {(0, 1, "A"), (1, 2, "B")}),
        ("B-A O I-A", {(0, 1, "A"), (2, 3, "A")}),
        ("B-A I-A E-A O", {(0, 3, "A")}),
        ("E-A E-A", {(0, 1, "A"), (1, 2, "A")}),
        ("E-A I-A", {(0, 1, "A"), (1, 2, "A")}),
        ("O O", set()),
        ("I-a-b I-a-b", {(0, 2, "a-b")}),
    ],
    ids=lambda x: x.replace(" ", "_") if isinstance(x, str) else "",
)
def test_phrases_begin_and_end_where_conlleval_says(tags, expected):
    assert set(tag_spans.spans(tags.split())) == expected


def test_nothing_true_and_nothing_found_is_zero():
    scores = tag_spans.score([["O"]], [["O"]])
    assert scores.total.f1 == scores.total.precision == 0
    assert scores.accuracy == 1


def test_plain_tags_have_accuracy():
    scores = tag_spans.score(
        [["A", "B"], ["A"]], [["A", "A"], ["A"]], is_plain=True
    )
    values = scores.plain_values()
    assert values["accuracy"] == pytest.approx(2 / 3)
    assert values["f1_macro"] == pytest.approx(0.4)


def test_scores_of_parts_add_up():
    """Also of types that only one part has."""
    parts = [
        tag_spans.score([true], [found])
        for true, found in zip(TRUE, FOUND, strict=True)
    ]
    assert parts[0].plus(parts[1]) == tag_spans.score(TRUE, FOUND)
    assert tag_spans.Scores().plus(parts[0]).text() == parts[0].text()
