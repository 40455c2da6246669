"""Proves run_squad.py in small: train, predict, score, prompt, refuse.

python -m pytest tests/run_squad_test.py
"""

import io
import json
import sys

import pytest
import squad_runs
import tiny_runs
from squad_runs import read, run

import run_squad
from finetuning import prediction
from foundation import config_flags
from tasks.squad import answering, dataset, metrics
from weights import model_directory

SECOND = {"version": 2, "num_train_epochs": 6}
GRID = {"learning_rate": "1e-6,1e-2", "num_train_epochs": 6}
BOTH = ("--do_train", "--do_predict")
NEGATIVE = "--version_2_with_negative"
WITHOUT = {"train_file": None, "predict_file": None, "init_checkpoint": None}
FILES = (
    "predictions.json",
    "nbest_predictions.json",
    "predict_logits.npz",
    "eval_results.txt",
)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A tiny encoder with its vocabulary, and data of both versions."""
    return squad_runs.save_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def first(root):
    """A grid of SQuAD 1.1's form from start to end, whose best is kept."""
    return run(root, "first", *BOTH, **GRID)


@pytest.fixture(scope="module")
def second(root):
    """A run of SQuAD 2.0's form from start to end; one that was killed."""
    flags = SECOND | {"keep_checkpoint_max": 5}
    folder = run(root, "second", *BOTH, NEGATIVE, **flags)
    squad_runs.killed(folder, root / "killed")
    return folder


def threshold(folder):
    return read(folder, "question_answering.json")["null_score_diff_threshold"]


def test_it_learns_and_scores_itself(first, root):
    values = tiny_runs.eval_results(first)
    assert values["eval_f1"] > 90
    # As released: questions, of which some have several windows.
    assert values["global_step"] == int(200 / 32 * 6)
    found = dataset.read(str(root / "dev1.json"))
    scores = metrics.evaluate(found, read(first, "predictions.json"))
    assert values["eval_f1"] == scores["f1"]
    assert values["eval_exact_match"] == scores["exact_match"]
    journal = read(first, "run.json")
    best = max(x["values"]["f1"] for x in journal["runs"].values())
    assert values["eval_f1"] == best
    assert "lr0.01" in journal["best"]["run"]


def test_every_question_has_an_answer_in_the_released_files(first):
    predictions = read(first, "predictions.json")
    assert list(predictions) == [f"q2-{i}" for i in range(40)]
    lists = read(first, "nbest_predictions.json")
    assert list(lists) == list(predictions)
    for number, entries in lists.items():
        assert entries[0]["text"] == predictions[number]
        assert len(entries) <= 20
        total = sum(entry["probability"] for entry in entries)
        assert total == pytest.approx(1)
    text = (first / "nbest_predictions.json").read_text()
    assert text == json.dumps(lists, indent=4) + "\n"
    assert (first / "train.tf_record").exists()
    assert not (first / "eval.tf_record").exists()


def test_a_model_directory_with_card_and_report_is_left(first):
    architecture = model_directory.read_settings(str(first)).architecture
    assert architecture == "BertForQuestionAnswering"
    card = (first / "README.md").read_text()
    assert "200 examples of train1.json" in card
    assert "exact_match" in card and "pipeline_tag: question-an" in card
    page = (first / "report.html").read_text()
    for heading in ("Learning curves", "Answers", "Worst mistakes"):
        assert heading in page


def test_a_repeated_run_gives_the_same_answers_without_training(first, root):
    paths = [first / name for name in FILES]
    paths += first.glob("runs/*/metrics.jsonl")
    assert len(paths) == 6
    before = {path: path.read_bytes() for path in paths}
    run(root, "first", *BOTH, **GRID)
    assert {path: path.read_bytes() for path in paths} == before


def test_a_file_without_answers_is_predicted_and_not_scored(first, root):
    """Neither the size of batches nor their grouping changes answers."""
    other = run(
        root,
        "unscored",
        "--do_predict",
        init_checkpoint=first,
        predict_file=root / "test1.json",
        predict_batch_size=5,
    )
    predictions = read(other, "predictions.json")
    assert predictions == read(first, "predictions.json")
    assert not (other / "eval_results.txt").exists()


def test_the_threshold_is_found_applied_and_stored(second, root):
    values = tiny_runs.eval_results(second)
    found = values["eval_null_score_diff_threshold"]
    assert values["eval_best_f1_thresh"] == found
    assert values["eval_f1"] == pytest.approx(values["eval_best_f1"])
    assert values["eval_f1"] > 80
    odds = read(second, "null_odds.json")
    predictions = read(second, "predictions.json")
    assert any(text == "" for text in predictions.values())
    for number, text in predictions.items():
        assert (text == "") == (odds[number] > found)
    assert threshold(second) == found
    # Used where nothing is said: neither the version nor the threshold is.
    flags = {"init_checkpoint": second, "version": 2}
    other = run(root, "later", "--do_predict", **flags)
    assert read(other, "predictions.json") == predictions
    # A threshold that is given is for one command.
    given = {"null_score_diff_threshold": found + 1e5}
    run(root, "later", "--do_predict", **flags, **given)
    assert all(read(other, "predictions.json").values())
    assert threshold(other) == found


