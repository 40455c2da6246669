r"""Measures tagging and feature extraction beside transformers and PyTorch.

    python benchmarks/tagging_speed.py --data_file=eng.train \
        --init_checkpoint=MODEL_DIR --peer_python=/path/to/python/with/torch

Both have the same sentences, already tokenized, in batches of 32: ours of
similar length, the peer's padded to the longest of each, random ones to train
on and ones in the file's order to extract from. The processes take turns.
Prints the medians of sentences per second, and their ratios.
"""

import dataclasses
import os
import sys
import tempfile
from typing import Literal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))


import example_arrays
import turns

from foundation import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(turns.Race):
    """What is measured."""

    data_file: str = field("CoNLL's format.")
    init_checkpoint: str = field("A model directory that both read.")
    batch_size: int = field("Sentences per step.", 32)
    steps: int = field("Batches per turn.", 20)
    work: Literal["all", "train", "extract"] = field("Of these.", "all")
    examples: str | None = field("Used by itself.", None)


def tokenize(config: Config, folder: str) -> str:
    """Writes the sentences as arrays; returns the file."""
    from tasks.ner import conll, ner_windows
    from weights import checkpoint_sources, tokenizer_files

    sentences = conll.read(config.data_file)
    scheme = conll.scheme(sentences)
    labels = conll.labels(conll.types(sentences, scheme), "bio2")
    source = checkpoint_sources.read(config.init_checkpoint)
    features = ner_windows.encode(
        tokenizer_files.load(source.directory),
        sentences,
        conll.encode_tags(sentences, scheme, labels),
        max_seq_length=128,
    )
    path = os.path.join(folder, "sentences.npz")
    return example_arrays.write(path, features, classes=len(labels))


def make_ours(config: Config):
    """Returns what works once."""
    import our_side

    from data import length_groups
    from modeling import encoder, models
    from tasks.features import feature_extraction
    from tasks.ner import tagging
    from weights import checkpoint_sources

    arrays = example_arrays.read(config.examples)
    bert = checkpoint_sources.read(config.init_checkpoint).config
    common = {
        "dtype": config.precision,
        "init_checkpoint": config.init_checkpoint,
    }
    options = {
        "batch_size": config.batch_size,
        "lengths": length_groups.permitted_lengths(128),
    }
    if config.work == "extract":
        predictor = our_side.predictor(
            lambda dtype: encoder.make_encoder(bert, dtype=dtype),
            feature_extraction.ExtractionTask([-1], pooling="mean"),
            **common,
        )
        some = example_arrays.to_features(
            arrays, config.batch_size * config.steps
        )
        make = length_groups.ordered_batches(some, **options)
        return lambda: predictor(make, len(some))
    return our_side.training(
        lambda dtype: models.TaggingModel(
            bert, num_classes=int(arrays["classes"]), dtype=dtype
        ),
        tagging.TaggingTask(),
        length_groups.endless_batches(
            example_arrays.to_features(arrays), seed=1, **options
        ),
        steps=config.steps,
        **common,
    )


def make_peer(config: Config):
    """Returns what works once."""
    import torch
    import torch_peer
    import transformers

    arrays = example_arrays.read(config.examples)

    def batch(rows) -> dict:
        found = example_arrays.padded(arrays, rows)
        return torch_peer.tensors(found)

    if config.work == "train":
        tagger = transformers.AutoModelForTokenClassification.from_pretrained(
            config.init_checkpoint, num_labels=int(arrays["classes"])
        )
        return torch_peer.training(
            tagger,
            batch,
            len(arrays["row_splits"]) - 1,
            precision=config.precision,
            batch_size=config.batch_size,
            steps=config.steps,
        )
    model = transformers.AutoModel.from_pretrained(config.init_checkpoint)
    model = model.float().eval()

    def extract():
        with torch.inference_mode(), torch_peer.autocast(config.precision):
            for start in range(config.steps):
                first = start * config.batch_size
                made = batch(range(first, first + config.batch_size))
                made.pop("labels")
                mask = made["attention_mask"][..., None]
                last = model(**made).last_hidden_state
                (last * mask).sum(1) / mask.sum(1)

    return extract


def main(config: Config) -> None:
    """Lets ours and the peer take turns and prints medians and ratios."""
    if config.side != "both":
        run = (make_ours if config.side == "ours" else make_peer)(config)
        for _ in range(2 if config.work == "train" else 1):
            run()  # Compiles, and meets the lengths that there are.
        return turns.serve(run)
    with tempfile.TemporaryDirectory() as folder:
        config = dataclasses.replace(
            turns.choose_precision(config), examples=tokenize(config, folder)
        )
        for work in ("train", "extract"):
            if config.work not in ("all", work):
                continue
            turns.race(
                __file__,
                dataclasses.replace(config, work=work),
                title=f"{work}, batch {config.batch_size}",
                done=config.batch_size * config.steps,
                unit="sentences",
            )
    return None


if __name__ == "__main__":
    config_flags.run(Config, main)
