"""Makes golden_losses.json: 200 steps by transformers and a NumPy optimizer.

The model, its losses and their gradients are transformers' own; the released
optimizer (optimization.py of google-research/bert) is written out below. Needs
torch and transformers, which the tests do not:

    pip install torch==2.13.0 transformers==5.23.0 absl-py
    PYTHONPATH=. python tests/testdata/make_golden_losses.py
"""

import json
import pathlib
import re

import numpy as np
import torch
import transformers

from modeling.config import BertConfig
from tests.training import golden_run
from weights import stored_weights


def build(dtype: torch.dtype):
    """Makes BertForPreTraining with the run's initial weights."""
    config = BertConfig(**golden_run.CONFIG)
    model = transformers.BertForPreTraining(
        transformers.BertConfig(**config.to_hugging_face())
    )
    model = model.to(dtype).eval()
    parameters = dict(model.named_parameters())
    heads = stored_weights.MASKED_LM, stored_weights.NEXT_SENTENCE
    for path, shape in stored_weights.shapes(config, *heads).items():
        row = stored_weights.by_path(path)
        value = golden_run.weight(path, shape)
        value = value.T if row.is_transposed else value
        parameters[row.hugging_face].data.copy_(torch.tensor(value.copy()))
    return model


def loss_of(model, step: int) -> torch.Tensor:
    """Computes the model's own loss of one batch."""
    batch = {
        name: torch.tensor(value).long()
        for name, value in golden_run.batch(step).items()
    }
    labels = torch.full_like(batch["input_ids"], -100)
    for row in range(golden_run.BATCH):
        number = batch["masked_lm_weights"][row].sum()
        positions = batch["masked_lm_positions"][row, :number]
        labels[row, positions] = batch["masked_lm_ids"][row, :number]
    return model(
        input_ids=batch["input_ids"],
        attention_mask=batch["input_mask"],
        token_type_ids=batch["segment_ids"],
        labels=labels,
        next_sentence_label=batch["next_sentence_labels"].ravel(),
    ).loss


def rate(step: int) -> float:
    """Returns the learning rate of a step, counted from 0."""
    if step < golden_run.WARMUP:
        return golden_run.PEAK * step / golden_run.WARMUP
    return golden_run.PEAK * (1.0 - step / golden_run.STEPS)


def update(step: int, values: dict, slots: dict, gradients: dict) -> float:
    """Does one step of the released optimizer; returns the gradients' norm."""
    norm = np.sqrt(sum(np.sum(np.square(g)) for g in gradients.values()))
    for name, weight in values.items():
        gradient = gradients[name] * min(1.0, 1.0 / norm)
        m, v = slots[name]
        m += 0.1 * (gradient - m)
        v += 0.001 * (np.square(gradient) - v)
        change = m / (np.sqrt(v) + 1e-6)
        if not re.search("LayerNorm|bias", name):
            change = change + 0.01 * weight
        weight -= (rate(step) * change).astype(weight.dtype)
    return float(norm)


def run(dtype: torch.dtype) -> tuple[list[float], list[float]]:
    """Trains; returns losses and norms of the gradients."""
    model = build(dtype)
    parameters = dict(model.named_parameters())
    # Views: what NumPy changes, torch sees.
    values = {name: p.detach().numpy() for name, p in parameters.items()}
    slots = {
        name: (np.zeros_like(value), np.zeros_like(value))
        for name, value in values.items()
    }
    losses, norms = [], []
    for step in range(golden_run.STEPS):
        model.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        gradients = {n: p.grad.numpy() for n, p in parameters.items()}
        losses.append(loss.item())
        norms.append(update(step, values, slots, gradients))
    return losses, norms


def main() -> None:
    """Writes the float32 run; float64 says how far rounding alone goes."""
    torch.set_num_threads(1)  # The batches are too small for more.
    losses, norms = run(torch.float32)
    exact, _ = run(torch.float64)
    error = max(abs(a - b) / b for a, b in zip(losses, exact, strict=True))
    print(f"float32 is within {error:.1e} of float64")
    golden = {"loss": losses, "grad_norm": norms}
    path = pathlib.Path(__file__).with_name("golden_losses.json")
    path.write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
