"""The cost of a graph whose tensors are counted by hand."""

import subprocess
import types

import pytest
import tensorflow as tf

from training import cost


def trace(function, shape):
    """Returns the cost of a function that stands for the gradients."""

    def gradient_graph(features):
        traced = tf.function(lambda x: function(x["x"]), autograph=False)
        return traced.get_concrete_function(features).graph

    step = types.SimpleNamespace(gradient_graph=gradient_graph)
    return cost.trace(step, {"x": tf.TensorSpec(shape, tf.float32)})


def test_tensors_count_from_their_operation_to_their_last_use():
    def function(x):
        a = tf.matmul(x, x, transpose_b=True)  # [4, 4]: 64 bytes.
        b = tf.concat([a, a], axis=0)  # 128 bytes; a is free after it.
        c = tf.tanh(b)  # Written over b.
        return tf.concat([c, c], axis=0)  # The result: 256 bytes.

    found = trace(function, [4, 8])
    assert found.flops == 2 * 4 * 4 * 8
    assert found.activation_bytes == 64 + 128
    assert found.peak_bytes == 128 + 256


def memory(**changes):
    parts = {"weights": 10.0, "slots": 20.0, "gradients": 10.0, "sums": 0.0}
    parts |= {"program": 100.0, "activations": 30.0, "peak": 35.0}
    return cost.Memory(**{**parts, **changes}, by_choice={})


def test_total_adds_the_program_to_the_tensors_that_the_allocator_keeps():
    assert memory().total == pytest.approx(100 + 1.2 * (10 + 20 + 35))
    assert memory(sums=20.0).total == pytest.approx(100 + 1.2 * 85)


@pytest.mark.parametrize("program", [0.0, 100.0])
def test_the_largest_batch_fits_and_one_example_more_does_not(program):
    found, available = memory(program=program), 1000.0
    most = found.largest_batch(3, available)
    # A GPU holds the weights and slots too; 30 bytes are those of 3 examples.
    fixed = 10.0 + (0.0 if program else 30.0)
    needed = [1.2 * (fixed + 10.0 * n) for n in (most, most + 1)]
    assert needed[0] <= 0.9 * available < needed[1]


def test_the_memory_is_that_of_the_first_visible_gpu(monkeypatch):
    def check_output(command, text):
        is_second = "--id=GPU-7" in command
        return "2048\n" if is_second else "1024\n4096\n"

    monkeypatch.setattr(tf.config, "list_logical_devices", lambda _: ["GPU:0"])
    monkeypatch.setattr(subprocess, "check_output", check_output)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert cost.available_bytes() == 1024 * 2**20
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-7,GPU-1")
    assert cost.available_bytes() == 2048 * 2**20
