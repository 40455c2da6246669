"""Exported question answering gives the answers of run_squad.py.

python -m pytest tests/serving/question_answering_test.py
"""

import json

import exports
import numpy as np
import pytest
import tiny_runs

import bert
import run_squad
from modeling import models

QUESTION = "Who sat on the mat?"
CONTEXTS = [
    *exports.TEXTS,
    "Mary  sat\n(in 'Paris'), the cats' mat... \u05e9\u05dc\u05d5\u05dd "
    "bab-b abb xaxa! " * 9,
    "caca\u4e2d\u6587\u4e2d\u6587\u4e2d cabab\u3000aabaab ab\u202fabab " * 6,
    "I\u0307stanbul caf\u00e9 \u00bd the \u200bca\u0301t\u0301 \ufb01 " * 5,
    "bb'bb ab-ab caf\u00e9!?\u00a0 the\u00a0cat \u2192 the\u200bmat.",
    "\u0939\u093f\u0928\u094d\u0926\u0940 the "  # Hindi.
    "\u0e01\u0e33\u0e25\u0e31\u0e07mat "  # Thai.
    "\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd "  # Hebrew, with points.
    "\u1112\u1161\u11ab\ud55c \U0001f600\U0001f3fdcat",
]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    return exports.save_model(
        tmp_path_factory.mktemp("squad") / "model",
        models.QuestionAnsweringModel,
        [*exports.WORDS, "##b", "##c", "##\u4e2d"],
    )


@pytest.mark.parametrize(
    "version_2, exact, n_best, threshold",
    [(False, False, 20, None), (True, False, 5, 0.5), (True, True, 3, -0.5)],
)
def test_answers_are_those_of_the_command(
    version_2, exact, n_best, threshold, model_dir, tmp_path
):
    paragraphs = [
        {
            "context": context,
            "qas": [
                {"id": f"{i} {question}", "question": question}
                for question in (QUESTION, "")
            ],
        }
        for i, context in enumerate(CONTEXTS)
    ]
    (tmp_path / "test.json").write_text(
        json.dumps({"version": "x", "data": [{"paragraphs": paragraphs}]})
    )
    flags = {
        "max_seq_length": 32,
        "doc_stride": 8,
        "max_query_length": 4,
        "n_best_size": n_best,
        "max_answer_length": 12,
        "exact_answers": exact,
        "version_2_with_negative": version_2,
        "null_score_diff_threshold": threshold,
    }
    tiny_runs.run(
        run_squad,
        run_squad.SquadFlags,
        "--do_predict",
        predict_file=tmp_path / "test.json",
        init_checkpoint=model_dir,
        output_dir=tmp_path / "predicted",
        precision="float32",
        **flags,
    )
    predicted = tmp_path / "predicted"
    answers = json.loads((predicted / "predictions.json").read_text())
    n_best = json.loads((predicted / "nbest_predictions.json").read_text())
    function = exports.graph(model_dir, **flags)
    questions = [qa["question"] for p in paragraphs for qa in p["qas"]]
    ids = [qa["id"] for p in paragraphs for qa in p["qas"]]
    contexts = [p["context"] for p in paragraphs for qa in p["qas"]]
    assert len({*answers.values()}) > 5
    in_python = bert.load(
        model_dir,
        max_seq_length=flags.pop("max_seq_length"),
        squad=flags,
    ).predict(list(zip(questions, contexts, strict=True)))
    for batch_size in (1, 32):
        for first in range(0, len(ids), batch_size):
            rows = slice(first, first + batch_size)
            outputs = function(question=questions[rows], context=contexts[rows])
            for row, name in enumerate(ids[rows]):
                check(
                    {k: v[row] for k, v in outputs.items()},
                    contexts[first + row],
                    answers[name],
                    n_best[name],
                    in_python[first + row],
                )
    assert function(question=[], context=[])["answer"].shape == (0,)


def check(found, context, answer, n_best, in_python):
    """Compares the outputs for one question with the command's."""
    text = found["answer"].decode()
    if answer == "empty":  # The released answer where there is no span.
        assert text == ""
    else:
        assert text == answer
    start, end = int(found["start"]), int(found["end"])
    assert (text, start, end) == (
        in_python.answer,
        in_python.start,
        in_python.end,
    )
    if text:
        assert context[start:end].split() == text.split()
    else:
        assert (start, end) == (-1, -1)
    if n_best[0]["text"] == "empty":
        return
    count = len(n_best)
    texts = [x.decode() for x in found["answers"][:count]]
    assert texts == [row["text"] for row in n_best]
    expected = [row["probability"] for row in n_best]
    np.testing.assert_allclose(found["scores"][:count], expected, atol=1e-5)
    assert not found["scores"][count:].any()
    index = texts.index(text)
    np.testing.assert_allclose(found["score"], expected[index], atol=1e-5)
