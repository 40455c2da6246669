r"""Compares a model in onnxruntime, in float32 and in int8, with ours.

    python benchmarks/onnx_scores.py --model_dir=mrpc --data_dir=glue/MRPC \
        --peer_python=/path/to/python/with/torch --output_dir=onnx/mrpc
    python benchmarks/onnx_scores.py --model_dir=squad \
        --predict_file=dev-v1.1.json --peer_python=... --output_dir=onnx/squad

onnx_peer.py exports the model and predicts the same batches as our model. With
--data_dir (MRPC) or --predict_file (SQuAD), the scores of all three are
printed; models of other tasks predict a few sentences. Exits with code 1 if a
logit of the float32 model differs by more than 1e-4. Without --peer_python only
our model predicts.
"""

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import smoke

from foundation import config_flags, file_system

field = config_flags.field
TOLERANCE = 1e-4
# Ours -> transformers'.
NAMES = {
    "input_ids": "input_ids",
    "input_mask": "attention_mask",
    "segment_ids": "token_type_ids",
}
SENTENCES = (
    "The man went to the [MASK].",
    "He bought a gallon of milk, and then two loaves of bread in the shop.",
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002",
    "",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The flags of this comparison."""

    model_dir: str = field("A model directory.")
    output_dir: str = field("Directory of the ONNX models and the logits.")
    peer_python: str | None = field(
        "Python with torch, transformers, onnxruntime; None: ours only.", None
    )
    data_dir: str | None = field("Directory of MRPC.", None)
    predict_file: str | None = field("SQuAD 1.1's JSON, also .gz.", None)
    max_questions: int = field("Of --predict_file.", 100000)
    batch_size: int = field("Examples per batch.", 16)


def main(config: Config) -> int:
    """Prints differences and scores; returns 1 if logits differ."""
    import numpy as np
    import tensorflow as tf

    import foundation.tensorflow_setup  # noqa: F401
    from data import features as features_lib
    from export import opened_model, task_graphs

    # The outputs of an encoder are those of its tokens.
    options = opened_model.Options(pooling="none")
    opened = opened_model.OpenedModel(config.model_dir, options)
    graph = task_graphs.make(opened)
    length, tokenizer = opened.max_seq_length, opened.start.tokenizer
    score = None
    if config.data_dir:
        features, score = mrpc(config, tokenizer, length)
    elif config.predict_file:
        features, score = squad(config, tokenizer, graph.settings, length)
    else:
        features = features_lib.encode(
            tokenizer,
            SENTENCES,
            SENTENCES[::-1],
            max_seq_length=min(length, 32),
            num_choices=2 if graph.task == "multiple_choice" else 0,
        )
    order = np.argsort(features.lengths, kind="stable")
    rows = [
        order[i : i + config.batch_size]
        for i in range(0, len(order), config.batch_size)
    ]
    batches = [
        {
            name: x
            for name, x in features.batch(
                part, int(features.lengths[part].max())
            ).items()
            if name in NAMES
        }
        for part in rows
    ]
    run = tf.function(lambda **x: graph.logits(x), autograph=False)
    run = run.get_concrete_function(
        **{
            name: tf.TensorSpec([None] * x.ndim, tf.int32)
            for name, x in batches[0].items()
        }
    )

    def predict(batches: Sequence[dict]) -> list[dict[str, Any]]:
        return [
            {
                k: v.numpy()
                for k, v in run(
                    **{name: tf.constant(x) for name, x in batch.items()}
                ).items()
            }
            for batch in batches
        ]

    predict(batches[:1])
    started = time.perf_counter()
    ours = predict(batches)
    seconds = time.perf_counter() - started
    print(f"{graph.task}, {len(order)} rows")
    show("TensorFlow float32", seconds, score, rows, ours)
    if not config.peer_python:
        return 0
    os.makedirs(config.output_dir, exist_ok=True)
    paths = [os.path.join(config.output_dir, x) for x in ("in.npz", "out.npz")]
    np.savez(
        paths[0],
        **{
            f"{NAMES[name]}_{i}": x.astype(np.int64)
            for i, batch in enumerate(batches)
            for name, x in batch.items()
        },
    )
    peer = os.path.join(os.path.dirname(__file__), "onnx_peer.py")
    subprocess.run(
        [
            config.peer_python,
            peer,
            f"--model_dir={config.model_dir}",
            f"--onnx_dir={config.output_dir}",
            f"--features={paths[0]}",
            f"--logits={paths[1]}",
        ],
        check=True,
    )
    is_far = False
    with np.load(paths[1]) as arrays:
        for kind in ("float32", "int8"):
            found = [
                {
                    name.partition("/")[2].rpartition("_")[0]: arrays[name]
                    for name in arrays.files
                    if name.startswith(f"{kind}/") and name.endswith(f"_{i}")
                }
                for i in range(len(batches))
            ]
            far = max(
                float(np.abs(x - y).max(initial=0))
                for pair in zip(ours, found, strict=True)
                for x, y in zip(*(x.values() for x in pair), strict=True)
            )
            is_far |= kind == "float32" and far > TOLERANCE
            show(
                f"onnxruntime {kind}",
                float(arrays[f"{kind}/seconds"]),
                score,
                rows,
                found,
                f", largest difference of a logit {far:.2g}",
            )
    return int(is_far)


def show(
    name: str,
    seconds: float,
    score: Any,
    rows: Sequence,
    batches: Sequence[dict],
    note: str = "",
) -> None:
    """Prints one line of the table."""
    scores = score(rows, batches) if score is not None else {}
    text = ", ".join(f"{k} {100 * v:.2f}" for k, v in scores.items())
    print(f"{name}: {seconds:.2f} seconds{note}  {text}", flush=True)


def mrpc(config: Config, tokenizer: Any, length: int) -> tuple[Any, Any]:
    """Returns the features of MRPC's development set, and its metrics."""
    import numpy as np

    from data import examples
    from tasks.classification import objective, sentence_tasks, settings

    task = sentence_tasks.open_task(
        "mrpc", settings.Files(data_dir=config.data_dir)
    )
    features = sentence_tasks.tokenize(
        task, "dev", tokenizer, max_seq_length=length, records_dir=None
    )

    def score(rows: Sequence, batches: Sequence[dict]) -> dict[str, float]:
        logits = np.concatenate([batch["logits"] for batch in batches])
        logits = logits[np.argsort(np.concatenate(rows))]
        return objective.scores(
            ("accuracy", "f1"),
            examples.CLASSIFICATION,
            logits,
            task.label_ids("dev"),
        )

    return features, score


def squad(
    config: Config, tokenizer: Any, settings: Any, length: int
) -> tuple[Any, Any]:
    """Returns the windows of a set of SQuAD 1.1, and its metrics."""
    import numpy as np

    from tasks.squad import dataset, decoding, metrics, windowing
    from tasks.squad.settings import AnswerRules, WindowSizes

    values = file_system.read_json(config.predict_file)
    count = 0
    for article in values["data"]:
        for paragraph in article["paragraphs"]:
            left = max(0, config.max_questions - count)
            paragraph["qas"] = paragraph["qas"][:left]
            count += len(paragraph["qas"])
        article["paragraphs"] = [x for x in article["paragraphs"] if x["qas"]]
    path = os.path.join(config.output_dir, "questions.json")
    os.makedirs(config.output_dir, exist_ok=True)
    file_system.write_json(path, values)
    questions = dataset.read(path)
    sizes = WindowSizes(
        max_seq_length=length,
        doc_stride=settings["doc_stride"],
        max_query_length=settings["max_query_length"],
    )
    windows = windowing.make_windows(questions, tokenizer, sizes)

    def score(rows: Sequence, batches: Sequence[dict]) -> dict[str, float]:
        logits = decoding.collect_logits(
            [
                {**batch, "example_index": np.asarray(part)}
                for part, batch in zip(rows, batches, strict=True)
            ],
            windows.features.row_splits,
        )
        answers = decoding.decode(
            questions,
            windows,
            logits,
            tokenizer=tokenizer,
            rules=AnswerRules(),
        )
        texts = {
            question.id: answer.text(None)
            for question, answer in zip(
                questions.questions, answers, strict=True
            )
        }
        found = metrics.evaluate(questions, texts)
        return {name: found[name] / 100 for name in ("exact_match", "f1")}

    return windows.features, score


if __name__ == "__main__":
    with smoke.flags(
        {
            "model_dir": "DATA/model",
            "data_dir": "DATA/glue/MRPC",
            "output_dir": "DATA/onnx",
        },
        smoke.classifier,
    ):
        sys.exit(config_flags.run(Config, main))
