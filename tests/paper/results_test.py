"""Proves that scores are read, compared and written as the protocol says.

python -m pytest tests/paper/results_test.py
"""

import json

import pytest

from foundation import errors
from jobs import model_card
from paper import results
from paper.execution import Executor
from paper.protocol import Command, Finding, Row, Score, Table
from paper.results import Measured


def command(folder, name="a", **flags):
    return Command(
        name=name,
        program="run_classifier",
        flags={"output_dir": str(folder), **flags},
    )


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def finish(root, *commands):
    for done in commands:
        path = root / "commands" / f"{done.name}.json"
        values = {"arguments": done.arguments(), "seconds": 1800}
        write(path, values | {"succeeded": True})


def test_a_grid_gives_its_best_learning_rate_and_its_best_run(tmp_path):
    runs = [
        {"learning_rate": rate, "random_seed": seed, "score": x, "f1": f1}
        for rate, seed, x, f1 in (
            (1, 1, 0.5, 0.25),
            (1, 2, 0.7, 0.35),
            (2, 1, 0.9, 0.3),
            (2, 2, 0.1, 0.45),
        )
    ]
    write(tmp_path / "grid_results.json", {"runs": runs})
    found = results.read(Score(command=command(tmp_path), metric="f1"))
    assert found == Measured([25.0, 35.0], best=30.0, learning_rate=1)
    assert found.value("mean") == found.mean == 30.0
    # The run with the best score, not the one with the best F1.
    assert found.value("best") == 30.0


def test_features_give_the_seeds_of_their_best_learning_rate(tmp_path):
    def entry(f1, **settings):
        return settings | {"values": {"dev": {"f1": f1}, "test": {}}}

    runs = [
        entry(f1, learning_rate=rate)
        for rate, f1 in ((1, 0.25), (1, 0.35), (2, 0.5), (2, 0.0))
    ]
    diverged = {"learning_rate": 2, "values": {}, "failed": "nan"}
    choices = {
        "last": entry(0.3, runs=[*runs, diverged]),
        "embeddings": entry(0.75),
    }
    write(tmp_path / "feature_results.json", choices)

    def read(name):
        metric = f"features/{name}"
        return results.read(Score(command=command(tmp_path), metric=metric))

    assert read("last") == Measured([25.0, 35.0], best=50.0, learning_rate=1)
    assert read("embeddings") == Measured([75.0], best=75.0)


def test_a_single_run_is_read_from_its_evaluation(tmp_path):
    write(tmp_path / "eval_results.json", {"eval_f1": 88.5})
    score = Score(command=command(tmp_path), metric="f1", factor=1.0)
    assert results.read(score) == Measured([88.5], best=88.5)
    model_card.begin(str(tmp_path), "a tagger", data={}, flags={}, seconds=1)
    model_card.add_scores(
        str(tmp_path), "test", data={"test": "x"}, metrics={"test_f1": 0.91}
    )
    score = Score(command=command(tmp_path), metric="test_f1")
    assert results.read(score) == Measured([91.0], best=91.0)


def test_a_metric_that_was_not_written_is_an_error(tmp_path):
    with pytest.raises(errors.InputError, match="no metric f1"):
        results.read(Score(command=command(tmp_path), metric="f1"))


@pytest.mark.parametrize(
    "larger, smaller, text",
    [
        ([84.0, 84.2, 84.1], [82.0, 82.1, 82.2], "confirmed: 84.1"),
        ([82.0, 82.1, 82.2], [84.0, 84.2, 84.1], "not confirmed: 82.1"),
        ([84.0, 82.0, 83.0], [82.5, 84.5, 81.9], "within noise"),
        ([90.0, 91.0], [10.0, 11.0], "single runs"),
    ],
)
def test_only_differences_beyond_the_noise_count(larger, smaller, text):
    larger, smaller = (Measured(x, best=max(x)) for x in (larger, smaller))
    found = results.verdict(larger, smaller)
    assert found.startswith(text)


def test_a_table_shows_the_paper_ours_and_what_was_not_run(tmp_path):
    first = command(
        tmp_path / "1", "first", glue_submission=str(tmp_path / "g")
    )
    second = command(tmp_path / "2", "second")
    write(tmp_path / "1/eval_results.json", {"eval_accuracy": 0.861})
    scores = [Score(command=c, metric="accuracy") for c in (first, second)]
    table = Table(
        name="4",
        title="Toy",
        protocol="Once.",
        statistic="best",
        rows=[
            Row(label=label, paper={"dev": 86.6}, scores={"dev": score})
            for label, score in zip(("Large", "Base"), scores, strict=True)
        ],
        findings=[
            Finding(statement="Large wins", larger=scores[0], smaller=scores[1])
        ],
        notes=["QQP is not run."],
    )
    finish(tmp_path, first)
    executor = Executor(str(tmp_path))
    text = results.write([table], executor, str(tmp_path), "Toy paper")
    assert "| Large | paper | 86.6 |" in text
    assert "|  | ours | 86.1 |" in text
    assert "|  | difference | -0.5 |" in text
    assert "|  | ours | not run |" in text
    assert "1 of 2 commands have finished, in 0.50 hours" in text
    assert "* Large wins: not run." in text
    assert "* QQP is not run." in text
    saved = json.loads((tmp_path / "results.json").read_text())["4"]
    assert saved["rows"][0]["ours"]["dev"]["values"] == [86.1]
    assert saved["rows"][1]["ours"] == {}
    page = (tmp_path / "results.html").read_text()
    assert "<h2>Table 4: Toy</h2>" in page and "statement" in page
    (path,) = results.submissions([table], executor)
    assert path == str(tmp_path / "g" / "submission.zip")


def test_a_row_that_the_paper_does_not_have_shows_ours_only(tmp_path):
    score = Score(command=command(tmp_path), metric="accuracy")
    table = Table(
        name="6",
        title="Sizes",
        protocol="Once.",
        statistic="mean",
        rows=[Row(label="2/128/2", paper={}, scores={"dev": score})],
    )
    text = results.write([table], Executor(str(tmp_path)), str(tmp_path), "T")
    assert "| 2/128/2 | ours | not run |" in text and "paper" not in text
    assert "statement" not in (tmp_path / "results.html").read_text()


def test_a_command_with_other_flags_is_not_taken_for_finished(tmp_path):
    finish(tmp_path, command(tmp_path))
    executor = Executor(str(tmp_path))
    assert executor.record(command(tmp_path))["seconds"] == 1800
    with pytest.raises(errors.InputError, match="^--learning_rate was None"):
        executor.record(command(tmp_path, learning_rate=1))
