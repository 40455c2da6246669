"""Proves that the released files are read as they are, quirks and all.

python -m pytest tests/tasks/classification/sentence_files_test.py
"""

import bz2
import gzip
import io
import sys
import types

import pytest
from classifier_runs import read_split

from data import examples
from foundation import errors
from tasks.classification import sentence_tasks, settings
from weights import task_files

MNLI_HEAD = "index\tpromptID\tpairID\tgenre\ts1bp\ts2bp\ts1p\ts2p\tA\tB\t"


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_cola_has_no_header_but_in_its_test_set(tmp_path):
    write(tmp_path, "train.tsv", "gj04\t1\t\tOne.\ngj04\t0\t*\tTwo it.\n")
    write(tmp_path, "test.tsv", "index\tsentence\n0\tThree.\n")
    train = read_split("cola", "train", str(tmp_path))
    assert train.first == ["One.", "Two it."]
    assert train.labels == ["1", "0"]
    assert train.lines == [1, 2]
    test = read_split("cola", "test", str(tmp_path))
    assert (test.first, test.labels, test.guids) == (["Three."], None, ["0"])


def test_mrpc_begins_with_a_byte_order_mark_and_does_not_quote(tmp_path):
    head = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    text = head + '1\t10\t11\t"Quoted , he said\tIt \u2028 "is"\r\n'
    write(tmp_path, "train.tsv", text)
    train = read_split("mrpc", "train", str(tmp_path))
    assert train.first == ['"Quoted , he said']
    assert train.second == ['It \u2028 "is"']
    assert train.labels == ["1"]


def test_mrpc_is_read_from_the_paraphrase_corpus_too(tmp_path):
    head = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    rows = "1\t10\t11\ta\tb\n0\t12\t13\tc\td\n1\t14\t15\te\tf\n"
    write(tmp_path, "msr_paraphrase_train.txt", head + rows)
    write(tmp_path, "dev_ids.tsv", "12\t13\n")
    train = read_split("mrpc", "train", str(tmp_path))
    dev = read_split("mrpc", "dev", str(tmp_path))
    assert (train.first, train.lines) == (["a", "e"], [2, 4])
    assert (dev.first, dev.labels) == (["c"], ["0"])


@pytest.mark.parametrize("split", ["train", "dev"])
def test_ids_of_no_development_set_are_refused(tmp_path, split):
    head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    write(tmp_path, "msr_paraphrase_train.txt", head + "1\t10\t11\ta\tb\n")
    ids = write(tmp_path, "dev_ids.tsv", "10 11\n")
    with pytest.raises(errors.InputError, match=f"{ids}:1: one column, but a"):
        read_split("mrpc", split, str(tmp_path))
    write(tmp_path, "dev_ids.tsv", "12\t13\n\n")
    with pytest.raises(errors.InputError, match=f"{ids}: none of its pairs is"):
        read_split("mrpc", split, str(tmp_path))


def test_the_test_set_of_mrpc_is_read_from_the_paraphrase_corpus(tmp_path):
    head = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    with pytest.raises(errors.InputError, match="neither test.tsv nor msr_p"):
        read_split("mrpc", "test", str(tmp_path))
    rows = "1\t10\t11\ta\tb\r\n1\t12\t13\tc\td\r\n"
    write(tmp_path, "MRPC/msr_paraphrase_test.txt", head + rows)
    test = read_split("mrpc", "test", str(tmp_path))
    assert (test.first, test.second) == (["a", "c"], ["b", "d"])
    assert (test.guids, test.labels) == (["0", "1"], None)
    head = "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    write(tmp_path, "test.tsv", head + "5\t10\t11\tx\ty\n")
    assert read_split("mrpc", "test", str(tmp_path)).guids == ["5"]


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_cut_row_of_the_paraphrase_corpus_is_named(tmp_path, split):
    head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    rows = "1\t10\t11\ta\tb\n0\t12\n"
    path = write(tmp_path, "msr_paraphrase_train.txt", head + rows)
    write(tmp_path, "dev_ids.tsv", "10\t11\n")
    with pytest.raises(errors.InputError, match=f"{path}:3: 2 columns, but"):
        read_split("mrpc", split, str(tmp_path))


@pytest.mark.parametrize("votes", [1, 5])
def test_mnli_has_its_label_last_whatever_stands_before(tmp_path, votes):
    cells = ["7", *["-"] * 7, "A cat.", "A dog.", *["neutral"] * votes]
    head = MNLI_HEAD + "label\t" * votes + "gold_label\n"
    text = head + "\t".join([*cells, "contradiction"]) + "\n"
    write(tmp_path, "dev_matched.tsv", text)
    dev = read_split("mnli", "dev", str(tmp_path))
    assert (dev.first, dev.second) == (["A cat."], ["A dog."])
    assert (dev.labels, dev.guids) == (["contradiction"], ["7"])


