"""Proves that a card keeps what was said of its model, and of no other.

python -m pytest tests/jobs/model_card_test.py
"""

import json
import re

import keras
import pytest

from jobs import grid, model_card, outputs, run_config
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


def open_outputs(folder, seconds=None, **others):
    """Of a command that has trained so long, or of one that trains nothing."""
    results = grid.Results(str(folder))
    if seconds is not None:
        (run,) = grid.plan(run_config.Grid(), 1, str(folder))
        results.add(run, {"step": 3, "seconds": seconds, "values": {}})
    return outputs.Outputs(
        output_dir=str(folder),
        flags={"do_train": False, **FLAGS},
        given_flags=FLAGS,
        trains=seconds is not None,
        results=results,
        **others,
    )


def train(folder, bias, seconds):
    """Saves a model as records of all tasks do; returns whether it is new."""
    writer = open_outputs(folder, seconds)
    model = make_model(bias)
    model_directory.save(model, str(folder), None)
    weights = writer.new_weights(model)
    if weights is not None:
        data = {"train": "9 examples | of a.csv"}
        card = outputs.Card("BERT", data, "token-classification", (), ["no"])
        writer.begin_card(card, weights)
    return weights is not None


def evaluate(folder, name="dev", **metrics):
    data = {name: f"3 examples of {name}.csv"}
    scores = outputs.Scores(name, None, data, metrics)
    open_outputs(folder).add_scores(scores)
    return (folder / "README.md").read_text()


def test_evaluations_of_a_later_command_are_added(saved):
    assert train(saved, 1.0, seconds=42.4)
    card = (saved / "README.md").read_text()
    assert "Outputs of the model: 0 is the label `no`." in card
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


def test_labels_are_scored_one_by_one(saved):
    train(saved, 1.0, seconds=1.0)
    details = {"by_label": [["a|b", 3, 2, 0.5, 1 / 3, 0.4]], "note": "Note."}
    scores = outputs.Scores("dev", None, {}, {}, **details)
    open_outputs(saved).add_scores(scores)
    card = evaluate(saved, "test", test_f1=0.25)
    assert r"| a\|b | 3 | 2 | 0.5 | 0.3333 | 0.4 |" in card
    assert "\nNote.\n" in card


def _header(card):
    """The YAML header; every line is a key, a list's entry or both."""
    begin, header, _ = card.split("---\n", 2)
    assert begin == ""
    lines = header.splitlines()
    scalar = r'("(\\.|[^"\\])*"|-?[\d.e+-]+|true|false)'
    for line in lines:
        assert re.fullmatch(rf" *(- )?([\w-]+:( {scalar})?|{scalar})", line)
        assert (len(line) - len(line.lstrip())) % 2 == 0
    return lines


def test_the_card_begins_with_the_header_of_the_hub(saved):
    base = saved / "uncased_L-12_H-768_A-12"
    base.mkdir()
    model_card.begin(
        str(saved),
        'A "title": of a card',
        data={"train": "5 examples of a.csv, SHA-256 0"},
        flags={"init_checkpoint": f"{base}/bert_model.ckpt"},
        seconds=1.0,
        pipeline_tag="text-classification",
        datasets=["nyu-mll/glue"],
    )
    before = _header((saved / "README.md").read_text())
    assert before == [
        'library_name: "transformers"',
        'pipeline_tag: "text-classification"',
        "datasets:",
        '  - "nyu-mll/glue"',
        'base_model: "google-bert/bert-base-uncased"',
        'language: "en"',
        'license: "apache-2.0"',
    ]
    metrics = {"eval_f1": 0.5, "eval_loss": float("nan"), "global_step": 3}
    model_card.add_scores(
        str(saved), "dev", data={"dev": "3 examples of b.csv"}, metrics=metrics
    )
    assert _header((saved / "README.md").read_text()) == before + [
        "model-index:",
        '  - name: "A \\"title\\": of a card"',
        "    results:",
        "      - task:",
        '          type: "text-classification"',
        "        dataset:",
        '          name: "3 examples of b.csv"',
        '          type: "text"',
        '          split: "dev"',
        "        metrics:",
        '          - type: "f1"',
        "            value: 0.5",
    ]


