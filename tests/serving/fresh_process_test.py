"""Exported models work in a process with only TensorFlow and its text part.

python -m pytest tests/serving/fresh_process_test.py
"""

import json
import subprocess
import sys

import exports
import numpy as np
import pytest

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


@pytest.mark.all
def test_a_fresh_process_gives_the_same_results(tiny_models, tmp_path):
    source = tiny_models / "classification"
    exported = exports.export(source, tmp_path / "exported", max_seq_length=24)
    texts = json.dumps({"text": TEXTS})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(exported), texts],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    function = exports.graph(source, max_seq_length=24)
    for size, line in zip((1, 3), done.stdout.splitlines(), strict=True):
        found, expected = json.loads(line), function(text=TEXTS[:size])
        assert found.keys() == expected.keys()
        labels = [x.decode() for x in expected["label"]]
        assert found["label"] == labels
        np.testing.assert_allclose(
            found["probabilities"], expected["probabilities"], rtol=1e-5
        )
