"""The report of a pre-training run: learning curves, predictions and data.

samples   predictions for the masks of a few held-out records
accuracy  accuracy of masked tokens by frequency and by part of a word
write     report.html from these and metrics.jsonl
"""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
import tensorflow as tf
from markupsafe import Markup

from data import pipelines
from data.tokenization import vocabulary
from foundation import metadata
from jobs import report
from tasks.pretraining import objectives, pretraining_data
from training import metric_writer

_PANELS = (
    report.Panel("Loss", ("train/loss", "eval/loss")),
    report.Panel(
        "Masked-LM loss", ("train/masked_lm_loss", "eval/masked_lm_loss")
    ),
    report.Panel(
        "Next-sentence loss",
        ("train/next_sentence_loss", "eval/next_sentence_loss"),
    ),
    report.Panel(
        "Masked-LM accuracy",
        ("train/masked_lm_accuracy", "eval/masked_lm_accuracy"),
    ),
    report.Panel(
        "Next-sentence accuracy",
        ("train/next_sentence_accuracy", "eval/next_sentence_accuracy"),
    ),
    report.Panel("Learning rate", ("train/learning_rate",)),
    report.Panel("Examples per second", ("train/examples_per_second",)),
    report.Panel("Model FLOPs utilization", ("train/model_flops_utilization",)),
)
# The metrics of evaluations and their names in tables.
_METRICS = (
    "masked_lm_accuracy",
    "next_sentence_accuracy",
    "masked_lm_loss",
    "masked_lm_perplexity",
    "next_sentence_loss",
    "loss",
)
_MINOR = ("masked-LM perplexity", "next-sentence loss")
# A masked-LM loss above this fraction of the baseline's shows that the model
# knows hardly more than the frequencies of tokens.
_PLATEAU = 0.95
_REMEDIES = (
    "shorter records (--max_seq_length), more steps, --num_warmup_steps of a "
    "tenth of them but at least about 1,000, --learning_rate=1e-3 for batches "
    "of 64 sequences of 64 tokens, --next_sentence_loss_weight=0.1, and an "
    "initializer_range of 0.5 / sqrt(hidden_size) in --bert_config_file "
    "(docs/pretraining.md)"
)
NUM_SAMPLES = 4  # Number of records.
_MAX_SAMPLE_TOKENS = 64
_TOP = 3  # Predictions shown for each mask.
_COUNTED_BATCHES = 40  # Batches of 256 records, for frequencies of tokens.
# Lower bounds of the groups of tokens: occurrences per million.
_FREQUENCIES = (1000, 100, 10, 0)
_SHOWN_EVALUATIONS = 6
# Records whose predictions are kept, with about 400,000 masked tokens. A record
# of 128 tokens needs 2 kB, and as much again while batches are concatenated.
_MOST_RECORDS = 20_000


class _Mask(TypedDict):
    position: metadata.Count
    correct: str
    predicted: list[tuple[str, metadata.Number]]  # The best one first.


class _Sample(TypedDict):
    tokens: list[str]
    masks: list[_Mask]


class _Samples(TypedDict):
    """A line of samples.jsonl, which `samples` makes."""

    step: metadata.Count
    samples: list[_Sample]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """A model's predictions for the masked positions of N records.

    Attributes:
      features: the records; `input_ids` int [N, S] and so on.
      ids: int [N, P, _TOP], the most probable tokens, the best first.
      probabilities: float [N, P, _TOP].
    """

    features: Mapping[str, np.ndarray]
    ids: np.ndarray
    probabilities: np.ndarray

    @functools.cached_property
    def is_masked(self) -> np.ndarray:
        """Whether each of the P positions is a prediction: bool [N, P]."""
        return self.features["masked_lm_weights"] > 0

    @functools.cached_property
    def originals(self) -> np.ndarray:
        """The tokens before masking: int [N, S]."""
        tokens = self.features["input_ids"].copy()
        rows, columns = np.nonzero(self.is_masked)
        positions = self.features["masked_lm_positions"][rows, columns]
        tokens[rows, positions] = self.features["masked_lm_ids"][rows, columns]
        return tokens


