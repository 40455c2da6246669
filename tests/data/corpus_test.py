"""Proves what text becomes which documents, and that bad text is named.

pytest tests/data/corpus_test.py
"""

import bz2
import gzip
import io
import json
import lzma
import os
import tarfile
import textwrap
import threading

import pyarrow as pa
import pytest
from pyarrow import parquet

from data import corpus
from foundation import errors

TEXT = "One a.\nTwo b.\n\n\nThree c.\n   \nFour d.\nFive e."
DOCUMENTS = [["One a.", "Two b."], ["Three c."], ["Four d.", "Five e."]]


def zstd(data):
    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, "zstd") as file:
        file.write(data)
    return packed.getvalue().to_pybytes()


def tar(text):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("a.txt")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


def parquet_table(rows):
    packed = pa.BufferOutputStream()
    parquet.write_table(pa.table({"text": pa.array(rows, "utf8")}), packed)
    return packed.getvalue().to_pybytes()


COMPRESSIONS = [(".gz", gzip.compress), (".bz2", bz2.compress), (".zst", zstd)]


def documents(*paths, input_format="sentences"):
    """Returns each document that is not empty, as a list of sentences."""
    found = [[]]
    for block in corpus.read_blocks([str(x) for x in paths]):
        parsed = corpus.parse(block, input_format)
        begin = 0
        for start in parsed.starts:
            found[-1] += parsed.texts[begin:start]
            found.append([])
            begin = start
        found[-1] += parsed.texts[begin:]
    return [document for document in found if document]


@pytest.mark.parametrize("suffix, pack", [("", bytes), *COMPRESSIONS])
def test_blank_lines_separate_documents(tmp_path, suffix, pack):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(pack(TEXT.encode()))
    assert documents(path) == DOCUMENTS


def test_a_new_file_does_not_start_a_new_document(tmp_path):
    (tmp_path / "a").write_text("One a.\n")
    (tmp_path / "b").write_text("Two b.\n\nThree c.\n")
    assert documents(tmp_path / "a", tmp_path / "b") == [
        ["One a.", "Two b."],
        ["Three c."],
    ]


def test_only_newlines_end_lines(tmp_path):
    path = tmp_path / "a"
    path.write_bytes("One\u2028a.\r\nTwo\x0cb\x85.\r\n\r\nThree.".encode())
    assert documents(path) == [["One\u2028a.", "Two\x0cb\x85."], ["Three."]]


@pytest.mark.parametrize("size", [16, 19, 1000])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_blocks_hold_the_same_lines_whatever_their_size(tmp_path, size, suffix):
    path = tmp_path / f"a{suffix}"
    data = ("\ufeff" + TEXT).encode()
    path.write_bytes(gzip.compress(data) if suffix else data)
    blocks = list(corpus.read_blocks([str(path)], size))
    assert b"".join(block.data for block in blocks) == TEXT.encode()
    line = 1
    for block in blocks[:-1]:
        assert block.first_line == line and block.data.endswith(b"\n")
        line += block.data.count(b"\n")
    assert sum(block.file_bytes for block in blocks) == path.stat().st_size


def test_paragraphs_are_split_into_sentences(tmp_path):
    path = tmp_path / "a"
    path.write_text("Dr. No came. He sat.\nThen he left.\n\nNew one. Yes.\n")
    assert documents(path, input_format="paragraphs") == [
        ["Dr. No came.", "He sat.", "Then he left."],
        ["New one.", "Yes."],
    ]


def test_each_line_of_jsonl_is_one_document(tmp_path):
    path = tmp_path / "a"
    lines = [{"text": "One. Two.\n\nThree.", "id": 5}, {"text": "Four."}]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    assert documents(path, input_format="jsonl") == [
        ["One.", "Two.", "Three."],
        ["Four."],
    ]


@pytest.mark.parametrize(
    "line, match",
    [
        ("{", "line 2: not a JSON object"),
        ("[]", 'line 2: no "text" field'),
        ('{"txt": "a"}', 'line 2: no "text" field'),
        ('{"text": 5}', 'line 2: no "text" field'),
    ],
)
def test_bad_jsonl_is_named_by_line(tmp_path, line, match):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "Good."}\n' + line + "\n")
    with pytest.raises(errors.InputError, match=f"a.jsonl: {match}"):
        documents(path, input_format="jsonl")


