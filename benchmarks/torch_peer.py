"""The peer in PyTorch: trains as the Trainer of transformers does.

Only the processes of peers import this module. Their Python has torch and
transformers, but not TensorFlow.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transformers
from transformers import trainer_pt_utils


def tensors(batch: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Returns a batch as tensors of int64 or float32."""
    return {
        name: torch.tensor(x).float()
        if x.dtype.kind == "f"
        else torch.tensor(x).long()
        for name, x in batch.items()
    }


def autocast(precision: str, device: str = "cpu") -> torch.autocast:
    """Returns a context that multiplies matrices in the given precision."""
    is_half = precision == "bfloat16"
    return torch.autocast(device, dtype=torch.bfloat16, enabled=is_half)


def step(model, loss: torch.Tensor, optimizer) -> float:
    """Updates the weights; returns the gradient norm before clipping."""
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return norm.item()


def adamw(
    model, learning_rate: float, *, fused: bool | None = None
) -> torch.optim.AdamW:
    """Returns AdamW with google-research/bert's weight decay and epsilon.

    Biases and LayerNorm are exempt, as in the Trainer. PyTorch's default
    epsilon is 1e-8.
    """
    decayed, others = [], []
    for name, weight in model.named_parameters():
        is_exempt = "LayerNorm" in name or name.endswith("bias")
        (others if is_exempt else decayed).append(weight)
    groups = [
        {"params": decayed, "weight_decay": 0.01},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, eps=1e-6, fused=fused)


def batches(
    lengths: Sequence[int],
    *,
    batch_size: int,
    seed: int,
    group_by_length: bool,
) -> Iterator[list[int]]:
    """Yields the rows of training batches in the Trainer's order, endlessly.

    Args:
      lengths: tokens of every row.
      batch_size: rows per batch.
      seed: seed of the order.
      group_by_length: whether batches contain rows of similar length; the
        Trainer's default is False.
    """
    lengths = [int(length) for length in lengths]
    generator = torch.Generator().manual_seed(seed)
    order: list[int] = []
    while True:
        if len(order) < batch_size:
            if group_by_length:
                order += trainer_pt_utils.get_length_grouped_indices(
                    lengths, batch_size, generator=generator
                )
            else:
                order += torch.randperm(
                    len(lengths), generator=generator
                ).tolist()
        rows, order = order[:batch_size], order[batch_size:]
        yield rows


def training(
    model,
    make_batch: Callable[[Sequence[int]], Mapping[str, Any]],
    lengths: Sequence[int],
    *,
    precision: str,
    batch_size: int,
    steps: int,
    group_by_length: bool,
) -> Callable[[], None]:
    """Returns a function that trains on the next `steps` batches."""
    model = model.float().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    rows = batches(
        lengths,
        batch_size=batch_size,
        seed=1,
        group_by_length=group_by_length,
    )

    def run() -> None:
        for _ in range(steps):
            with autocast(precision):
                loss = model(**make_batch(next(rows))).loss
            step(model, loss, optimizer)

    return run


def schedule(name: str, optimizer, *, steps: int, warmup: int):
    """Returns linear warm-up and decay: "released" or "transformers".

    The learning rate of google-research/bert ("released") decays from step 0,
    that of transformers' Trainer from the end of the warm-up. The latter is
    higher from there on.
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
    """Fine-tunes with `adamw`, warm-up over 10 % of the steps, linear decay.

    Batches contain rows of similar length.

    Args:
      model: a model of transformers, which computes its loss.
      make_batch: takes row numbers, returns the inputs of the model.
      lengths: tokens of every row.
      batch_size: rows per step.
      epochs: passes over all rows.
      learning_rate: peak learning rate.
      seed: seed of the order; transformers.set_seed sets that of the model.
      schedule_name: see `schedule`.
      precision: see `autocast`; bfloat16 equals the Trainer's --bf16.
    """
    steps = int(len(lengths) / batch_size * epochs)
    optimizer = adamw(model, learning_rate)
    rates = schedule(
        schedule_name, optimizer, steps=steps, warmup=int(0.1 * steps)
    )
    rows = batches(
        lengths, batch_size=batch_size, seed=seed, group_by_length=True
    )
    model.train()
    for _ in range(steps):
        with autocast(precision):
            loss = model(**make_batch(next(rows))).loss
        step(model, loss, optimizer)
        rates.step()