def test_the_diagnostic_set_has_no_labels_to_evaluate(tmp_path):
    write(tmp_path, "diagnostic.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n")
    data = settings.Files(data_dir=str(tmp_path))
    task = sentence_tasks.open_task("ax", data)
    assert [row.first for row in task.read("test")] == ["a"]
    with pytest.raises(errors.InputError, match="a test set without labels"):
        list(task.read("test", is_labeled=True))


def test_mnli_without_a_label_column_is_not_taken_for_labeled(tmp_path):
    cells = ["7", *["-"] * 7, "A cat.", "A dog."]
    text = MNLI_HEAD + "\n" + "\t".join(cells) + "\n"
    write(tmp_path, "dev_matched.tsv", text)
    with pytest.raises(errors.InputError, match=r"dev_matched.tsv:2: 10 col"):
        read_split("mnli", "dev", str(tmp_path))


def test_mnli_cut_after_its_texts_gives_no_label_to_train_on(tmp_path):
    cells = ["7", *["-"] * 7, "A cat.", "A dog."]
    text = MNLI_HEAD.removesuffix("\t") + "\n" + "\t".join(cells) + "\n"
    write(tmp_path, "dev_matched.tsv", text)
    dev = read_split("mnli", "dev", str(tmp_path))
    with pytest.raises(errors.InputError, match="tsv:2: label 'A dog.' is no"):
        labels = sentence_tasks.TASKS["mnli"].labels
        examples.encode_labels(dev, examples.CLASSIFICATION, labels)


@pytest.mark.parametrize("width", [11, 12, 13, 14, 15, 17])
def test_a_vote_is_not_taken_for_the_gold_label_of_mnli(tmp_path, width):
    head = MNLI_HEAD + "\t".join(f"label{i}" for i in range(1, 6))
    complete = ["7", *["-"] * 7, "A cat.", "A dog.", *["neutral"] * 6]
    cut = (complete + ["neutral"])[:width]
    rows = [head + "\tgold_label", "\t".join(complete), "\t".join(cut), ""]
    path = write(tmp_path, "dev_matched.tsv", "\n".join(rows))
    message = f"{path}:3: {width} columns, but the header has 16"
    with pytest.raises(errors.InputError, match=message):
        read_split("mnli", "dev", str(tmp_path))


def test_both_dev_sets_of_mnli_and_compressed_files(tmp_path):
    cells = ["7", *["-"] * 7, "A", "B", "neutral", "neutral"]
    text = MNLI_HEAD + "label1\tgold_label\n" + "\t".join(cells) + "\n"
    for name, compress in (("gz", gzip.compress), ("bz2", bz2.compress)):
        file = f"{name}/MNLI/dev_mismatched.tsv.{name}"
        write(tmp_path, file, compress(text.encode()))
        dev = read_split("mnli", "dev_mismatched", str(tmp_path / name))
        assert dev.labels == ["neutral"]


def test_stsb_is_a_regression(tmp_path):
    cells = ["0", "g", "f", "y", "o", "s", "s", "Uno.", "Due.", "3.800"]
    head = "index genre filename year old_index source1 source2 sentence1 "
    head = "\t".join((head + "sentence2 score").split())
    write(tmp_path, "train.tsv", head + "\n" + "\t".join(cells) + "\n")
    train = read_split("sts-b", "train", str(tmp_path))
    values = examples.encode_labels(train, examples.REGRESSION, [])
    assert values.dtype.kind == "f"
    assert values.tolist() == [[pytest.approx(3.8)]]


@pytest.mark.parametrize("archives", [("", ""), ("XNLI-MT-1.0", "XNLI-1.0")])
def test_xnli_reads_one_language_and_its_other_spelling(tmp_path, archives):
    in_train, in_dev = (f"{name}/".lstrip("/") for name in archives)
    write(
        tmp_path,
        f"{in_train}multinli/multinli.train.de.tsv",
        "premise\thypo\tlabel\nEins.\tZwei.\tcontradictory\n",
    )
    row = "{}\tneutral\t-\t-\t-\t-\tA\t{}\n"
    dev = row.format("language", "sentence2").replace("neutral", "gold_label")
    dev += row.format("de", "Ja.") + row.format("fr", "Oui.")
    write(tmp_path, f"{in_dev}xnli.dev.tsv", dev)
    train = read_split("xnli", "train", str(tmp_path), language="de")
    assert train.labels == ["contradiction"]
    dev = read_split("xnli", "dev", str(tmp_path), language="fr")
    assert dev.second == ["Oui."]


