"""Proves the runner as people call it: flags, workers, kills, bad input.

pytest tests/create_pretraining_data_test.py
"""

import hashlib
import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest
import tensorflow as tf
import tiny_runs

import create_pretraining_data
from foundation import config_flags

WORDS = "the man went to a store and bought gallon of milk he was late".split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "."]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A text of some 3,000 sentences and its vocabulary."""
    folder = tmp_path_factory.mktemp("runner")
    rng = random.Random(0)
    documents = []
    for _ in range(200):
        lines = [
            " ".join(rng.choices(WORDS, k=rng.randint(3, 25))) + "."
            for _ in range(rng.randint(2, 30))
        ]
        documents.append("\n".join(lines))
    (folder / "text.txt").write_text("\n\n".join(documents))
    (folder / "vocab.txt").write_text("\n".join(SPECIAL + WORDS))
    return folder


def arguments(corpus, *more):
    """Returns a command line; its text and vocabulary may be among `more`."""
    files = {"--input_file": "text.txt", "--vocab_file": "vocab.txt"}
    for flag in {argument.partition("=")[0] for argument in more}:
        files.pop(flag, None)
    usual = [f"{flag}={corpus}/{name}" for flag, name in files.items()]
    return ["create_pretraining_data", *usual, *more]


def in_process(corpus, *more):
    tiny_runs.start(*arguments(corpus, *more))


def refused(corpus, capfd, *more):
    """Runs in this process; returns the one line that it ends with."""
    with pytest.raises(SystemExit) as caught:
        tiny_runs.start(*arguments(corpus, *more))
    assert caught.value.code == 2
    return capfd.readouterr().err.strip().splitlines()[-1]


def hashes(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(pathlib.Path(folder).glob("*"))
    }


def test_the_released_command_line_makes_records(corpus, tmp_path):
    output = tmp_path / "tf_examples.tfrecord"
    in_process(
        corpus,
        f"--output_file={output}",
        "--do_lower_case=True",
        "--max_seq_length=128",
        "--max_predictions_per_seq=20",
        "--masked_lm_prob=0.15",
        "--random_seed=12345",
        "--dupe_factor=5",
        "--num_workers=1",
    )
    assert sorted(hashes(tmp_path)) == [
        "tf_examples.tfrecord",
        "tf_examples.tfrecord.manifest.json",
        "tf_examples.tfrecord.vocab.txt",
    ]
    specification = {
        "input_ids": tf.io.FixedLenFeature([128], tf.int64),
        "input_mask": tf.io.FixedLenFeature([128], tf.int64),
        "segment_ids": tf.io.FixedLenFeature([128], tf.int64),
        "masked_lm_positions": tf.io.FixedLenFeature([20], tf.int64),
        "masked_lm_ids": tf.io.FixedLenFeature([20], tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature([20], tf.float32),
        "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
    }
    dataset = tf.data.TFRecordDataset(str(output)).map(
        lambda x: tf.io.parse_single_example(x, specification)
    )
    rows = list(dataset.as_numpy_iterator())
    assert len(rows) > 1000
    random_next = np.mean([row["next_sentence_labels"][0] for row in rows])
    assert 0.5 < random_next < 0.62


def test_the_field_of_json_lines_and_its_words_are_flags(
    corpus, tmp_path, capfd
):
    path, words = tmp_path / "text.jsonl", tmp_path / "vocab.txt"
    document = {"text": "unknown", "body": "the \u4e2d\u56fd man. he was late."}
    path.write_text(f"{json.dumps(document)}\n" * 9)
    words.write_text("\n".join([*SPECIAL, *WORDS, "\u4e2d\u56fd"]))
    more = [f"--input_file={path}", f"--vocab_file={words}"]
    more += ["--num_workers=1", f"--output_file={tmp_path}/x"]
    more.append("--input_format=jsonl")
    more += ["--text_column=body", "--notokenize_chinese_chars"]
    in_process(corpus, *more)
    made = json.loads((tmp_path / "x.manifest.json").read_text())
    assert made["totals"]["sentences"] == 9
    assert made["totals"]["unknown_pieces"] == 0
    assert made["job"]["text_column"] == "body"
    assert made["tokenizer"]["tokenize_chinese_chars"] is False
    in_process(corpus, *more, "--dry_run")
    assert "sentences             9\n" in capfd.readouterr().out


def test_flags_default_to_the_released_values(corpus):
    config = config_flags.parse(
        create_pretraining_data.PretrainingDataConfig,
        arguments(corpus, "--output_file=x"),
    )
    expected = dict(
        do_lower_case=True,
        do_whole_word_mask=False,
        max_seq_length=128,
        max_predictions_per_seq=20,
        random_seed=12345,
        dupe_factor=10,
        masked_lm_prob=0.15,
        short_seq_prob=0.1,
        mask_token_prob=0.8,
        random_token_prob=0.1,
    )
    assert {
        name: getattr(config.settings, name) for name in expected
    } == expected


def test_a_missing_beam_is_named(corpus, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    flags = ["--output_prefix=x", "--beam_runner=DirectRunner"]
    assert "Apache Beam is missing" in refused(corpus, capfd, *flags)


def test_temporary_files_of_shards_in_a_bucket_are_named(
    corpus, tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    flags = ["--output_file=ram://bucket/x", "--dupe_factor=1"]
    with caplog.at_level("INFO", logger="absl"):
        in_process(corpus, *flags, "--num_workers=1")
    assert f"Temporary files: {tmp_path}/pretraining-data-" in caplog.text
    assert not list(tmp_path.iterdir())


def test_a_dry_run_prints_and_writes_nothing(corpus, tmp_path, capsys):
    in_process(corpus, f"--output_prefix={tmp_path}/x", "--dry_run")
    printed = capsys.readouterr().out
    assert re.search(r"^instances +7,\d\d\d$", printed, re.MULTILINE), printed
    assert not list(tmp_path.iterdir())


def test_two_workers_write_the_shards_of_one(corpus, tmp_path, capfd):
    for number in "12":
        in_process(
            corpus,
            f"--output_prefix={tmp_path}/{number}/x",
            "--num_shards=5",
            f"--num_workers={number}",
        )
    assert hashes(tmp_path / "1") == hashes(tmp_path / "2")
    # No notices of TensorFlow, of any process.
    assert not re.search("^(I0000|WARNING:)", capfd.readouterr().err, re.M)


def start(corpus, folder, workers):
    root = pathlib.Path(create_pretraining_data.__file__).parent
    return subprocess.Popen(
        [
            sys.executable,
            str(root / "create_pretraining_data.py"),
            *arguments(corpus, f"--output_prefix={folder}/x")[1:],
            "--num_shards=5",
            f"--num_workers={workers}",
        ],
        cwd=corpus,
        stdout=subprocess.DEVNULL,
        stderr=open(f"{folder}.log", "w"),
    )


@pytest.mark.all
def test_kills_do_not_change_the_shards(corpus, tmp_path):
    """SIGKILL at random moments of real processes; no process is left."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    in_process(
        corpus,
        f"--output_prefix={folders[0]}/x",
        "--num_shards=5",
        "--num_workers=1",
    )
    rng, kills, code = random.Random(0), 0, None
    while code is None:
        process = start(corpus, folders[1], 2)
        work = folders[1] / "x.work"
        deadline = time.monotonic() + 60
        while not work.exists() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        try:
            wait = rng.random() if kills < 1 else 600
            code = process.wait(timeout=wait)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
    assert code == 0 and kills == 1
    assert hashes(folders[0]) == hashes(folders[1])
    deadline = time.monotonic() + 60
    while processes_in(corpus):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def processes_in(folder) -> list[int]:
    """The processes that work in a folder: the runs and their workers."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cwd"):
        try:
            if path.readlink() == folder:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