@pytest.mark.parametrize(
    ("name", "readme", "expected"),
    [
        ("models--a--bert-x", None, {"base_model": "a/bert-x"}),
        (
            "models--a--bert-y/snapshots/abc",
            "---\nlanguage: de\n---\n",
            {"base_model": "a/bert-y", "language": "de"},
        ),
        (
            "own",
            "---\nlanguage: de\nlicense: mit\ntags:\n- x\n---\n# BERT\n",
            {"language": "de", "license": "mit"},
        ),
        (
            "own",
            '---\nbase_model: "a/bert-x"\nlicense: "mit"\n---\n# BERT\n',
            {"base_model": "a/bert-x", "license": "mit"},
        ),
        ("own", "# BERT\nlicense: mit\n", {}),
        (
            "chinese_L-12_H-768_A-12",
            None,
            {
                "base_model": "google-bert/bert-base-chinese",
                "language": "zh",
                "license": "apache-2.0",
            },
        ),
    ],
)
def test_language_and_license_are_those_of_the_base_model(
    tmp_path, name, readme, expected
):
    base = tmp_path / name
    base.mkdir(parents=True)
    if readme:
        (base / "README.md").write_text(readme)
    model_card.begin(
        str(tmp_path),
        "T",
        data={},
        flags={"init_checkpoint": str(tmp_path / name.split("/")[0])},
        seconds=1.0,
    )
    card = json.loads((tmp_path / "card.json").read_text())
    assert card["hub"] == {"library_name": "transformers", **expected}


def test_a_release_is_known_from_within_its_folder(tmp_path, monkeypatch):
    base = tmp_path / "cased_L-12_H-768_A-12"
    base.mkdir()
    (base / "bert_model.ckpt.index").touch()
    monkeypatch.chdir(base)
    for path in (".", "bert_model.ckpt", "./bert_model.ckpt"):
        flags = {"init_checkpoint": path}
        model_card.begin(str(tmp_path), "T", data={}, flags=flags, seconds=1.0)
        found = json.loads((tmp_path / "card.json").read_text())["hub"]
        assert found["base_model"] == "google-bert/bert-base-cased"
        assert found["license"] == "apache-2.0"


def test_the_card_of_the_best_model_is_that_of_its_run(tmp_path):
    (tmp_path / "run" / "best").mkdir(parents=True)
    header = '---\nbase_model: "a/bert-x"\n---\n'
    (tmp_path / "run" / "README.md").write_text(header)
    found = {}
    for name in ("best", "best/"):
        flags = {"init_checkpoint": f"{tmp_path}/run/{name}"}
        model_card.begin(str(tmp_path), "T", data={}, flags=flags, seconds=1.0)
        found[name] = json.loads((tmp_path / "card.json").read_text())["hub"]
    expected = {"library_name": "transformers", "base_model": "a/bert-x"}
    assert found == {"best": expected, "best/": expected}


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
    others = open_outputs(saved, seconds=1.0, is_chief=False)
    assert others.new_weights(make_model(3.0)) is None
    others.add_scores(outputs.Scores("dev", None, {}, {"eval_f1": 0.5}))
    assert (saved / "README.md").read_text() == before


def test_a_report_tells_the_flags_of_training_from_those_of_now(tmp_path):
    for trained_with, headings in (
        ({}, ["Flags"]),
        ({"learning_rate": "3e-5"}, ["Training", "Flags"]),
    ):
        writer = open_outputs(tmp_path, trained_with=trained_with)
        described = outputs.Description(
            scores=outputs.Scores("dev", None, {}, {}),
            digest="",
            title="Page",
            panels=[],
            sections=[Section("Last", "")],
            facts={},
        )
        writer.write_report(described)
        page = (tmp_path / "report.html").read_text()
        after = page[page.index("<h2>Last") :]
        found = [part.split("<")[0] for part in after.split("<h2>")[2:]]
        assert found == headings
        assert ("3e-5" in after) == bool(trained_with)
