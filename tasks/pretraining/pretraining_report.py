"""The report of a pre-training run: results, learning curves, predictions.

samples   predictions for the masks of a few held-out records
write     report.html from these and metrics.jsonl
"""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from markupsafe import Markup

from data import pipelines
from data.tokenization import vocabulary
from finetuning import report
from tasks.pretraining import objectives, pretraining_data
from training import metric_writer

# The metrics of evaluations, as the tables show them.
_METRICS = (
    "masked_lm_accuracy",
    "next_sentence_accuracy",
    "masked_lm_loss",
    "masked_lm_perplexity",
    "next_sentence_loss",
    "loss",
)
_MINOR = ("masked-LM perplexity", "next-sentence loss")
# A masked-LM loss above this fraction of the constant answer's shows that the
# model knows hardly more than the frequencies of tokens.
_PLATEAU = 0.95
_REMEDIES = (
    "shorter records (--max_seq_length), more steps, --num_warmup_steps of a "
    "tenth of them but at least about 1,000, --learning_rate=1e-3 for batches "
    "of 64 sequences of 64 tokens, --next_sentence_loss_weight=0.1, and an "
    "initializer_range of 0.5 / sqrt(hidden_size) in --bert_config_file "
    "(docs/pretraining.md)"
)
_NUM_SAMPLES = 4  # Number of records.
_MAX_SAMPLE_TOKENS = 64
_TOP = 3  # Predictions shown for each mask.

# Maps a batch of records to probabilities and ids [B, P, _TOP].
Predict = Callable[[Mapping[str, tf.Tensor]], tuple[tf.Tensor, tf.Tensor]]


def make_predict(
    objective: objectives.PretrainingObjective, model: Any, num_tokens: int
) -> Predict:
    """Returns the most probable of the first tokens for each mask."""

    @functools.partial(tf.function, autograph=False, reduce_retracing=True)
    def predict(features):
        logits = objective.outputs(model, features).masked_lm_logits
        probabilities = tf.nn.softmax(logits)[..., :num_tokens]
        return tf.math.top_k(probabilities, k=_TOP)

    return predict


def samples(
    predict: Predict,
    records: pretraining_data.ShardSet,
    words: vocabulary.Vocabulary,
) -> list[dict[str, Any]]:
    """Returns the predictions for the first records, for samples.jsonl.

    "tokens" are the tokens of the input. "masks" are the position, the correct
    token, and the predicted tokens with probabilities. "text" is Markdown.
    """
    (batch,) = pipelines.eval_batches(
        records.paths, records.schema, batch_size=_NUM_SAMPLES
    ).take(1)
    top = [x.numpy() for x in predict(batch)]
    features = {name: x.numpy() for name, x in batch.items()}
    shown = []
    for row in np.flatnonzero(features["is_real_example"]):
        length = np.count_nonzero(features["input_mask"][row])
        ids = features["input_ids"][row, : min(length, _MAX_SAMPLE_TOKENS)]
        tokens, masks = [words.tokens[i] for i in ids], []
        for place in np.flatnonzero(features["masked_lm_weights"][row]):
            position = int(features["masked_lm_positions"][row, place])
            if position < len(tokens):
                best = zip(*(x[row, place].tolist() for x in top), strict=True)
                correct = features["masked_lm_ids"][row, place]
                masks.append(
                    {
                        "position": position,
                        "correct": words.tokens[correct],
                        "predicted": [
                            [words.tokens[i], round(p, 4)] for p, i in best
                        ],
                    }
                )
        marked = list(tokens)
        for mask in masks:
            marked[mask["position"]] = f"**{mask['predicted'][0][0]}**"
        answers = ", ".join(mask["correct"] for mask in masks)
        text = f"{' '.join(marked)}\n\n(correct: {answers})"
        shown.append({"tokens": tokens, "masks": masks, "text": text})
    return shown


def plateau(
    values: Mapping[str, float], constant: Mapping[str, float]
) -> str | None:
    """Returns a warning if the model has learned nothing from the context.

    Args:
      values: metrics of the trained model.
      constant: the result of pretraining_data.baseline on the same records.
    """
    name = "masked_lm_loss"
    loss, limit = values.get(name, 0.0), constant.get(name, float("inf"))
    if loss < _PLATEAU * limit:
        return None
    return (
        f"still on the plateau: the masked-LM loss is {loss:.2f}, and "
        f"{limit:.2f} without any context, by the frequencies of the tokens; "
        f"what helps: {_REMEDIES}"
    )


