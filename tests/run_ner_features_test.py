"""Proves --features of run_ner.py: every choice, and what is used again.

python -m pytest tests/run_ner_features_test.py
"""

import functools
import gc
import json
import shutil
import weakref
from unittest import mock

import ner_runs
import pytest
import tiny_runs
from ner_runs import WORDS

from modeling import lstm
from tasks.ner import feature_based, word_files
from training import loop

DEEP = {"num_hidden_layers": 4}
SHORT = {"lstm_size": 8, "num_train_epochs": 1, "train_batch_size": 32}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Encoders of one layer and of four, and data."""
    root = tmp_path_factory.mktemp("data")
    ner_runs.make_data(root, (40, 20, 15))
    tiny_runs.save_encoder(root / "deep", WORDS, **DEEP)
    tiny_runs.save_encoder(root / "relu", WORDS, **DEEP, hidden_act="relu")
    ner_runs.write_file(root / "much.train", 1, 300)
    return root


def run(root, name, *switches, has_lstms=False, **flags):
    """Runs; most of what is proved needs no LSTM, which is slow to trace."""
    flags = {"init_checkpoint": root / "deep", "features": "last"} | flags
    make = lstm.BiLstmTagger
    if not has_lstms:
        make = functools.partial(make, depth=0)
    with mock.patch.object(lstm, "BiLstmTagger", make):
        return ner_runs.run(root, name, *switches, **flags)


def results(folder):
    return json.loads((folder / "feature_results.json").read_text())


def words(path):
    return list(word_files.read_columns(str(path)).words)


@pytest.fixture
def without_gc():
    """What Python frees by itself it frees at any time."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.slow
def test_all_six_choices_in_one_command(root, capsys, monkeypatch, without_gc):
    tagger, alive, made = lstm.BiLstmTagger, [], []

    def make_and_count(**arguments):
        alive.append(sum(held() is not None for held in made))
        model = tagger(**arguments)
        made.append(weakref.ref(model))
        return model

    monkeypatch.setattr(lstm, "BiLstmTagger", make_and_count)
    flags = SHORT | {"features": "all"}
    modes = "--do_train", "--do_eval"
    folder = run(root, "features", *modes, **flags)
    assert len(alive) == 6 and not any(alive)  # One at a time is in memory.
    first = results(folder)
    assert list(first) == list(feature_based.CHOICES)
    for name, done in first.items():
        assert set(done["values"]) == {"dev"}
        assert (folder / "features" / name / "report.html").exists()
        scores = folder / "features" / name / "scores_dev.txt"
        assert scores.read_text().startswith("processed")
    table = (folder / "feature_results.txt").read_text()
    assert capsys.readouterr().out.endswith(table)
    assert len(table.splitlines()) == 7
    # Activations and finished choices are there: nothing is done again.
    paths = [*(folder / "activations").iterdir(), *folder.glob("features/*/*")]
    times = {path: path.stat().st_mtime_ns for path in paths}
    (folder / "features/last/result.json").unlink()
    run(root, "features", *modes, **flags)
    for path in paths:
        if path.parent.name != "last" and path.name != "labels.json":
            assert path.stat().st_mtime_ns == times[path], path
    again = results(folder)
    for done in (first["last"], again["last"]):
        done.pop("seconds")
    assert again == first


@pytest.fixture(scope="module")
def trained(root):
    """A tagger of the last layer, trained and evaluated."""
    return run(root, "last", "--do_train", "--do_eval", **SHORT)


