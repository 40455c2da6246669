"""A run that is small enough to be killed a hundred times: not a test itself.

    python tests/training/toy_run.py DIR '{"one": {"steps": 50, "replicas": 2}}'

Its model has all that makes exactness hard: an embedding with sparse gradients
that is tied to the output, two losses of different weights, a different number
of predictions per example, LayerNorm and biases, dropout.
"""

import hashlib
import json
import os
import sys
import time
from typing import NamedTuple

import foundation.tensorflow_setup  # noqa: F401

# isort: split
import keras
import numpy as np
import tensorflow as tf
from absl import flags, logging

from training import (
    checkpoints,
    inference,
    loop,
    optimizers,
    precision,
    settings,
    step,
    strategy,
)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


VOCABULARY, LENGTH, WIDTH = 23, 6, 8
DEFAULTS = {
    "steps": 50,
    "batch": 8,
    "replicas": 1,
    "accumulation": 1,
    "rule": "adamw",
    "dropout": 0.0,
    "save_every": 1000,
    "log_every": 10,
    "eval_every": 0,
    "jit": False,
    "precision": "float32",
    "strategy": "auto",
    "peak": 0.01,
    "clip_norm": 0.05,
    "width": WIDTH,
    "poison": -1,
    "overflow": -1,
    "phases": None,
    "slow_save": 0.0,
    "patience": 0,
    "profile_steps": None,
    "is_dry": False,
}


class Weighted(NamedTuple):
    """A sum and the weight to divide it by."""

    sum: tf.Tensor
    weight: tf.Tensor
    epsilon: float = 0.0
    factor: float = 1.0


class Model(keras.Model):
    """Embeds, mixes, and predicts with the embedding's own weights."""

    def __init__(self, dropout=0.0, policy="float32", width=WIDTH):
        """Builds all weights from fixed seeds."""
        super().__init__(name="toy", dtype=policy)
        normal = keras.initializers.RandomNormal(stddev=0.5, seed=1)
        self.rate = dropout
        self.embedding = keras.layers.Embedding(
            VOCABULARY, width, normal, dtype=policy, name="embedding"
        )
        self.dense = keras.layers.Dense(
            width, kernel_initializer=normal, dtype=policy, name="dense"
        )
        self.norm = keras.layers.LayerNormalization(name="LayerNorm")
        self.pooled = keras.layers.Dense(
            2, kernel_initializer=normal, dtype=policy, name="pooled"
        )
        self({"ids": np.zeros([1, LENGTH], np.int32)})

    def call(self, features, dropout_seed=None):
        """Returns logits [B, S, V] and [B, 2], and what dropout left."""
        x = self.dense(self.embedding(features["ids"]))
        kept = tf.ones_like(x)
        if dropout_seed is not None and self.rate:
            uniform = tf.random.stateless_uniform(tf.shape(x), dropout_seed)
            kept = tf.cast(uniform >= self.rate, x.dtype)
        x = self.norm(x * kept)
        table = tf.cast(self.embedding.embeddings, x.dtype)
        words = tf.einsum("bsh,vh->bsv", x, table)
        return words, self.pooled(x[:, 0]), kept


class Objective:
    """Words and sentences, as pre-training has them."""

    def loss_weights(self, features):
        """Returns the number of words and of sentences."""
        return {
            "words": tf.reduce_sum(features["weights"]),
            "sentences": tf.cast(tf.shape(features["ids"])[0], tf.float32),
        }

    def forward(self, model, features, dropout_seed):
        """Returns two losses and an accuracy."""
        words, sentences, kept = model(features, dropout_seed=dropout_seed)
        words = tf.cast(words, tf.float32)
        weights = features["weights"]
        words_loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
            features["labels"], words
        )
        sentences_loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
            features["labels"][:, 0] % 2, tf.cast(sentences, tf.float32)
        )
        total = tf.reduce_sum(weights)
        count = tf.cast(tf.shape(words)[0], tf.float32)
        best = tf.argmax(words, -1, tf.int32)
        right = weights * tf.cast(best == features["labels"], tf.float32)
        losses = {
            "words": Weighted(tf.reduce_sum(weights * words_loss), total, 1e-5),
            "sentences": Weighted(tf.reduce_sum(sentences_loss), count),
        }
        # Which units dropout kept, as a number and its square: the mean square
        # exceeds the squared mean only if replicas drew different masks.
        size = tf.cast(tf.size(kept), tf.float32)
        positions = tf.reshape(tf.range(size), tf.shape(kept)) / size
        mask = tf.reduce_mean(tf.cast(kept, tf.float32) * positions)
        return losses, {
            "accuracy": Weighted(tf.reduce_sum(right), total),
            "mask": Weighted(mask, tf.ones([])),
            "mask_squared": Weighted(mask**2, tf.ones([])),
        }