def write(
    output_dir: str,
    *,
    title: str = "Pre-training",
    flags: Markup,
    facts: Mapping[str, Any] | None = None,
    values: Mapping[str, float] | None = None,
    constant: Mapping[str, float] | None = None,
    evaluated_on: str = "held out",
    data: Sequence[Sequence[Any]] = (),
) -> str | None:
    """Writes report.html from the metrics.jsonl and samples.jsonl of the run.

    Args:
      output_dir: directory of the run.
      title: title of the page.
      flags: table of the run's flags, from report.flags.
      facts: numbers to show at the top.
      values: metrics of the trained model; by default those of the last
        evaluation in metrics.jsonl.
      constant: metrics of the constant answer; see pretraining_data.baseline.
      evaluated_on: name of the records of the evaluation.
      data: rows of the table of data, each with a set and numbers.

    Returns:
      The warning of `plateau` that the report shows, if there is one.
    """
    path = os.path.join(output_dir, metric_writer.METRICS)
    lines = list(report.read_lines(path))
    evaluations = [
        {name.removeprefix("eval/"): value for name, value in line.items()}
        for line in lines
        if "eval/loss" in line
    ]
    values = values or (evaluations[-1] if evaluations else {})
    warning = plateau(values, constant or {})
    sections = [
        report.Section(
            "Results", _results(values, constant or {}, evaluated_on, warning)
        ),
        report.Section("Learning curves", report.curves(output_dir)),
    ]
    if evaluations:
        names = [x for x in _METRICS if x in evaluations[-1]]
        header = ["step", *map(metric_writer.name_in_words, names)]
        rows = [
            [line["step"], *(line.get(name, "") for name in names)]
            for line in evaluations
        ]
        body = report.table(header, rows, minor=_MINOR)
        sections.append(report.Section("Evaluations during training", body))
    path = os.path.join(output_dir, metric_writer.SAMPLES)
    if predicted := list(report.read_lines(path)):
        body = _sentences(predicted[-1]["samples"])
        sections.append(report.Section("Masked sentences", body))
    if data:
        header = [
            "set",
            "sequence length",
            "steps",
            "shards",
            "records",
            "passes",
        ]
        sections.append(report.Section("Data", report.table(header, data)))
    sections.append(report.Section("Flags", flags))
    report.write(
        os.path.join(output_dir, "report.html"), title, sections, facts
    )
    return warning


def _results(
    values: Mapping[str, float],
    constant: Mapping[str, float],
    evaluated_on: str,
    warning: str | None,
) -> Markup:
    """Returns the metrics of the model beside those of the constant answer."""
    if not values:
        return Markup(
            "<p>The trained model was not evaluated: --do_eval was not given."
            "</p>"
        )
    rows = [
        [metric_writer.name_in_words(x), values[x], constant.get(x, "")]
        for x in _METRICS
        if x in values
    ]
    body = report.table(["metric", evaluated_on, "constant answer"], rows)
    if warning:
        note = Markup("<p><strong>{}</strong></p>")
        body = note.format(report.capitalized(warning)) + body
    return body + Markup(
        "<p>The constant answer is the most frequent label; its losses are "
        "those of predicting every label with its frequency. A model that is "
        "not better has learned nothing.</p>"
    )


def _sentences(shown: Sequence[Mapping[str, Any]]) -> Markup:
    """Shows each sentence with its best predictions, and others below."""
    boxes = []
    for sample in shown:
        rows = [
            [
                mask["correct"],
                " | ".join(
                    f"{token} {p:.2f}" for token, p in mask["predicted"]
                ),
            ]
            for mask in sample["masks"]
        ]
        predicted = report.table(["correct", "predicted"], rows)
        boxes.append([_sentence(sample), predicted if rows else ""])
    note = Markup(
        "<p>Each mask is replaced by the best prediction of the last "
        "evaluation: green if it is correct, else red with the correct token "
        "behind it.</p>"
    )
    return note + report.items(boxes)


def _sentence(sample: Mapping[str, Any]) -> Markup:
    """Returns the tokens with the best prediction instead of each mask."""
    masks = {mask["position"]: mask for mask in sample["masks"]}
    text, spans = "", []
    for position, token in enumerate(sample["tokens"]):
        mask = masks.get(position)
        shown = token if mask is None else mask["predicted"][0][0]
        word = shown.removeprefix(vocabulary.CONTINUATION)
        text += " " if text and word == shown else ""
        if mask is not None:
            is_right = shown == mask["correct"]
            label = "" if is_right else mask["correct"]
            kind = "good" if is_right else "bad"
            end = len(text) + len(word)
            spans.append(report.Span(len(text), end, kind, label))
        text += word
    return report.highlight(text, spans)
