"""Proves run_squad.py in small: train, predict, score, combine, prompt, refuse.

python -m pytest tests/run_squad_test.py
"""

import dataclasses
import io
import shutil
import sys

import pytest
import squad_runs
import tiny_runs
from squad_runs import read, run

import run_squad
from foundation import config_flags
from modeling import models
from tasks.squad import dataset, metrics
from weights import model_directory

RATES = "1e-6,1e-2"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A tiny encoder with its vocabulary, and data of both versions."""
    return squad_runs.save_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def first(root):
    """A grid of SQuAD 1.1's form from start to end, whose best is kept."""
    modes = ("--do_train", "--do_predict=True")
    return run(root, "first", *modes, learning_rate=RATES)


@pytest.fixture(scope="module")
def second(root):
    """A run of SQuAD 2.0's form from start to end."""
    return run(
        root,
        "second",
        "--do_train",
        "--do_predict",
        "--version_2_with_negative",
        version=2,
    )


def test_a_question_cannot_fill_a_window():
    needed = {"output_dir": "out", "question": "Who?", "context": "Anna"}
    config_flags.build(run_squad.SquadConfig, max_seq_length=68, **needed)
    message = "max_seq_length=67: must be greater than .*max_query_length=64"
    with pytest.raises(ValueError, match=message):
        config_flags.build(run_squad.SquadConfig, max_seq_length=67, **needed)


def test_it_learns_and_scores_itself(first, root):
    values = read(first, "eval_results.json")
    assert values["eval_f1"] > 90
    # As released: questions, of which some have several windows.
    assert values["global_step"] == int(200 / 32 * 10)
    found = dataset.read(str(root / "dev1.json"))
    scores = metrics.evaluate(found, read(first, "predictions.json"))
    assert values["eval_f1"] == scores["f1"]
    assert values["eval_exact_match"] == scores["exact_match"]


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
        assert list(entries[0])[0] == "text"
    assert not (first / "null_odds.json").exists()
    assert (first / "train.tf_record").exists()
    assert not (first / "eval.tf_record").exists()


def test_a_model_directory_with_card_and_report_is_left(first):
    architecture = model_directory.read_settings(str(first)).architecture
    assert architecture == "BertForQuestionAnswering"
    card = (first / "README.md").read_text()
    assert "200 questions of train1.json, SHA-256" in card
    assert "eval_exact_match" in card
    page = (first / "report.html").read_text()
    for heading in (
        "Learning curves",
        "By type of question",
        "By length of answer",
        "By length of paragraph",
        "Worst mistakes",
    ):
        assert heading in page


def test_a_repeated_run_gives_the_same_answers_without_training(first, root):
    names = ("predictions.json", "nbest_predictions.json")
    paths = [first / name for name in names]
    paths += first.glob("runs/*/metrics.jsonl")
    assert len(paths) == 4
    before = {path: path.read_bytes() for path in paths}
    modes = ("--do_train", "--do_predict")
    run(root, "first", *modes, learning_rate=RATES)
    assert {path: path.read_bytes() for path in paths} == before


def test_a_prediction_cannot_change_the_case_of_a_model(first, root, capsys):
    with pytest.raises(SystemExit):
        run(root, "first", "--do_predict", do_lower_case=False)
    error = capsys.readouterr().err.splitlines()[-1]
    assert "--do_lower_case=False, but --init_checkpoint=" in error


def test_a_grid_keeps_the_run_with_the_best_f1(first):
    record = read(first, "grid_results.json")
    best = max(run["f1"] for run in record["runs"])
    assert read(first, "eval_results.json")["eval_f1"] == best
    assert "0.01" in record["best"]


def test_a_file_without_answers_is_predicted_and_not_scored(first, root):
    """Neither the size of batches nor their grouping changes answers."""
    other = run(
        root,
        "unscored",
        "--do_predict",
        init_checkpoint=first,
        predict_file=root / "test1.json",
        predict_batch_size=5,
        group_by_length=False,
    )
    predictions = read(other, "predictions.json")
    assert predictions == read(first, "predictions.json")
    assert not (other / "eval_results.txt").exists()


