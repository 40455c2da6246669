"""Runs examples/predict.py for each task, with tiny models.

python -m pytest tests/serving/example_test.py
"""

import re
import runpy
import sys

import pytest

from serving import predictors
from weights import kinds

EXAMPLES = {
    "classification": (
        ["the cat", "the cat ||| sat on the mat"],
        r"(bad|good|so-so) 0\.\d{3}  the cat$",
    ),
    "regression": (["the cat ||| dogs"], r"-?\d+\.\d{3}  the cat \|\|\| dogs"),
    "multilabel": (["the cat"], r"    so-so 0\.\d{3}"),
    "multiple_choice": (["the cat", "sat", "lives"], r"\* 0\.\d{3}  the cat "),
    "question_answering": (
        ["Mary lives in Paris.", "Who lives?"],
        r"Who lives\?  .+  [01]\.\d{3}",
    ),
    "token_classification": (
        ["Mary lives in Paris. The cat sat on the mat."],
        r"    (PER|LOC) 0\.\d{3}  \S.* \[\d+, \d+\)",
    ),
    "fill_mask": (["the [MASK] sat"], r"   (\S+ 0\.\d{3}  ){4}\S+ 0\.\d{3}"),
    "sentence_embedding": (["the cat", "dogs"], r" 1\.000 +-?0\.\d{3}  the"),
}


@pytest.fixture
def path(repository):
    return str(repository / "examples" / "predict.py")


@pytest.fixture
def run(path, monkeypatch):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", [path, *arguments])
        runpy.run_path(path, run_name="__main__")

    return run


@pytest.mark.parametrize("task", EXAMPLES)
def test_an_example_prints_predictions(task, tiny_models, run, capsys):
    texts, expected = EXAMPLES[task]
    arguments = [f"--model_dir={tiny_models / task}"]
    if task == "sentence_embedding":
        arguments = [f"--model_dir={tiny_models / 'fill_mask'}"]
        arguments.append(f"--task={task}")
    run(*arguments, *texts)
    assert re.search(expected, capsys.readouterr().out, re.MULTILINE)


def test_every_task_has_an_example(path):
    found = [show.__name__ for show in runpy.run_path(path)["TASKS"]]
    assert set(found) == set(EXAMPLES)
    assert found == list(predictors.PREDICTORS)
    assert set(found) == kinds.ARCHITECTURES.keys()