def test_a_few_invalid_bytes_are_ignored_and_counted(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"Caf\xe9 au lait.\nTwo.\n")
    (block,) = corpus.read_blocks([str(path)])
    parsed = corpus.parse(block, "sentences")
    assert parsed.texts == ["Caf au lait.", "Two."]
    assert parsed.counts["invalid_bytes"] == 1
    assert parsed.counts["lines"] == 2


@pytest.mark.parametrize(
    "data, match",
    [
        ("One.\nTwo.\n".encode("utf-16"), "line 1: not UTF-8 text but UTF-16"),
        ("One.\nTwo.\n".encode("utf-32"), "line 1: not UTF-8 text but UTF-16"),
        (("One.\n" * 9).encode("utf-16-le"), "line 1: .*UTF-16 or a binary"),
        (
            "Ein.\nZw\u00f6lf \u00fcber \u00e4\u00f6\u00fc.\n".encode("latin-1")
            * 9,
            "line 2: not UTF-8 text but another encoding",
        ),
        (b"fine.\n" * 50 + bytes(range(256)) * 9, "line 51: .*binary"),
        (gzip.compress(b"One."), "line 1: .*gzip, but the name"),
        (bz2.compress(b"One."), "line 1: .*bzip2, but the name"),
        (zstd(b"One."), "line 1: .*zstd, but the name"),
        (parquet_table(["One."]), "line 1: .*a Parquet table"),
        (parquet_table([]), "line 1: .*a Parquet table"),
        (tar("One.\n" * 300_000), "line 1: .*a tar archive"),
        (b"PK\x03\x04" + b"One.\n" * 9, "line 1: .*a zip archive"),
        (lzma.compress(b"One."), "line 1: .*but xz"),
        (b"%PDF-1.4\nOne.\n", "line 1: .*PDF; extract"),
    ],
    # Named: gzip's bytes hold the time, and every worker collects its own.
    ids=[
        "utf16",
        "utf32",
        "utf16le",
        "latin1",
        "binary",
        "gzip",
        "bzip2",
        "zstd",
        "parquet",
        "parquet without rows",
        "tar",
        "zip",
        "xz",
        "pdf",
    ],
)
def test_other_encodings_are_named_by_file_and_line(tmp_path, data, match):
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    with pytest.raises(errors.InputError, match=f"a.txt: {match}"):
        documents(path)


@pytest.mark.parametrize(
    "text",
    ["PAR1 is a receptor.", "BZh9 is a name.", "%PDF-X", "PK is a name."],
)
def test_text_may_begin_like_another_format(tmp_path, text):
    (tmp_path / "a").write_text(text)
    assert documents(tmp_path / "a") == [[text]]


@pytest.mark.parametrize("suffix, pack", COMPRESSIONS)
def test_damaged_compressed_files_are_named(tmp_path, suffix, pack):
    path = tmp_path / f"a{suffix}"
    whole = pack(b"Some text of a few lines.\n" * 100)
    for data in (whole[:-9], whole[:20] + b"\0\0\0\0" + whole[24:], b"text"):
        path.write_bytes(data)
        with pytest.raises(errors.InputError, match=f"a{suffix}: ") as caught:
            documents(path)
        assert "\n" not in str(caught.value)


def test_names_and_globs_are_expanded_in_order(tmp_path):
    for name in ("b1", "b0", "a", "c"):
        (tmp_path / name).write_text("x")
    (tmp_path / "b2").mkdir()
    found = corpus.find_files(f"{tmp_path}/c, {tmp_path}/b*")
    assert found == [f"{tmp_path}/{name}" for name in ("c", "b0", "b1")]


