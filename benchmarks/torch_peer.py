"""How a peer in PyTorch trains: as transformers' Trainer does.

Imported only by the processes of peers, whose Python has torch and
transformers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transformers
from transformers import trainer_pt_utils


def tensors(batch: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Returns a batch as PyTorch wants it: int64, or float32."""
    return {
        name: torch.tensor(x).float()
        if x.dtype.kind == "f"
        else torch.tensor(x).long()
        for name, x in batch.items()
    }


def autocast(precision: str, device: str = "cpu") -> torch.autocast:
    """Returns the context in which matrices are multiplied in bfloat16."""
    is_half = precision == "bfloat16"
    return torch.autocast(device, dtype=torch.bfloat16, enabled=is_half)


def step(model, loss: torch.Tensor, optimizer) -> float:
    """Changes the weights; returns the gradients' norm before clipping."""
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return norm.item()


def training(
    model,
    make_batch: Callable[[np.ndarray], Mapping[str, Any]],
    count: int,
    *,
    precision: str,
    batch_size: int,
    steps: int,
) -> Callable[[], None]:
    """Returns what trains `steps` random batches whenever it is called."""
    model = model.float().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    draw = np.random.default_rng(1)

    def run() -> None:
        for _ in range(steps):
            rows = draw.permutation(count)[:batch_size]
            with autocast(precision):
                loss = model(**make_batch(rows)).loss
            step(model, loss, optimizer)

    return run


def schedule(name: str, optimizer, *, steps: int, warmup: int):
    """Returns the linear warm-up and decay of "released" or "transformers".

    The released rate decays as if from step 0, that of transformers' Trainer
    from the end of the warm-up on, and so is higher from there.
    """
    if name == "transformers":
        return transformers.get_linear_schedule_with_warmup(
            optimizer, warmup, steps
        )
    if name != "released":
        raise ValueError(f"schedule {name!r}: released or transformers")

    def released(step: int) -> float:
        return step / warmup if step < warmup else 1 - step / steps

    return torch.optim.lr_scheduler.LambdaLR(optimizer, released)


def fit(
    model,
    make_batch: Callable[[Sequence[int]], Mapping[str, Any]],
    lengths: Sequence[int],
    *,
    batch_size: int,
    epochs: float,
    learning_rate: float,
    seed: int,
    schedule_name: str = "transformers",
    precision: str = "float32",
) -> None:
    """Fine-tunes with AdamW, a tenth of warm-up and linear decay.

    Decay and epsilon are the released ones; PyTorch's own epsilon is 1e-8.
    Batches are of similar length, as Trainer's group_by_length makes them.

    Args:
      model: of transformers; it computes its loss.
      make_batch: returns its inputs, of these rows.
      lengths: of all rows, in pieces.
      batch_size: rows per step.
      epochs: how often every row is seen.
      learning_rate: at its peak.
      seed: of the order; the model has its own, see transformers.set_seed.
      schedule_name: see schedule.
      precision: of the products, as Trainer's --bf16 chooses it.
    """
    steps = int(len(lengths) / batch_size * epochs)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, weight_decay=0.01, eps=1e-6
    )
    rates = schedule(
        schedule_name, optimizer, steps=steps, warmup=int(0.1 * steps)
    )
    generator = torch.Generator().manual_seed(seed)
    order: list[int] = []
    model.train()
    for _ in range(steps):
        if len(order) < batch_size:
            order += trainer_pt_utils.get_length_grouped_indices(
                list(map(int, lengths)), batch_size, generator=generator
            )
        rows, order = order[:batch_size], order[batch_size:]
        with autocast(precision):
            loss = model(**make_batch(rows)).loss
        step(model, loss, optimizer)
        rates.step()