@pytest.mark.all
def test_what_is_stored_with_a_model_outlives_later_runs(second, root):
    names = ("question_answering.json", "model.safetensors")
    before = {name: (second / name).read_bytes() for name in names}
    answers = read(second, "predictions.json")
    # For once by another threshold, or as if it were of SQuAD 1.1.
    test2 = WITHOUT | {"predict_file": root / "test2.json"}
    given = {"null_score_diff_threshold": threshold(second) + 1e5}
    run(root, "second", "--do_predict", **test2, **given)
    assert all(read(second, "predictions.json").values())
    run(root, "second", "--do_predict", f"{NEGATIVE}=False", **test2)
    assert not (second / "null_odds.json").exists()
    # The stored threshold applies to questions without answers.
    run(root, "second", "--do_predict", **test2)
    assert read(second, "predictions.json") == answers
    # Started again, with nothing left to train.
    run(root, "second", *BOTH, NEGATIVE, **SECOND)
    assert read(second, "predictions.json") == answers
    assert {name: (second / name).read_bytes() for name in names} == before
    card = (second / "README.md").read_text()
    assert "40 examples of dev2.json" in card


def test_a_killed_training_is_predicted_as_what_it_learns(second, root):
    killed = root / "killed"
    run(root, "killed", "--do_predict", predict_file=root / "dev2.json")
    answers = read(second, "predictions.json")
    assert read(killed, "predictions.json") == answers
    assert "" in answers.values()
    # The threshold that was found applies to sets without answers.
    run(root, "killed", "--do_predict", predict_file=root / "test2.json")
    assert read(killed, "predictions.json") == answers


def test_a_killed_prediction_continues(first, root, monkeypatch, caplog):
    monkeypatch.setattr(prediction, "BLOCK", 32)  # Eight questions.
    flags = {"init_checkpoint": first}
    calm = run(root, "calm", "--do_predict", **flags)
    decode, calls = answering.Answerer.decode, []

    def dies(*arguments):
        calls.append(0)
        if len(calls) == 4:
            raise RuntimeError("killed")
        return decode(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(answering.Answerer, "decode", dies)
        with pytest.raises(RuntimeError, match="killed"):
            run(root, "stopped", "--do_predict", **flags)
    assert not (root / "stopped" / "predictions.json").exists()
    with caplog.at_level("INFO", logger="absl"):
        folder = run(root, "stopped", "--do_predict", **flags)
    assert "3 of 5 blocks were predicted by an earlier" in caplog.text
    assert not (folder / "dev.blocks").exists()
    for name in FILES:
        assert (folder / name).read_bytes() == (calm / name).read_bytes()


def test_it_answers_at_the_prompt(first, second, root, capsys, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"Who?\n\nw3 Carl\n?"))
    monkeypatch.setattr(sys, "stdin", stdin)
    pair = {"question": "Who?", "context": "w1 w2 Anna, w3"}
    run(root, "first", "--interactive", **WITHOUT, **pair)
    output = capsys.readouterr().out
    assert "Anna  (probability" in output
    assert "characters 6-10" in output
    assert output.count("w1 w2 [Anna], w3") == 2
    assert "Carl  (probability" in output
    run(root, "second", **WITHOUT, question="Who?", context="w1 w2 w3 w4")
    assert "(no answer)" in capsys.readouterr().out


@pytest.mark.all
def test_a_student_learns_from_a_teacher_of_the_same_squad(
    first, second, root, capsys
):
    flags = {"teacher_dir": first, "num_train_epochs": 1}
    run(root, "student", "--do_train", **flags)
    lines = (root / "student" / "metrics.jsonl").read_text()
    assert "distillation_loss" in lines
    flags["teacher_dir"] = second
    with pytest.raises(SystemExit):
        run(root, "other", "--do_train", **flags)
    assert "of the teacher in" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("version", "epochs", "size"), [("1.1", 3.0, 32), ("2.0", 2.0, 48)]
)
def test_the_papers_recipes_are_flag_files(repository, version, epochs, size):
    flagfile = repository / "configs" / f"squad_{version}.flags"
    argv = ["x", f"--flagfile={flagfile}", "--output_dir=o"]
    argv += ["--train_file=t", "--predict_file=p"]
    flags = config_flags.parse(run_squad.SquadFlags, argv)
    assert flags.num_train_epochs == (epochs,)
    assert flags.train_batch_size == (size,)
    assert bool(flags.version_2_with_negative) == (version == "2.0")