def test_a_file_that_is_named_twice_is_read_once(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    for name in ("b.txt", "a.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "a.txt")
    names = f"b.txt,*.txt,./b.txt,{tmp_path}/b.txt,link"
    assert corpus.find_files(names) == ["b.txt", "./a.txt"]
    assert "names 4 file(s) again, e.g. ./b.txt; each" in caplog.text
    assert len(caplog.records) == 1


def test_double_slashes_are_joined(tmp_path):
    (tmp_path / "a").write_text("x")
    for name in ("a", "a*"):
        assert corpus.find_files(f"{tmp_path}//{name}") == [f"{tmp_path}/a"]


def test_a_pipe_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "pipe"
    writer = threading.Thread(
        target=path.write_bytes, args=(b"a\nb\n\nc\n",), daemon=True
    )
    writer.start()
    (block,) = corpus.read_blocks([str(path)])
    writer.join(timeout=60)
    assert (block.data, block.file_bytes) == (b"a\nb\n\nc\n", 7)


def test_a_line_that_is_too_long_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "_LONGEST_LINE", 1000)
    path = tmp_path / "a.txt"
    path.write_text("short\n" + 2000 * "long ")
    with pytest.raises(errors.InputError, match="a.txt: line 2 is longer"):
        list(corpus.read_blocks([str(path)], 100))


def test_a_pipe_is_not_read_in_advance(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    path = f"{tmp_path}/pipe"
    assert corpus.find_text(path, "sentences", "text") == ([path], None)


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt.gz"])
@pytest.mark.parametrize("input_format", ["sentences", "paragraphs"])
def test_json_lines_are_no_plain_text(tmp_path, name, input_format):
    pack = gzip.compress if name.endswith("gz") else bytes
    (tmp_path / name).write_bytes(pack(b'\xef\xbb\xbf\n {"text": "a"}\n'))
    (tmp_path / "0.txt").write_text('{"A brace" is no JSON.\n')
    with pytest.raises(
        errors.InputError, match=f"{name}: .*give --input_format=jsonl"
    ):
        corpus.find_text(f"{tmp_path}/*", input_format, "text")
    found, column = corpus.find_text(f"{tmp_path}/a*", "jsonl", "body")
    assert found == [f"{tmp_path}/{name}"] and column == "body"
    assert corpus.find_text(f"{tmp_path}/0*", input_format, "text")[1] is None


@pytest.mark.parametrize(
    "text",
    ['[{"text": "A."}]', '\n[\n  {\n "text": "A."}\n]', '{\n"a": 1\n}\n'],
)
def test_json_that_is_no_lines_of_objects_is_no_plain_text(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(errors.InputError, match="a.json: holds JSON; write"):
        corpus.find_text(f"{tmp_path}/a.json", "sentences", "text")


@pytest.mark.parametrize(
    ("name", "text", "warned"),
    [
        ("wiki_00", '<doc id="1" url="u">\nA.\n</doc>\n', "<doc id="),
        ("dump.xml", "<mediawiki xml:lang='en'>\n", "<mediawiki"),
        ("a.html", "\n<!DOCTYPE html>\nA.\n", "<!DOCTYPE"),
        ("a.csv", "id,text\n1,A.\n", "are tables by their names"),
        ("a.txt", "A.\rB.\r", r"end in \r"),
        ("a.txt", "A.\n<|endoftext|>\nB.\n", "<|endoftext|>"),
        ("a.txt", "<a> is a tag.\r\nB.\r\n", ""),
        ("a.txt", "A.\r", ""),
        ("a.txt", "[1] A.\n{\n", ""),
    ],
)
def test_what_is_no_sentence_gets_a_warning(
    tmp_path, caplog, name, text, warned
):
    (tmp_path / name).write_bytes(text.encode())
    with caplog.at_level("WARNING", logger="absl"):
        corpus.find_text(f"{tmp_path}/{name}", "sentences", "text")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == bool(warned)
    assert not warned or (name in lines[0] and warned in lines[0])


def test_the_field_of_json_lines_can_be_named():
    block = corpus.Block(
        "a", 7, b'{"text": "No.", "body": "A man. So it is."}\n', 0
    )
    parsed = corpus.parse(block, "jsonl", "body")
    assert parsed.texts == ["A man.", "So it is."]
    with pytest.raises(errors.InputError, match='line 7: no "head" field'):
        corpus.parse(block, "jsonl", "head")


PROSE = (
    "It was the year of many rivers, and nobody in the old town "
    'remembered a spring like that one. "Nobody at all," she said, '
    "while the boats went down to the sea between the long gray walls. "
)


@pytest.mark.parametrize(
    "width, warned", [(55, True), (72, True), (88, True), (1000, False)]
)
def test_hard_wrapped_text_gets_a_warning(tmp_path, caplog, width, warned):
    lines = textwrap.wrap(PROSE * 20, width)
    (tmp_path / "a.txt").write_text("\n".join(lines * 40))
    (tmp_path / "b.txt").write_text(PROSE.replace(". ", ".\n") * 30)
    for input_format in ("paragraphs", "sentences"):
        caplog.clear()
        corpus.find_text(f"{tmp_path}/*.txt", input_format, "text")
        assert (f"{tmp_path}/a.txt; each line is" in caplog.text) == warned
        assert ("lines of 1 file(s) seem to end" in caplog.text) == warned


def test_brackets_of_a_name_are_no_pattern(tmp_path):
    for name in ("a[1].txt", "a1.txt"):
        (tmp_path / name).write_text("x")
    named = f"{tmp_path}/a[1].txt"
    assert corpus.find_files(named) == [named]
    assert corpus.find_files(f"{tmp_path}/a[12].txt") == [f"{tmp_path}/a1.txt"]


@pytest.mark.parametrize("name", ["a[1]", "a\\b", "a*b", "a?b", "a{b,c}"])
def test_the_name_of_a_folder_is_no_pattern(tmp_path, name):
    paths = []
    for folder in (name, "a1", "axb", "ab"):
        (tmp_path / folder).mkdir()
        for file in ("x1", "x2"):
            (tmp_path / folder / file).write_text("x")
            paths.append(f"{tmp_path}/{folder}/{file}")
    folder = tmp_path / name
    assert corpus.find_files(f"{folder}/x*,{folder}/x[1]") == paths[:2]
    assert corpus.find_files(f"{folder}/x2,{folder}/x1") == paths[1::-1]


def test_a_name_may_contain_commas(tmp_path):
    for name in ("a,b.txt", "c", "d", "c,d"):
        (tmp_path / name).write_text("x")
    c, d, both = (f"{tmp_path}/{name}" for name in ("c", "d", "a,b.txt"))
    assert corpus.find_files(f"{c},{both}, {d}") == [c, both, d]
    with pytest.raises(errors.InputError, match="--input_file=x: no such"):
        corpus.find_files(",".join("x" * 5000))


@pytest.mark.parametrize("pattern", ["wiki", "wiki/", "wi*"])
def test_a_directory_in_place_of_its_files_is_named(tmp_path, pattern):
    (tmp_path / "wiki").mkdir()
    pattern = f"{tmp_path}/{pattern}"
    with pytest.raises(errors.InputError) as caught:
        corpus.find_files(pattern)
    assert str(caught.value) == (
        f"--input_file={pattern}: is a directory: name its files, e.g. "
        f"{pattern.rstrip('/')}/*"
    )


@pytest.mark.parametrize("pattern", ["none.txt", "x*.txt"])
def test_patterns_without_files_are_named(tmp_path, pattern):
    with pytest.raises(errors.InputError, match="--input_file=.*no such file"):
        corpus.find_files(f"{tmp_path}/{pattern}")
    with pytest.raises(errors.InputError, match="--input_file: names no file"):
        corpus.find_files(" , ")


def test_hidden_files_are_named_in_full_only(tmp_path):
    for name in ("a.txt", ".a.txt.0123.incomplete", ".DS_Store"):
        (tmp_path / name).write_text("x")
    assert corpus.find_files(f"{tmp_path}/*") == [f"{tmp_path}/a.txt"]
    assert corpus.find_files(f"{tmp_path}//*") == [f"{tmp_path}/a.txt"]
    assert corpus.find_files(f"file://{tmp_path}/*") == [
        f"file://{tmp_path}/a.txt"
    ]
    assert corpus.find_files(f"{tmp_path}/.D*") == [f"{tmp_path}/.DS_Store"]


def test_half_of_a_surrogate_pair_is_left_out(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "A \\ud83d b \\ud83d\\ude00."}\n')
    (found,) = documents(path, input_format="jsonl")
    assert found == ["A  b \U0001f600."]


def table(path, column, kind=None, **options):
    array = pa.array(column, kind)
    parquet.write_table(pa.table({"body": array}), path, **options)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), "utf8")]
)
def test_a_row_of_parquet_is_one_document(tmp_path, kind):
    path = tmp_path / "a.PARQUET"
    rows = [
        "One a.\n\n \n\u3000\n\u00a0\nTwo b.",
        None,
        "",
        "Three \u00fc.\r\nFour.\n",
    ]
    table(path, rows, kind)
    (tmp_path / "b.txt").write_text("Five.\n")
    names = [f"{tmp_path}/b.txt", str(path), f"{tmp_path}/b.txt"]
    texts, starts = [], [0]
    for block in corpus.read_blocks(names, text_column="body"):
        parsed = corpus.parse(block, "sentences")
        starts += [len(texts) + start for start in parsed.starts]
        texts += parsed.texts
    assert texts == [
        "Five.",
        "One a.",
        "Two b.",
        "Three \u00fc.",
        "Four.",
        "Five.",
    ]
    assert sorted(set(starts)) == [0, 1, 3, 5]


