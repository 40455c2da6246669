r"""Measures SQuAD predictions per second, compared with transformers.

    python benchmarks/squad_prediction_speed.py --predict_file=dev-v1.1.json \
        --init_checkpoint=MODEL --questions=400 --precision=float32 \
        --peer_python=/path/to/python/with/torch/and/transformers

Our time includes everything from text to answers: windows, batches of similar
length, logits, decoding. The peer tokenizes and computes logits; its time does
not include the choice of answers. It is measured twice: with windows padded to
384, the default of run_qa.py, and with windows sorted by length and padded to
the longest of each batch, its fastest configuration. --peer_padding selects one
of them. All predict the same questions, in turns.
"""

import dataclasses
import json
import os
import sys
from typing import Literal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import comparison
import smoke

from foundation import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(comparison.SpeedComparison):
    """The flags of this comparison."""

    predict_file: str = field("A file in SQuAD's JSON.")
    init_checkpoint: str = field("A model directory that both sides read.")
    questions: int = field(
        "Number of questions, evenly spaced over the file.", 400
    )
    batch_size: int = field("Windows per batch.", 16)
    peer_padding: Literal["both", "max_length", "longest"] = field(
        "Length to which the peer pads windows.", "both"
    )


def rows(config: Config) -> list[tuple[str, str]]:
    """Returns pairs of question and paragraph."""
    import gzip

    path = config.predict_file
    with (gzip.open if path.endswith(".gz") else open)(path) as file:
        data = json.load(file)["data"]
    found = [
        (qa["question"], paragraph["context"])
        for article in data
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ]
    step = max(1, len(found) // config.questions)
    return found[::step][: config.questions]


def make_ours(config: Config):
    """Returns a function that predicts all questions."""
    import our_side

    from data import length_groups
    from tasks.squad import answering, dataset, decoding, windowing
    from tasks.squad.settings import AnswerRules, WindowSizes
    from weights import pretrained

    start = pretrained.open_start(
        output_dir="",
        init_checkpoint=config.init_checkpoint,
        max_seq_length=384,
    )
    objective = answering.SpanObjective(config=start.config)
    predictor = our_side.predictor(
        lambda dtype: objective.make_model(dtype=dtype),
        objective,
        dtype=config.precision,
        init_checkpoint=config.init_checkpoint,
    )

    def predict(features):
        return predictor.batches(
            length_groups.OrderedBatches(
                features,
                batch_size=config.batch_size,
                lengths=length_groups.permitted_lengths(384),
            )
        )

    sizes = WindowSizes(max_seq_length=384, doc_stride=128, max_query_length=64)
    pairs = rows(config)
    contexts = list(dict.fromkeys(context for _, context in pairs))
    numbers = {context: i for i, context in enumerate(contexts)}
    found = dataset.QuestionSet(
        path="",
        contexts=contexts,
        questions=[
            dataset.Question(id=str(i), text=text, paragraph=numbers[context])
            for i, (text, context) in enumerate(pairs)
        ],
    )

    def run():
        windows = windowing.make_windows(found, start.tokenizer, sizes)
        logits = decoding.collect_logits(
            predict(windows.features), windows.features.row_splits
        )
        decoding.decode(
            found,
            windows,
            logits,
            tokenizer=start.tokenizer,
            rules=AnswerRules(),
        )

    return run


def make_peer(config: Config):
    """Returns a function that computes all logits."""
    import torch
    import transformers

    dtype = {"bfloat16": torch.bfloat16}.get(config.precision, torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        config.init_checkpoint
    )
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(
        config.init_checkpoint, dtype=dtype
    ).eval()
    pairs = rows(config)

    def run():
        encoded = tokenizer(
            [question for question, _ in pairs],
            [context for _, context in pairs],
            truncation="only_second",
            max_length=384,
            stride=128,
            return_overflowing_tokens=True,
        )
        encoded.pop("overflow_to_sample_mapping")
        order = list(range(len(encoded["input_ids"])))
        if config.peer_padding == "longest":
            order.sort(key=lambda i: len(encoded["input_ids"][i]))
        for first in range(0, len(order), config.batch_size):
            rows = order[first : first + config.batch_size]
            inputs = tokenizer.pad(
                {k: [v[i] for i in rows] for k, v in encoded.items()},
                padding=config.peer_padding,
                max_length=384,
                return_tensors="pt",
            )
            with torch.inference_mode():
                outputs = model(**inputs)
            outputs.start_logits.float().numpy()

    return run


def main(config: Config) -> None:
    """Lets the sides take turns and prints medians and ratios."""
    if config.side != "both":
        return comparison.serve(config, make_ours, make_peer)
    labels = {"max_length": "peer", "longest": "peer with dynamic padding"}
    if config.peer_padding != "both":
        labels = {config.peer_padding: labels[config.peer_padding]}
    return comparison.compare_speed(
        __file__,
        config,
        title=f"batch {config.batch_size}",
        done=config.questions,
        unit="questions",
        peers={label: {"peer_padding": x} for x, label in labels.items()},
    )


if __name__ == "__main__":
    with smoke.flags(
        {
            "predict_file": "DATA/squad/dev-v1.1.json",
            "init_checkpoint": "DATA/model",
            "questions": 8,
            "batch_size": 4,
            "rounds": 1,
        },
        smoke.encoder,
    ):
        config_flags.run(Config, main)
