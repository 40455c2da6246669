"""Measures transformers' BertForPreTraining in the process of the peer.

A process that accelerator.py starts with --plan=peer, by the Python of
--peer_python: torch and transformers, but no TensorFlow. It reads and writes
the lines that accelerator_cases.py does. The batches, the dropout, the clipping
and the optimizer are ours; products are in bfloat16 (autocast), attention is
scaled_dot_product_attention, and the batches are in the device's memory.

Forms of the peer, a comma list in Case.levers:

    compile, or a mode of torch.compile; eager: without it
    masked: its head sees the masked positions only, as ours does; otherwise it
        scores the vocabulary at every position, as transformers does
"""

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import accelerator_cases
import numpy as np

Case = accelerator_cases.Case
_MISSING = [
    name
    for name in ("torch", "transformers")
    if importlib.util.find_spec(name) is None
]


def make_model(case: Case):
    """Returns BertForPreTraining of the case's size, with tanh-GELU as ours."""
    import transformers

    layers, hidden, heads = accelerator_cases.SIZES[case.size]
    config = transformers.BertConfig(
        vocab_size=accelerator_cases.VOCABULARY,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        hidden_act="gelu_new",
        hidden_dropout_prob=case.dropout,
        attention_probs_dropout_prob=case.dropout,
        attn_implementation="sdpa",
    )
    return transformers.BertForPreTraining(config).train()


def batches(case: Case, device: str) -> list[dict[str, Any]]:
    """Returns our batches as the peer's inputs, on the device."""
    import torch

    arrays = accelerator_cases.arrays(case)
    rows = len(arrays["input_ids"])
    labels = np.full_like(arrays["input_ids"], -100)
    kept = arrays["masked_lm_weights"] > 0
    columns = arrays["masked_lm_positions"]
    row = np.broadcast_to(np.arange(rows)[:, None], columns.shape)
    labels[row[kept], columns[kept]] = arrays["masked_lm_ids"][kept]
    columns = {
        "input_ids": arrays["input_ids"],
        "attention_mask": arrays["input_mask"],
        "token_type_ids": arrays["segment_ids"],
        "labels": labels,
        "next_sentence_label": arrays["next_sentence_labels"].ravel(),
        "positions": columns,
        "position_labels": np.where(kept, arrays["masked_lm_ids"], -100),
    }
    return [
        {
            name: torch.tensor(x[start : start + case.batch]).long().to(device)
            for name, x in columns.items()
        }
        for start in range(0, rows, case.batch)
    ]


def loss_at_masked_positions(model, batch: Mapping[str, Any]):
    """Computes the model's loss with its head on the masked positions only."""
    from torch.nn import functional

    outputs = model.bert(
        batch["input_ids"], batch["attention_mask"], batch["token_type_ids"]
    )
    states = outputs.last_hidden_state
    index = batch["positions"][..., None].expand(-1, -1, states.shape[-1])
    scores, relation = model.cls(states.gather(1, index), outputs.pooler_output)
    masked_lm = functional.cross_entropy(
        scores.float().flatten(0, 1), batch["position_labels"].flatten()
    )
    return masked_lm + functional.cross_entropy(
        relation.float(), batch["next_sentence_label"]
    )


def loss_as_it_is(model, batch: Mapping[str, Any]):
    """Returns the loss that the model computes."""
    names = {"positions", "position_labels"}
    return model(**{k: v for k, v in batch.items() if k not in names}).loss


def trainer(case: Case) -> Callable[[int], float]:
    """Returns what trains a number of steps and returns the last loss."""
    import torch
    import torch_peer

    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    form, *rest = case.levers.split(",")
    model = make_model(case).to(device)
    optimizer = torch_peer.adamw(model, 1e-4, fused=True)
    loss_of = loss_at_masked_positions if "masked" in rest else loss_as_it_is

    def forward(batch):
        with torch_peer.autocast(case.precision, device):
            return loss_of(model, batch)

    if form != "eager":
        mode = None if form == "compile" else form
        forward = torch.compile(forward, mode=mode)
    data, done = batches(case, device), 0

    def run(number: int) -> float:
        nonlocal done
        for _ in range(number):
            loss = forward(data[done % len(data)])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            done += 1
        return loss.item()  # Waits for the device.

    return run


def _peak_gib() -> float:
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**30
    return accelerator_cases.process_peak_gib()


def run_case(case: Case, directory: str, flops: float | None) -> dict[str, Any]:
    """Returns the case's result; a failure is its text."""
    del directory
    if _MISSING:
        return accelerator_cases.not_installed(case, _MISSING, "peer_python")

    def measure():
        values, _, loss = accelerator_cases.time_calls(
            case, lambda: trainer(case)
        )
        values |= {"last_loss": loss, "peak_gib": _peak_gib()}
        if flops is not None:
            values["tflops"] = flops * values["sequences_per_second"] / 1e12
        return values

    return {**accelerator_cases.attempt(case, measure), **versions()}


def versions() -> dict[str, str]:
    """Returns the versions of the peer."""
    import torch
    import transformers

    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def device() -> dict[str, Any]:
    """Returns the versions, and whether torch uses a GPU."""
    if _MISSING:
        return {}
    import torch

    return {**versions(), "is_gpu": torch.cuda.is_available()}


if __name__ == "__main__":
    accelerator_cases.serve(device, run_case)
