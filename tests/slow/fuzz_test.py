"""Proves that a damaged file is read, or refused in one line, soon.

FUZZ=500 python -m pytest tests/slow/fuzz_test.py

A mutation changes bytes of a small valid file (bits, spans, numbers), or its
structure (values of JSON, lines and cells, columns of Parquet). The command
that reads it then ends with exit code 0, or with exit code 2 and one line after
its messages, within 60 s and 4 GB of memory besides that of the warm process.
Mutation 17 of a format is the same in every run.
"""

import copy
import gzip
import io
import json
import os
import pathlib
import random
import re
import shutil

import pyarrow as pa
import pytest
from pyarrow import parquet

pytestmark = pytest.mark.all
MUTATIONS = int(os.environ.get("FUZZ", "15"))
SECONDS = 60
# In the process of the command: allocations of more fail.
LIMIT = """
import pathlib, re, resource
status = pathlib.Path("/proc/self/status").read_text()
used = int(re.search(r"VmSize:\\s*(\\d+)", status)[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + 4 * 2**30,) * 2)
"""
NUMBERS = (0, 1, 7, 255, 2**16, 2**31 - 1, 2**31, 2**32, 2**63, -1)
TOKENS = (
    *(b"\0", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n\n"),
    *(b"\t", b" ", b",", b'"', b'""', b"\\", b"{", b"}", b"[" * 5000, b"#"),
    *(b"-DOCSTART-", b"null", b"NaN", b"-1", b"1e999", b"9" * 20, b"\xed\xa0"),
    *(b"\xe2\x80\xa8", b"\xc2\x85", b"\\ud800", b"[MASK]", b"\x1f\x8b"),
    *(b"A" * 70000, b"a b " * 3000),
)
VALUES = (
    *(None, True, 0, -1, 1.5, 1e308, 2**70, "", "x", "\0", "\ud800", [], [[]]),
    *({}, {"a": 1}, ["a", None], "a" * 70000),
)
COLUMNS = (
    lambda n: pa.array([None] * n),
    lambda n: pa.array(list(range(n))),
    lambda n: pa.array([float("nan")] * n),
    lambda n: pa.array([b"\xff\xfe"] * n),
    lambda n: pa.array([["a", None]] * n),
    lambda n: pa.array([{"a": 1}] * n),
    lambda n: pa.array(["O"] * n).dictionary_encode(),
    lambda n: pa.array([0] * n, pa.timestamp("us")),
    lambda n: pa.array(["\0", "a\nb"] * n)[:n],
)


def change_bytes(rng, data):
    """Changes bits, spans or numbers."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        begin = rng.randrange(len(data) or 1)
        end = begin + int(rng.expovariate(1 / 20)) + 1
        size = rng.choice([1, 2, 4, 8])
        numbers = list(re.finditer(rb"-?\d+", bytes(data)))
        kind = rng.randrange(6)
        if kind == 0:
            data[begin : begin + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            del data[begin:end]
        elif kind == 2:
            data[begin:begin] = data[begin:end] * rng.choice([1, 50])
        elif kind == 3:
            data[begin:begin] = rng.choice(TOKENS)
        elif kind == 4 or not numbers:
            number = rng.choice(NUMBERS) % 256**size
            data[begin : begin + size] = number.to_bytes(size, "little")
        else:
            begin, end = rng.choice(numbers).span()
            data[begin:end] = str(rng.choice(NUMBERS)).encode()
    return bytes(data[: rng.choice([-1, *[len(data)] * 5])])


def _containers(value):
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _containers(inner)


def change_json(rng, data):
    """Replaces, removes, repeats or renames a value."""
    value = json.loads(data)
    inner = rng.choice([x for x in _containers(value) if x])
    key = rng.choice(
        [*inner] if isinstance(inner, dict) else [*range(len(inner))]
    )
    kind = rng.randrange(4)
    if kind == 0:
        del inner[key]
    elif kind == 1 and isinstance(inner, list):
        inner += [copy.deepcopy(inner[key])] * rng.choice([1, 100])
    elif kind == 1:
        inner[f"{key}x"] = inner.pop(key)
    else:
        inner[key] = rng.choice(VALUES)
    return json.dumps(value).encode()


def change_lines(rng, data):
    """Changes lines and their cells."""
    lines = data.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    separator = rng.choice([b"\t", b" ", b","])
    cells = lines[i].split(separator)
    k = rng.randrange(len(cells))
    kind = rng.randrange(6)
    if kind == 0:
        lines[i], lines[j] = lines[j], lines[i]
    elif kind == 1:
        lines[i:i] = [lines[j]] * rng.choice([1, 300])
    elif kind == 2:
        lines[i] = rng.choice([b"", *TOKENS])
    elif kind == 3:
        cells[k] = rng.choice([b"", *TOKENS])
    elif kind == 4:
        del cells[k]
    else:
        cells.insert(k, rng.choice(cells))
    if kind > 2:
        lines[i] = separator.join(cells)
    return b"\n".join(lines)


def change_json_lines(rng, data):
    """Changes one line."""
    lines = data.splitlines()
    i = rng.randrange(len(lines))
    lines[i] = change_json(rng, lines[i])
    return b"\n".join(lines) + b"\n"


def change_table(rng, data):
    """Replaces, renames or removes a column of Parquet."""
    table = parquet.read_table(io.BytesIO(data))
    i, kind = rng.randrange(table.num_columns), rng.randrange(4)
    names = list(table.column_names)
    if kind == 0:
        table = table.remove_column(i)
    elif kind == 1:
        names[i] = rng.choice(["", "x\ny", names[i].upper(), *names])
        table = table.rename_columns(names)
    else:
        column = rng.choice(COLUMNS)(table.num_rows)
        table = table.set_column(i, names[i], column)
    out = io.BytesIO()
    parquet.write_table(table, out, compression=rng.choice(["none", "zstd"]))
    return out.getvalue()


def change_gzip(rng, data):
    """Changes the content of a compressed file."""
    return gzip.compress(change_lines(rng, gzip.decompress(data)))


def change_safetensors(rng, data):
    """Changes the values of the header and gives it its length."""
    size = int.from_bytes(data[:8], "little")
    header = change_json(rng, data[8 : 8 + size])
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


_TABLE = (
    "run_classifier.py --dry_run --do_train --task_name={form} "
    "--dev_fraction=0.3 --train_file={target} --text_column=text "
    "--label_column=label --init_checkpoint={data}/model --output_dir={out} "
    "--max_seq_length=16"
)
_WORDS = "create_vocabulary.py --vocab_size=160 --input_file={target} "
_MODEL = (
    "convert_checkpoint.py --input={folder} --output={out} --output_format="
)
# Format -> valid file, structural change, command.
FORMATS = {
    "text": ("corpus.txt", change_lines, _WORDS + "--output_file={out}/v.txt"),
    "gzip": ("corpus.gz", change_gzip, _WORDS + "--output_file={out}/v.txt"),
    "tokens": (
        "vocab.txt",
        change_lines,
        "create_pretraining_data.py --input_file={data}/corpus.txt "
        "--vocab_file={target} --output_prefix={out}/x --num_workers=1",
    ),
    "csv": ("rows.csv", change_lines, _TABLE),
    "tsv": ("rows.tsv", change_lines, _TABLE),
    "jsonl": ("rows.jsonl", change_json_lines, _TABLE),
    "parquet": ("rows.parquet", change_table, _TABLE),
    "squad": (
        "squad/train-v2.0.json",
        change_json,
        "run_squad.py --dry_run --do_train --train_file={target} "
        "--version_2_with_negative --init_checkpoint={data}/model "
        "--output_dir={out} --max_seq_length=40 --doc_stride=16 "
        "--max_query_length=16",
    ),
    "conll": (
        "conll/eng.train",
        change_lines,
        "run_ner.py --dry_run --do_train --data_dir={folder} "
        "--init_checkpoint={data}/model --max_seq_length=32 --output_dir={out}",
    ),
    "records": (
        "shards/x-00000-of-00002.tfrecord",
        change_bytes,
        "run_pretraining.py --dry_run --do_train --input_file={folder}/x-* "
        "--bert_config_file={data}/config.json --max_seq_length=32 "
        "--max_predictions_per_seq=5 --output_dir={out}",
    ),
    "config": ("classifier/config.json", change_json, f"{_MODEL}tf1"),
    "weights": (
        "classifier/model.safetensors",
        change_safetensors,
        f"{_MODEL}model_directory",
    ),
    "tf1": (
        "tf1/bert_model.ckpt.index",
        change_bytes,
        f"{_MODEL}model_directory",
    ),
}


@pytest.fixture(scope="module")
def files(data, process):
    """The toy data in more formats."""
    texts = [x for x in (data / "corpus.txt").read_text().splitlines() if x]
    rows = [(text, ["good", "bad"][i % 2]) for i, text in enumerate(texts[:20])]
    for form, separator in (("csv", ","), ("tsv", "\t")):
        lines = [separator.join(row) for row in [("text", "label"), *rows]]
        (data / f"rows.{form}").write_text("\n".join(lines) + "\n")
    objects = [json.dumps({"text": a, "label": b}) for a, b in rows]
    (data / "rows.jsonl").write_text("\n".join(objects) + "\n")
    text, label = map(list, zip(*rows, strict=True))
    table = pa.table({"text": text, "label": label})
    parquet.write_table(table, data / "rows.parquet")
    packed = gzip.compress((data / "corpus.txt").read_bytes())
    (data / "corpus.gz").write_bytes(packed)
    convert = f"{_MODEL}tf1".format(
        folder=data / "classifier", out=data / "tf1"
    )
    assert process.run(convert.split()).code == 0
    return data


@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_file_is_read_or_refused_in_one_line(
    name, process, files, tmp_path
):
    source, change, command = FORMATS[name]
    whole = (files / source).read_bytes()
    for number in range(MUTATIONS + 1):
        rng = random.Random(f"{name}/{number}")
        folder, out = tmp_path / "files", tmp_path / "out"
        for path in (folder, out):
            shutil.rmtree(path, ignore_errors=True)
        has_folder = "/" in source
        if has_folder:
            shutil.copytree((files / source).parent, folder)
        folder.mkdir(exist_ok=True)
        target = folder / pathlib.Path(source).name
        mutate = change if rng.random() < 0.5 else change_bytes
        # The first is the valid file: it must be read.
        target.write_bytes(mutate(rng, whole) if number else whole)
        line = command.format(
            data=files, target=target, folder=folder, out=out, form=name
        )
        ended = process.run(line.split(), kill_after=SECONDS, before=LIMIT)
        what = f"{name} {number}: {ended.code}: {ended.text[-2000:]}"
        assert ended.code == 0 or number and ended.is_one_line, what
