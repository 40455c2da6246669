"""Proves that the demo says how its accuracies compare with guessing.

python -m pytest tests/demo_test.py
"""

import demo


def test_accuracies_are_shown_beside_those_of_guessing():
    evaluation = {
        "step": 3500,
        "eval/loss": 4.25,
        "eval/masked_lm_accuracy": 0.357,
        "eval/next_sentence_accuracy": 0.7,
    }
    baseline = {"masked_lm_accuracy": 0.0625, "next_sentence_accuracy": 0.508}
    _, step, guessing, *explained = demo._accuracies(
        [evaluation], baseline
    ).splitlines()
    assert step.split() == ["step", "3500", "4.25", "35.7%", "70.0%"]
    assert guessing.split() == ["guessing", "6.2%", "50.8%"]
    assert len(step) == len(guessing)
    assert "most frequent" in " ".join(explained)
