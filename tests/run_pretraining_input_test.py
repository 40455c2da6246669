"""Proves pre-training on small data, and that bad input is refused in one line.

python -m pytest tests/run_pretraining_input_test.py
"""

import json
import random
import shutil

import pytest
import tensorflow as tf
import tiny_runs

from data import records, schema
from tests import pretraining_runs

WORDS = "the man went to a store and bought gallon of milk he was late".split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "."]
CONFIG = dict(
    vocab_size=len(SPECIAL + WORDS),
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=40,
    type_vocab_size=2,
)


def _arguments(program, **flags):
    return [program, *(f"--{name}={value}" for name, value in flags.items())]


def _create(root, vocab, prefix, **flags):
    flags = {
        "input_file": root / "text.txt",
        "vocab_file": root / vocab,
        "output_prefix": root / prefix,
        "num_shards": 2,
        "max_seq_length": 32,
        "max_predictions_per_seq": 5,
        "dupe_factor": 2,
        "num_workers": 1,
        **flags,
    }
    tiny_runs.start(*_arguments("create_pretraining_data", **flags))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Text, vocabulary, config, shards, and a model trained on them."""
    folder = tmp_path_factory.mktemp("pretraining")
    rng = random.Random(0)
    documents = [
        "\n".join(
            " ".join(rng.choices(WORDS, k=rng.randint(3, 12))) + "."
            for _ in range(8)
        )
        for _ in range(20)
    ]
    (folder / "text.txt").write_text("\n\n".join(documents))
    (folder / "vocab.txt").write_text("\n".join(SPECIAL + WORDS) + "\n")
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    _create(folder, "vocab.txt", "text")
    _run(folder)
    return folder


def _run(root, **flags):
    flags = {
        "bert_config_file": root / "bert_config.json",
        "input_file": root / "text-*.tfrecord",
        "output_dir": root / "model",
        "do_train": True,
        "do_eval": True,
        "max_seq_length": 32,
        "max_predictions_per_seq": 5,
        "train_batch_size": 8,
        "num_train_steps": 4,
        "num_warmup_steps": 1,
        "max_eval_steps": 2,
        **flags,
    }
    given = {k: v for k, v in flags.items() if v is not None}
    tiny_runs.start(*_arguments("run_pretraining", **given))


@pytest.fixture
def without_report():
    """Most tests read no report."""
    with pretraining_runs.no_report():
        yield


def _refused(capfd, root, **flags):
    """Runs a command that fails; returns its error message."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as stopped:
        _run(root, **flags)
    assert stopped.value.code == 2
    line = capfd.readouterr().err.strip().splitlines()[-1]
    assert "Traceback" not in line
    return line


def test_a_run_leaves_a_model_directory_and_the_original_keys(root):
    names = {path.name for path in (root / "model").iterdir()}
    assert names >= {
        "bert_config.json",
        "config.json",
        "eval_results.txt",
        "metrics.jsonl",
        "model.ckpt-4.index",
        "model.safetensors",
        "report.html",
        "run.json",
        "README.md",
        "tokenizer_config.json",
        "vocab.txt",
    }
    text = (root / "model" / "eval_results.txt").read_text()
    values = dict(line.split(" = ") for line in text.splitlines())
    assert set(values) >= {
        "global_step",
        "loss",
        "masked_lm_accuracy",
        "masked_lm_loss",
        "next_sentence_accuracy",
        "next_sentence_loss",
    }
    assert values["global_step"] == "4"
    total = float(values["masked_lm_loss"]) + float(
        values["next_sentence_loss"]
    )
    assert float(values["loss"]) == pytest.approx(total)


def test_a_finished_run_says_so_and_that_it_taught_nothing(root, caplog):
    before = (root / "model" / "model.safetensors").read_bytes()
    _run(root)
    assert "already finished" in caplog.text
    assert (root / "model" / "model.safetensors").read_bytes() == before
    assert "still on the plateau" in caplog.text


@pytest.mark.all
def test_no_limit_evaluates_all_records(root, caplog):
    _run(root, do_train=None, max_eval_steps=1)
    assert "results on 8 of" in caplog.text
    results = root / "model" / "eval_results.txt"
    part = results.read_text()
    caplog.clear()
    _run(root, do_train=None, max_eval_steps=0)
    everything = results.read_text()
    assert everything != part
    _run(root, do_train=None, max_eval_steps=1000)
    assert results.read_text() == everything
    start = {"init_checkpoint": root / "model", "output_dir": root / "other"}
    _run(root, do_train=None, max_eval_steps=0, **start)
    found = tiny_runs.eval_results(root / "other")
    losses = tiny_runs.eval_results(root / "model")
    assert found["loss"] == pytest.approx(losses["loss"], rel=1e-5)


