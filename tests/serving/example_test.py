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
        r"the cat\n    Classification\(label='(bad|good|so-so)', score=0\.\d",
    ),
    "regression": (
        ["the cat ||| dogs"],
        r"\('the cat', 'dogs'\)\n    -?\d+\.\d+$",
    ),
    "multilabel": (["the cat"], r"    Labels\(labels=\[.*'so-so': 0\.\d+"),
    "multiple_choice": (
        ["the cat", "sat", "lives"],
        r"\('the cat', \['sat', 'lives'\]\)\n    Choice\(choice=[01], ",
    ),
    "question_answering": (
        ["Mary lives in Paris.", "Who lives?"],
        r"\('Who lives\?', 'Mary .*'\)\n    Answer\(answer='.+', score=[01]\.",
    ),
    "token_classification": (
        ["Mary lives in Paris. The cat sat on the mat."],
        r"    Entity\(text='\S.*', type='(PER|LOC)', score=0\.\d+, start=\d",
    ),
    "fill_mask": (
        ["the [MASK] sat"],
        r"    \[(Word\(word='\S+', probability=0\.\d+\)(, |\]$)){5}",
    ),
    "sentence_embedding": (
        ["the cat", "dogs"],
        r"the cat\n    \[1\. +-?0\.\d+",
    ),
}
QUICK = ("classification", "question_answering", "token_classification")


@pytest.fixture
def path(repository):
    return str(repository / "examples" / "predict.py")


@pytest.fixture
def run(path, monkeypatch):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", [path, *arguments])
        runpy.run_path(path, run_name="__main__")

    return run


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(x, marks=() if x in QUICK else pytest.mark.all)
        for x in EXAMPLES
    ],
)
def test_an_example_prints_predictions(task, tiny_models, run, capsys):
    texts, expected = EXAMPLES[task]
    arguments = [f"--model_dir={tiny_models / task}"]
    if task == "sentence_embedding":
        arguments = [f"--model_dir={tiny_models / 'fill_mask'}"]
        arguments.append(f"--task={task}")
    run(*arguments, *texts)
    assert re.search(expected, capsys.readouterr().out, re.MULTILINE)


def test_every_task_is_tried():
    assert list(EXAMPLES) == list(predictors.PREDICTORS)
    assert EXAMPLES.keys() == kinds.ARCHITECTURES.keys()