def test_further_files_are_predicted_and_earlier_scores_stay(root, trained):
    before = results(trained)["last"]["values"]
    assert set(before) == {"dev"}
    folder = trained / "features" / "last"
    flags = SHORT | {"data_dir": None}
    ner_runs.write_file(root / "new.txt", 9, 5, tags=False)
    for name in ("words.txt", "new.txt"):
        flags["test_file"] = root / name
        run(root, "last", "--do_predict", **flags)
        predicted = folder / "predictions_test.txt"
        assert words(predicted) == words(root / name)
        values = results(trained)["last"]["values"]
        assert values == before | {"test": {}}
    kept = folder / "predictions_test_words.txt"
    assert words(kept) == words(root / "words.txt")
    # With tags it is another file, and has scores.
    flags["test_file"] = root / "eng.testb"
    run(root, "last", "--do_predict", **flags)
    values = results(trained)["last"]["values"]
    assert values["dev"] == before["dev"]
    assert 0 <= values["test"]["f1"] <= 1


def test_prediction_takes_the_encoder_and_the_flags_of_the_training(
    root, trained
):
    """Not the flags of the encoder's own training."""
    flags = {"max_seq_length": 8, "document_context": "maximal"}
    run_config = root / "deep" / "run_config.json"
    run_config.write_text(json.dumps(flags | {"do_train": True}))
    predicted = []
    for given in (SHORT, dict.fromkeys(("init_checkpoint", "max_seq_length"))):
        texts = given | {"data_dir": None, "test_file": root / "eng.testb"}
        run(root, "last", "--do_predict", **texts)
        path = trained / "features" / "last" / "predictions_test.txt"
        predicted.append(path.read_text())
        path.unlink()
    run_config.unlink()
    assert predicted[0] == predicted[1]


def test_another_development_set_is_evaluated_anew(root, trained):
    before = results(trained)["last"]["values"]["dev"]
    flags = SHORT | {"data_dir": None}
    for name in ("eng.testb", "eng.testa"):
        run(root, "last", "--do_eval", dev_file=root / name, **flags)
        found = results(trained)["last"]["values"]["dev"]
        assert (found == before) == (name == "eng.testa")


CHANGED = {
    "rate": ({"lstm_learning_rate": 0.5}, "--lstm_learning_rate was 0.001"),
    "size": ({"lstm_size": 16}, "--lstm_size was 8, is 16"),
    "epochs": ({"num_train_epochs": 2}, "--num_train_epochs was 1.0, is 2.0"),
    "encoder": (
        {"init_checkpoint": "encoder"},
        "--init_checkpoint had other",
    ),
    "config": (
        {"init_checkpoint": "relu"},
        "--bert_config_file's hidden_act was gelu, is relu",
    ),
    "words": ({"train_file": "much.train"}, "--train_file had other"),
    "context": (
        {"document_context": "maximal"},
        "--document_context was False, is True",
    ),
    "loaded": (
        {"do_train": False, "init_checkpoint": "encoder"},
        "--init_checkpoint had other",
    ),
}


@pytest.mark.parametrize("flags, message", CHANGED.values(), ids=CHANGED)
def test_a_tagger_is_never_taken_for_another(
    root, trained, capsys, flags, message
):
    files = ("train_file", "init_checkpoint")
    flags = {k: root / v if k in files else v for k, v in flags.items()}
    flags = {"do_train": True, "do_eval": True} | SHORT | flags
    path = trained / "features" / "labels.json"
    before = path.stat().st_mtime_ns
    with pytest.raises(SystemExit) as exit:
        run(root, "last", **flags)
    assert exit.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert message in error and "another --output_dir" in error
    assert path.stat().st_mtime_ns == before


def test_activations_of_another_config_are_not_used_again(root, trained):
    """The weights are the same."""
    folder = shutil.copytree(trained, root / "other_config")
    shutil.rmtree(folder / "features")
    flags = SHORT | {"init_checkpoint": root / "relu"}
    run(root, "other_config", "--do_train", **flags)
    first, other = (
        (path / "activations" / "train.float16").read_bytes()
        for path in (trained, folder)
    )
    assert len(first) == len(other) and first != other


AXES = {"num_seeds": 2, "lstm_learning_rate": "1e-3,1e-2"}


class Killed(BaseException):
    """Ends a command without its finally clauses of errors."""


