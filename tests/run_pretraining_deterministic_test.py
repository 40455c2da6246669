"""Proves that a GPU repeats a run exactly with --deterministic, also resumed.

Three runs of run_pretraining.py: one is left alone, one repeats it, and one
dies by SIGKILL and is resumed. All three write the same bytes.

pytest tests/run_pretraining_deterministic_test.py
"""

import signal

import pretraining_runs
import pytest

from training import throughput

FLAGS = {
    "bert_config_file": "config.json",
    "input_file": "32-*.tfrecord",
    "do_train": "true",
    "deterministic": "true",
    "precision": "bfloat16",
    "max_seq_length": 32,
    "max_predictions_per_seq": 5,
    "num_train_steps": 120,
    "train_batch_size": 16,
    "learning_rate": 1e-3,
    "num_warmup_steps": 10,
    "save_checkpoints_steps": 20,
    "iterations_per_loop": 10,
}


@pytest.mark.parametrize(
    "device",
    [
        pytest.param("CPU", marks=pytest.mark.all),
        pytest.param("GPU", marks=pytest.mark.gpu),
    ],
)
def test_repeated_and_resumed_runs_write_the_same_bytes(tmp_path, device):
    if device == "GPU" and not throughput.device_name():
        pytest.skip("no GPU")
    # Large enough that sums are divided among the blocks of a GPU.
    pretraining_runs.write_inputs(
        tmp_path,
        hidden_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=1024,
    )

    def start(name):
        return pretraining_runs.start(
            tmp_path, sees_gpus=device == "GPU", output_dir=name, **FLAGS
        )

    killed = start("killed")
    code = pretraining_runs.stop_at(
        killed, tmp_path / "killed", 50, signal.SIGKILL
    )
    assert code == -signal.SIGKILL
    logs = {}
    for name in ("alone", "again", "killed"):
        code, logs[name] = pretraining_runs.finish(start(name))
        assert code == 0, logs[name][-3000:]
    assert "resuming from" in logs["killed"]
    assert "deterministic operations: yes" in logs["alone"]
    written = {
        name: (tmp_path / name / "model.safetensors").read_bytes()
        for name in logs
    }
    assert written["again"] == written["alone"]
    assert written["killed"] == written["alone"]
