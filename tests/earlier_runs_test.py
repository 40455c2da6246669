"""Proves that runs of an earlier version end as that version ends them.

python -m pytest tests/earlier_runs_test.py

tests/testdata/make_earlier_runs.py has made the runs: each was killed, and then
ended by the same version. earlier_versions_test.py has the literal files of
several versions.
"""

import csv
import importlib
import json
import pathlib
import re
import shutil
import tarfile

import numpy as np
import pytest
import safetensors.numpy

from foundation import config_flags
from tests import tiny_runs

ARCHIVE = pathlib.Path(__file__).parent / "testdata" / "earlier_runs.tar.xz"
CONFIGS = {
    "create_pretraining_data": "PretrainingDataConfig",
    "run_pretraining": "PretrainingConfig",
    "run_classifier": "ClassifierConfig",
    "run_ner": "NerConfig",
    "run_squad": "SquadConfig",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder of the archive, from which the commands read."""
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(folder, filter="data")
    return folder


@pytest.fixture
def resume(runs, monkeypatch, caplog):
    """A function that continues what a command has left, by its name."""
    monkeypatch.chdir(runs)
    caplog.set_level("INFO", logger="absl")
    commands = json.loads((runs / "commands.json").read_text())

    def run(name):
        shutil.copytree(runs / "killed" / name, name)
        script, flags = next(x[1:] for x in commands if x[0] == name)
        module = importlib.import_module(script.removesuffix(".py"))
        config = getattr(module, CONFIGS[module.__name__])
        config_flags.run(config, module.main, [script, *flags])
        return runs / name, runs / "end" / name

    return run


# Biases whose gradient is 0 but for rounding, as no softmax changes if the same
# is added to all of its logits; Adam makes steps of any size of it.
IN_ALL_SCORES = ("attention.self.key.bias",)
IN_ALL_LOGITS = (
    "bert.encoder.layer.0.output.LayerNorm.bias",
    "qa_outputs.bias",
)


def assert_same_model(folder, end, *, free=IN_ALL_SCORES):
    now, then = (
        safetensors.numpy.load_file(x / "model.safetensors")
        for x in (folder, end)
    )
    assert now.keys() == then.keys()
    for name, values in then.items():
        if name.endswith(free):
            continue
        np.testing.assert_allclose(
            now[name], values, rtol=0, atol=1e-4, err_msg=name
        )
    now, then = map(tiny_runs.eval_results, (folder, end))
    # Fine-tuning has written it twice; versions add metrics.
    if "eval_loss" in then:
        assert then.pop("loss") == then["eval_loss"]
    assert {name: now[name] for name in then} == pytest.approx(then, abs=1e-4)


def assert_same_grid(folder, end, text):
    """Checks runs of which the second was killed at step 8."""
    # The first run has results; the second is continued from its middle.
    assert re.search("resuming from .*_seed12346/model.ckpt-8", text)
    assert "_seed12345/model" not in text
    assert_same_model(folder, end)
    now, then = read_json("grid_results.json", folder, end)
    assert now["best"] == then["best"]
    for summary, earlier in zip(now["runs"], then["runs"], strict=True):
        same = {name: summary[name] for name in earlier}
        assert same == pytest.approx(earlier, abs=1e-4)


def assert_same_answers(folder, end, count):
    now, then = read_json("nbest_predictions.json", folder, end)
    assert now.keys() == then.keys() and len(then) == count
    pairs = [
        pair
        for key, answers in then.items()
        for pair in zip(now[key], answers, strict=True)
    ]
    for name in ("start_logit", "end_logit"):  # See IN_ALL_LOGITS.
        shift = np.mean([answer[name] - old[name] for answer, old in pairs])
        for answer, _ in pairs:
            answer[name] -= shift
    for answer, old in pairs:
        assert answer == pytest.approx(old, abs=1e-4)
    for name in ("predictions.json", "null_odds.json"):
        now, then = read_json(name, folder, end)
        assert now == pytest.approx(then, abs=1e-4), name
    now, then = map(tiny_runs.eval_results, (folder, end))
    assert {name: now[name] for name in then} == pytest.approx(then, abs=1e-4)


def read_json(name, *folders):
    return [json.loads((folder / name).read_text()) for folder in folders]


def test_an_archive_is_small():
    assert ARCHIVE.stat().st_size < 300_000


def test_shards_are_completed(resume, runs, caplog):
    assert len([*runs.glob("killed/shards/x-*-of-00003.tfrecord")]) == 2
    folder, end = resume("shards")
    assert "Continuing the run" in caplog.text
    records = sorted(x.name for x in end.glob("x-*.tfrecord"))
    assert records == sorted(x.name for x in folder.glob("x-*.tfrecord"))
    for name in records:
        assert (folder / name).read_bytes() == (end / name).read_bytes()


def test_a_pretraining_is_continued(resume, runs, caplog):
    if not (runs / "shards").exists():
        shutil.copytree(runs / "end" / "shards", runs / "shards")
    assert_same_model(*resume("pretraining"))
    assert re.search("resuming from .*model.ckpt-4", caplog.text)


def test_a_half_finished_grid_is_continued(resume, caplog):
    assert_same_grid(*resume("classifier"), caplog.text)


def test_a_half_finished_grid_of_taggers_is_continued(resume, caplog):
    folder, end = resume("ner")
    assert_same_grid(folder, end, caplog.text)
    now, then = read_json("crf.json", folder, end)
    assert now["labels"] == then["labels"]
    assert np.shape(then["transitions"]) == (5, 5)
    np.testing.assert_allclose(
        now["transitions"], then["transitions"], rtol=0, atol=1e-4
    )
    for name in ("predictions_dev.txt", "predictions_test.txt"):
        assert (folder / name).read_text() == (end / name).read_text()


def test_a_training_of_squad_is_continued(resume, caplog):
    folder, end = resume("squad")
    assert re.search("resuming from .*squad/model.ckpt-16", caplog.text)
    assert_same_model(folder, end, free=IN_ALL_SCORES + IN_ALL_LOGITS)
    assert_same_answers(folder, end, count=24)
    now, then = read_json("question_answering.json", folder, end)
    assert now == pytest.approx(then, abs=1e-4)


def test_unfinished_answers_begin_again(resume, caplog):
    folder, end = resume("squad_prediction")
    assert caplog.text.count("its prediction begins again") == 1
    assert_same_answers(folder, end, count=1300)


def test_an_unfinished_prediction_begins_again(resume, caplog):
    folder, end = resume("prediction")
    assert caplog.text.count("its prediction begins again") == 1
    now, then = (
        [*csv.DictReader((x / "predictions.tsv").open(), delimiter="\t")]
        for x in (folder, end)
    )
    assert len(now) == len(then) == 4200
    assert {row["label"] for row in then} == {"no", "yes"}
    for row, earlier in zip(now, then, strict=True):
        assert (row["id"], row["label"]) == (earlier["id"], earlier["label"])
        for name in ("no", "yes"):
            assert float(row[name]) == pytest.approx(
                float(earlier[name]), abs=1e-4
            )