def test_files_of_several_languages_are_one_set(tmp_path):
    head = "language\tgold_label\t-\t-\t-\t-\tsentence1\tsentence2\n"
    row = "{}\tneutral\t-\t-\t-\t-\tA\t{}\n"
    write(tmp_path, "dev-en.tsv", head + row.format("en", "Yes."))
    write(tmp_path, "dev-zh.tsv", head + row.format("zh", "\u662f"))
    given = {"file": f"{tmp_path}/dev-*.tsv"}
    found = read_split("xnli", "dev", "", language="zh", **given)
    assert found.second == ["\u662f"]
    with pytest.raises(errors.InputError, match="none of it, only: en, zh"):
        read_split("xnli", "dev", "", language="de", **given)


def test_a_cut_row_is_named_by_file_and_line(tmp_path):
    text = "index\tq\ts\tlabel\n0\ta\tb\tentailment\n1\tcut off\n"
    path = write(tmp_path, "dev.tsv", text)
    with pytest.raises(errors.InputError, match=f"{path}:3: 2 columns"):
        read_split("qnli", "dev", str(tmp_path))


def test_a_file_with_too_few_columns_may_be_of_another_task(tmp_path):
    path = write(tmp_path, "train.tsv", "gj04\t1\t\tOne.\n")
    message = f"{path}:1: 4 columns, but 5 .* another --task_name"
    with pytest.raises(errors.InputError, match=message):
        read_split("mrpc", "train", str(tmp_path))


def test_without_a_header_the_first_row_says_how_wide_rows_are(tmp_path):
    path = write(tmp_path, "dev.tsv", "g\t1\t\tOne.\n\ng\t0\t\tTwo\t.\n")
    message = f"{path}:3: 5 columns, but the first row has 4"
    with pytest.raises(errors.InputError, match=message):
        read_split("cola", "dev", str(tmp_path))


QQP = (
    "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    "1\t2\t3\tA?\tB?\t0\n"
    "4\t5\t6\tC?\n"
    "7\t8\t9\tD?\tE?\t1\n"
    "1\t2\t3\tA?\tB?\t1\t0\n"
)


@pytest.mark.parametrize("split", ["train", "dev"])
def test_the_cut_rows_that_qqp_is_released_with_are_left_out(
    tmp_path, caplog, split
):
    path = write(tmp_path, f"{split}.tsv", QQP)
    with caplog.at_level("WARNING", logger="absl"):
        found = read_split("qqp", split, str(tmp_path))
    assert (found.first, found.labels) == (["A?", "D?"], ["0", "1"])
    assert found.lines == [2, 4]
    assert f"2 truncated row(s) skipped: {path}:3, {path}:5" in caplog.text


def test_no_row_that_qqp_is_submitted_for_is_left_out(tmp_path):
    text = "id\tquestion1\tquestion2\n0\tA?\tB?\n1\tC?\n2\tD?\tE?\n"
    path = write(tmp_path, "test.tsv", text)
    with pytest.raises(errors.InputError, match=f"{path}:3: 2 columns, but"):
        read_split("qqp", "test", str(tmp_path))


def test_a_label_of_another_task_is_named(tmp_path):
    text = "index\tq\ts\tlabel\n0\ta\tb\tentailment\n1\ta\tb\tmaybe\n"
    path = write(tmp_path, "dev.tsv", text)
    dev = read_split("rte", "dev", str(tmp_path))
    with pytest.raises(errors.InputError, match=f"{path}:3: label 'maybe'"):
        labels = sentence_tasks.TASKS["rte"].labels
        examples.encode_labels(dev, examples.CLASSIFICATION, labels)


def test_bytes_that_are_not_utf8_are_named(tmp_path):
    path = write(tmp_path, "train.tsv", b"g\t1\t\tOk.\ng\t1\t\t\xff\xfa.\n")
    with pytest.raises(errors.InputError, match=f"{path}:2: not UTF-8"):
        read_split("cola", "train", str(tmp_path))


def test_swag_makes_four_pairs_of_a_row(tmp_path):
    head = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,"
    head += "ending0,ending1,ending2,ending3,label\n"
    row = '7,v,0,x,"One, two.",She,gold,a.,b.,"c\nc.",d.,2\n'
    path = write(tmp_path, "val.csv", head + row)
    dev = read_split("swag", "dev", str(tmp_path))
    assert dev.num_choices == 4
    assert len(dev) == 1
    assert dev.first == ["One, two."] * 4
    assert dev.second == ["She a.", "She b.", "She c\nc.", "She d."]
    assert (dev.labels, dev.guids, dev.path) == (["2"], ["7"], path)


