"""Proves that 200 steps of pre-training are those of transformers.

The same initial weights and batches, the released optimizer, no dropout:
tests/testdata/make_golden_losses.py wrote down the losses.

pytest tests/training/golden_losses_test.py
"""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

from finetuning import flags, learner
from foundation import config_flags
from modeling import models
from modeling.config import BertConfig
from tasks.pretraining import objectives
from tests.training import golden_run
from training import loop, strategy
from training import precision as policies

TOLERANCE = 1e-4


def make_batches(*, first_batch, part, num_parts):
    assert (first_batch, part, num_parts) == (0, 0, 1)
    batches = [golden_run.batch(k) for k in range(golden_run.STEPS)]
    columns = {k: np.stack([b[k] for b in batches]) for k in batches[0]}
    return tf.data.Dataset.from_tensor_slices(columns).repeat()


def train(output_dir, precision="float32"):
    """Runs the loop as run_pretraining.py does; returns metrics per step."""
    scope = strategy.create("one_device")
    with scope.scope():
        model = models.PretrainingModel(
            BertConfig(**golden_run.CONFIG), dtype=policies.policy(precision)
        )
    for variable in model.variables:
        variable.assign(golden_run.weight(variable.path, variable.shape))
    config = config_flags.build(
        flags.RunFlags,
        output_dir=str(output_dir),
        precision=precision,
    )
    made = learner.make_learner(
        config,
        objectives.PretrainingObjective(),
        model,
        strategy=scope,
        learning_rate=golden_run.PEAK,
        num_train_steps=golden_run.STEPS,
        num_warmup_steps=golden_run.WARMUP,
    )
    loop.train(
        made,
        strategy=scope,
        phases=[loop.Phase(golden_run.STEPS, make_batches)],
        options=loop.Options(
            output_dir=str(output_dir),
            seed=0,
            log_every=1,
            compile_functions=precision == "bfloat16",
        ),
    )
    lines = (output_dir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def golden(repository):
    path = repository / "tests" / "testdata" / "golden_losses.json"
    return types.SimpleNamespace(**json.loads(path.read_text()))


def test_losses_of_200_steps_are_those_of_transformers(tmp_path, golden):
    lines = train(tmp_path)
    losses = [line["train/loss"] for line in lines]
    assert len(losses) == golden_run.STEPS
    assert losses == pytest.approx(golden.loss, rel=TOLERANCE)
    norms = [line["train/grad_norm"] for line in lines]
    assert norms == pytest.approx(golden.grad_norm, rel=TOLERANCE)


@pytest.mark.all
def test_the_curve_of_bfloat16_lies_on_that_of_float32(tmp_path, golden):
    losses = [line["train/loss"] for line in train(tmp_path, "bfloat16")]
    # Step by step, and over the last tenth.
    apart = np.abs(np.array(losses) / golden.loss - 1.0)
    assert apart.mean() < 0.005
    ends = np.mean(losses[-20:]), np.mean(golden.loss[-20:])
    assert ends[0] == pytest.approx(ends[1], rel=0.005)