class Predictor:
    """Predicts the masked positions of records, on one device."""

    def __init__(
        self,
        objective: objectives.PretrainingObjective,
        model: Any,
        words: vocabulary.Vocabulary | None,
    ):
        """Compiles nothing yet.

        Args:
          objective: computes the logits.
          model: a model of the objective.
          words: the tokens to predict; None if they are not known. The model
            may have more embeddings.
        """
        num_tokens = len(words) if words else None

        @functools.partial(tf.function, autograph=False, reduce_retracing=True)
        def predict(features: dict) -> tuple:
            logits = objective.outputs(model, features).masked_lm_logits
            probabilities = tf.nn.softmax(logits)[..., :num_tokens]
            return tf.math.top_k(probabilities, k=_TOP)

        self._predict = predict

    def __call__(
        self, records: pretraining_data.ShardSet, batch_size: int, most: int
    ) -> Predictions:
        """Predicts the first batches of a set, about _MOST_RECORDS at most.

        Args:
          records: the set.
          batch_size: records per call of the model.
          most: the most batches to predict.
        """
        most = min(most, -(-_MOST_RECORDS // batch_size))
        arrays: dict[str, list[np.ndarray]] = {}
        batches = pipelines.eval_batches(
            records.paths, records.schema, batch_size=batch_size
        )
        for batch in batches.take(most):
            probabilities, ids = self._predict(batch)
            values = {**batch, "ids": ids, "probabilities": probabilities}
            is_real = batch["is_real_example"].numpy() > 0
            for name, value in values.items():
                arrays.setdefault(name, []).append(value.numpy()[is_real])
        features = {name: np.concatenate(x) for name, x in arrays.items()}
        return Predictions(
            ids=features.pop("ids"),
            probabilities=features.pop("probabilities"),
            features=features,
        )


def samples(
    predictions: Predictions, words: vocabulary.Vocabulary
) -> list[dict[str, Any]]:
    """Returns the predictions for a few records, for samples.jsonl.

    "tokens" are the tokens of the input. "masks" are the position, the correct
    token, and the predicted tokens with probabilities. "text" is Markdown.
    """
    records = []
    for row in range(min(NUM_SAMPLES, len(predictions.ids))):
        features = {k: v[row] for k, v in predictions.features.items()}
        length = int((features["input_mask"] > 0).sum())
        ids = features["input_ids"][: min(length, _MAX_SAMPLE_TOKENS)]
        tokens = [words.tokens[i] for i in ids]
        masks = []
        for column in np.flatnonzero(predictions.is_masked[row]):
            position = int(features["masked_lm_positions"][column])
            if position >= len(tokens):
                continue
            top = zip(
                predictions.ids[row, column].tolist(),
                predictions.probabilities[row, column].tolist(),
                strict=True,
            )
            masks.append(
                {
                    "position": position,
                    "correct": words.tokens[features["masked_lm_ids"][column]],
                    "predicted": [
                        [words.tokens[number], round(probability, 4)]
                        for number, probability in top
                    ],
                }
            )
        marked = list(tokens)
        for mask in masks:
            marked[mask["position"]] = f"**{mask['predicted'][0][0]}**"
        correct = ", ".join(mask["correct"] for mask in masks)
        text = f"{' '.join(marked)}\n\n(correct: {correct})"
        records.append({"tokens": tokens, "masks": masks, "text": text})
    return records


def accuracy(
    predictions: Predictions,
    train: pretraining_data.ShardSet,
    words: vocabulary.Vocabulary | None,
) -> list[report.Section]:
    """Returns sections on the accuracy of groups of masked tokens.

    Args:
      predictions: predictions of held-out records.
      train: the set whose first records give the frequencies of tokens.
      words: the vocabulary; None if it is not known.
    """
    is_masked = predictions.is_masked
    correct = predictions.features["masked_lm_ids"][is_masked]
    is_right = predictions.ids[..., 0][is_masked] == correct
    size = int(max(predictions.originals.max(), predictions.ids.max())) + 1
    counts = np.zeros(max(size, len(words.tokens) if words else 0))
    batches = pipelines.eval_batches(train.paths, train.schema, batch_size=256)
    for batch in batches.take(_COUNTED_BATCHES).as_numpy_iterator():
        ids = batch["input_ids"][batch["input_mask"] > 0]
        counts_of_batch = np.bincount(ids, minlength=len(counts))
        counts = (
            np.pad(counts, (0, len(counts_of_batch) - len(counts)))
            + counts_of_batch
        )
    per_million = counts / counts.sum() * 1e6
    sections = []
    groups, upper = [], np.inf
    for lower in _FREQUENCIES:
        is_in = (per_million > lower) & (per_million <= upper)
        span = f"{lower:,}\u2013{upper:,}" if lower else f"up to {upper:,}"
        if upper == np.inf:
            span = f"over {lower:,}"
        groups.append((span, is_in))
        upper = lower
    groups.append(("never seen", per_million == 0))
    rows = []
    for name, is_in in groups:
        chosen = is_in[correct]
        if chosen.any():
            rows.append([name, int(is_in.sum()), *_scores(is_right[chosen])])
    header = [
        "per million tokens",
        "tokens of the vocabulary",
        "predictions",
        "accuracy",
    ]
    note = Markup(
        "<p>Predictions in the first {:,} records of the evaluation, by how "
        "often the correct token occurs in the training records, counted in "
        "their first {:,} tokens.</p>"
    ).format(len(predictions.ids), int(counts.sum()))
    body = note + report.table(header, rows)
    sections.append(report.Section("Accuracy by frequency of the token", body))
    if words is not None:
        parts = _parts_of_words(predictions, words)
        rows = [
            [name, *_scores(is_right[parts == name])]
            for name in np.unique(parts)
        ]
        header = ["part of a word", "predictions", "accuracy"]
        body = report.table(header, rows)
        sections.append(report.Section("Accuracy by part of a word", body))
    return sections


def _scores(is_right: np.ndarray) -> list[Any]:
    fraction = float(is_right.mean())
    return [len(is_right), report.heat(fraction, fraction)]


def _parts_of_words(
    predictions: Predictions, words: vocabulary.Vocabulary
) -> np.ndarray:
    """Returns for each masked token the name of its part of a word."""
    originals = np.minimum(predictions.originals, len(words) - 1)
    later = words.is_continuation[originals]  # [N, S]
    is_split = np.pad(later[:, 1:], ((0, 0), (0, 1)))
    rows, columns = np.nonzero(predictions.is_masked)
    at = rows, predictions.features["masked_lm_positions"][rows, columns]
    return np.select(
        [later[at], is_split[at]],
        ["later token (##)", "first token of several"],
        "complete word",
    )


class Results(NamedTuple):
    """The metrics of the trained model, as the report shows them.

    Attributes:
      values: the metrics; None for those of the last evaluation in
        metrics.jsonl.
      baseline: metrics of pretraining_data.baseline, shown beside them.
      evaluated_on: name of the records of the evaluation.
    """

    values: Mapping[str, float] | None = None
    baseline: Mapping[str, float] | None = None
    evaluated_on: str = "held out"


def plateau(
    values: Mapping[str, float], baseline: Mapping[str, float]
) -> str | None:
    """Returns a warning if the model has learned nothing from the context.

    Args:
      values: metrics of the trained model.
      baseline: the result of pretraining_data.baseline on the same records.
    """
    name = "masked_lm_loss"
    if name not in values or name not in baseline:
        return None
    if values[name] < _PLATEAU * baseline[name]:
        return None
    return (
        f"still on the plateau: the masked-LM loss is {values[name]:.2f}, and "
        f"{baseline[name]:.2f} without any context, by the frequencies of the "
        f"tokens; what helps: {_REMEDIES}"
    )


def write(
    output_dir: str,
    *,
    title: str = "Pre-training",
    flags: Markup,
    facts: Mapping[str, Any] | None = None,
    results: Results,
    data: Sequence[Sequence[Any]] = (),
    sections: Sequence[report.Section] = (),
    left_to_right: Sequence[str] = (),
) -> str | None:
    """Writes report.html from the metrics.jsonl and samples.jsonl of the run.

    Args:
      output_dir: directory of the run.
      title: title of the page.
      flags: table of the run's flags, from report.flags.
      facts: numbers to show at the top.
      results: metrics of the trained model.
      data: rows of the table of data, each with a set and numbers.
      sections: further sections.
      left_to_right: the steps of left-to-right phases, each as "1 to 100".

    Returns:
      The warning of `plateau` that the report shows, if there is one.
    """
    lines = report.read_metrics(os.path.join(output_dir, metric_writer.METRICS))
    curves = report.curves(lines, _PANELS)
    if left_to_right:
        note = Markup(
            "<p>In steps {}, each token was predicted from those before it: "
            "losses and accuracies are those of all next tokens.</p>"
        )
        curves = note.format(" and ".join(left_to_right)) + curves
    evaluations = [
        {
            name.removeprefix("eval/"): value
            for name, value in line.items()
            if not name.startswith("train/")
        }
        for line in lines
        if "eval/loss" in line
    ]
    if not results.values and evaluations:
        results = results._replace(values=evaluations[-1])
    warning = plateau(results.values or {}, results.baseline or {})
    body = _results(results)
    if warning:
        note = Markup("<p><strong>{}</strong></p>")
        body = note.format(report.capitalized(warning)) + body
    all_sections = [
        report.Section("Results", body),
        report.Section("Learning curves", curves),
    ]
    if evaluations:
        names = [x for x in _METRICS if x in evaluations[-1]]
        header = ["step", *map(metric_writer.name_in_words, names)]
        rows = [
            [line["step"], *(line.get(name, "") for name in names)]
            for line in evaluations
        ]
        body = report.table(header, rows, minor=_MINOR)
        all_sections.append(report.Section("Evaluations during training", body))
    all_sections += sections
    path = os.path.join(output_dir, metric_writer.SAMPLES)
    if predicted := report.read_lines(path, _Samples):
        body = _samples(predicted)
        all_sections.append(report.Section("Masked sentences", body))
    if data:
        header = [
            "set",
            "sequence length",
            "steps",
            "shards",
            "records",
            "passes",
        ]
        body = report.table(header, data)
        all_sections.append(report.Section("Data", body))
    all_sections.append(report.Section("Flags", flags))
    report.write(
        os.path.join(output_dir, "report.html"), title, all_sections, facts
    )
    return warning


def _results(results: Results) -> Markup:
    """Returns the metrics of the trained model beside those of the baseline."""
    values, baseline = results.values, results.baseline or {}
    if not values:
        return Markup(
            "<p>The trained model was not evaluated: --do_eval was not given."
            "</p>"
        )
    rows = [
        [metric_writer.name_in_words(x), values[x], baseline.get(x, "")]
        for x in _METRICS
        if x in values
    ]
    header = ["metric", results.evaluated_on]
    if not baseline:
        return report.table(header, [row[:2] for row in rows])
    note = Markup(
        "<p>The baseline predicts the most frequent label; its losses are "
        "those of predicting every label with its frequency.</p>"
    )
    return report.table([*header, "baseline"], rows) + note


def _samples(lines: Sequence[_Samples]) -> Markup:
    """Shows each sentence with its predictions at several steps."""
    every = -(-len(lines) // _SHOWN_EVALUATIONS)
    lines = lines[::-1][::every][::-1]  # The last line is among them.
    boxes = []
    for number, sample in enumerate(lines[-1]["samples"]):
        rows = []
        for mask in sample["masks"]:
            cells = [mask["correct"]]
            for line in lines:
                count = _TOP if line is lines[-1] else 1
                cells.append(_predicted(line["samples"], number, mask, count))
            rows.append(cells)
        header = ["correct", *(f"step {line['step']:,}" for line in lines)]
        predicted = report.table(header, rows, minor=header[2:-1])
        boxes.append([_sentence(sample), predicted if rows else ""])
    note = Markup(
        "<p>Each mask is replaced by the best prediction of the last "
        "evaluation: green if it is correct, else red with the correct token "
        "behind it. The tables give the best predictions and their "
        "probabilities during training.</p>"
    )
    return note + report.items(boxes)


def _predicted(
    samples: Sequence[_Sample], number: int, mask: _Mask, count: int
) -> str:
    """Returns predictions for a mask at another step, if it had the mask.

    Each phase has its own held-out records.
    """
    masks = samples[number]["masks"] if number < len(samples) else []
    for other in masks:
        is_there = other["position"] == mask["position"]
        if is_there and other["correct"] == mask["correct"]:
            best = other["predicted"][:count]
            return " | ".join(f"{token} {p:.2f}" for token, p in best)
    return ""


def _sentence(sample: _Sample) -> Markup:
    """Returns the tokens with the best prediction instead of each mask."""
    masks = {mask["position"]: mask for mask in sample["masks"]}
    text, spans = "", []
    for position, token in enumerate(sample["tokens"]):
        mask = masks.get(position)
        if mask is not None:
            token = mask["predicted"][0][0]
        if token.startswith(vocabulary.CONTINUATION):
            token = token.removeprefix(vocabulary.CONTINUATION)
        elif text:
            text += " "
        if mask is not None:
            is_right = mask["predicted"][0][0] == mask["correct"]
            label = "" if is_right else mask["correct"]
            kind = "good" if is_right else "bad"
            span = report.Span(len(text), len(text) + len(token), kind, label)
            spans.append(span)
        text += token
    return report.highlight(text, spans)