def test_the_threshold_is_found_applied_and_stored(second, root):
    values = read(second, "eval_results.json")
    threshold = values["null_score_diff_threshold"]
    assert values["eval_best_f1_thresh"] == threshold
    assert values["eval_f1"] == pytest.approx(values["eval_best_f1"])
    assert values["eval_f1"] > 80
    odds = read(second, "null_odds.json")
    predictions = read(second, "predictions.json")
    assert any(text == "" for text in predictions.values())
    for number, text in predictions.items():
        assert (text == "") == (odds[number] > threshold)
    stored = read(second, "question_answering.json")
    assert stored == {
        "version_2_with_negative": True,
        "null_score_diff_threshold": threshold,
    }
    # Used where nothing is said: neither the version nor the threshold is.
    other = run(
        root, "later", "--do_predict", init_checkpoint=second, version=2
    )
    assert read(other, "predictions.json") == predictions
    # A threshold that is given is for one command.
    given = {"null_score_diff_threshold": threshold + 1e5}
    flags = {"init_checkpoint": second, "version": 2}
    run(root, "later", "--do_predict", **flags, **given)
    assert read(other, "predictions.json") != predictions
    assert read(other, "question_answering.json") == stored


def test_what_is_stored_with_a_model_outlives_later_runs(second, root):
    names = ("question_answering.json", "README.md")
    before = {name: (second / name).read_bytes() for name in names}
    threshold = read(second, names[0])["null_score_diff_threshold"]
    answers = read(second, "predictions.json")
    again = {"version": 2, "init_checkpoint": None}
    # Started again, with nothing left to train and nothing to predict.
    run(root, "second", "--do_train", version=2)
    assert {name: (second / name).read_bytes() for name in names} == before
    # The stored threshold applies to questions without answers. The scores and
    # the report of training stay, and the predictions of its set are kept.
    scores = ("eval_results.txt", "eval_results.json", "report.html")
    before |= {name: (second / name).read_bytes() for name in scores}
    test2 = {"predict_file": root / "test2.json"}
    run(root, "second", "--do_predict", **(again | test2))
    assert read(second, "predictions.json") == answers
    assert read(second, "predictions_dev2.json") == answers
    assert {name: (second / name).read_bytes() for name in before} == before
    # For once by another threshold, or as if it were of SQuAD 1.1.
    run(
        root,
        "second",
        "--do_predict",
        **(again | test2),
        null_score_diff_threshold=threshold + 1e5,
    )
    assert all(read(second, "predictions.json").values())
    run(
        root,
        "second",
        "--do_predict",
        "--version_2_with_negative=False",
        **(again | test2),
    )
    assert not (second / "null_odds.json").exists()
    assert (second / names[0]).read_bytes() == before[names[0]]
    run(root, "second", "--do_predict", **again)
    assert read(second, "predictions.json") == answers
    # The scores of another set are beside those of the development set.
    scores = read(second, "eval_results.json")
    run(
        root,
        "second",
        "--do_predict",
        **(again | {"predict_file": root / "train2.json"}),
        null_score_diff_threshold=threshold,
    )
    assert read(second, "eval_results_dev2.json") == scores
    card = (second / "README.md").read_text()
    for name in ("eval_f1", "train2_eval_f1"):
        assert f"| {name} |" in card
    assert "40 questions of dev2.json" in card
    assert "200 questions of train2.json" in card


def test_a_killed_training_is_predicted_as_what_it_learns(second, root):
    killed = tiny_runs.killed(second, root / "killed")
    for name in ("second", "killed"):
        run(root, name, "--do_predict", predict_file=root / "dev2.json")
    answers = read(second, "predictions.json")
    assert read(killed, "predictions.json") == answers
    assert "" in answers.values()
    # The threshold that was found applies to sets without answers.
    run(root, "killed", "--do_predict", predict_file=root / "test2.json")
    assert read(killed, "predictions.json") == answers
    assert read(killed, "null_odds.json")


def test_a_setting_that_is_not_given_is_not_blamed(second, root, capsys):
    with pytest.raises(SystemExit):
        run(root, "blamed", "--do_train", init_checkpoint=second)
    error = capsys.readouterr().err.splitlines()[-1]
    assert "the model was trained with --version_2_with_negative" in error


def test_training_ends_with_a_threshold_wherever_one_can_be_found(root):
    flags = {"version": 2, "num_train_epochs": 0.5}
    switches = ("--do_train", "--version_2_with_negative")
    folder = run(root, "unasked", *switches, **flags)
    stored = read(folder, "question_answering.json")
    found = stored["null_score_diff_threshold"]
    assert found is not None
    assert not (folder / "predictions.json").exists()
    # Where none was found, a later run with the answers finds and stores it.
    folder = run(root, "unknown", *switches, **(flags | {"predict_file": None}))
    stored = read(folder, "question_answering.json")
    assert stored["null_score_diff_threshold"] is None
    run(root, "unknown", "--do_predict", init_checkpoint=None, version=1)
    stored = read(folder, "question_answering.json")
    assert stored["null_score_diff_threshold"] is None
    run(root, "unknown", "--do_predict", init_checkpoint=None, version=2)
    stored = read(folder, "question_answering.json")
    assert stored["null_score_diff_threshold"] == found


