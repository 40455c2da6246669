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
from modeling.config import BertConfig
from tasks.pretraining import pretraining_data, settings
from tests import pretraining_runs
from tests.pretraining_runs import write_inputs
from training import inference

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
    last = caplog.records[-1].getMessage()
    assert last.startswith("still on the plateau")
    for flag in ("--num_warmup_steps", "--max_seq_length", "--learning_rate"):
        assert flag in last
    assert "on the plateau" in (root / "model/report.html").read_text()


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


def test_the_journal_keeps_the_flags_of_training(root, capfd):
    def flags():
        journal = json.loads((root / "model" / "run.json").read_text())
        return journal["flags"]

    before = flags()
    _run(root, do_train=None, learning_rate=1e-3, max_eval_steps=1)
    assert flags() == before
    line = _refused(capfd, root, train_batch_size=4)
    assert "--train_batch_size was 8, is 4" in line
    assert flags() == before


@pytest.mark.usefixtures("without_report")
def test_a_resumed_run_needs_no_initial_weights(root, tmp_path):
    start = shutil.copytree(root / "model", tmp_path / "start")
    flags = {"output_dir": tmp_path / "run", "do_eval": None}
    flags |= {"init_checkpoint": start, "num_train_steps": 2}
    _run(root, **flags)
    shutil.rmtree(start)
    _run(root, **flags | {"num_train_steps": 3})


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
def test_evaluations_of_a_run_read_the_same_records(root, tmp_path, capfd):
    """Another set would have another loss, and `best/` another meaning."""
    flags = {"output_dir": tmp_path / "run", "eval_every_steps": 2}
    flags |= {"do_eval": None, "eval_batch_size": 4, "num_train_steps": 2}
    _run(root, **flags)
    line = _refused(capfd, root, max_eval_steps=1, **flags)
    assert "records evaluated of length 32 had other contents" in line
    (shard, *_) = sorted(root.glob("text-*.tfrecord"))
    line = _refused(capfd, root, eval_file=shard, **flags)
    assert "--eval_file of length 32 had other contents" in line
    _run(root, **flags | {"eval_batch_size": 2, "max_eval_steps": 4})


@pytest.mark.usefixtures("without_report")
def test_the_same_weights_are_evaluated_once(root, tmp_path, monkeypatch):
    call, calls = inference.Evaluator.__call__, []

    def count(*args, **options):
        calls.append(args)
        return call(*args, **options)

    monkeypatch.setattr(inference.Evaluator, "__call__", count)
    _run(root, output_dir=tmp_path, eval_every_steps=2)
    assert len(calls) == 2
    found = (tmp_path / "eval_results.txt").read_text()
    # The same as of another process, which has only the weights.
    _run(root, output_dir=tmp_path, do_train=False)
    assert len(calls) == 3
    assert (tmp_path / "eval_results.txt").read_text() == found


@pytest.mark.parametrize(
    ("objective", "start"), [("masked_lm", "model"), ("left_to_right", None)]
)
def test_the_other_arms_train_on_the_same_shards(
    root, tmp_path, caplog, objective, start
):
    """One of them starts from a model directory."""
    start = start and root / start
    _run(root, output_dir=tmp_path, objective=objective, init_checkpoint=start)
    assert (f"weights of {start}" in caplog.text) == (start is not None)
    text = (tmp_path / "eval_results.txt").read_text()
    assert "masked_lm_loss" in text
    assert "next_sentence" not in text


def test_a_run_that_ends_within_its_warm_up_gets_a_warning(
    root, tmp_path, caplog
):
    """As when google-research/bert's default meets a few steps; it trains."""
    flags = {"output_dir": tmp_path, "do_eval": None, "num_train_steps": 1}
    with pretraining_runs.no_report():
        _run(root, **flags, num_warmup_steps=9)
    assert "--num_warmup_steps=9, but all steps are 1" in caplog.text


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
    with records.ShardWriter(path) as writer:
        writer.write(records.encode(kind, columns))
    line = _refused(capfd, root, do_train=False, eval_file=path)
    assert "bad.tfrecord: record 3: " in line and name in line


def test_held_out_shards_that_are_trained_on_get_a_warning(
    root, tmp_path, caplog
):
    shards = f"{root}/text-*.tfrecord"
    pretraining_data.find_shards(shards, f"{root}/text-00001*")
    assert "--eval_file: 1 of 1 shards are also --input_file" in caplog.text
    caplog.clear()
    _create(root, "vocab.txt", tmp_path / "again", random_seed=5)
    found = pretraining_data.find_shards(shards, f"{tmp_path}/again-*.tfrecord")
    assert "made from the same text as --input_file (text.txt)" in caplog.text
    caplog.clear()
    write_inputs(tmp_path)  # Of unknown text.
    found = pretraining_data.find_shards(shards, f"{tmp_path}/32-*.tfrecord")
    assert len(found["eval_file"]) == 3 and not caplog.text


def test_phases_tell_how_many_of_the_shards_they_read(tmp_path, caplog):
    write_inputs(tmp_path)
    config = BertConfig.from_json_file(tmp_path / "config.json")
    shards = pretraining_data.find_shards(f"{tmp_path}/*.tfrecord", None)
    shards["eval_file"] = shards["input_file"][:4]  # Of lengths 16 and 32.
    specs = settings.parse_phases("16:2")
    with caplog.at_level("INFO", logger="absl"):
        pretraining_data.open_phases(shards, specs, config, None)
    for text in ("input_file: 3 of 6", "eval_file: 3 of 4"):
        assert f"--{text} shards have the sequence length 16" in caplog.text


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
    with records.ShardWriter(str(path)) as writer:
        writer.write(_records_without_pairs(root))
    flags = {"input_file": path, "output_dir": tmp_path / "o"}
    line = _refused(capfd, root, **flags)
    assert line.endswith(
        f"{path}: has no next_sentence_labels, which --objective=masked_lm "
        "does not need"
    )
    _run(root, **flags, objective="masked_lm")
    results = (tmp_path / "o" / "eval_results.txt").read_text()
    assert "masked_lm_accuracy" in results and "next_sent" not in results


def test_a_record_that_is_not_utf_8_is_named_in_training(root, tmp_path, capfd):
    path = tmp_path / "a.tfrecord"
    with records.ShardWriter(str(path)) as writer:
        writer.write([_records_without_pairs(root)[0], *[b"\xff\xc1"] * 20])
    flags = {"input_file": path, "output_dir": tmp_path / "o"}
    line = _refused(capfd, root, **flags, objective="masked_lm")
    assert f"{path}: record 2: Could not parse" in line
    assert r"\xff\xc1" in line and "{{" not in line


@pytest.mark.usefixtures("without_report")
def test_embeddings_without_a_token_get_a_warning(root, tmp_path, caplog):
    large = tmp_path / "large.json"
    large.write_text(json.dumps({**CONFIG, "vocab_size": 500}))
    flags = {"output_dir": tmp_path / "o", "do_eval": None}
    _run(root, bert_config_file=large, num_train_steps=1, **flags)
    unused = 500 - CONFIG["vocab_size"]
    assert f"the model has {unused} embeddings that are never" in caplog.text
