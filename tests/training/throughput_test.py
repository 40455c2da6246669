"""Proves what speed is reported: tokens per second, fraction of the peak.

python -m pytest tests/training/throughput_test.py
"""

import pytest
import tensorflow as tf

from training import throughput


@pytest.mark.parametrize(
    "name, half, single",
    [
        ("NVIDIA A100-SXM4-80GB", 312e12, 19.5e12),
        ("NVIDIA A10", 125e12, 31.2e12),
        ("NVIDIA A10G", 70e12, 31.5e12),
        ("NVIDIA H100 PCIe", 756e12, 51e12),
        ("NVIDIA H100 80GB HBM3", 989e12, 67e12),
        ("Tesla V100-SXM2-16GB", 125e12, 15.7e12),
        ("Tesla T4", 65e12, 8.1e12),
    ],
)
def test_the_peak_is_the_makers(name, half, single, monkeypatch):
    monkeypatch.setattr(throughput, "device_name", lambda: name)
    strategy = tf.distribute.get_strategy()
    assert throughput.peak(strategy, "bfloat16") == half
    assert throughput.peak(strategy, "float16") == half
    assert throughput.peak(strategy, "float32") == single
    assert throughput.published("NVIDIA H100 80GB HBM3", "tf32") == 494


@pytest.mark.parametrize(
    "name",
    [
        "",
        "NVIDIA A1000",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
    ],
)
def test_the_peak_of_other_devices_is_not_known(name, monkeypatch):
    monkeypatch.setattr(throughput, "device_name", lambda: name)
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert throughput.peak(two, "bfloat16") is None


def test_the_operations_are_those_of_the_usual_formula():
    # BERT-Base without embeddings; the paper of ELECTRA counts 2.9e10 for the
    # forward pass, the vocabulary's product included.
    flops = throughput.training_flops(
        85_054_464, 128, num_layers=12, hidden_size=768
    )
    assert flops == 128 * (6 * 85_054_464 + 12 * 12 * 768 * 128)


def test_the_share_of_the_peak_is_of_all_devices():
    speed = throughput.Throughput(tokens=128, flops=5e9, peak=1e12)
    assert speed(80.0) == {
        "train/tokens_per_second": 128 * 80.0,
        "train/model_flops_utilization": 0.4,
    }
    unknown = throughput.Throughput(tokens=128)
    assert list(unknown(80.0)) == ["train/tokens_per_second"]
