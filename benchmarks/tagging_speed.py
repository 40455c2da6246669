r"""Measures tagging and feature extraction, compared with transformers.

    python benchmarks/tagging_speed.py --data_file=eng.train \
        --init_checkpoint=MODEL_DIR --peer_python=/path/to/python/with/torch

Both sides have the same tokenized sentences in batches of 32. Ours groups
sentences of similar length. The peer is measured twice: with the default of
transformers' Trainer (random training batches, extraction in the order of the
file) and with its group_by_length; both are padded to the longest sentence of
the batch. --peer_group_by_length selects one of them. The processes take turns.
Prints the medians of sentences per second and their ratios.
"""

import dataclasses
import os
import sys
import tempfile
from typing import Literal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import comparison
import examples
import numpy as np
import smoke

from foundation import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(comparison.SpeedComparison):
    """The flags of this comparison."""

    data_file: str = field("A file in CoNLL's format.")
    init_checkpoint: str = field("A model directory that both sides read.")
    batch_size: int = field("Sentences per step.", 32)
    steps: int = field("Batches per turn.", 20)
    peer_group_by_length: Literal["both", "off", "on"] = field(
        "Whether the peer groups sentences of similar length.", "both"
    )
    work: Literal["all", "train", "extract"] = field("What to measure.", "all")
    examples: str | None = field("Set by the script itself.", None)


def tokenize(data_file: str, init_checkpoint: str, folder: str) -> str:
    """Writes tokenized sentences with labels to a file; returns its path."""
    from tasks.ner import settings, tag_spans, windowing, word_files
    from weights import checkpoint_sources, tokenizer_files

    sentences = word_files.read_columns(data_file)
    scheme = word_files.scheme(sentences)
    labels = tag_spans.labels(word_files.types(sentences, scheme), "bio2")
    source = checkpoint_sources.read(init_checkpoint)
    features = windowing.encode(
        tokenizer_files.load(source.directory),
        sentences,
        word_files.encode_tags(sentences, scheme, labels),
        settings.WindowSettings(max_seq_length=128),
    )
    path = os.path.join(folder, "sentences.npz")
    return examples.write(path, features, classes=len(labels))


def make_ours(config: Config):
    """Returns a function that does our work of one turn."""
    import our_side

    from data import length_groups
    from modeling import encoder
    from tasks.features import feature_extraction
    from tasks.ner import tagging
    from weights import checkpoint_sources, sentence_modules

    arrays = examples.read(config.examples)
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
            feature_extraction.ExtractionObjective(
                [-1], sentence_modules.SentenceModules(), bert
            ),
            **common,
        )
        count = config.batch_size * config.steps
        features = examples.to_features(arrays, count)
        batches = length_groups.OrderedBatches(features, **options)
        return lambda: predictor(batches, len(features))
    objective = tagging.TaggingObjective(
        config=bert, labels=examples.numbered_labels(arrays)
    )
    return our_side.training(
        lambda dtype: objective.make_model(dtype=dtype),
        objective,
        length_groups.endless_batches(
            examples.to_features(arrays), seed=1, **options
        ),
        steps=config.steps,
        **common,
    )


def make_peer(config: Config):
    """Returns a function that does the peer's work of one turn."""
    import torch
    import torch_peer
    import transformers

    arrays = examples.read(config.examples)
    lengths = np.diff(arrays["row_splits"])
    is_grouped = config.peer_group_by_length == "on"

    def batch(rows) -> dict:
        return torch_peer.tensors(examples.padded(arrays, rows))

    if config.work == "train":
        tagger = transformers.AutoModelForTokenClassification.from_pretrained(
            config.init_checkpoint, num_labels=int(arrays["classes"])
        )
        return torch_peer.training(
            tagger,
            batch,
            lengths,
            precision=config.precision,
            batch_size=config.batch_size,
            steps=config.steps,
            group_by_length=is_grouped,
        )
    model = transformers.AutoModel.from_pretrained(config.init_checkpoint)
    model = model.float().eval()
    order = np.arange(config.batch_size * config.steps)
    if is_grouped:
        order = np.argsort(lengths[order], kind="stable")

    def extract():
        with torch.inference_mode(), torch_peer.autocast(config.precision):
            for start in range(0, len(order), config.batch_size):
                inputs = batch(order[start : start + config.batch_size])
                inputs.pop("labels")
                mask = inputs["attention_mask"][..., None]
                last = model(**inputs).last_hidden_state
                (last * mask).sum(1) / mask.sum(1)

    return extract


def main(config: Config) -> None:
    """Lets the sides take turns and prints medians and ratios."""
    if config.side != "both":
        warm_up_runs = 2 if config.work == "train" else 1
        return comparison.serve(
            config, make_ours, make_peer, warm_up_runs=warm_up_runs
        )
    all_work = ("train", "extract") if config.work == "all" else (config.work,)
    with tempfile.TemporaryDirectory() as folder:
        path = tokenize(config.data_file, config.init_checkpoint, folder)
        for work in all_work:
            comparison.compare_speed(
                __file__,
                dataclasses.replace(config, work=work, examples=path),
                title=f"{work}, batch {config.batch_size}",
                done=config.batch_size * config.steps,
                unit="sentences",
                peers=comparison.peer_groupings(config.peer_group_by_length),
            )
    return None


if __name__ == "__main__":
    with smoke.flags(
        {
            "data_file": "DATA/conll2003/eng.train",
            "init_checkpoint": "DATA/model",
            "batch_size": 4,
            "steps": 2,
            "rounds": 1,
        },
        smoke.encoder,
    ):
        config_flags.run(Config, main)
