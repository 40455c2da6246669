"""Proves that run_squad.py predicts from the logits of several runs.

python -m pytest tests/run_squad_ensemble_test.py
"""

import json
import shutil

import numpy as np
import pytest
import squad_runs
from squad_runs import read

LOGITS = "predict_logits.npz"
SIZES = {"max_seq_length": None, "doc_stride": None, "max_query_length": None}
OTHER_SIZES = {"max_seq_length": 24, "doc_stride": 4, "max_query_length": 8}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Two models, one of which leaves its answers in a folder of its own."""
    root = squad_runs.save_data(tmp_path_factory.mktemp("data"))
    switches = ("--do_train", "--do_predict", "--version_2_with_negative")
    for name, seed, epochs in (("one", 1, 6), ("two", 2, 4)):
        flags = {"random_seed": seed, "num_train_epochs": epochs}
        squad_runs.run(root, name, *switches, version=2, **flags)
    predict(root, "two_answers")
    return root


def predict(root, name, **flags):
    flags = {"version": 2, "init_checkpoint": root / "two"} | flags
    return squad_runs.run(root, name, "--do_predict", **flags)


def combine(root, name, *members, **flags):
    """Combines runs; sizes of windows are not said, but read."""
    dirs = ",".join(str(root / member) for member in members)
    flags = {"version": 2, "train_file": None, "init_checkpoint": None} | flags
    flags |= {"ensemble_dirs": dirs, **SIZES}
    return squad_runs.run(root, name, **flags)


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


def test_the_threshold_is_found_for_the_combination_and_stored(both, root):
    values = read(both, "eval_results.json")
    threshold = values["null_score_diff_threshold"]
    assert values["eval_f1"] == pytest.approx(values["eval_best_f1"])
    assert read(both, "question_answering.json") == {
        "version_2_with_negative": True,
        "null_score_diff_threshold": threshold,
    }
    odds = read(both, "null_odds.json")
    for number, text in read(both, "predictions.json").items():
        assert (text == "") == (odds[number] > threshold)


def test_neither_order_nor_later_commands_flags_matter(both, root):
    path = root / "two_answers" / "run_config.json"
    path.write_text(json.dumps(read(path.parent, path.name) | OTHER_SIZES))
    other = combine(root, "turned", "two_answers", "one")
    assert (other / LOGITS).exists()
    for name in ("predictions.json", "question_answering.json"):
        assert read(other, name) == read(both, name)


def test_without_answers_the_threshold_is_the_mean_of_the_runs(both, root):
    other = combine(
        root, "unlabeled", "one", "two", predict_file=root / "test2.json"
    )
    stored = [
        read(folder, "question_answering.json")["null_score_diff_threshold"]
        for folder in (root / "one", root / "two", other)
    ]
    assert stored[0] != stored[1]
    assert stored[2] == pytest.approx((stored[0] + stored[1]) / 2)
    assert read(other, "null_odds.json") == read(both, "null_odds.json")
    assert not (other / "eval_results.json").exists()


def test_what_was_found_for_a_combination_is_used_for_it_later(root):
    def stored(folder):
        kept = read(folder, "question_answering.json")
        return kept["null_score_diff_threshold"]

    found = stored(combine(root, "later", "one", "two_answers"))
    unlabeled = {"predict_file": root / "test2.json"}
    combine(root, "later", "one", "two", **unlabeled)
    assert stored(root / "later") != found  # Of other runs: their mean.
    combine(root, "later", "one", "two_answers")
    folder = combine(root, "later", "one", "two_answers", **unlabeled)
    assert stored(folder) == found
    odds = read(folder, "null_odds.json")
    for number, text in read(folder, "predictions.json").items():
        assert (text == "") == (odds[number] > found)
    # A threshold that is given is for one command.
    given = {"null_score_diff_threshold": found + 1e5}
    folder = combine(root, "later", "one", "two_answers", **given)
    assert all(read(folder, "predictions.json").values())
    assert stored(folder) == found
    folder = combine(root, "later", "one", "two_answers", **unlabeled)
    assert stored(folder) == found


def test_a_threshold_is_not_that_of_runs_that_were_replaced(root, caplog):
    def threshold(folder):
        kept = read(folder, "question_answering.json")
        return kept["null_score_diff_threshold"]

    runs = ("first", "second")
    for name, source in zip(runs, ("one", "two"), strict=True):
        shutil.copytree(root / source, root / name)
    found = threshold(combine(root, "replaced", *runs))
    unlabeled = {"predict_file": root / "test2.json"}
    combine(root, "replaced", *runs, **unlabeled)
    assert threshold(root / "replaced") == found
    assert f"threshold: {found:g}, of an earlier ensemble" in caplog.text
    shutil.rmtree(root / "second")
    shutil.copytree(root / "one", root / "second")  # As if trained again.
    combine(root, "replaced", *runs, **unlabeled)
    mean = threshold(root / "one")
    assert threshold(root / "replaced") == mean != found
    assert f"threshold: {mean:g}, the mean of the runs'" in caplog.text


def test_runs_with_other_windows_are_combined_by_their_lists(root, caplog):
    predict(root, "narrow", doc_stride=3)
    folder = combine(root, "mixed", "one", "narrow")
    assert "narrow: has other windows than" in caplog.text
    assert not (folder / LOGITS).exists()
    number = "q4-0"
    lists = [
        {e["text"]: e["probability"] for e in entries[number]}
        for entries in (
            read(root / name, "nbest_predictions.json")
            for name in ("one", "narrow", "mixed")
        )
    ]
    for text, probability in lists[2].items():
        mean = (lists[0].get(text, 0.0) + lists[1].get(text, 0.0)) / 2
        assert probability == pytest.approx(mean)


def test_an_ensemble_may_be_a_member(both, root):
    odds = read(both, "null_odds.json")
    again = combine(root, "again", "both", "both")
    assert (again / LOGITS).exists()
    assert read(again, "null_odds.json") == pytest.approx(odds, abs=1e-4)


@pytest.mark.parametrize(
    ("output_dir", "members", "flags", "message"),
    [
        ("bad", ("one", "encoder"), {}, "nbest_predictions.json is missing"),
        ("one", ("one", "two"), {}, "need a directory of their own"),
        ("two_answers", ("one", "two_answers"), {}, "directory of their own"),
        ("bad", ("one", "two"), {"version": 1}, "it predicted another file"),
        (
            "bad",
            ("one", "two"),
            {"version_2_with_negative": False},
            "--version_2_with_negative is needed",
        ),
    ],
    ids=["missing", "model", "member", "other_questions", "version"],
)
def test_what_cannot_be_combined_is_named(
    root, capsys, output_dir, members, flags, message
):
    with pytest.raises(SystemExit) as caught:
        combine(root, output_dir, *members, **flags)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
