"""Proves that a file of GLUE is read as what it is, whatever flag names it.

python -m pytest tests/tasks/classification/file_layouts_test.py
"""

import pytest
from classifier_runs import read_split

from foundation import errors

PAIR = "index\tquestion\tsentence"
MNLI = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\t"
    "sentence2_binary_parse\tsentence1_parse\tsentence2_parse\tsentence1\t"
    "sentence2"
)
MRPC = "#1 ID\t#2 ID\t#1 String\t#2 String"
STSB = (
    "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\t"
    "sentence2"
)
FILL = "-\t" * 6
# Task: a labeled file, a test set. Both say A. and, where there are pairs, B.
FILES = {
    "cola": ("g\t1\t\tA.\n", "index\tsentence\n7\tA.\n"),
    "sst-2": ("sentence\tlabel\nA.\t1\n", "index\tsentence\n7\tA.\n"),
    "mrpc": (
        f"\ufeffQuality\t{MRPC}\r\n1\t8\t9\tA.\tB.\r\n",
        f"index\t{MRPC}\n7\t8\t9\tA.\tB.\n",
    ),
    "sts-b": (
        f"{STSB}\tscore\n7\t{FILL}A.\tB.\t3.5\n",
        f"{STSB}\n7\t{FILL}A.\tB.\n",
    ),
    "qqp": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        "7\t8\t9\tA.\tB.\t1\n",
        "id\tquestion1\tquestion2\n7\tA.\tB.\n",
    ),
    "mnli": (
        f"{MNLI}\tlabel1\tlabel2\tgold_label\n"
        f"7\t-\t{FILL}A.\tB.\tneutral\tneutral\tentailment\n",
        f"{MNLI}\n7\t-\t{FILL}A.\tB.\n",
    ),
    "qnli": (f"{PAIR}\tlabel\n7\tA.\tB.\tentailment\n", f"{PAIR}\n7\tA.\tB.\n"),
    "wnli": (
        "index\tsentence1\tsentence2\tlabel\n7\tA.\tB.\t1\n",
        "index\tsentence1\tsentence2\n7\tA.\tB.\n",
    ),
}
NUMBERED = ("cola", "sst-2", "mrpc")  # Labeled, they have no names.


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode())
    return str(path)


@pytest.mark.parametrize("is_released", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_a_labeled_file_can_be_predicted(tmp_path, name, is_released):
    path = write(tmp_path, "test.tsv", FILES[name][0])
    if name == "mnli" and is_released:
        path = write(tmp_path, "test_matched.tsv", FILES[name][0])
    file = None if is_released else path
    found = read_split(name, "test", str(tmp_path), file=file)
    assert found.path == path
    assert found.first == ["A."]
    assert found.second == (["B."] if name not in ("cola", "sst-2") else None)
    assert found.labels is None
    assert found.guids == (["0"] if name in NUMBERED else ["7"])


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_the_wanted_layout_is_read_as_ever(tmp_path, name):
    labeled = write(tmp_path, "a.tsv", FILES[name][0])
    test = write(tmp_path, "b.tsv", FILES[name][1])
    for split in ("train", "dev"):
        found = read_split(name, split, "", file=labeled)
        assert (found.first, len(found.labels)) == (["A."], 1)
    found = read_split(name, "test", "", file=test)
    assert (found.first, found.guids) == (["A."], ["7"])


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize("name", FILES)
def test_a_test_set_gives_no_labels_to_learn_from(tmp_path, name, split):
    path = write(tmp_path, "x.tsv", FILES[name][1])
    with pytest.raises(errors.InputError) as refusal:
        read_split(name, split, "", file=path)
    begins = ", ".join(FILES[name][1].split("\n")[0].split("\t"))
    assert str(refusal.value).startswith(f"{path}: a test set")
    assert str(refusal.value).endswith(f"it begins with: {begins}")


@pytest.mark.parametrize("split", ["train", "dev", "test"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_task_is_refused(tmp_path, name, split):
    path = write(tmp_path, "x.tsv", "review\tstars\tid\tday\tuser\tcity\nA" * 9)
    with pytest.raises(errors.InputError) as refusal:
        read_split(name, split, "", file=path)
    said = str(refusal.value)
    wanted = {"mrpc": "Quality, #1 ID", "sst-2": "sentence, label"}
    assert said.startswith(f"{path}: none of the task's files")
    assert wanted.get(name, "") in said
    assert "it begins with: review, stars, id, day, user, city" in said
    assert "\n" not in said


def test_a_released_name_may_have_a_header_of_its_own(tmp_path, caplog):
    write(tmp_path, "train.tsv", "mine\tclass\nA.\t1\n")
    with caplog.at_level("WARNING", logger="absl"):
        assert read_split("sst-2", "train", str(tmp_path)).labels == ["1"]
    assert "columns are read by number; expected: sentence, lab" in caplog.text


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("sst-2", "sentence\tgold"),
        ("rte", "id\tsentence1\tsentence2\tlabel"),
        ("mrpc", f"label\t{MRPC}"),
    ],
)
def test_other_names_at_the_right_places_are_read(tmp_path, name, header):
    width = header.count("\t")
    write(tmp_path, "train.tsv", header + "\n" + "1\t" * width + "entailment\n")
    assert len(read_split(name, "train", str(tmp_path))) == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("sst-2", "gj04\t1\t\tOur friends left.\n", "has no header: its first"),
        (
            "mrpc",
            MRPC.replace("ID", "N") + "\tQuality\n",
            "'#1 String' is another column",
        ),
        ("sst-2", "label\tsentence\n1\tA.\n", "'sentence' is another column"),
        ("sts-b", "0\tg\tf\ty\to\ts\ts\tUno.\tDue.\t3.8\n", "has no header"),
        ("xnli", "Eins.\tZwei.\tcontradictory\n", "has no header"),
    ],
    ids=["another task's", "shifted", "swapped", "values", "aliases"],
)
def test_a_released_name_may_not_hold_something_else(
    tmp_path, name, text, message
):
    write(tmp_path, "train.tsv", text * 2)
    write(tmp_path, "multinli/multinli.train.zh.tsv", text * 2)
    with pytest.raises(errors.InputError, match=message):
        read_split(name, "train", str(tmp_path))


