"""Exported models work in a process with only TensorFlow and its text part.

python -m pytest tests/serving/fresh_process_test.py
"""

import json
import subprocess
import sys

import exports
import pytest

from modeling import models

# Calls the default signature with texts in batches of 1 and 3.
PROGRAM = """
import json, sys
import tensorflow as tf
import tensorflow_text

directory, texts = sys.argv[1], json.loads(sys.argv[2])
function = tf.saved_model.load(directory).signatures["serving_default"]
for size in (1, 3):
    outputs = function(**{k: tf.constant(x[:size]) for k, x in texts.items()})
    row = {name: value.numpy().tolist() for name, value in outputs.items()}
    print(json.dumps(row, default=bytes.decode))
assert not {"data", "serving", "modeling", "keras_hub"} & set(sys.modules)
"""
TEXTS = ["Mary sat, \U0001f600 in Paris [MASK].", "", "the cat's mat " * 30]


def answers(folder):
    exports.save_model(folder, models.QuestionAnsweringModel)
    settings = {
        "version_2_with_negative": True,
        "null_score_diff_threshold": 1.5,
    }
    (folder / "question_answering.json").write_text(json.dumps(settings))


def test_a_fresh_process_gives_the_same_results(tmp_path):
    answers(tmp_path / "model")
    flags = {"max_seq_length": 24, "max_query_length": 8}
    exported = exports.export(
        tmp_path / "model", tmp_path / "exported", **flags
    )
    texts = {"question": TEXTS, "context": TEXTS[::-1]}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(exported), json.dumps(texts)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    function = exports.graph(tmp_path / "model", **flags)
    for size, line in zip((1, 3), done.stdout.splitlines(), strict=True):
        expected = function(**{k: v[:size] for k, v in texts.items()})
        found, own = json.loads(line), expected.pop("answer").tolist()
        assert found.pop("answer") == [x.decode() for x in own]
        assert found == {k: pytest.approx(x) for k, x in expected.items()}
