"""Tiny shards, and run_pretraining.py as a process.

The shards have no manifest, like those of google-research/bert.
"""

import json
import os
import pathlib
import subprocess
import sys
import time
from unittest import mock

import numpy as np

from data import records, schema
from tasks.pretraining import pretraining_job

RUNNER = pathlib.Path(__file__).resolve().parent.parent / "run_pretraining.py"
CONFIG = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
}
LENGTHS = {16: 3, 32: 5}  # Sequence length -> predictions.


def write_inputs(folder, **changed):
    """Writes three shards of each length and config.json."""
    config = {**CONFIG, **changed}
    (folder / "config.json").write_text(json.dumps(config))
    draw = np.random.RandomState(1)
    for length, predictions in LENGTHS.items():
        for shard in range(3):
            count = 20 + shard
            size = (count, length)
            masked = (count, predictions)
            columns = {
                "input_ids": draw.randint(5, 60, size),
                "input_mask": np.ones(size, int),
                "segment_ids": draw.randint(0, 2, size),
                "masked_lm_positions": np.sort(
                    draw.rand(*size).argsort(1)[:, :predictions]
                ),
                "masked_lm_ids": draw.randint(5, 60, masked),
                "masked_lm_weights": draw.randint(0, 2, masked) * 1.0,
                "next_sentence_labels": draw.randint(0, 2, (count, 1)),
            }
            kind = schema.pretraining(length, predictions)
            path = folder / f"{length}-{shard}.tfrecord"
            records.write(str(path), [records.encode(kind, columns)])


def no_report():
    """Returns the context in which runs of this process write no report.

    It takes longer than a few steps.
    """
    return mock.patch.multiple(
        pretraining_job.PretrainingJob,
        write_pages=lambda job, step, values: None,
        samples=lambda job, phase: [],
    )


def start(folder, *, sees_gpus=False, **flags):
    """Starts run_pretraining.py in a folder."""
    hidden = {} if sees_gpus else {"CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen(
        [
            sys.executable,
            str(RUNNER),
            *(f"--{flag}={value}" for flag, value in flags.items()),
        ],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **hidden},
    )


def finish(process):
    """Waits for the end; returns the exit code and the log."""
    _, err = process.communicate(timeout=240)
    return process.returncode, err


def steps_done(output_dir):
    """Returns the last step in metrics.jsonl; 0 before the first."""
    path = output_dir / "metrics.jsonl"
    if not path.exists():
        return 0
    lines = path.read_text().splitlines()
    # The last line may be half written.
    complete = [line for line in lines if line.endswith("}")]
    return json.loads(complete[-1])["step"] if complete else 0


def stop_at(process, output_dir, step, number):
    """Sends a signal once so many steps are done; returns the exit code."""
    while steps_done(output_dir) < step and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(number)
    return finish(process)[0]