def test_swag_has_no_fifth_ending(tmp_path):
    endings = ",".join(f"ending{i}" for i in range(5))
    text = f"sent1,sent2,{endings},label\nA,b,c,d,e,f,g,4\n"
    path = write(tmp_path, "val.csv", text)
    with pytest.raises(errors.InputError, match=f"{path}:2: a column 'ending4"):
        read_split("swag", "dev", str(tmp_path))


def standard_input(monkeypatch, data):
    stream = types.SimpleNamespace(buffer=io.BytesIO(data))
    monkeypatch.setattr(sys, "stdin", stream)


def test_standard_input_is_a_text_a_line(monkeypatch, caplog):
    data = settings.Files(test_file="-")
    task = sentence_tasks.open_task("sst-2", data)
    standard_input(monkeypatch, b"\xef\xbb\xbfOne\ttab.\r\n\nThree")
    errors.warn_once.cache_clear()
    with caplog.at_level("WARNING", logger="absl"):
        found = [*task.read("test")]
    assert "standard input:1: a tab; the whole line is the text" in caplog.text
    assert [x.first for x in found] == ["One\ttab.", "", "Three"]
    assert [x.guid for x in found] == ["0", "1", "2"]


def test_json_lines_of_standard_input_are_no_texts(monkeypatch):
    data = settings.Files(test_file="-")
    known = task_files.ModelClasses(labels=["a", "b"], problem_type=None)
    for name in ("csv", "jsonl"):
        task = sentence_tasks.open_task(name, data, known=known)
        standard_input(monkeypatch, b'{"text": "A"}\n')
        if name == "csv":
            assert [x.first for x in task.read("test")] == ['{"text": "A"}']
            continue
        with pytest.raises(errors.InputError, match="input:1: a JSON object"):
            list(task.read("test"))


def test_a_tab_of_standard_input_separates_a_pair(monkeypatch):
    data = settings.Files(test_file="-")
    task = sentence_tasks.open_task("mrpc", data)
    standard_input(monkeypatch, b"A.\tB.\nC.\n")
    texts = iter(task.read("test"))
    assert next(texts)[3:5] == ("A.", ["B."])
    with pytest.raises(errors.InputError, match="input:2: 0 tabs, but one"):
        next(texts)


@pytest.mark.parametrize(
    ("name", "split"), [("csv", "train"), ("sst-2", "dev"), ("swag", "test")]
)
def test_standard_input_holds_a_test_set_of_texts_or_pairs(name, split):
    data = settings.Files(data_dir="", **{f"{split}_file": "-"})
    with pytest.raises(errors.InputError, match=f"--{split}_file=-: only a te"):
        sentence_tasks.open_task(name, data).read(split)


@pytest.mark.parametrize(
    ("name", "split", "count"),
    [
        ("mrpc", "train", 3668),
        ("mrpc", "dev", 408),
        ("mrpc", "test", 1725),
        ("cola", "train", 8551),
        ("cola", "dev", 1043),
        ("sst-2", "dev", 872),
        ("sts-b", "train", 5749),
        ("sts-b", "dev", 1500),
        ("sts-b", "test", 1379),
        ("wnli", "train", 635),
        ("wnli", "test", 146),
        ("qnli", "dev", 5463),
        ("ax", "test", 1104),
    ],
)
def test_official_files_have_their_official_number_of_examples(
    shared_data, name, split, count
):
    read = read_split(name, split, str(shared_data / "glue"))
    assert len(read) == count
    if split != "test":
        task = sentence_tasks.TASKS[name]
        examples.encode_labels(read, task.kind, task.labels)


def test_the_paraphrase_corpus_gives_the_official_dev_set(
    shared_data, tmp_path
):
    for name in ("msr_paraphrase_train.txt", "dev_ids.tsv"):
        data = (shared_data / "glue" / "MRPC" / name).read_bytes()
        write(tmp_path, name, data)
    ours = read_split("mrpc", "dev", str(tmp_path))
    official = read_split("mrpc", "dev", str(shared_data / "glue"))
    assert len(ours) == 408
    assert sorted(zip(ours.first, ours.second, ours.labels, strict=True)) == (
        sorted(
            zip(official.first, official.second, official.labels, strict=True)
        )
    )


def test_the_paraphrase_corpus_gives_the_official_test_set(
    shared_data, tmp_path
):
    name = "msr_paraphrase_test.txt"
    data = (shared_data / "glue" / "MRPC" / name).read_bytes()
    write(tmp_path, name, data)
    ours = read_split("mrpc", "test", str(tmp_path))
    official = read_split("mrpc", "test", str(shared_data / "glue"))
    assert len(ours) == 1725
    assert ours.digest == official.digest
    assert ours.guids == official.guids
