"""Losses and metrics over a finite stream of batches, exact on any hardware.

Sums and weights are added over replicas and batches and divided once.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from training import feed, step


class Evaluator:
    """Compiles the forward pass once and serves every evaluation of a run.

    So it does the pipeline of the batches, as long as they are the same.
    """

    def __init__(
        self,
        task: step.Task,
        model: Any,
        *,
        strategy: tf.distribute.Strategy,
    ):
        """Compiles nothing yet."""
        self._task = task
        self._model = model
        self._strategy = strategy
        self._names: list[str] = []
        self._losses: list[str] = []
        self._make_batches: feed.MakeBatches | None = None
        self._batches: Any = None
        self._run = tf.function(self._batch, autograph=False)

    def __call__(
        self, make_batches: feed.MakeBatches, *, max_steps: int | None = None
    ) -> dict[str, float]:
        """Returns the losses, their sum "loss", and the metrics.

        Args:
            make_batches: all real examples once; padding has weight 0.
            max_steps: stop after so many batches.
        """
        total: Any = 0.0
        if make_batches is not self._make_batches:
            self._batches = feed.distribute(self._strategy, make_batches)
            self._make_batches = make_batches
        for number, features in enumerate(self._batches):
            if number == max_steps:
                break
            # float64: a corpus is longer than the digits of a float32 sum.
            total = total + self._run(features).numpy().astype(np.float64)
        if not self._names:
            raise ValueError("nothing to evaluate")
        values = {
            name: float(total[0, i] / total[1, i]) if total[1, i] else 0.0
            for i, name in enumerate(self._names)
        }
        return {"loss": sum(values[n] for n in self._losses), **values}

    def _batch(self, features):
        row = self._strategy.run(self._replica_batch, args=(features,))
        return self._strategy.experimental_local_results(row)[0]

    def _replica_batch(self, features):
        features = {k: v[0] for k, v in features.items()}
        losses, metrics = self._task.forward(self._model, features, None)
        self._names = [*losses, *metrics]
        self._losses = list(losses)
        weighted = [*losses.values(), *metrics.values()]
        row = tf.stack(
            [
                [tf.cast(w.sum, tf.float32) for w in weighted],
                [tf.cast(w.weight, tf.float32) for w in weighted],
            ]
        )
        return tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, row
        )