def test_the_journal_keeps_the_flags_of_training(root, capfd):
    before = (root / "model" / "run.json").read_text()
    _run(root, do_train=None, learning_rate=1e-3, max_eval_steps=1)
    line = _refused(capfd, root, train_batch_size=4)
    assert "--train_batch_size was 8, is 4" in line
    after = (root / "model" / "run.json").read_text()
    assert json.loads(after)["flags"] == json.loads(before)["flags"]


@pytest.mark.usefixtures("without_report")
def test_regenerated_shards_are_refused(root, tmp_path, capfd):
    """As many records under the same names, but others."""
    folder = shutil.copytree(root, tmp_path / "copy")
    for path in folder.glob("text-*"):
        path.unlink()
    (folder / "text.manifest.json").unlink()
    # Words of the same lengths at the same positions.
    text = (folder / "text.txt").read_text()
    (folder / "text.txt").write_text(text.replace("milk", "late"))
    _create(folder, "vocab.txt", "text")
    flags = {"num_train_steps": 8, "do_eval": False}
    line = _refused(capfd, folder, **flags)
    assert "--input_file of length 32 had other contents" in line


@pytest.mark.usefixtures("without_report")
def test_evaluations_of_a_run_read_the_same_records(
    root, tmp_path, capfd, caplog
):
    """Another set would have another loss, and `best/` another meaning."""
    flags = {"output_dir": tmp_path / "run", "eval_every_steps": 2}
    flags |= {"do_eval": None, "eval_batch_size": 4, "num_train_steps": 2}
    _run(root, **flags)
    line = _refused(capfd, root, max_eval_steps=1, **flags)
    assert "records evaluated of length 32 had other contents" in line
    (shard, *_) = sorted(root.glob("text-*.tfrecord"))
    line = _refused(capfd, root, eval_file=shard, **flags)
    assert "--eval_file of length 32 had other contents" in line
    assert "1 of 1 shards are also --input_file" in caplog.text
    _run(root, **flags | {"eval_batch_size": 2, "max_eval_steps": 4})


@pytest.mark.all
@pytest.mark.usefixtures("without_report")
def test_another_arm_trains_on_the_same_shards(root, tmp_path, caplog):
    """A resumed run needs its initial weights no more."""
    start = shutil.copytree(root / "model", tmp_path / "start")
    flags = {"output_dir": tmp_path / "run", "init_checkpoint": start}
    flags |= {"objective": "masked_lm", "num_train_steps": 2}
    _run(root, **flags)
    assert f"weights of {start}" in caplog.text
    text = (tmp_path / "run" / "eval_results.txt").read_text()
    assert "masked_lm_loss" in text and "next_sentence" not in text
    shutil.rmtree(start)
    _run(root, **flags | {"num_train_steps": 3})


@pytest.mark.all
@pytest.mark.usefixtures("without_report")
def test_a_left_to_right_model_trains_on_the_same_shards(root, tmp_path):
    flags = {"output_dir": tmp_path, "num_train_steps": 2}
    _run(root, objective="left_to_right", **flags)
    text = (tmp_path / "eval_results.txt").read_text()
    assert "masked_lm_loss" in text and "next_sentence" not in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("masked_lm_ids", CONFIG["vocab_size"]),
        ("masked_lm_positions", 32),
        ("next_sentence_labels", 2),
    ],
)
def test_what_is_beyond_the_model_is_refused_in_evaluation(
    root, tmp_path, capfd, name, value
):
    """A position beyond the sequence would be one of the next record."""
    kind = schema.pretraining(32, 5)
    path = str(tmp_path / "bad.tfrecord")
    shard = next(root.glob("text-*.tfrecord"))
    columns = records.parse(tf.constant(list(records.read(shard))), kind)
    columns = {name: value.numpy() for name, value in columns.items()}
    columns[name][2, 0] = value
    records.write(path, [records.encode(kind, columns)])
    line = _refused(capfd, root, do_train=False, eval_file=path)
    assert "bad.tfrecord: record 3: " in line and name in line


def _records_without_pairs(root):
    """Returns the records of the shards without next_sentence_labels."""
    found = []
    for path in sorted(root.glob("text-*.tfrecord")):
        for record in records.read(str(path)):
            example = tf.train.Example.FromString(record)
            del example.features.feature["next_sentence_labels"]
            found.append(example.SerializeToString())
    return found


@pytest.mark.usefixtures("without_report")
def test_other_objectives_need_no_next_sentence_labels(root, tmp_path, capfd):
    path = tmp_path / "a.tfrecord"
    records.write(str(path), [_records_without_pairs(root)])
    flags = {"input_file": path, "output_dir": tmp_path / "o"}
    line = _refused(capfd, root, **flags)
    assert line.endswith(
        f"{path}: has no next_sentence_labels, which --objective=masked_lm "
        "does not need"
    )
    _run(root, **flags, objective="masked_lm")
    results = (tmp_path / "o" / "eval_results.txt").read_text()
    assert "masked_lm_accuracy" in results and "next_sent" not in results
