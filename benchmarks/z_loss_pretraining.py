"""Pre-trains with a z-loss: run_pretraining.py with one more loss.

    python benchmarks/z_loss_pretraining.py --bert_config_file=... --do_train

The z-loss of a masked token is 1e-4 log(Z)^2, where Z is the sum of the
exponentials of its logits, as in PaLM (Chowdhery et al., 2022) and GPT-BERT
(Charpentier and Samuel, 2024). It keeps the logits small. Evaluations do not
have it. The flags are those of run_pretraining.py; pretraining_trials.py
measures whether it helps.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import run_pretraining

# isort: split
from keras import ops

from foundation import config_flags
from modeling import losses
from tasks.pretraining import objectives

_WEIGHT = 1e-4
_NAME = "z_loss"


class WithZLoss(objectives.PretrainingObjective):
    """A pre-training objective with a z-loss in training."""

    def loss_weights(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """See PretrainingObjective; masked tokens weigh as in their loss."""
        weights = super().loss_weights(features)
        return weights | {_NAME: weights["masked_lm_loss"]}

    def outputs(
        self, model: Any, features: Mapping[str, Any], dropout_seed: Any = None
    ) -> Any:
        """Returns the outputs of the model, and keeps them for `forward`."""
        self._outputs = super().outputs(model, features, dropout_seed)
        return self._outputs

    def forward(
        self, model: Any, features: Mapping[str, Any], dropout_seed: Any = None
    ) -> tuple[dict, dict]:
        """Returns the training losses and the metrics."""
        terms, metrics = super().forward(model, features, dropout_seed)
        if dropout_seed is not None:  # In training.
            logits = ops.cast(self._outputs.masked_lm_logits, "float32")
            weights = self._targets(features).weights
            sums = ops.square(ops.logsumexp(logits, axis=-1)) * weights
            terms[_NAME] = losses.Weighted(
                ops.sum(sums), ops.sum(weights), factor=_WEIGHT
            )
        return terms, metrics


if __name__ == "__main__":
    objectives.PretrainingObjective = WithZLoss  # type: ignore[misc]
    config_flags.run(run_pretraining.PretrainingConfig, run_pretraining.main)
