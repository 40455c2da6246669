"""Stores the losses of the present kind of device in device_losses.json.

    python tests/testdata/make_device_losses.py

They are those of ten steps of a tiny model, compiled by XLA, with dropout, on
random sequences, of which one in ten is shorter than the others.
"""

import json
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

import foundation.tensorflow_setup  # noqa: E402, F401

# isort: split
import tensorflow as tf  # noqa: E402

from modeling import models  # noqa: E402
from modeling.config import BertConfig  # noqa: E402
from tasks.pretraining import objectives  # noqa: E402
from training import feed, optimizers, precision, strategy  # noqa: E402
from training import step as steps  # noqa: E402

PATH = HERE / "device_losses.json"
VOCABULARY, LENGTH, BATCH, BATCHES = 30522, 32, 8, 4


def arrays() -> dict[str, np.ndarray]:
    """Draws the features of all batches."""
    draw = np.random.default_rng(0)
    rows, count = BATCHES * BATCH, round(0.15 * LENGTH)
    lengths = np.where(
        draw.random(rows) < 0.1, draw.integers(8, LENGTH + 1, rows), LENGTH
    )
    columns = np.arange(LENGTH)
    mask = columns < lengths[:, None]
    ids = draw.integers(1000, VOCABULARY, (rows, LENGTH)) * mask
    order = np.argsort(draw.random((rows, LENGTH)), axis=1)
    features = {
        "input_ids": ids,
        "input_mask": mask,
        "segment_ids": (columns > lengths[:, None] // 2) & mask,
        "masked_lm_positions": np.sort(order[:, :count] % lengths[:, None]),
        "masked_lm_ids": draw.integers(1000, VOCABULARY, (rows, count)),
        "masked_lm_weights": np.arange(count) < 0.15 * lengths[:, None],
        "next_sentence_labels": draw.integers(0, 2, (rows, 1)),
    }
    return {
        name: x.astype("f4" if name.endswith("weights") else "i4")
        for name, x in features.items()
    }


def losses(number_format: str) -> list[float]:
    """Returns the losses of ten steps in a number format."""
    scope = strategy.create("one_device")
    is_tf32 = number_format == "tf32"
    tf.config.experimental.enable_tensor_float_32_execution(is_tf32)
    dtype = "float32" if is_tf32 else number_format
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=512,
        type_vocab_size=2,
    )
    with scope.scope():
        model = models.PretrainingModel(config, dtype=precision.policy(dtype))
        optimizer = optimizers.Optimizer(
            optimizers.AdamW(),
            model.trainable_variables,
            optimizers.WarmupDecay(peak=1e-4, num_train_steps=10**6),
        )
        loss_scale = None
        if number_format == "float16":
            loss_scale = precision.LossScale()
    learner = steps.Learner(
        objectives.PretrainingObjective(), model, optimizer, loss_scale
    )
    step = steps.TrainStep(learner, strategy=scope, seed=1, jit_compile=True)

    def make_batches(*, first_batch, part, num_parts):
        del first_batch, part, num_parts
        batches = {
            name: x.reshape(BATCHES, BATCH, *x.shape[1:])
            for name, x in arrays().items()
        }
        return tf.data.Dataset.from_tensor_slices(batches).repeat()

    batches = feed.distribute(
        scope, make_batches, num_accumulation_steps=1, is_endless=True
    )
    return step(iter(batches), 0, 10).sums[:, 0].tolist()


def device_name() -> str:
    """Returns the name of the first GPU; "CPU" without one."""
    for gpu in tf.config.list_physical_devices("GPU"):
        return tf.config.experimental.get_device_details(gpu)["device_name"]
    return "CPU"


def main() -> None:
    """Adds or replaces the entry of this device."""
    device = device_name()
    formats = ["float32", "bfloat16", "float16"]
    if device != "CPU":
        formats.insert(1, "tf32")
    stored = json.loads(PATH.read_text()) if PATH.exists() else {}
    stored[device] = {name: losses(name) for name in formats}
    PATH.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
