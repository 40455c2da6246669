"""Records, trainings and ONNX need no tensorflow-text; a SavedModel does.

python -m pytest tests/without_tensorflow_text_test.py
"""

import os
import pathlib
import subprocess
import sys

import classifier_runs
import numpy as np
import pytest
import tiny_runs

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXT = "fine w1 w2 w3\nw4 W5 w6 w7\n\nBad w8 w9\nw10 w11 w12 w3"
RUN = "--do_train", "--do_predict"


def make_shards(folder, name):
    tiny_runs.start(
        "create_pretraining_data",
        f"--input_file={folder}/text.txt",
        f"--vocab_file={folder}/encoder/vocab.txt",
        f"--output_file={folder}/{name}",
        *("--max_seq_length=16", "--max_predictions_per_seq=3"),
        "--num_workers=2",
    )


def run_commands(folder):
    """Makes records, trains, predicts, exports and serves, in this process."""
    make_shards(folder, "plain.tfrecord")
    classifier = classifier_runs.run_csv(
        folder,
        "classifier",
        *RUN,
        test_file=folder / "dev.csv",
        num_train_epochs=1,
    )
    export = f"--model_dir={classifier}", "--max_seq_length=32"
    onnx = f"{folder}/onnx"
    tiny_runs.start(
        "export_model", *export, f"--output_dir={onnx}", "--format=onnx"
    )
    from serving import onnx_engine

    texts = {"text": np.array([b"fine w1"], object)}
    model = onnx_engine.make().load(onnx)
    assert model.predict("serving_default", texts)
    tiny_runs.start("export_model", *export, f"--output_dir={folder}/saved")


@pytest.mark.all
def test_only_a_saved_model_needs_tensorflow_text(tmp_path):
    classifier_runs.make_data(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    make_shards(tmp_path, "graph.tfrecord")
    # As it fails beside a newer TensorFlow.
    (tmp_path / "tensorflow_text.py").write_text(
        "from tensorflow import errors\n"
        "raise errors.NotFoundError(None, None, 'undefined symbol')\n"
    )
    paths = tmp_path, ROOT, ROOT / "tests"
    done = subprocess.run(
        [sys.executable, __file__, tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    *lines, last = done.stderr.splitlines()
    assert last.startswith("export_model.py: tensorflow-text cannot"), last
    assert "tensorflow 2.21.0 and tensorflow-text 2.21.1" in last
    assert done.returncode == 2
    assert sum("made more slowly" in line for line in lines) == 1
    plain = (tmp_path / "plain.tfrecord").read_bytes()
    assert plain == (tmp_path / "graph.tfrecord").read_bytes()


if __name__ == "__main__":
    run_commands(pathlib.Path(sys.argv[1]))
