r"""Compares a model in onnxruntime, in float32 and in int8, with ours.

    python benchmarks/onnx_scores.py --model_dir=mrpc --data_dir=glue/MRPC \
        --output_dir=onnx/mrpc
    python benchmarks/onnx_scores.py --model_dir=ner --data_dir=conll2003 \
        --output_dir=onnx/ner
    python benchmarks/onnx_scores.py --model_dir=squad --every=10 \
        --predict_file=dev-v1.1.json --output_dir=onnx/squad

export_model.py writes both files. With --data_dir (of a task of
run_classifier.py, or of CoNLL for a tagger) or --predict_file (SQuAD), the
scores of all three on the development set are printed; without, the model
predicts a few sentences. Exits with code 1 if a logit of the float32 model
differs by more than 1e-4. Without onnx and onnxruntime only our model predicts.
"""

import dataclasses
import importlib.util
import itertools
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import smoke

from foundation import atomic, config_flags, file_system

field = config_flags.field
TOLERANCE = 1e-4
NAMES = ("input_ids", "input_mask", "segment_ids")
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
    output_dir: str = field("Directory of the ONNX models.")
    data_dir: str | None = field("The files of a task.", None)
    task_name: str = field("Of run_classifier.py.", "mrpc")
    predict_file: str | None = field("SQuAD 1.1's JSON, also .gz.", None)
    every: int = field("Use every n-th question.", 1, at_least=1)
    batch_size: int = field("Examples per batch.", 16)


def main(config: Config) -> int:
    """Prints differences and scores; returns 1 if logits differ."""
    import numpy as np
    import tensorflow as tf

    import foundation.tensorflow_setup  # noqa: F401
    from data import features as features_lib
    from serving import opened_model, task_graphs

    opened = opened_model.OpenedModel(config.model_dir, opened_model.Options())
    graph = task_graphs.make(opened)
    length, tokenizer = opened.max_seq_length, opened.start.tokenizer
    score = None
    if config.data_dir and graph.task == "token_classification":
        features, score = conll(config, opened)
    elif config.data_dir:
        features, score = classification(config, tokenizer, length)
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
    if importlib.util.find_spec("onnxruntime") is None:
        return 0
    from serving import onnx_model, onnx_names

    is_far = False
    for precision in ("float32", "int8"):
        folder = os.path.join(config.output_dir, precision)
        onnx_model.save(graph, folder, precision=precision)
        path = os.path.join(folder, onnx_names.MODEL)
        seconds, found = predict_onnx(path, batches, list(ours[0]))
        far = max(
            float(np.abs(x[name] - y[name]).max(initial=0))
            for x, y in zip(ours, found, strict=True)
            for name in x
        )
        is_far |= precision == "float32" and far > TOLERANCE
        show(
            f"onnxruntime {precision}, {os.path.getsize(path) / 1e6:.1f} MB",
            seconds,
            score,
            rows,
            found,
            f", largest difference of a logit {far:.2g}",
        )
    return int(is_far)


def predict_onnx(
    path: str, batches: Sequence[dict], names: list[str]
) -> tuple[float, list[dict[str, Any]]]:
    """Returns the seconds, and the outputs under our names."""
    import numpy as np
    import onnxruntime

    from serving import onnx_names

    session = onnxruntime.InferenceSession(
        path, providers=["CPUExecutionProvider"]
    )
    theirs = [onnx_names.OUTPUTS.get(name, name) for name in names]
    inputs = [
        {onnx_names.INPUTS[k]: x.astype(np.int64) for k, x in batch.items()}
        for batch in batches
    ]
    session.run(theirs, inputs[0])
    started = time.perf_counter()
    found = [session.run(theirs, batch) for batch in inputs]
    seconds = time.perf_counter() - started
    return seconds, [dict(zip(names, x, strict=True)) for x in found]


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


def classification(
    config: Config, tokenizer: Any, length: int
) -> tuple[Any, Any]:
    """Returns the features of a task's development set, and its metrics."""
    import numpy as np

    from data import examples
    from tasks.classification import objective, sentence_tasks, settings

    task = sentence_tasks.open_task(
        config.task_name, settings.Files(data_dir=config.data_dir)
    )
    features = sentence_tasks.tokenize(
        task, "dev", tokenizer, max_seq_length=length, records_dir=None
    )

    def score(rows: Sequence, batches: Sequence[dict]) -> dict[str, float]:
        logits = np.concatenate([batch["logits"] for batch in batches])
        logits = logits[np.argsort(np.concatenate(rows))]
        return objective.scores(
            task.metrics,
            examples.CLASSIFICATION,
            logits,
            task.label_ids("dev"),
        )

    return features, score


def conll(config: Config, opened: Any) -> tuple[Any, Any]:
    """Returns the windows of CoNLL's development set, and its metrics."""
    import numpy as np

    from tasks.ner import ner_data, outputs, settings, tagging
    from tasks.ner.tagger import Tagger

    labels = opened.start.labels
    data = ner_data.open_data(
        settings.Files(data_dir=config.data_dir),
        tag_scheme="auto",
        model_scheme="bio2",
        known_labels=labels,
        num_outputs=len(labels),
        trains=False,
    )
    windows = settings.WindowSettings(max_seq_length=opened.max_seq_length)
    development = data.split(ner_data.DEV)
    features = ner_data.prepare(
        development,
        ner_data.DEV,
        opened.start.tokenizer,
        windows,
        records_dir=None,
    )
    objective = tagging.TaggingObjective(
        config=opened.start.config, labels=labels
    )

    def score(rows: Sequence, batches: Sequence[dict]) -> dict[str, float]:
        predictions = (
            {**batch, "example_index": np.asarray(part)}
            for part, batch in zip(rows, batches, strict=True)
        )
        tagger = Tagger(
            windows=windows,
            tokenizer=opened.start.tokenizer,
            objective=objective,
            predictions=lambda features: predictions,
            scores=None,
        )
        logits = tagger.predict(features)
        tags = tagger.tags(development.sentences, logits)
        values = outputs.evaluate(data, ner_data.DEV, logits, tags).values
        return {name: values[name] for name in ("precision", "recall", "f1")}

    return features, score


def squad(
    config: Config, tokenizer: Any, settings: Any, length: int
) -> tuple[Any, Any]:
    """Returns the windows of a set of SQuAD 1.1, and its metrics."""
    import numpy as np

    from tasks.squad import dataset, decoding, metrics, windowing
    from tasks.squad.settings import AnswerRules, WindowSizes

    values = file_system.read_json(config.predict_file)
    number = itertools.count()
    for article in values["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = [
                question
                for question in paragraph["qas"]
                if next(number) % config.every == 0
            ]
        article["paragraphs"] = [x for x in article["paragraphs"] if x["qas"]]
    path = os.path.join(config.output_dir, "questions.json")
    os.makedirs(config.output_dir, exist_ok=True)
    atomic.write_json(path, values)
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
