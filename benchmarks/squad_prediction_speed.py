r"""Measures questions answered per second, beside transformers + PyTorch.

    python benchmarks/squad_prediction_speed.py --predict_file=dev-v1.1.json \
        --init_checkpoint=MODEL --questions=400 --precision=float32 \
        --peer_python=/path/to/python/with/torch/and/transformers

Ours goes from text to answers: windows, batches of similar length, logits,
decoding. The peer tokenizes and computes logits in batches padded to 384, as
run_qa.py pads by default; choosing answers is left out of its time. Both take
turns on the same questions, one at work while the other waits.
"""

import dataclasses
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))


import turns

from foundation import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(turns.Race):
    """What is measured."""

    predict_file: str = field("SQuAD's JSON.")
    init_checkpoint: str = field("A directory that transformers reads too.")
    questions: int = field("How many, evenly from the whole file.", 400)
    batch_size: int = field("Windows.", 16)


def rows(config: Config) -> list[tuple[str, str]]:
    """Returns questions with their paragraphs."""
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
    """Returns what answers all questions."""
    import our_side

    from data import length_groups
    from modeling import models
    from tasks.squad import dataset, decoding, squad_job, windowing
    from weights import pretrained

    start = pretrained.open_start(
        output_dir="",
        init_checkpoint=config.init_checkpoint,
        max_seq_length=384,
    )
    predictor = our_side.predictor(
        lambda dtype: models.QuestionAnsweringModel(start.config, dtype=dtype),
        squad_job.SpanTask(),
        dtype=config.precision,
        init_checkpoint=config.init_checkpoint,
    )

    def predict(features):
        return predictor.batches(
            length_groups.ordered_batches(
                features,
                batch_size=config.batch_size,
                lengths=length_groups.permitted_lengths(384),
            )
        )

    sizes = windowing.WindowSizes(
        max_seq_length=384, doc_stride=128, max_query_length=64
    )
    asked = rows(config)
    contexts = list(dict.fromkeys(context for _, context in asked))
    numbers = {context: i for i, context in enumerate(contexts)}
    found = dataset.QuestionSet(
        path="",
        contexts=contexts,
        questions=[
            dataset.Question(id=str(i), text=text, paragraph=numbers[context])
            for i, (text, context) in enumerate(asked)
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
            limits=decoding.Limits(),
        )

    return run


def make_peer(config: Config):
    """Returns what computes all logits."""
    import torch
    import transformers

    dtype = {"bfloat16": torch.bfloat16}.get(config.precision, torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        config.init_checkpoint
    )
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(
        config.init_checkpoint, dtype=dtype
    ).eval()
    asked = rows(config)

    def run():
        encoded = tokenizer(
            [question for question, _ in asked],
            [context for _, context in asked],
            truncation="only_second",
            max_length=384,
            stride=128,
            return_overflowing_tokens=True,
            padding="max_length",
            return_tensors="pt",
        )
        encoded.pop("overflow_to_sample_mapping")
        count = len(encoded["input_ids"])
        for first in range(0, count, config.batch_size):
            part = slice(first, first + config.batch_size)
            with torch.inference_mode():
                outputs = model(**{k: v[part] for k, v in encoded.items()})
            outputs.start_logits.float().numpy()

    return run


def main(config: Config) -> None:
    """Lets both take turns and prints medians and the ratios."""
    if config.side != "both":
        make = make_ours if config.side == "ours" else make_peer
        run = make(config)
        run()  # Libraries start, and ours meets the lengths that there are.
        return turns.serve(run)
    return turns.race(
        __file__,
        turns.choose_precision(config),
        title=f"batch {config.batch_size}",
        done=config.questions,
        unit="questions",
    )


if __name__ == "__main__":
    config_flags.run(Config, main)
