r"""Mutates files of every format that is read, and reads them.

    python benchmarks/fuzz.py --mutations=100000 --state=fuzz.json

Each mutation changes bytes of a small valid file (bits, spans, numbers), or its
structure (values of JSON, lines and cells, features of records, columns of
Parquet, the content of compressed files). A mutation is good if the file is
read or ends in one line with exit code 2, within 10 s of processor time and
1 GB. Bytes that a checksum protects must be refused or give what the valid file
gives.

Files are read in a worker process, a fork that has imported TensorFlow. It is
killed after 10 s, and a new one continues with the next mutation. Mutation 17
of a format is the same in every run with that --seed: `--formats=csv --only=17`
repeats it with its traceback. --state keeps the counts, so that a run continues
where it was stopped. Prints a table; the exit code is 1 if a mutation is not
good.
"""

import argparse
import asyncio
import collections
import contextlib
import copy
import gzip
import io
import json
import os
import pathlib
import pickle
import random
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import smoke

sys.path.insert(0, str(smoke.ROOT))

import foundation.tensorflow_setup  # noqa: F401

# isort: split
import bz2

import pyarrow as pa
import tensorflow as tf
from absl import logging
from pyarrow import parquet

from data import corpus, examples, manifest, pipelines, records, text_files
from foundation import atomic, config_flags, errors, file_system
from modeling import models
from serving import rest_format, servable, tensorflow_engine
from tasks.classification import sentence_tasks, settings
from tasks.ner import word_files
from tasks.squad import dataset, metrics, triviaqa
from tests import metadata_files_test, tiny_runs
from tests.data import manifest_test
from tests.paper import toy_data
from tests.serving import toy_models
from tests.weights import bundle_writer, sentence_models
from weights import (
    checkpoint_sources,
    conversion,
    model_directory,
    sentence_modules,
    tokenizer_files,
)

