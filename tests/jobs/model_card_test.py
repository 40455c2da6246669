"""Proves that a card keeps what was said of its model, and of no other.

python -m pytest tests/jobs/model_card_test.py
"""

import keras
import pytest

from jobs import grid, model_card, run_files
from jobs.report import Section
from weights import model_directory

FLAGS = {"learning_rate": "5e-5", "do_train": True}


@pytest.fixture
def saved(monkeypatch, tmp_path):
    """Saves no model but its name, which is all that a card needs."""

    def save(model, directory, tokenizer, **kinds):
        (tmp_path / "model.safetensors").write_bytes(b"")

    monkeypatch.setattr(model_directory, "save", save)
    return tmp_path


def make_model(bias):
    start = keras.initializers.Constant(bias)
    dense = keras.layers.Dense(2, kernel_initializer=start)
    return keras.Sequential([keras.Input([2]), dense])


def open_files(folder, seconds=None, **others):
    """Of a command that has trained so long, or of one that trains nothing."""
    results = grid.Results(str(folder))
    if seconds is not None:
        (run,) = grid.plan([5e-5], [1], str(folder))
        results.add(run, {"step": 3, "seconds": seconds, "values": {}})
    return run_files.RunFiles(
        output_dir=str(folder),
        settings={"do_train": False, **FLAGS},
        given=FLAGS,
        results=results,
        **others,
    )


def train(folder, bias, seconds):
    """Saves a model as records of all tasks do; returns whether it is new."""
    files = open_files(folder, seconds)
    weights = files.save_model(make_model(bias))
    if weights is not None:
        data = {"train": "9 examples | of a.csv"}
        files.begin_card("BERT", data=data, labels=["no"], weights=weights)
    return weights is not None


def evaluate(folder, name="dev", **metrics):
    data = {name: f"3 examples of {name}.csv"}
    open_files(folder).add_scores(name, data=data, metrics=metrics)
    return (folder / "README.md").read_text()


def test_evaluations_of_a_later_command_are_added(saved):
    assert train(saved, 1.0, seconds=42.4)
    card = (saved / "README.md").read_text()
    assert "Labels: 0 = no." in card
    assert r"| train | 9 examples \| of a.csv |" in card
    assert "## Results" not in card
    assert '| learning_rate | "5e-5" |' in card
    assert f"| Keras | {keras.__version__} |" in card
    assert card.endswith("Training took 42 seconds.\n")
    evaluate(saved, eval_f1=0.5, eval_f1_LOC=0.4)
    card = evaluate(saved, "test", test_f1=0.25)
    assert "| dev | 3 examples of dev.csv |" in card
    assert "| eval_f1 | 0.5 |" in card and "| test_f1 | 0.25 |" in card
    # Of another file the same names, or fewer.
    card = evaluate(saved, eval_f1=0.75)
    assert "| eval_f1 | 0.75 |" in card and "| test_f1 | 0.25 |" in card
    assert "eval_f1_LOC" not in card
    assert "Training took 42 seconds." in card


def test_the_card_stays_as_long_as_the_model_does(saved):
    train(saved, 1.0, seconds=42)
    card = evaluate(saved, eval_f1=0.5)
    assert not train(saved, 1.0, seconds=42)
    assert (saved / "README.md").read_text() == card
    assert train(saved, 2.0, seconds=7)
    card = (saved / "README.md").read_text()
    assert "## Results" not in card and "Training took 7 seconds." in card


def test_a_grid_ends_with_the_seconds_of_all_its_runs(saved):
    train(saved, 1.0, seconds=12.7)
    evaluate(saved, eval_f1=0.5)
    flags = FLAGS | {"num_seeds": 2}
    model_card.end(str(saved), seconds=24.1, flags=flags)
    card = (saved / "README.md").read_text()
    assert "Training took 24 seconds." in card
    assert "| eval_f1 | 0.5 |" in card and "| num_seeds | 2 |" in card


def test_what_others_wrote_or_asked_elsewhere_is_left_alone(tmp_path, saved):
    (tmp_path / "README.md").write_text("Theirs.\n")
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert evaluate(tmp_path, eval_f1=0.5) == "Theirs.\n"
    train(saved, 1.0, seconds=42)
    before = (saved / "README.md").read_text()
    # Its weights were removed: another model was evaluated.
    (saved / "model.safetensors").unlink()
    assert evaluate(saved, eval_f1=0.5) == before
    others = open_files(saved, seconds=1.0, is_chief=False)
    assert others.save_model(make_model(3.0)) is None
    others.add_scores("dev", data={}, metrics={"eval_f1": 0.5})
    assert (saved / "README.md").read_text() == before


def test_a_report_tells_the_flags_of_training_from_those_of_now(tmp_path):
    for trained_with, headings in (
        (None, ["Flags"]),
        ({"learning_rate": "3e-5"}, ["Training", "Flags"]),
    ):
        files = open_files(tmp_path, trained_with=trained_with)
        section = [Section("Last", "")]
        files.report("Page", values={}, panels=[], sections=section)
        page = (tmp_path / "report.html").read_text()
        after = page[page.index("<h2>Last") :]
        found = [part.split("<")[0] for part in after.split("<h2>")[2:]]
        assert found == headings
        assert ("3e-5" in after) == (trained_with is not None)