def batches(batch, poison=-1, overflow=-1, number=None, length=LENGTH):
    """Returns make_batches: batch k is a pure function of k.

    Batch `poison` has a weight that is not a number. In the second half of
    batch `overflow` are weights whose gradient float16 cannot hold, although
    they add up to nothing.
    """

    def draw(k):
        rng = np.random.default_rng([7, k])
        ids = rng.integers(0, VOCABULARY, [batch, length], np.int32)
        weights = rng.random([batch, length]) < rng.random([batch, 1])
        weights = weights.astype(np.float32)
        if k == poison:
            weights[0, 0] = np.nan
        if k == overflow:
            weights[batch // 2, :2] = 1e30, -1e30
        return ids, (ids * 3 + 1) % VOCABULARY, weights

    def make_batches(*, first_batch, part, num_parts):
        rows = batch // num_parts
        last = 2**40 if number is None else number

        def cut(k):
            columns = tf.numpy_function(
                draw, [k], [tf.int32, tf.int32, tf.float32]
            )
            names = ("ids", "labels", "weights")
            return {
                name: tf.ensure_shape(
                    x[part * rows : (part + 1) * rows], [rows, length]
                )
                for name, x in zip(names, columns, strict=True)
            }

        return tf.data.Dataset.range(first_batch, last).map(cut)

    return make_batches


def make(options):
    """Wires a run as a runner does; returns (go, model, optimizer)."""
    options = {**DEFAULTS, **options}
    scope = strategy.create(
        options["strategy"], num_replicas=options["replicas"]
    )
    rule = {"adamw": optimizers.AdamW, "lamb": optimizers.Lamb}
    with scope.scope():
        model = Model(
            options["dropout"],
            precision.policy(options["precision"]),
            options["width"],
        )
        schedule = optimizers.WarmupDecay(
            peak=options["peak"],
            num_train_steps=options["steps"],
            num_warmup_steps=options["steps"] // 5,
        )
        optimizer = optimizers.Optimizer(
            rule[options["rule"]](),
            model.trainable_variables,
            schedule,
            clip_norm=options["clip_norm"],
        )
        loss_scale = None
        if options["precision"] == "float16":
            loss_scale = precision.LossScale(growth_steps=10)
    evaluator = inference.Evaluator(Objective(), model, strategy=scope)

    class Hooks(loop.Hooks):
        def evaluate(self, phase, step):
            return evaluator(batches(options["batch"], number=3))

    def go(output_dir):
        strategy.check_shared_folder(scope, output_dir)
        return loop.train(
            step.Learner(Objective(), model, optimizer, loss_scale),
            strategy=scope,
            phases=[
                loop.Phase(
                    steps,
                    batches(
                        options["batch"],
                        options["poison"],
                        options["overflow"],
                        length=length,
                    ),
                    describe_batch=lambda number: f"record {8 * number}",
                )
                for steps, length in options["phases"]
                or [(options["steps"], LENGTH)]
            ],
            options=loop.Options(
                output_dir=output_dir,
                seed=12345,
                flags=settings.Loop(
                    gradient_accumulation_steps=options["accumulation"],
                    save_checkpoints_steps=options["save_every"],
                    profile_steps=options["profile_steps"],
                    dry_run=options["is_dry"],
                ),
                log_every=options["log_every"],
                selection=loop.Selection(
                    every=options["eval_every"], patience=options["patience"]
                ),
                jit_compile=options["jit"],
            ),
            hooks=Hooks(),
        )

    return go, model, optimizer


def weights(model, optimizer):
    """Returns all weights and slots by name."""
    variables = loop.saved_variables(model, optimizer)
    return {name: v.numpy() for name, v in variables.items()}


def digest(arrays):
    """Returns one hash of the bytes of all arrays."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        sha.update(name.encode() + arrays[name].tobytes())
    return sha.hexdigest()


def main():
    """Trains by all given options, one after the other."""
    flags.FLAGS.mark_as_parsed()
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    output_dir = sys.argv[1]
    for name, options in json.loads(sys.argv[2]).items():
        run(os.path.join(output_dir, name), options)


def write_slowly(seconds):
    """Makes every save take so long."""
    write = checkpoints.Checkpoints._write

    def slow(*args):
        time.sleep(seconds)
        write(*args)

    checkpoints.Checkpoints._write = slow


def run(output_dir, options):
    """Trains, and writes final.npz beside the checkpoints."""
    go, model, optimizer = make(options)
    if options.get("slow_save"):
        write_slowly(options["slow_save"])
    first = go(output_dir)
    latest = checkpoints.Checkpoints(output_dir).latest()
    final = weights(model, optimizer)
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {})
    name = f"final{task.get('index', '')}.npz"
    np.savez(os.path.join(output_dir, name), **final)
    with open(os.path.join(output_dir, f"{name}.latest"), "w") as file:
        file.write(os.path.basename(latest))
    sys.stdout.write(f"from {first}: {digest(final)}\n")


if __name__ == "__main__":
    main()