SECONDS = 10  # Processor time after which a worker is killed.
IDLE_SECONDS = 120  # Time by the clock after which it is killed.
GROWTH = 2**30  # Bytes of memory that a mutation may need.
CHUNK = 100  # Mutations of a format before the next format's turn.
LIFE = 60  # Chunks that one worker reads.
OUTCOMES = ("read", "refused")
DEFECTS = ("traceback", "lines", "wrong", "hang", "memory", "crash")
WORDS = [*tiny_runs.SPECIAL, "the", "film", "fine", "dull", "##s", "a", "b"]
LABELS = ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]
SENTENCE_TASKS = ("CoLA", "SST-2", "MRPC", "STS-B", "QNLI", "swag")
TEXT = "The film is fine.\nIt was dull.\n\nA second text.\nIts end.\n"
SIZES = {"max_seq_length": 16, "max_predictions_per_seq": 4}
NUMBERS = (0, 1, 2, 7, 255, 2**16, 2**31 - 1, 2**31, 2**32, 2**62, 2**63, -1)
TOKENS = (
    *(b"\0", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n"),
    *(b"\n\n", b"\t", b" ", b",", b'"', b'""', b"'", b"\\", b"{", b"}", b"]"),
    *(b"[", b"[" * 5000, b"#", b"-DOCSTART-", b"null", b"true", b"NaN"),
    *(b"-1", b"1e999", b"1e308", b"99999999999999999999", b"\xc3", b"\xed\xa0"),
    *(b"\x80", b"\xe2\x80\xa8", b"\xc2\x85", b"\\ud800", b"\\u0000", b"##"),
    *(
        b"[MASK]",
        b"[UNK]",
        b"\x1f\x8b",
        b"A" * 70000,
        b"a b " * 3000,
        b"0" * 20,
    ),
)
COLUMNS = (
    lambda n: pa.array([None] * n),
    lambda n: pa.array(list(range(n))),
    lambda n: pa.array([0.5, float("nan")] * n)[:n],
    lambda n: pa.array([b"\xff\xfe"] * n),
    lambda n: pa.array([[]] * n, pa.list_(pa.string())),
    lambda n: pa.array([["a", None]] * n),
    lambda n: pa.array([[0, 5]] * n),
    lambda n: pa.array([[[1]]] * n),
    lambda n: pa.array([{"a": 1}] * n),
    lambda n: pa.array(["O"] * n).dictionary_encode(),
    lambda n: pa.array([0] * n, pa.timestamp("us")),
    lambda n: pa.array([True] * n),
    lambda n: pa.array(["\0", "a\nb"] * n)[:n],
    lambda n: pa.array([2**63 + 1] * n, pa.uint64()),
)

Mutation = Callable[[random.Random, bytes], bytes]


class Format(NamedTuple):
    """A format with a valid example.

    Attributes:
      files: name -> content of a folder's files.
      targets: the files that are mutated.
      change: changes the structure of a target; None where only bytes are
        changed.
      read: reads the folder as the commands do.
      is_checked: whether checksums protect all that `read` returns.
    """

    files: Mapping[str, bytes]
    targets: Sequence[str]
    change: Mutation | None
    read: Callable[[str], Any]
    is_checked: bool = False


# Mutations of bytes.


def change_bytes(rng: random.Random, data: bytes) -> bytes:
    """Changes bits, spans or numbers of a file."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        if not data:
            return rng.choice(TOKENS)
        begin = rng.randrange(len(data))
        end = min(len(data), begin + int(rng.expovariate(1 / 20)) + 1)
        kind = rng.randrange(8)
        if kind == 0:
            data[begin] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[begin] = rng.randrange(256)
        elif kind == 2:
            del data[begin:end]
        elif kind == 3:
            data[begin:begin] = data[begin:end] * rng.choice([1, 2, 50])
        elif kind == 4:
            data[begin:begin] = rng.choice(TOKENS)
        elif kind == 5:
            del data[begin:]
        elif kind == 6:
            size = rng.choice([1, 2, 4, 8])
            number = rng.choice(NUMBERS) % 256**size
            data[begin : begin + size] = number.to_bytes(size, "little")
        else:
            found = list(re.finditer(rb"-?\d+", bytes(data)))
            if found:
                number = rng.choice(found)
                new = str(rng.choice(NUMBERS)).encode()
                data[number.start() : number.end()] = new
    return bytes(data)


def flip(rng: random.Random, data: bytes) -> bytes:
    """Flips one bit, which every checksum notices."""
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


# Mutations of structures.


def change_json(rng: random.Random, data: bytes) -> bytes:
    """Replaces, removes, adds or exchanges values."""
    return _dump(_changed_value(rng, json.loads(data)))


def _dump(value: Any) -> bytes:
    return json.dumps(value).encode()


def _changed_value(rng: random.Random, value: Any) -> Any:
    value = copy.deepcopy(value)
    for _ in range(rng.choice([1, 1, 2])):
        places = list(_containers(value))
        if not places:
            return rng.choice(metadata_files_test.VALUES)
        inner = rng.choice(places)
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        kind = rng.randrange(6)
        if not keys or kind == 0:
            new = copy.deepcopy(rng.choice(metadata_files_test.VALUES))
            if isinstance(inner, dict):
                inner[rng.choice(["x", "", "0", "-1", "\ud800"])] = new
            else:
                inner.append(new)
            continue
        key = rng.choice(keys)
        if kind == 1:
            del inner[key]
        elif kind == 2:
            other = rng.choice(places)
            inner[key] = copy.deepcopy(other)
        elif kind == 3 and isinstance(inner, list):
            inner[key:key] = [inner[key]] * rng.choice([1, 100])
        elif kind == 3:
            inner[key + "x"] = inner.pop(key)
        elif kind == 4 and rng.random() < 0.2:
            inner[key] = json.loads("[" * 200 + "]" * 200)
        else:
            inner[key] = copy.deepcopy(rng.choice(metadata_files_test.VALUES))
    return value


def _containers(value: Any) -> Any:
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _containers(inner)


def change_json_lines(rng: random.Random, data: bytes) -> bytes:
    """Changes one line, or their order."""
    lines = data.splitlines()
    i = rng.randrange(len(lines))
    lines[i] = change_json(rng, lines[i])
    if rng.random() < 0.2:
        lines.insert(i, rng.choice([*lines, b"", b"[]", b"null"]))
    return b"\n".join(lines) + b"\n"


def change_lines(rng: random.Random, data: bytes) -> bytes:
    """Changes lines and their cells."""
    lines = data.split(b"\n")
    for _ in range(rng.choice([1, 1, 2, 3])):
        i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
        kind = rng.randrange(7)
        if kind == 0:
            lines[i], lines[j] = lines[j], lines[i]
        elif kind == 1:
            lines[i:i] = [lines[j]] * rng.choice([1, 2, 300])
        elif kind == 2 and len(lines) > 1:
            del lines[i]
        elif kind == 3:
            lines[i] = rng.choice(TOKENS)
        else:
            separator = rng.choice([b"\t", b" ", b","])
            cells = lines[i].split(separator)
            k = rng.randrange(len(cells))
            if kind == 4:
                cells[k] = rng.choice([b"", *TOKENS])
            elif kind == 5:
                del cells[k]
            else:
                cells.insert(k, rng.choice(cells))
            lines[i] = rng.choice([separator, separator, b"\t", b";"]).join(
                cells
            )
    return b"\n".join(lines)


def change_safetensors(rng: random.Random, data: bytes) -> bytes:
    """Changes the header's values and gives it its length."""
    size = int.from_bytes(data[:8], "little")
    header = change_json(rng, data[8 : 8 + size])
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


def change_records(rng: random.Random, data: bytes) -> bytes:
    """Changes a record; its checksums are right."""
    found = []
    while data:
        size = int.from_bytes(data[:8], "little")
        found.append(data[12 : 12 + size])
        data = data[16 + size :]
    i = rng.randrange(len(found))
    if rng.random() < 0.3:
        found[i] = change_bytes(rng, found[i])
    else:
        example = tf.train.Example.FromString(found[i])
        features = example.features.feature
        name = rng.choice(sorted(features))
        values = rng.choice([[], [5], [-1], [2**40], [1] * 16, [1] * 3000])
        kind = rng.randrange(5)
        if kind == 0:
            del features[name]
        elif kind == 1:
            features[name].Clear()
        elif kind == 2:
            features[name].int64_list.value[:] = values
        elif kind == 3:
            features[name].float_list.value[:] = map(float, values)
        else:
            features[name].bytes_list.value[:] = [b"\xff"] * len(values)
        found[i] = example.SerializeToString()
    return b"".join(map(_framed, found))


def _framed(record: bytes) -> bytes:
    size = len(record).to_bytes(8, "little")
    sums = (
        bundle_writer.masked_crc32c(x).to_bytes(4, "little")
        for x in (size, record)
    )
    return size + next(sums) + record + next(sums)


def change_table(rng: random.Random, data: bytes) -> bytes:
    """Replaces, renames, removes or repeats a column of Parquet."""
    table = parquet.read_table(io.BytesIO(data))
    i = rng.randrange(table.num_columns)
    name, kind = table.column_names[i], rng.randrange(6)
    if kind == 0:
        table = table.remove_column(i)
    elif kind == 1:
        table = table.append_column(name, table[i])
    elif kind == 2:
        names = list(table.column_names)
        names[i] = rng.choice(["", "x\ny", "\0", name.upper()])
        table = table.rename_columns(names)
    elif kind == 3:
        table = table.slice(0, rng.choice([0, 1]))
    else:
        column = rng.choice(COLUMNS)(table.num_rows)
        table = table.set_column(i, name, column)
    out = io.BytesIO()
    parquet.write_table(
        table, out, compression=rng.choice(["none", "snappy", "zstd", "gzip"])
    )
    return out.getvalue()


def inside(pack: Callable, unpack: Callable, change: Mutation) -> Mutation:
    """Returns a mutation of the content of a compressed file."""

    def mutate(rng: random.Random, data: bytes) -> bytes:
        if rng.random() < 0.1:
            return rng.choice([pack(data), data + data, data[:-4] + data])
        return pack(change(rng, unpack(data)))

    return mutate


# Formats.


def _of_folder(folder: pathlib.Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _table(**columns: Sequence) -> bytes:
    out = io.BytesIO()
    parquet.write_table(pa.table(columns), out)
    return out.getvalue()


def _model(folder: str) -> list[bytes]:
    loaded = conversion.load(checkpoint_sources.read(folder))
    return [x.tobytes() for _, x in sorted(loaded.values.items())]


def _vocabulary(folder: str) -> Any:
    tokenizer = tokenizer_files.load(folder)
    words = tokenizer.vocabulary
    return words.is_continuation, words.replacement_ids, words.sha256


def _records(path: str) -> Any:
    manifest.check([path], **SIZES)
    schema = manifest.record_schema([path], *SIZES.values())
    schema = schema.limited(input_ids=50, segment_ids=2, masked_lm_ids=50)
    pipelines.check_records([path], schema, manifest.counts([path]))
    return list(records.read(path))


def _squad(folder: str) -> Any:
    found = dataset.read(f"{folder}/train.json")
    dataset.warn_of_other_answers(found)
    for context in found.contexts:
        dataset.words(context)
    return found.description, dataset.for_training(found)


def _tagged(sentences: Sequence[word_files.Sentences]) -> Any:
    for part in sentences:
        scheme = word_files.scheme(part)
        word_files.encode_tags(part, scheme, LABELS)
        list(word_files.write(part, [part.tags]))


def _columns(folder: str) -> None:
    _tagged([*word_files.read_column_blocks(f"{folder}/train.txt")])


def _rows_of_words(name: str) -> Callable[[str], None]:
    fields = word_files.Fields(tokens="tokens", tags="ner_tags")

    def read(folder: str) -> None:
        path = f"{folder}/{name}"
        _tagged([*word_files.read_table_blocks(path, fields)])

    return read


def _texts(form: str) -> Callable[[str], Any]:
    def read(folder: str) -> Any:
        path = f"{folder}/train.{form}"
        found = examples.Examples(
            lambda: text_files.read_examples(
                [path], form, text_column="text", label_column="label"
            ),
            path,
        )
        found.check()
        labels = examples.find_labels(found, examples.CLASSIFICATION)
        return examples.encode_labels(found, examples.CLASSIFICATION, labels)

    return read


def _task(name: str) -> Callable[[str], None]:
    def read(folder: str) -> None:
        task = sentence_tasks.open_task(
            name, settings.Files(data_dir=folder), trains=True
        )
        found = task.read("train")
        found.check()
        examples.encode_labels(found, task.kind, task.labels)
        task.read("dev").check()

    return read


def _trivia(folder: str) -> Any:
    return triviaqa.convert(f"{folder}/qa.json", f"{folder}/wikipedia")


def _corpus(name: str, kind: str = "sentences") -> Callable[[str], Any]:
    def read(folder: str) -> Any:
        paths = corpus.find_text(f"{folder}/{name}", kind, "text")
        blocks = corpus.read_blocks(paths, kind)
        return [corpus.parse(block, kind)[:2] for block in blocks]

    return read


def _request(name: str, settings: servable.Batching) -> Callable[[str], Any]:
    models_of: dict[str, servable.Servable] = {}

    def read(folder: str) -> bytes:
        if not models_of:
            model = _SCRATCH / "toys" / name
            models_of[""] = servable.load(
                name, str(model), tensorflow_engine.ENGINE, settings
            )
        model = models_of[""]
        body = pathlib.Path(folder, "body.json").read_bytes()
        parsed = rest_format.parse(body, model.signatures)
        model.signatures[parsed.signature_name].num_values(parsed.inputs)
        parts = model.split(parsed.inputs)
        results = asyncio.run(model.predict(parsed.signature_name, parts))
        rows = servable.join(parts, results)
        answer = rest_format.response(
            rows, by_row=parsed.by_row, task=model.task
        )
        json.loads(answer)
        return answer

    return read


_SCRATCH = pathlib.Path()  # Of this run; has the exported toy model.
# Format -> model of toy_models, and a request.
_REQUESTS = {
    "rest_row": (
        "classification",
        {"instances": [{"text": "A fine film."}, {"text": "Dull."}]},
    ),
    "rest_column": (
        "classification",
        {"inputs": {"text": ["A fine film.", "Dull."]}},
    ),
    "rest_bare": ("tagging", {"instances": ["Ann saw it", {"b64": "YQ=="}]}),
    "rest_endings": (
        "multiple_choice",
        {"inputs": {"context": ["a", "b"], "endings": [["x"], ["y"]]}},
    ),
    "rest_numbers": (
        "numbers",
        {"instances": [{"a": 1, "b": 0.5}, {"a": 2, "b": 1.5}]},
    ),
}


def make_formats(scratch: pathlib.Path) -> dict[str, Format]:
    """Returns all formats; writes their examples in a folder at first."""
    global _SCRATCH
    _SCRATCH, stored = scratch, scratch / "examples.pickle"
    if not stored.exists():
        stored.write_bytes(pickle.dumps(_make_examples(scratch)))
    made = pickle.loads(stored.read_bytes())
    model, tf1 = made["model"], made["tf1"]
    weights = model_directory.WEIGHTS
    compressions = {
        "gz": (gzip.compress, gzip.decompress),
        "bz2": (bz2.compress, bz2.decompress),
        "zst": (_zst, _of_zst),
    }
    formats = {
        "safetensors": Format(model, [weights], change_safetensors, _model),
        "model_configs": Format(
            model,
            [x for x in model if x.endswith(".json")],
            change_json,
            _model,
        ),
        "vocabulary": Format(model, ["vocab.txt"], change_lines, _model),
        "bare_vocabulary": Format(
            {"vocab.txt": model["vocab.txt"]},
            ["vocab.txt"],
            change_lines,
            _vocabulary,
        ),
        "tf1": Format(
            tf1, [x for x in tf1 if ".ckpt." in x], None, _model, True
        ),
        "sentence_modules": Format(
            made["sentences"],
            [x for x in made["sentences"] if x.endswith(".json")],
            change_json,
            sentence_modules.read,
        ),
        "tfrecord": Format(
            {"a.tfrecord": made["records"]},
            ["a.tfrecord"],
            change_records,
            lambda folder: _records(f"{folder}/a.tfrecord"),
            True,
        ),
        "tfrecord_gz": Format(
            {"a.tfrecord.gz": gzip.compress(made["records"])},
            ["a.tfrecord.gz"],
            inside(gzip.compress, gzip.decompress, change_records),
            lambda folder: _records(f"{folder}/a.tfrecord.gz"),
            True,
        ),
        "manifest": Format(
            {
                "a.tfrecord": made["records"],
                "a.manifest.json": _dump(
                    metadata_files_test.MANIFEST
                    | {
                        "shards": [
                            {
                                "file": "a.tfrecord",
                                "records": 3,
                                "bytes": len(made["records"]),
                            }
                        ]
                    }
                ),
            },
            ["a.manifest.json"],
            change_json,
            lambda folder: _records(f"{folder}/a.tfrecord"),
        ),
        "squad": Format(
            {"train.json": made["squad"]}, ["train.json"], change_json, _squad
        ),
        "predictions": Format(
            {"p.json": _dump({"q1": "Graz", "q2": ""})},
            ["p.json"],
            change_json,
            lambda folder: metrics.read_json(f"{folder}/p.json", str),
        ),
        "conll": Format(
            {"train.txt": made["conll"]}, ["train.txt"], change_lines, _columns
        ),
        "ner_jsonl": Format(
            {"train.jsonl": made["ner_jsonl"]},
            ["train.jsonl"],
            change_json_lines,
            _rows_of_words("train.jsonl"),
        ),
        "ner_parquet": Format(
            {"train.parquet": made["ner_parquet"]},
            ["train.parquet"],
            change_table,
            _rows_of_words("train.parquet"),
        ),
    }
    for name in SENTENCE_TASKS:
        files = made[name]
        targets = [x for x in files if x.startswith("train")]
        formats[name.lower()] = Format(
            files, targets, change_lines, _task(name)
        )
    formats["triviaqa"] = Format(
        made["triviaqa"], ["qa.json"], change_json, _trivia
    )
    for form, change in {
        "csv": change_lines,
        "tsv": change_lines,
        "jsonl": change_json_lines,
        "parquet": change_table,
    }.items():
        name = f"train.{form}"
        formats[form] = Format({name: made[form]}, [name], change, _texts(form))
    for ending, (pack, unpack) in compressions.items():
        name = f"text.txt.{ending}"
        formats[f"corpus_{ending}"] = Format(
            {name: pack(TEXT.encode())},
            [name],
            inside(pack, unpack, change_lines),
            _corpus(name),
            ending != "zst",  # Not every stream has a checksum.
        )
    formats["corpus_jsonl"] = Format(
        {"text.jsonl": made["jsonl"]},
        ["text.jsonl"],
        change_json_lines,
        _corpus("text.jsonl", "jsonl"),
    )
    formats["corpus_parquet"] = Format(
        {"text.parquet": made["parquet"]},
        ["text.parquet"],
        change_table,
        _corpus("text.parquet"),
    )
    for kind, (name, valid, read) in metadata_files_test.KINDS.items():
        formats[f"json_{kind}"] = Format(
            {name: _dump(valid)}, [name], change_json, read
        )
    single = servable.Batching(max_batch_size=0)
    for kind, (name, request) in _REQUESTS.items():
        formats[kind] = Format(
            {"body.json": _dump(request)},
            ["body.json"],
            change_json,
            _request(name, single),
        )
    return formats


def _zst(data: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    return out.getvalue().to_pybytes()


def _of_zst(data: bytes) -> bytes:
    return pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()


def _make_examples(scratch: pathlib.Path) -> dict[str, Any]:
    """Makes the valid files."""
    made: dict[str, Any] = {}
    tokenizer = None
    model = models.ClassificationModel(
        tiny_runs.config(WORDS, num_hidden_layers=1), num_classes=2
    )
    (scratch / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    tokenizer = tokenizer_files.with_vocabulary(str(scratch / "vocab.txt"))
    model_directory.save(
        model, str(scratch / "model"), tokenizer, labels=["0", "1"]
    )
    made["model"] = _of_folder(scratch / "model")
    loaded = conversion.load(checkpoint_sources.read(str(scratch / "model")))
    (scratch / "tf1").mkdir()
    conversion.write(loaded, str(scratch / "tf1"), conversion.TF1)
    made["tf1"] = _of_folder(scratch / "tf1")
    sentence_models.save(
        scratch / "sentences", **sentence_models.CASES["dense"]
    )
    made["sentences"] = {
        name: data
        for name, data in _of_folder(scratch / "sentences").items()
        if "_" in name or name == "modules.json"
    }
    manifest_test.write_shard(scratch / "a.tfrecord")
    made["records"] = (scratch / "a.tfrecord").read_bytes()
    question = {
        "id": "q1",
        "question": "Where?",
        "answers": [{"text": "Graz", "answer_start": 7}],
        "is_impossible": False,
    }
    other = question | {"id": "q2", "answers": [], "is_impossible": True}
    paragraph = {"context": "Ann in Graz sees it.", "qas": [question, other]}
    made["squad"] = _dump(
        {"version": "v2.0", "data": [{"title": "a", "paragraphs": [paragraph]}]}
    )
    words, tags = ["Ann", "in", "Graz", "."], ["B-PER", "O", "B-LOC", "O"]
    lines = "".join(f"{w} X {t}\n" for w, t in zip(words, tags, strict=True))
    made["conll"] = (
        f"-DOCSTART- X O\n\n{lines}\n# 1\n{lines}\n{lines}"
    ).encode()
    row = _dump({"tokens": words, "ner_tags": tags}) + b"\n"
    made["ner_jsonl"] = row * 3
    made["ner_parquet"] = _table(tokens=[words] * 3, ner_tags=[tags] * 3)
    texts = ["A fine film", 'Dull, "or"', "so \u00e9 so", "no"]
    labels = ["good", "bad", "good", "bad"]
    pairs = list(zip(texts, labels, strict=True))
    quoted = ['"' + x.replace('"', '""') + '"' for x in texts]
    rows = [f"{x},{y}" for x, y in zip(quoted, labels, strict=True)]
    made["csv"] = ("text,label\n" + "\n".join(rows) + "\n").encode()
    rows = [f"{x}\t{y}" for x, y in pairs]
    made["tsv"] = ("text\tlabel\n" + "\n".join(rows) + "\n").encode()
    rows = [_dump({"text": x, "label": y}) for x, y in pairs]
    made["jsonl"] = b"\n".join(rows) + b"\n"
    made["parquet"] = _table(text=texts, label=labels)
    toy_data.Maker(scratch / "data").make()
    for name in SENTENCE_TASKS:
        glue = scratch / "data" / "glue" / name
        made[name] = _of_folder(
            glue if glue.exists() else glue.parents[1] / name
        )
    pages = _of_folder(scratch / "data" / "triviaqa" / "evidence")
    (questions,) = (scratch / "data" / "triviaqa" / "qa").iterdir()
    made["triviaqa"] = pages | {"qa.json": questions.read_bytes()}
    (scratch / "toys").mkdir()
    toy_models.save_all(scratch / "toys")
    return made


# The worker.


class _Outcome(NamedTuple):
    kind: str
    message: str = ""


def mutate(made: Format, seed: str) -> tuple[dict[str, bytes], bool]:
    """Returns the files of a mutation, and whether only a bit was flipped."""
    rng = random.Random(seed)
    name = rng.choice(list(made.targets))
    data, files = made.files[name], dict(made.files)
    if made.is_checked and rng.random() < 0.3:
        files[name] = flip(rng, data)
        return files, True
    if made.change is None or rng.random() < 0.5:
        files[name] = change_bytes(rng, data)
    else:
        files[name] = made.change(rng, data)
    return files, False


def try_one(
    made: Format, seed: str, folder: pathlib.Path, *, shows: bool = False
) -> _Outcome:
    """Reads a mutation in a folder, which is emptied first."""
    files, is_flipped = mutate(made, seed)
    write(folder, files)
    errors.warn_once.cache_clear()
    before = _reset_peak()
    found = None
    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(sys.stderr if shows else output):
            with config_flags._one_line_errors():
                found = made.read(str(folder))
        outcome = _Outcome("read")
    except SystemExit as error:
        lines = output.getvalue()
        outcome = _Outcome("refused", lines)
        if error.code != 2 or lines.count("\n") > 1:
            outcome = _Outcome("lines", lines)
        if _ran_out(error):
            outcome = _Outcome("memory", lines)
    except Exception as error:
        outcome = _Outcome("traceback", "".join(traceback.format_exc()))
        if _ran_out(error):
            outcome = outcome._replace(kind="memory")
    if _peak() - before > GROWTH:
        return _Outcome("memory", f"{_peak() - before} bytes")
    if is_flipped and outcome.kind == "read":
        write(folder, made.files)
        if pickle.dumps(found) != pickle.dumps(made.read(str(folder))):
            return _Outcome("wrong", "another content in spite of checksums")
    return outcome


def write(folder: pathlib.Path, files: Mapping[str, bytes]) -> None:
    """Writes files into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _ran_out(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _status(name: str) -> int:
    text = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(rf"^{name}:\s*(\d+)", text, re.M)[1]) * 1024


def _reset_peak() -> int:
    """Makes the memory that is used now the largest so far; returns it."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def limit_memory() -> None:
    """Makes allocations of several times GROWTH fail, used or not."""
    limit = _status("VmSize") + 4 * GROWTH
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def work(
    scratch: pathlib.Path, seed: int, tasks: Sequence[tuple[str, int, int]]
) -> int:
    """Forks a process that writes a line about each mutation to a pipe.

    Returns:
      The process, and the end of the pipe to read from.
    """
    reads, writes = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writes)
        return pid, reads
    try:
        os.close(reads)
        log = os.open(
            scratch / "worker.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        )
        os.dup2(log, 2)
        logging.set_verbosity(logging.FATAL)
        formats = make_formats(scratch)
        folder = scratch / "mutation"
        for name, made in formats.items():  # What is loaded once.
            if name in {task[0] for task in tasks}:
                write(folder, made.files)
                # Two need other files, which tests of their readers make.
                optional = name in ("json_index", "json_threshold")
                with contextlib.suppress(errors.InputError if optional else ()):
                    made.read(str(folder))
        limit_memory()
        with os.fdopen(writes, "w", buffering=1) as pipe:
            pipe.write("\n")
            for name, first, last in tasks:
                for number in range(first, last):
                    made = formats[name]
                    found = try_one(made, f"{seed}/{name}/{number}", folder)
                    pipe.write(json.dumps([name, number, *found]) + "\n")
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


# The parent.


class State:
    """The counts of a run, in a file."""

    def __init__(self, path: str | None, seed: int):
        """Continues the run in the file, if there is one."""
        self._path = path
        self.values: dict[str, Any] = {"seed": seed, "done": {}, "bad": []}
        if path and os.path.exists(path):
            self.values = file_system.read_json(path)
        if self.values["seed"] != seed:
            sys.exit(f"--state={path} is of --seed={self.values['seed']}")

    def add(self, name: str, number: int, kind: str, message: str) -> None:
        """Counts a mutation."""
        done = self.values["done"].setdefault(name, {"next": 0})
        done["next"] = number + 1
        done[kind] = done.get(kind, 0) + 1
        if kind not in OUTCOMES:
            self.values["bad"].append([name, number, kind, message[-3000:]])
            last = message.strip().splitlines()[-1:] or [""]
            print(f"{name} {number}: {kind}: {last[0][:300]}", flush=True)

    def next(self, name: str) -> int:
        """Returns the first number that is not done."""
        return self.values["done"].get(name, {"next": 0})["next"]

    def save(self) -> None:
        """Writes the counts."""
        if self._path:
            atomic.write_json(self._path, self.values)

    def table(self) -> str:
        """Returns the counts as a table."""
        kinds = [*OUTCOMES, *DEFECTS]
        lines = [" | ".join(["format", "mutations", *kinds])]
        rows: dict[str, collections.Counter] = {}
        for name, done in [*sorted(self.values["done"].items())]:
            for row in ("json" if name.startswith("json_") else name, "all"):
                rows.setdefault(row, collections.Counter()).update(done)
        rows["all"] = rows.pop("all", collections.Counter())
        for name, done in rows.items():
            counts = [done["next"], *(done[kind] for kind in kinds)]
            lines.append(" | ".join([name, *map(str, counts)]))
        return "\n".join(lines)


def plan(state: State, names: Sequence[str], each: int) -> list:
    """Returns the next chunks of a worker: (format, first, last)."""
    tasks = []
    ahead = {name: state.next(name) for name in names}
    while len(tasks) < LIFE:
        open_names = [name for name in names if ahead[name] < each]
        if not open_names:
            break
        # The format that is furthest behind.
        name = min(open_names, key=lambda x: ahead[x])
        last = min(each, ahead[name] + CHUNK)
        tasks.append((name, ahead[name], last))
        ahead[name] = last
    return tasks


def run_worker(
    state: State, scratch: pathlib.Path, seed: int, tasks: list
) -> None:
    """Reads what a worker finds until it ends or has to be killed."""
    pid, reads = work(scratch, seed, tasks)
    numbers = ((name, n) for name, a, b in tasks for n in range(a, b))
    buffer, current = b"", None
    while True:
        ready = _wait(reads, pid, has_begun=current is not None)
        data = os.read(reads, 1 << 16) if ready else b""
        if not data:
            break
        buffer += data
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            if line:
                state.add(*json.loads(line))
            current = next(numbers, None)
    os.close(reads)
    if not ready:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    log = (scratch / "worker.log").read_text(errors="replace")
    if current is None and status:
        sys.exit(f"a worker did not begin or end: {log[-2000:]}")
    if current is not None:
        kind = "crash" if ready else "hang"
        state.add(*current, kind, f"{log}\nstatus {status}")


def _wait(reads: int, pid: int, *, has_begun: bool) -> bool:
    """Returns whether a worker writes, before it is to be killed."""
    begun, used = time.monotonic(), processor_seconds(pid)
    while not select.select([reads], [], [], SECONDS)[0]:
        is_busy = processor_seconds(pid) - used >= SECONDS
        if has_begun and is_busy or time.monotonic() - begun >= IDLE_SECONDS:
            return False
    return True


def processor_seconds(pid: int) -> float:
    """Returns the processor time of a process, which may have ended."""
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Reads mutations; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutations", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--formats", default="", help="names with commas")
    parser.add_argument("--state", help="a JSON file of the counts")
    parser.add_argument("--only", type=int, help="shows this mutation")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        scratch = pathlib.Path(folder)
        if options.only is not None:
            made = make_formats(scratch)[options.formats]
            seed = f"{options.seed}/{options.formats}/{options.only}"
            limit_memory()
            found = try_one(made, seed, scratch / "mutation", shows=True)
            print(f"{found.kind}\n{found.message}")
            return found.kind not in OUTCOMES
        pid = os.fork()  # TensorFlow must not work before forks.
        if not pid:
            names = list(make_formats(scratch))
            (scratch / "names.json").write_text(json.dumps(names))
            os._exit(0)
        os.waitpid(pid, 0)
        names = json.loads((scratch / "names.json").read_text())
        if options.formats:
            names = options.formats.split(",")
        each = -(-options.mutations // len(names))
        state = State(options.state, options.seed)
        with contextlib.suppress(KeyboardInterrupt):
            while tasks := plan(state, names, each):
                run_worker(state, scratch, options.seed, tasks)
                state.save()
    print(state.table())
    return bool(state.values["bad"])


if __name__ == "__main__":
    with smoke.flags({"mutations": 200}):
        sys.exit(main())
