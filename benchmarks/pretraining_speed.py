r"""Measures pre-training steps per second, compared with transformers.

    python benchmarks/pretraining_speed.py --size=mini --batch_size=8 \
        --peer_python=/path/to/python/with/torch/and/transformers

Both sides do complete training steps (dropout 0.1, clipping, AdamW) on the same
random batch of full-length sequences, in processes that take turns, so that
other load on the machine slows both. Prints the medians of sequences per second
and their ratio. --peer_compile=false disables torch.compile. --profile=DIR
writes a trace of our step and prints its time by kind of operation.
"""

import dataclasses
import os
import sys
from typing import Literal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import comparison
import numpy as np
import smoke

from foundation import config_flags

field = config_flags.field
SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
VOCABULARY = 30522


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(comparison.SpeedComparison):
    """The flags of this comparison."""

    size: Literal["tiny", "mini", "small", "base", "large"] = field(
        "Size of the model.", "mini"
    )
    batch_size: int = field("Sequences per step.", 8)
    max_seq_length: int = field("Tokens per sequence.", 128)
    steps: int = field("Steps per turn.", 5)
    use_xla: bool = field("Whether XLA compiles our step, for GPUs.", False)
    peer_compile: bool = field("Whether the peer uses torch.compile.", True)
    profile: str | None = field(
        "Directory for a trace of our step, instead of a comparison.", None
    )


def batch(config: Config) -> dict[str, np.ndarray]:
    """Draws a batch without padding; 15 % of the positions are masked."""
    draw = np.random.RandomState(0)
    size = (config.batch_size, config.max_seq_length)
    count = max(1, round(config.max_seq_length * 0.15))
    positions = [
        np.sort(draw.permutation(config.max_seq_length)[:count])
        for _ in range(config.batch_size)
    ]
    return {
        "input_ids": draw.randint(1000, VOCABULARY, size).astype("i4"),
        "input_mask": np.ones(size, "i4"),
        "segment_ids": (np.indices(size)[1] > size[1] // 2).astype("i4"),
        "masked_lm_positions": np.array(positions, "i4"),
        "masked_lm_ids": draw.randint(
            1000, VOCABULARY, (config.batch_size, count)
        ).astype("i4"),
        "masked_lm_weights": np.ones((config.batch_size, count), "f4"),
        "next_sentence_labels": draw.randint(
            0, 2, (config.batch_size, 1)
        ).astype("i4"),
    }


def model_config(config: Config) -> dict:
    """Returns the published hyperparameters of a size."""
    layers, hidden, heads = SIZES[config.size]
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "initializer_range": 0.02,
    }


def make_ours(config: Config):
    """Returns a function that runs our steps of one turn."""
    import our_side
    import tensorflow as tf

    from modeling import models
    from modeling.config import BertConfig
    from tasks.pretraining import objectives

    features = batch(config)

    def make_batches(*, first_batch, part, num_parts):
        return tf.data.Dataset.from_tensors(features).repeat()

    return our_side.training(
        lambda dtype: models.PretrainingModel(
            BertConfig(hidden_act="gelu", **model_config(config)), dtype=dtype
        ),
        objectives.PretrainingObjective(),
        make_batches,
        dtype=config.precision,
        steps=config.steps,
        jit_compile=config.use_xla,
    )


def make_peer(config: Config):
    """Returns a function that runs the peer's steps of one turn."""
    import torch
    import torch_peer
    import transformers

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.BertForPreTraining(
        transformers.BertConfig(hidden_act="gelu_new", **model_config(config))
    ).to(device)
    model.train()
    forward = torch.compile(model) if config.peer_compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    arrays = batch(config)
    labels = np.full_like(arrays["input_ids"], -100)
    rows = np.arange(config.batch_size)[:, None]
    labels[rows, arrays["masked_lm_positions"]] = arrays["masked_lm_ids"]
    inputs = {
        "input_ids": arrays["input_ids"],
        "attention_mask": arrays["input_mask"],
        "token_type_ids": arrays["segment_ids"],
        "labels": labels,
        "next_sentence_label": arrays["next_sentence_labels"].ravel(),
    }
    inputs = {k: torch.tensor(v).long().to(device) for k, v in inputs.items()}

    def run():
        for _ in range(config.steps):
            with torch_peer.autocast(config.precision, device):
                loss = forward(**inputs).loss
            torch_peer.step(model, loss, optimizer)
        loss.item()  # Waits for the device.

    return run


def main(config: Config) -> None:
    """Lets the sides take turns and prints medians and the ratio."""
    if config.side != "both":
        return comparison.serve(config, make_ours, make_peer)
    if config.profile:
        import trace_table

        precision = comparison.resolve_precision(config.precision)
        return trace_table.show(
            make_ours(dataclasses.replace(config, precision=precision)),
            config.profile,
        )
    return comparison.compare_speed(
        __file__,
        config,
        title=f"{config.size}, batch {config.batch_size}, sequence "
        f"{config.max_seq_length}",
        done=config.batch_size * config.steps,
        unit="sequences",
    )


if __name__ == "__main__":
    with smoke.flags(
        {
            "size": "tiny",
            "batch_size": 2,
            "max_seq_length": 16,
            "steps": 1,
            "rounds": 1,
        }
    ):
        config_flags.run(Config, main)