def test_a_killed_grid_of_taggers_ends_like_one_left_alone(root, monkeypatch):
    modes, flags = ("--do_train", "--do_eval"), SHORT | AXES
    whole = run(root, "grid", *modes, **flags)
    names = {f"lr{rate}_seed{i}" for rate in ("0.001", "0.01") for i in (1, 2)}
    runs = whole / "features/last/runs"
    assert {path.name for path in runs.iterdir()} == {
        name.replace("seed1", "seed12345").replace("seed2", "seed12346")
        for name in names
    }
    rows = results(whole)["last"]["runs"]
    assert len({row["values"]["dev"]["loss"] for row in rows}) == 4
    table = (whole / "feature_results.txt").read_text().splitlines()
    assert len(table) == 1 + 4 + 2 * 2  # Means and deviations of two rates.

    finish, finished = feature_based._ChoiceRun.finish, []

    def finish_two(self, earlier):
        if len(finished) == 2:
            raise Killed
        finished.append(self.run)
        return finish(self, earlier)

    with monkeypatch.context() as patch:
        patch.setattr(feature_based._ChoiceRun, "finish", finish_two)
        with pytest.raises(Killed):
            run(root, "killed", *modes, **flags)
    killed = root / "killed"
    first = killed / finished[0].directory
    time = (first / "result.json").stat().st_mtime_ns
    run(root, "killed", *modes, **flags)
    assert (first / "result.json").stat().st_mtime_ns == time
    found = results(killed)["last"]
    for row in (*rows, *found["runs"]):
        row.pop("seconds")
    assert found["runs"] == rows
    for path in runs.glob("*/*_dev.txt"):
        other = killed / path.relative_to(whole)
        assert path.read_bytes() == other.read_bytes(), path


def test_a_diverged_tagger_does_not_end_the_others(root, monkeypatch):
    train = feature_based._ChoiceRun._train

    def diverge_first(self, model):
        if self.run.random_seed == 12345:
            raise loop.Diverged("the loss is nan", "", step=1, seconds=0.5)
        return train(self, model)

    monkeypatch.setattr(feature_based._ChoiceRun, "_train", diverge_first)
    modes, flags = ("--do_train", "--do_eval"), SHORT | {"num_seeds": 2}
    folder = run(root, "diverged", *modes, **flags)
    failed, other = results(folder)["last"]["runs"]
    assert failed["failed"] and not failed["values"]
    assert results(folder)["last"]["values"] == other["values"]
    run(root, "diverged", *modes, **flags)  # It is not trained again.
    assert results(folder)["last"]["runs"] == [failed, other]
    alone = SHORT | {"num_seeds": 1}
    with pytest.raises(SystemExit):
        run(root, "diverged_alone", *modes, **alone)


def test_a_tagger_learns_from_activations(root):
    flags = {"features": "concat_last_four", "lstm_size": 24}
    flags["has_lstms"] = True
    folder = run(
        root,
        "frozen",
        "--do_train",
        "--do_eval",
        train_file=root / "much.train",
        lstm_learning_rate=1e-2,
        num_train_epochs=12,
        **flags,
    )
    of_choice = folder / "features/concat_last_four"
    values = tiny_runs.eval_results(of_choice)
    assert values["eval_f1"] > 0.8
    before = results(folder)
    (of_choice / "result.json").unlink()  # Loaded, not looked up.
    dev = {"data_dir": None, "dev_file": root / "eng.testa"}
    run(root, "frozen", "--do_eval", **dev, **flags)
    assert tiny_runs.eval_results(of_choice) == values
    again = results(folder)["concat_last_four"]
    assert again["values"] == before["concat_last_four"]["values"]


def test_features_of_a_shallow_encoder_are_refused(root, capsys):
    flags = {"features": "concat_last_four", "do_train": True}
    with pytest.raises(SystemExit):
        run(root, "shallow", init_checkpoint=root / "encoder", **flags)
    error = capsys.readouterr().err.splitlines()[-1]
    assert "--features=concat_last_four: the model has only 1 layer" in error
