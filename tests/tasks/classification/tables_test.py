"""Tests of the files of sentence tasks: rows become examples.

python -m pytest tests/tasks/classification/tables_test.py
"""

import json

import pytest

from finetuning import task as tasks
from foundation import errors
from tasks.classification import label_kinds, tables
from tasks.classification.tables import Sentence, Table

# Task -> the text of a file, its split, and the examples in it.
FILES = {
    "cola": (
        "gj04\t1\t\tOur friends won't buy.\ngj04\t0\t*\t\"One\n",
        "train",
        [("0", "Our friends won't buy.", (), "1"), ("1", '"One', (), "0")],
    ),
    "cola of the test set": (
        "index\tsentence\n0\tBill whistled.\n",
        "test",
        [("0", "Bill whistled.", (), None)],
    ),
    "sst-2": (
        'sentence\tlabel\n"hide \t0\na\tb\n',
        "train",
        [("0", '"hide ', (), "0"), ("1", "a", (), "b")],
    ),
    "mrpc": (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\ta b\tc\n",
        "dev",
        [("0", "a b", ("c",), "1")],
    ),
    "sts-b": (
        "index\tgenre\tsentence1\tsentence2\tscore\n5\tmain\ta\tb\t3.800\n",
        "train",
        [("5", "a", ("b",), "3.800")],
    ),
    "qqp": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        "4\t1\t2\twho\twhom\t1\n5\t1\t2\tcut\n6\t1\t2\ta\tb\t0\n",
        "train",
        [("4", "who", ("whom",), "1"), ("6", "a", ("b",), "0")],
    ),
    "mnli": (
        "index\tsentence1\tsentence2\tlabel1\tgold_label\n9\ta\tb\tx\tneutral\n",
        "dev_mismatched",
        [("9", "a", ("b",), "neutral")],
    ),
    "xnli": (
        "premise\thypo\tlabel\nP\tH\tcontradictory\n",
        "train",
        [("0", "P", ("H",), "contradiction")],
    ),
    "swag": (
        ",sent1,sent2,ending0,ending1,ending2,ending3,label\n"
        '7,"He, too.",He,ran.,sat.,ate.,,2\n',
        "train",
        [("7", "He, too.", ("He ran.", "He sat.", "He ate.", "He"), "2")],
    ),
    "boolq": (
        json.dumps({"question": "q", "passage": "p", "answer": True}) + "\n",
        "train",
        [("0", "q", ("p",), "true")],
    ),
    "boolq of SuperGLUE": (
        json.dumps({"question": "q", "passage": "p", "label": False, "idx": 3}),
        "train",
        [("3", "q", ("p",), "false")],
    ),
    "copa": (
        '{"premise": "It rained.", "question": "cause", "choice1": "a",'
        ' "choice2": "b", "label": 1, "idx": 4}\n',
        "train",
        [("4", "It rained.", ("because a", "because b"), "1")],
    ),
    "wic": (
        '{"word": "bed", "sentence1": "a", "sentence2": "b", "label": true}\n',
        "train",
        [("0", "bed: a", ("b",), "true")],
    ),
}


def write(folder, text, name="file"):
    path = folder / name
    path.write_text(text)
    return [str(path)]


@pytest.mark.parametrize("name", FILES)
def test_released_files_become_examples(tmp_path, name):
    text, split, expected = FILES[name]
    table = tables.TASKS[name.partition(" ")[0]]
    found = list(table.read(write(tmp_path, text), split))
    assert [example[1:] for example in found] == expected


def test_an_example_names_its_line(tmp_path):
    paths = write(tmp_path, "sentence\tlabel\na\t0\n\nb\t1\n")
    found = tables.TASKS["sst-2"].read(paths, "train")
    assert [x.where for x in found] == [f"{paths[0]}:2", f"{paths[0]}:4"]


def test_rows_of_a_language_are_read(tmp_path):
    head = "language\tgold_label\tsentence1\tsentence2\n"
    paths = write(tmp_path, f"{head}de\tneutral\tA\tB\nfr\tneutral\tC\tD\n")
    table = tables.TASKS["xnli"]
    table = Table(**{**vars(table), "only": {"language": "fr"}})
    assert [x.text for x in table.read(paths, "dev")] == ["C"]