def test_a_column_of_plain_text_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("One.\n")
    with pytest.raises(errors.InputError, match="--text_column=body: only for"):
        corpus.find_text(f"{tmp_path}/a.txt", "paragraphs", "body")


def test_a_table_is_found_by_an_ending_in_capitals(tmp_path):
    table(tmp_path / "a.PARQUET", ["One."])
    found = corpus.find_text(str(tmp_path / "a.PARQUET"), "sentences", "body")
    assert found == ([str(tmp_path / "a.PARQUET")], "body")


def test_blocks_of_parquet_are_small_and_cover_the_file(tmp_path):
    path = tmp_path / "a.parquet"
    rows = [f"Row {number} is a document." for number in range(5000)]
    table(path, rows, row_group_size=5000, compression="zstd")
    blocks = list(corpus.read_blocks([str(path)], 1 << 12, "body"))
    assert max(len(block.data) for block in blocks) < 1 << 15
    assert sum(block.file_bytes for block in blocks) == path.stat().st_size
    data = b"".join(block.data for block in blocks)
    assert data.decode().split("\n\n") == ["\n" + rows[0], *rows[1:], ""]
    lines = [block.data.count(b"\n") for block in blocks]
    assert [block.first_line for block in blocks] == [
        1 + sum(lines[:number]) for number in range(len(lines))
    ]