def test_it_answers_at_the_prompt(first, root, capsys, monkeypatch):
    lines = b"Who?\n\nW1  Dora w2.\nWho?\n\n\nw3 Carl\n?"
    stdin = io.TextIOWrapper(io.BytesIO(lines))
    monkeypatch.setattr(sys, "stdin", stdin)
    run(
        root,
        "first",
        "--interactive",
        train_file=None,
        predict_file=None,
        question="Who?",
        context="w1 w2 Anna, w3",
    )
    output = capsys.readouterr().out
    assert "Anna  (probability" in output
    assert "characters 6-10" in output
    assert output.count("w1 w2 [Anna], w3") == 2
    assert "characters 4-8" in output
    assert "Carl  (probability" in output
    # Nobody types, so there is no prompt, but each answer has its question.
    assert "paragraph> " not in output
    found = [x for x in output.splitlines() if x.startswith("question> ")]
    assert found == ["question> Who?"] * 2 + ["question> ?"]


def test_a_terminal_says_how_to_end(first, root, capsys, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"w1 Anna\nWho?\n"))
    stdin.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", stdin)
    flags = {"train_file": None, "predict_file": None}
    run(root, "first", "--interactive", **flags)
    found = capsys.readouterr()
    assert "Ctrl-D" in found.err
    assert "question> " in found.out and "question> Who?" not in found.out


def test_a_line_that_is_no_text_is_named(first, root, capsys, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"w1 Anna\nW\xe9r?\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    flags = {"train_file": None, "predict_file": None}
    with pytest.raises(SystemExit) as caught:
        run(root, "first", "--interactive", **flags)
    assert caught.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "standard input:2: not UTF-8 text" in error


def test_no_answer_is_said_in_words(second, root, capsys):
    run(
        root,
        "second",
        train_file=None,
        predict_file=None,
        question="Who?",
        context="w1 w2 w3 w4",
    )
    assert "(no answer)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"predict_file": None}, "--predict_file is needed"),
        ({"train_file": None}, "--do_train needs --train_file"),
        ({"train_file": "nowhere.json"}, "nowhere.json: no such file"),
        ({"max_query_length": 29}, "--max_query_length=29 + 3: raise"),
        ({"max_seq_length": 64}, "the model has only 32 positions"),
        ({"question": "Who?"}, "--question needs --context"),
        ({"context": "w1 Anna"}, "--context needs --question or --interactive"),
        ({"context": "caf\udce9"}, r"--context='caf\udce9': is not UTF-8"),
        ({"version": 2}, "--version_2_with_negative is needed"),
        (
            {"version_2_with_negative": True},
            "has the key is_impossible, which all",
        ),
        (
            {"null_score_diff_threshold": 0.0},
            "--null_score_diff_threshold: needs --version_2_with_negative",
        ),
        ({"null_score_diff_threshold": "nan"}, "must be a finite number"),
        ({"ensemble_dirs": "a,b"}, "--ensemble_dirs only combines"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_the_user_can_mend_ends_in_one_line(root, capsys, flags, message):
    with pytest.raises(SystemExit) as caught:
        run(root, "bad", "--do_train", "--do_predict", **flags)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_a_model_of_single_texts_answers_nothing(first, root, capsys):
    folder = root / "single"
    folder.mkdir()
    shutil.copy(first / "vocab.txt", folder)
    config = model_directory.read_config(str(first))
    config = dataclasses.replace(config, type_vocab_size=1)
    model_directory.save(models.QuestionAnsweringModel(config), folder)
    with pytest.raises(SystemExit):
        run(root, "of_single", "--do_predict", init_checkpoint=folder)
    error = capsys.readouterr().err.splitlines()[-1]
    assert "type_vocab_size of the model is 1" in error
    assert not (root / "of_single" / "predictions.json").exists()


@pytest.mark.parametrize(
    ("version", "epochs", "size"), [("1.1", 3.0, 32), ("2.0", 2.0, 48)]
)
def test_the_papers_recipes_are_flag_files(repository, version, epochs, size):
    flagfile = repository / "configs" / f"squad_{version}.flags"
    argv = ["x", f"--flagfile={flagfile}", "--output_dir=o"]
    argv += ["--train_file=t", "--predict_file=p"]
    config = config_flags.parse(run_squad.SquadConfig, argv)
    assert config.grid.num_train_epochs == (epochs,)
    assert config.grid.train_batch_size == (size,)
    assert bool(config.rules.version_2_with_negative) == (version == "2.0")