@pytest.mark.parametrize(
    ("table", "text", "parts"),
    [
        (
            tables.TASKS["mrpc"],
            "a\tb\n1\t2\n",
            ["file:2", "'#1 String'", "'a'"],
        ),
        (
            tables.TASKS["sst-2"],
            "sentence\tlabel\na\n",
            ["file:2", "1 columns"],
        ),
        (tables.TASKS["sst-2"], "sentence\na\n", ["'label'", "'sentence'"]),
        (Table(form="jsonl", text="t"), '{"t": [1], "label": 1}', ["'t'"]),
        (
            tables.TASKS["copa"],
            '{"premise": "", "question": "why", "choice1": "", "choice2": ""}',
            ["'why'", "cause"],
        ),
        (
            Table(form="csv", text="t", flags=["a", "b"]),
            "t,a,b\nx,1,2\n",
            ["file:2", "'b'", "'2'", "0 or 1"],
        ),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, table, text, parts):
    with pytest.raises(errors.InputError) as caught:
        list(table.read(write(tmp_path, text), "train"))
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value", "label"),
    [
        (label_kinds.OneLabel, "1.0", "1"),
        (label_kinds.OneLabel, 1.0, "1"),
        (label_kinds.OneLabel, " yes ", "yes"),
        (label_kinds.OneLabel, ["yes"], "yes"),
        (label_kinds.OneLabel, ["yes", "no"], ("yes", "no")),
        (label_kinds.OneLabel, True, "true"),
        (label_kinds.AnyLabels, "a, b,", ("a", "b")),
        (label_kinds.AnyLabels, ["a"], ("a",)),
        (label_kinds.AnyLabels, [], ()),
        (label_kinds.AnyLabels, "", ()),
    ],
)
def test_labels_have_one_spelling(tmp_path, kind, value, label):
    row = json.dumps({"text": "x", "label": value})
    table = Table(form="jsonl", text="text", labels=None, kind=kind)
    (found,) = table.read(write(tmp_path, row), "train")
    assert found.label == label


def test_columns_of_0_and_1_are_labels(tmp_path):
    table = Table(
        form="csv",
        text="text",
        flags=["rude", "spam"],
        kind=label_kinds.AnyLabels,
    )
    paths = write(tmp_path, "text,rude,spam\na,1,0\nb,0.0,true\nc,0,0\n")
    labels = [x.label for x in table.read(paths, "train")]
    assert labels == [("rude",), ("spam",), ()]
    paths = write(tmp_path, "text\na\n")
    assert [x.label for x in table.read(paths, "test")] == [None]


def divided(texts, fraction, seed):
    sentences = [Sentence(str(i), str(i), text) for i, text in enumerate(texts)]
    examples = tasks.Examples("t", lambda: iter(sentences))
    parts = tables.divide(examples, fraction, seed)
    return [[x.text for x in part] for part in parts]


def test_a_set_is_divided_by_its_texts():
    texts = [f"text {i}" for i in range(100)]
    train, dev = divided(texts, 0.2, 1)
    assert (len(train), len(dev)) == (80, 20)
    assert sorted(train + dev) == sorted(texts)
    assert divided(texts, 0.2, 1) == [train, dev]
    assert divided(texts, 0.2, 2)[1] != dev
    # The golden choice: runs that were begun continue with the same sets.
    assert dev[:4] == GOLDEN
    # Rows that are added do not move others; equal texts stay together.
    again = [f"  TEXT  {i}" for i in range(100)]
    held_out = divided(texts + again, 0.2, 1)[1]
    words = {" ".join(x.lower().split()) for x in held_out}
    assert words == {*dev} and len(held_out) == 40


GOLDEN = ["text 4", "text 9", "text 13", "text 25"]


def test_released_files_are_found_in_folders_and_compressed(tmp_path):
    (tmp_path / "MNLI").mkdir()
    path = tmp_path / "MNLI" / "dev_matched.tsv.gz"
    path.write_bytes(b"")
    find = tables.find_released
    mnli = tables.TASKS["mnli"]
    assert find(mnli, "dev", str(tmp_path), "") == str(path)
    assert find(mnli, "train", str(tmp_path), "") is None
