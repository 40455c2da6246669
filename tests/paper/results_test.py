"""Proves that scores are read, compared and written as the protocol says.

python -m pytest tests/paper/results_test.py
"""

import json
import statistics

import pytest
import scipy.stats

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


def score(*commands, metric="f1", pretrained="model", **values):
    return Score(
        commands=commands,
        pretrained=frozenset([pretrained]),
        metric=metric,
        **values,
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
    found = results.read(score(command(tmp_path)))
    assert found == Measured([[25.0, 35.0]], best=30.0, learning_rates=[1])
    assert found.value("mean") == found.mean == 30.0
    # The run with the best score, not the one with the best F1.
    assert found.value("best") == 30.0


def test_each_pretraining_has_its_own_best_rate_and_counts_once(tmp_path):
    for folder, scores in (
        ("first", {1: (0.8, 0.9), 2: (0.1, 0.95)}),
        ("second", {1: (0.4,), 2: (0.6,)}),
    ):
        runs = [
            {"learning_rate": rate, "random_seed": seed, "score": x}
            for rate, values in scores.items()
            for seed, x in enumerate(values)
        ]
        write(tmp_path / folder / "grid_results.json", {"runs": runs})
    commands = [command(tmp_path / name) for name in ("first", "second")]
    found = results.read(score(*commands, metric="score"))
    assert found == Measured([[80, 90], [60]], best=95, learning_rates=[1, 2])
    assert found.means == [85, 60]
    assert found.mean == 72.5  # Not that of three runs.
    assert found.std == pytest.approx(25 / 2**0.5)
    assert found.text() == "72.5 +- 17.7 (2 x 1 to 2)"


@pytest.mark.parametrize(
    "values, text",
    [
        ([[84.12]], "84.1"),
        ([[84.0, 84.2, 84.4]], "84.2 +- 0.2 (1 x 3)"),
        ([[84.0], [85.0]], "84.5 +- 0.7 (2 x 1)"),
        # The restarts of one model deviate by 3, the models do not.
        ([[81.0, 84.0, 87.0], [84.0, 81.0, 87.0]], "84.0 +- 0.0 (2 x 3)"),
    ],
)
def test_a_cell_has_the_deviation_between_pretrainings(values, text):
    assert Measured(values, best=0).text() == text


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
        return results.read(score(command(tmp_path), metric=metric))

    assert read("last") == Measured(
        [[25.0, 35.0]], best=50.0, learning_rates=[1]
    )
    assert read("embeddings") == Measured(
        [[75.0]], best=75.0, learning_rates=[None]
    )


def test_a_single_run_is_read_from_its_evaluation(tmp_path):
    write(tmp_path / "eval_results.json", {"eval_f1": 88.5})
    f1 = score(command(tmp_path), factor=1.0)
    assert results.read(f1) == Measured(
        [[88.5]], best=88.5, learning_rates=[None]
    )
    model_card.begin(str(tmp_path), "a tagger", data={}, flags={}, seconds=1)
    model_card.add_scores(
        str(tmp_path), "test", data={"test": "x"}, metrics={"test_f1": 0.91}
    )
    test_f1 = score(command(tmp_path), metric="test_f1")
    assert results.read(test_f1).values == [[91.0]]


def test_a_metric_that_was_not_written_is_an_error(tmp_path):
    with pytest.raises(errors.InputError, match="no metric f1"):
        results.read(score(command(tmp_path)))


@pytest.mark.parametrize(
    "larger, smaller, text",
    [
        ([84.0, 84.2, 84.1], [82.0, 82.1, 82.2], "confirmed: 84.1"),
        ([82.0, 82.1, 82.2], [84.0, 84.2, 84.1], "not confirmed: 82.1"),
        ([84.0, 82.0, 83.0], [82.5, 84.5, 81.9], "within noise"),
        ([90.0, 91.0], [10.0, 11.0], "single runs"),
    ],
)
def test_only_differences_beyond_the_noise_of_restarts_count(
    larger, smaller, text
):
    larger, smaller = (Measured([x], best=max(x)) for x in (larger, smaller))
    found = results.verdict(larger, smaller, same_pretraining=True)
    assert found.startswith(text)
    # The same numbers of two rows that were pre-trained once each.
    found = results.verdict(larger, smaller)
    assert found.startswith("single pre-trainings: ")
    assert found.endswith("decide nothing")


@pytest.mark.parametrize(
    "larger, smaller, text",
    [
        # Means 84 and 85, 80 and 81: t = 4 / sqrt(0.5) = 5.66 > 4.30.
        ([[83, 85], [84, 86]], [[80, 80], [81, 81]], "confirmed: 84.5"),
        ([[80, 80], [81, 81]], [[83, 85], [84, 86]], "not confirmed: 80.5"),
        # Means 83 and 85, 80 and 82: t = 3 / sqrt(2) = 2.12. As twelve
        # independent runs they would differ significantly.
        ([[82, 83, 84], [84, 85, 86]], [[80, 80, 80], [82, 82, 82]], "within"),
        ([[90.0], [91.0]], [[10.0, 11.0, 12.0]], "single pre-trainings"),
    ],
)
def test_pretrainings_are_what_counts(larger, smaller, text):
    larger, smaller = (Measured(x, best=0) for x in (larger, smaller))
    assert results.verdict(larger, smaller).startswith(text)
    values = [sum(map(list, x.values), []) for x in (larger, smaller)]
    old = scipy.stats.ttest_ind(*values, equal_var=False).pvalue
    assert text != "within" or old < 0.01


def test_the_noise_of_shared_pretrainings_does_not_count():
    """Two models, 20 points apart; fine-tuning one way is always 3 better."""
    better = Measured([[82, 83, 84], [62, 63, 64]], best=84)
    worse = Measured([[79, 80, 81], [59, 60, 61]], best=81)
    found = results.verdict(better, worse, same_pretraining=True)
    assert found.startswith("confirmed: 73.0 +- 14.1 (2 x 3) and 70.0")
    assert results.verdict(better, worse).startswith("within noise")


def test_welchs_test_of_groups():
    # Variances of the groups 1, 4 and 1, each of 3 values. The variance of the
    # difference is (1/3 + 4/3) / 4 + 1/3 = 3/4, with
    # (3/4)^2 / ((1/12)^2 / 2 + (1/3)^2 / 2 + (1/3)^2 / 2) = 81 / 16.5 = 4.91
    # degrees of freedom.
    left, right = [[1, 2, 3], [4, 6, 8]], [[0, 1, 2]]
    expected = 2 * scipy.stats.t.sf(3 / 0.75**0.5, 81 / 16.5)
    assert results.welch_test(left, right) == pytest.approx(expected)
    assert results.welch_test(right, left) == pytest.approx(expected)
    # t = 4 / sqrt(1/2), 2 degrees of freedom: 1 - t / sqrt(2 + t^2).
    t = 32**0.5
    assert results.welch_test([[84, 85]], [[80, 81]]) == pytest.approx(
        1 - t / (2 + t**2) ** 0.5
    )
    one, other = [1.0, 2.5, 2.0, 7.0], [3.0, 9.0]
    assert results.welch_test([one], [other]) == pytest.approx(
        scipy.stats.ttest_ind(one, other, equal_var=False).pvalue
    )
    # Majority classes: no deviation says how large the noise is.
    assert results.welch_test([[68.4, 68.4]], [[31.6, 31.6]]) == 1.0
    assert statistics.variance([4, 6, 8]) == 4


def test_a_verdict_waits_for_all_pretrainings(tmp_path):
    """But a cell shows those that have finished."""
    commands = {
        name: command(tmp_path / name, name)
        for name in ("large1", "large2", "base1", "base2")
    }
    for number, folder in enumerate(commands):
        write(
            tmp_path / folder / "eval_results.json",
            {"eval_f1": 0.9 - 0.1 * number},
        )
    rows = {
        name: score(commands[f"{name}1"], commands[f"{name}2"], pretrained=name)
        for name in ("large", "base")
    }
    table = Table(
        name="6",
        title="Toy",
        protocol="Twice.",
        statistic="mean",
        rows=[
            Row(label=name, paper={}, scores={"dev": x})
            for name, x in rows.items()
        ],
        findings=[
            Finding(
                statement="Large wins",
                larger=rows["large"],
                smaller=rows["base"],
            )
        ],
    )
    assert table.commands() == list(commands.values())
    executor = Executor(str(tmp_path))
    finish(tmp_path, *list(commands.values())[:3])
    text = results.TableResults(table, executor).markdown()
    assert "| large | ours | 85.0 +- 7.1 (2 x 1) |" in text
    assert "| base | ours | 70.0 |" in text
    assert "* Large wins: not run." in text
    finish(tmp_path, *commands.values())
    text = results.TableResults(table, executor).markdown()
    assert "* Large wins: within noise: 85.0 +- 7.1 (2 x 1) and 65.0" in text


def test_a_table_shows_the_paper_ours_and_what_was_not_run(tmp_path):
    first = command(
        tmp_path / "1", "first", glue_submission=str(tmp_path / "g")
    )
    second = command(tmp_path / "2", "second")
    write(tmp_path / "1/eval_results.json", {"eval_accuracy": 0.861})
    scores = [
        score(c, metric="accuracy", pretrained=c.name) for c in (first, second)
    ]
    table = Table(
        name="4",
        title="Toy",
        protocol="Once.",
        statistic="best",
        rows=[
            Row(label=label, paper={"dev": 86.6}, scores={"dev": accuracy})
            for label, accuracy in zip(("Large", "Base"), scores, strict=True)
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
    assert saved["rows"][0]["ours"]["dev"]["values"] == [[86.1]]
    assert saved["rows"][1]["ours"] == {}
    page = (tmp_path / "results.html").read_text()
    assert "<h2>Table 4: Toy</h2>" in page and "statement" in page
    (path,) = results.submissions([table], executor)
    assert path == str(tmp_path / "g" / "submission.zip")


def test_a_row_that_the_paper_does_not_have_shows_ours_only(tmp_path):
    accuracy = score(command(tmp_path), metric="accuracy")
    table = Table(
        name="6",
        title="Sizes",
        protocol="Once.",
        statistic="mean",
        rows=[Row(label="2/128/2", paper={}, scores={"dev": accuracy})],
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