def test_a_file_of_xnli_is_known_by_its_header(tmp_path):
    head = MNLI.replace(
        "index\tpromptID\tpairID\tgenre", "language\tgold_label"
    )
    rows = "".join(
        f"{x}\tneutral\t-\t-\t-\t-\tA\tB {x}\n" for x in ("de", "fr")
    )
    path = write(tmp_path, "dev", f"{head}\n{rows}")
    for split in ("train", "dev", "test"):
        found = read_split("xnli", split, "", file=path, language="fr")
        assert (found.second, found.labels) == (["B fr"], ["neutral"])


CORPUS = f"\ufeffQuality\t{MRPC}\r\n1\t1\t2\tA\tB\r\n0\t3\t4\tC\tD\r\n"


@pytest.mark.parametrize("with_data_dir", [False, True])
def test_a_named_paraphrase_corpus_is_not_trained_on_whole(
    tmp_path, with_data_dir
):
    path = write(tmp_path, "in/msr_paraphrase_train.txt", CORPUS)
    write(
        tmp_path,
        "ids/dev_ids.tsv" if with_data_dir else "in/dev_ids.tsv",
        "3\t4\n",
    )
    data_dir = str(tmp_path / "ids") if with_data_dir else ""
    train = read_split("mrpc", "train", data_dir, file=path)
    dev = read_split("mrpc", "dev", data_dir, file=path)
    assert (train.first, dev.first) == (["A"], ["C"])
    test = read_split("mrpc", "test", data_dir, file=path)
    assert (test.first, test.guids) == (["A", "C"], ["0", "1"])


def test_the_paraphrase_corpus_needs_the_ids_of_its_dev_set(tmp_path):
    path = write(tmp_path, "msr_paraphrase_train.txt", CORPUS)
    message = f"{path}: no dev_ids.tsv beside it"
    with pytest.raises(errors.InputError, match=message):
        read_split("mrpc", "train", "", file=path)


@pytest.mark.parametrize(
    ("name", "file", "count"),
    [
        ("cola", "CoLA/dev.tsv", 1043),
        ("sst-2", "SST-2/dev.tsv", 872),
        ("mrpc", "MRPC/dev.tsv", 408),
        ("mrpc", "MRPC/msr_paraphrase_test.txt", 1725),
        ("sts-b", "STS-B/dev.tsv", 1500),
        ("wnli", "WNLI/dev.tsv", 71),
        ("qnli", "QNLI/dev.tsv", 5463),
        ("mnli", "MNLI/dev_matched.subset.tsv", 1000),
    ],
)
def test_official_dev_sets_are_predicted_whole(shared_data, name, file, count):
    path = str(shared_data / "glue" / file)
    dev = read_split(name, "dev", "", file=path)
    test = read_split(name, "test", "", file=path)
    assert len(test) == count
    assert (test.first, test.second) == (dev.first, dev.second)
    assert test.labels is None


@pytest.mark.parametrize("name", [x for x in FILES if x != "cola"])
def test_a_repeated_header_is_not_read_as_an_example(tmp_path, name):
    path = write(tmp_path, "x.tsv", FILES[name][0] * 2)
    with pytest.raises(errors.InputError, match=f"{path}:3: the header again"):
        read_split(name, "train", "", file=path)