def test_numbers_of_rows_in_parquet_are_not_believed(tmp_path):
    path = tmp_path / "a.parquet"
    table(path, ["a", "b", "c"])
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    refused = 0
    # 3 and 4 as zigzag integers: numbers of rows, and others.
    for place in range(start, len(data) - 8):
        for value in (0, 8) if data[place] == 6 else ():
            path.write_bytes(data[:place] + bytes([value]) + data[place + 1 :])
            try:
                batches = [x for x, _ in corpus.read_parquet(str(path))]
            except errors.InputError as error:
                refused += "its footer says" in str(error)
            else:
                assert sum(map(len, batches)) == 3
    assert refused >= 4  # Of the table and of its row group.


def test_bad_parquet_is_named(tmp_path):
    path = tmp_path / "a.parquet"

    def read():
        return list(corpus.read_blocks([str(path)], text_column="text"))

    table(path, ["a"])
    with pytest.raises(errors.InputError, match="--text_column=text: .*body"):
        read()
    parquet.write_table(pa.table({"text": [1]}), path)
    with pytest.raises(errors.InputError, match="a.parquet .*text.* but int64"):
        read()
    twice = pa.Table.from_arrays([pa.array(["a"])] * 2, ["text", "text"])
    parquet.write_table(twice, path)
    for rows in (read, lambda: list(corpus.read_parquet(str(path)))):
        with pytest.raises(errors.InputError, match="a.parq.*two col.*'text'"):
            rows()
    for end in (0, 50, path.stat().st_size - 9):
        path.write_bytes(path.read_bytes()[:end])
        with pytest.raises(errors.InputError, match="a.parquet: not Parquet"):
            read()
    with pytest.raises(
        errors.InputError, match="--input_format=jsonl: .*a.par"
    ):
        corpus.find_text(str(path), "jsonl", "text")
