"""Proves that run_squad.py predicts from the logits of several runs.

python -m pytest tests/run_squad_ensemble_test.py
"""

import json
import shutil

import numpy as np
import pytest
import squad_runs
import tiny_runs
from squad_runs import read

LOGITS = "predict_logits.npz"
SIZES = {"max_seq_length": None, "doc_stride": None, "max_query_length": None}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Two models, one of which leaves its answers in a folder of its own."""
    root = squad_runs.save_data(tmp_path_factory.mktemp("data"))
    switches = ("--do_train", "--do_predict", "--version_2_with_negative")
    for name, seed, epochs in (("one", 1, 2), ("two", 2, 1)):
        flags = {"random_seed": seed, "num_train_epochs": epochs}
        squad_runs.run(root, name, *switches, version=2, **flags)
    predict(root, "two_answers")
    return root


def predict(root, name, model="two", **flags):
    flags = {"version": 2, "init_checkpoint": root / model} | flags
    return squad_runs.run(root, name, "--do_predict", **flags)


def combine(root, name, *members, **flags):
    """Combines runs; sizes of windows are not said, but read."""
    dirs = ",".join(str(root / member) for member in members)
    flags = {"version": 2, "train_file": None, "init_checkpoint": None} | flags
    flags |= {"ensemble_dirs": dirs, **SIZES}
    return squad_runs.run(root, name, **flags)


def threshold(folder):
    return read(folder, "question_answering.json")["null_score_diff_threshold"]


@pytest.fixture(scope="module")
def both(root):
    return combine(root, "both", "one", "two_answers")


def test_logits_of_two_runs_are_averaged(both, root):
    files = [np.load(root / n / LOGITS) for n in ("one", "two_answers")]
    found = np.load(both / LOGITS)
    for name in ("start", "end"):
        one, two = (file[name] for file in files)
        assert not np.allclose(one, two)
        np.testing.assert_allclose(found[name], (one + two) / 2, atol=1e-5)
    odds = read(both, "null_odds.json")
    assert odds != read(root / "one", "null_odds.json")
    assert odds != read(root / "two", "null_odds.json")
    assert len(odds) == 40


def test_the_threshold_is_found_for_the_combination_and_stored(both):
    values = tiny_runs.eval_results(both)
    found = threshold(both)
    assert values["eval_null_score_diff_threshold"] == found
    assert values["eval_f1"] == pytest.approx(values["eval_best_f1"])
    odds = read(both, "null_odds.json")
    for number, text in read(both, "predictions.json").items():
        assert (text == "") == (odds[number] > found)


def test_what_was_found_for_a_combination_is_used_for_it_later(root):
    """Another combination has the mean of its runs' thresholds."""
    runs = ("first", "second")
    for name, source in zip(runs, ("one", "two"), strict=True):
        shutil.copytree(root / source, root / name)
    found = threshold(combine(root, "later", *runs))
    assert found != threshold(root / "one") != threshold(root / "two")
    unlabeled = {"predict_file": root / "test2.json"}
    for name in runs:
        predict(root, name, model=name, **unlabeled)
    folder = combine(root, "later", *runs, **unlabeled)
    assert threshold(folder) == found
    odds = read(folder, "null_odds.json")
    for number, text in read(folder, "predictions.json").items():
        assert (text == "") == (odds[number] > found)
    folder = combine(root, "others", *runs, **unlabeled)
    mean = (threshold(root / "one") + threshold(root / "two")) / 2
    assert threshold(folder) == pytest.approx(mean)
    shutil.rmtree(root / "second")
    shutil.copytree(root / "one", root / "second")  # As if trained again.
    predict(root, "second", model="second", **unlabeled)
    combine(root, "later", *runs, **unlabeled)
    assert threshold(root / "later") == threshold(root / "one")


def test_an_ensemble_may_be_a_member(both, root):
    odds = read(both, "null_odds.json")
    model = {"init_checkpoint": root / "one"}
    again = combine(root, "again", "both", "both", **model)
    assert read(again, "null_odds.json") == pytest.approx(odds, abs=1e-4)


@pytest.mark.parametrize(
    ("output_dir", "members", "flags", "message"),
    [
        ("bad", ("one", "narrow"), {}, "narrow/predict_logits.npz has the"),
        ("bad", ("one", "encoder"), {}, "predict_logits.npz is missing"),
        ("bad", ("one", "damaged"), {}, "predict_logits.npz: cannot be read"),
        ("one", ("one", "two"), {}, "need a directory of their own"),
        ("two_answers", ("one", "two_answers"), {}, "directory of their own"),
        (
            "bad",
            ("one", "two"),
            {"version_2_with_negative": False},
            "--version_2_with_negative is needed",
        ),
    ],
    ids=["windows", "missing", "damaged", "model", "member", "version"],
)
def test_what_cannot_be_combined_is_named(
    root, capsys, output_dir, members, flags, message
):
    if "narrow" in members:
        predict(root, "narrow", doc_stride=3)
    if "damaged" in members:
        (root / "damaged").mkdir()
        data = (root / "one" / LOGITS).read_bytes()
        (root / "damaged" / LOGITS).write_bytes(data[:-9])
    before = json.loads((root / "one" / "predictions.json").read_text())
    with pytest.raises(SystemExit) as caught:
        combine(root, output_dir, *members, **flags)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert read(root / "one", "predictions.json") == before
