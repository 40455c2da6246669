"""Measures single configurations of accelerator.py, one after the other.

A process of its own: `serve` reads cases as JSON from its input and writes one
JSON line for each to its output. A case that raises is one line as well; a case
that ends the process costs only itself, as accelerator.py starts another one.

    {"name": ..., "work": "train", ...}  ->  {"name": ..., "seconds": 0.05, ...}
"""

import dataclasses
import gc
import json
import math
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

VOCABULARY = 30522
# Layers, hidden size, heads.
SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
# Batches that differ, held in memory; steps take them in turn.
_BATCHES = 4
_INSTANCES_PER_ROW = 3
_MEMORY_ERRORS = ("ResourceExhaustedError", "MemoryError", "OutOfMemoryError")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One configuration.

    Attributes:
        name: names the row of the table.
        work: train, predict, losses or profile; jax and peer, which also train,
            in a process of accelerator_jax.py or accelerator_peer.py.
        task: pretraining, packed, classification or squad.
        size: of SIZES.
        length: tokens per sequence.
        batch: sequences per step, over all micro-batches.
        precision: float32, tf32, bfloat16 or float16.
        xla: whether XLA compiles the step.
        accumulation: micro-batches per step.
        recompute: what the backward pass computes again; see BertEncoder.
        dropout: rate of hidden states and attention probabilities.
        seconds: how long to measure, after compilation.
        xla_flags: added to XLA_FLAGS, for a process of the case's own.
        tf_xla_flags: the same of TF_XLA_FLAGS.
        levers: comma list of accelerator_levers.LEVERS, or a form of the peer.
    """

    name: str
    work: str = "train"
    task: str = "pretraining"
    size: str = "base"
    length: int = 128
    batch: int = 32
    precision: str = "bfloat16"
    xla: bool = True
    accumulation: int = 1
    recompute: str = "nothing"
    dropout: float = 0.1
    seconds: float = 3.0
    xla_flags: str = ""
    tf_xla_flags: str = ""
    levers: str = ""


def model_config(case: Case):
    """Returns the released hyperparameters of the case's size."""
    from modeling.config import BertConfig

    layers, hidden, heads = SIZES[case.size]
    return BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        hidden_dropout_prob=case.dropout,
        attention_probs_dropout_prob=case.dropout,
        type_vocab_size=2,
    )


def num_predictions(length: int) -> int:
    """Returns the masked positions per sequence, as released: 20 of 128."""
    return {128: 20, 512: 80}.get(length, max(1, round(0.15 * length)))


def arrays(case: Case) -> dict[str, np.ndarray]:
    """Draws features [_BATCHES * batch, ...] with realistic lengths.

    One sequence in ten is shorter than `length`, as create_pretraining_data.py
    makes them; packed rows are full and hold three instances each.
    """
    draw = np.random.default_rng(0)
    rows, length = _BATCHES * case.batch, case.length
    lengths = np.where(
        draw.random(rows) < 0.1, draw.integers(8, length + 1, rows), length
    )
    columns = np.arange(length)
    mask = columns < lengths[:, None]
    features = {
        "input_ids": draw.integers(1000, VOCABULARY, (rows, length)) * mask,
        "input_mask": mask,
        "segment_ids": (columns > lengths[:, None] // 2) & mask,
    }
    if case.task == "classification":
        features["label_ids"] = draw.integers(0, 2, (rows, 1))
    elif case.task == "squad":
        for name in ("start_positions", "end_positions"):
            features[name] = draw.integers(0, lengths)[:, None]
    else:
        features |= _predictions(draw, lengths, case)
    if case.task == "packed":
        features |= _packed(draw, case)
    return {
        name: x.astype("f4" if name.endswith("weights") else "i4")
        for name, x in features.items()
    }


def _predictions(draw, lengths, case: Case) -> dict[str, np.ndarray]:
    rows, count = len(lengths), num_predictions(case.length)
    order = np.argsort(draw.random((rows, case.length)), axis=1)
    return {
        "masked_lm_positions": np.sort(order[:, :count] % lengths[:, None]),
        "masked_lm_ids": draw.integers(1000, VOCABULARY, (rows, count)),
        "masked_lm_weights": np.arange(count) < 0.15 * lengths[:, None],
        "next_sentence_labels": draw.integers(0, 2, (rows, 1)),
    }


def _packed(draw, case: Case) -> dict[str, np.ndarray]:
    rows, pairs = _BATCHES * case.batch, _INSTANCES_PER_ROW
    cuts = np.sort(draw.integers(1, case.length, (rows, pairs - 1)), axis=1)
    starts = np.concatenate([np.zeros((rows, 1), int), cuts], axis=1)
    columns = np.arange(case.length)
    instance = (columns[None, :, None] >= starts[:, None]).sum(-1)
    begin = np.take_along_axis(starts, instance - 1, axis=1)
    return {
        "input_ids": draw.integers(1000, VOCABULARY, (rows, case.length)),
        "input_mask": instance,
        "position_ids": columns - begin,
        "next_sentence_positions": starts,
        "next_sentence_labels": draw.integers(0, 2, (rows, pairs)),
        "next_sentence_weights": np.ones((rows, pairs)),
    }


def sequence_flops(case: Case) -> float:
    """Returns the floating-point operations of one sequence.

    Recomputation does not count; a prediction is a third of a training step.
    """
    import tensorflow as tf

    from training import throughput

    with tf.device("CPU:0"):
        _, model = _model(case)
    config = model_config(case)
    flops = throughput.training_flops(
        sum(
            math.prod(x.shape)
            for x in model.variables
            if "embeddings" not in x.path
        ),
        case.length,
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
    )
    return flops / 3.0 if case.work == "predict" else flops


def _make(case: Case):
    """Returns the objective, the model and the strategy."""
    import tensorflow as tf

    from training import precision, strategy

    scope = strategy.create("one_device")
    is_tf32 = case.precision == "tf32"
    tf.config.experimental.enable_tensor_float_32_execution(is_tf32)
    dtype = "float32" if is_tf32 else case.precision
    with scope.scope():
        objective, model = _model(case, dtype=precision.policy(dtype))
    return objective, model, scope


def _model(case: Case, **options: Any) -> tuple[Any, Any]:
    """Returns the objective and a new model."""
    from modeling import models
    from tasks.classification import objective
    from tasks.pretraining import objectives
    from tasks.squad import answering

    config, options = (
        model_config(case),
        options | {"recompute": case.recompute},
    )
    if case.task == "classification":
        classifier = objective.ClassificationObjective(
            config=config, kind="classification", labels=("0", "1")
        )
        return classifier, classifier.make_model(**options)
    if case.task == "squad":
        spans = answering.SpanObjective(config=config)
        return spans, spans.make_model(**options)
    pretraining = objectives.PretrainingObjective()
    return pretraining, models.PretrainingModel(config, **options)


def _make_batches(case: Case, features: Mapping[str, np.ndarray]):
    import tensorflow as tf

    def make_batches(*, first_batch, part, num_parts):
        del first_batch, part, num_parts
        whole = tf.data.Dataset.from_tensor_slices(
            {
                name: x.reshape(_BATCHES, case.batch, *x.shape[1:])
                for name, x in features.items()
            }
        )
        return whole.repeat()

    return make_batches


def trainer(case: Case) -> Callable[[int], Any]:
    """Returns what trains a number of steps and returns their StepResults."""
    from training import feed, optimizers, precision
    from training import step as steps_lib

    objective, model, scope = _make(case)
    with scope.scope():
        optimizer = optimizers.Optimizer(
            optimizers.AdamW(),
            model.trainable_variables,
            optimizers.WarmupDecay(peak=1e-4, num_train_steps=10**6),
        )
        loss_scale = None
        if case.precision == "float16":
            loss_scale = precision.LossScale()
    step = steps_lib.TrainStep(
        steps_lib.Learner(objective, model, optimizer, loss_scale),
        strategy=scope,
        seed=1,
        jit_compile=case.xla,
    )
    batches = feed.distribute(
        scope,
        _make_batches(case, arrays(case)),
        num_accumulation_steps=case.accumulation,
        is_endless=True,
    )
    iterator, done = iter(batches), 0

    def run(number: int):
        nonlocal done
        done += number
        return step(iterator, done - number, number)

    return run


def predictor(case: Case) -> Callable[[int], None]:
    """Returns what predicts a number of batches."""
    import tensorflow as tf

    from training import inference

    objective, model, scope = _make(case)
    predict = inference.Predictor(
        objective, model, strategy=scope, jit_compile=case.xla
    )
    features = arrays(case)
    rows = len(features["input_ids"])
    features = {k: features[k] for k in _INPUTS}
    features["example_index"] = np.arange(rows, dtype="i4")
    features["is_real_example"] = np.ones(rows, "i4")
    make = _make_batches(case, features)

    def run(number: int) -> None:
        def make_batches(**options) -> tf.data.Dataset:
            return make(**options).take(number)

        for _ in predict.batches(make_batches):
            pass

    return run


_INPUTS = ("input_ids", "input_mask", "segment_ids")


def time_calls(
    case: Case, make: Callable[[], Callable[[int], Any]]
) -> tuple[dict[str, float], Callable[[int], Any], Any]:
    """Makes what runs steps and times calls of several steps.

    Returns:
        The medians, what runs steps, and the result of its last call.
    """
    started = time.perf_counter()
    run = make()
    run(1)
    first = time.perf_counter() - started
    run(2)
    started = time.perf_counter()
    run(4)
    per_step = (time.perf_counter() - started) / 4
    # Three calls, each of so many steps that starting one is not noticed.
    number = min(400, max(2, round(case.seconds / 3 / per_step)))
    taken = []
    for _ in range(3):
        started = time.perf_counter()
        results = run(number)
        taken.append((time.perf_counter() - started) / number)
    seconds = sorted(taken)[1]
    values = {
        "seconds": seconds,
        "spread": (max(taken) - min(taken)) / seconds,
        "first_call_seconds": first,
        "sequences_per_second": case.batch / seconds,
    }
    return values, run, results


def measure(
    case: Case, directory: str, flops: float | None = None
) -> dict[str, Any]:
    """Measures a case; `flops` are those of one sequence, if they are known.

    A profile is taken afterwards, so that its times are without the profiler.
    """
    import accelerator_levers

    _reset_peak()
    make = predictor if case.work == "predict" else trainer
    with accelerator_levers.using(case.levers):
        values, run, results = time_calls(case, lambda: make(case))
    values["peak_gib"] = _peak_gib()
    # After the peak, because it makes a model.
    flops = flops or sequence_flops(case)
    values["tflops"] = flops * values["sequences_per_second"] / 1e12
    if case.work != "predict":
        values["last_loss"] = float(results.sums[-1, 0])
        values["skipped"] = int((~results.is_applied).sum())
    if case.work == "profile":
        values["kinds"] = profile(run, os.path.join(directory, "trace"))
    return values


def first_losses(case: Case, number: int = 10) -> dict[str, Any]:
    """Returns the losses and gradient norms of the first steps."""
    results = trainer(case)(number)
    return {
        "losses": results.sums[:, 0].tolist(),
        "gradient_norms": results.gradient_norms.tolist(),
    }


def profile(run: Callable[[int], Any], directory: str) -> dict[str, float]:
    """Returns milliseconds per step of the largest kinds of kernels."""
    import trace_table

    steps = 4
    _, path = trace_table.record(lambda: run(steps), directory)
    kinds = trace_table.seconds_by_kind(path)
    return {kind: 1000 * total / steps for kind, total in kinds.most_common(60)}


def _gpus() -> list:
    import tensorflow as tf

    return tf.config.list_logical_devices("GPU")


def _reset_peak() -> None:
    import tensorflow as tf

    if _gpus():
        tf.config.experimental.reset_memory_stats("GPU:0")


def _peak_gib() -> float:
    """Returns the peak of the GPU's allocator, or of this process's memory."""
    import tensorflow as tf

    if _gpus():
        peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
        return peak / 2**30
    return process_peak_gib()


def process_peak_gib() -> float:
    """Returns the peak of this process's memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def peak_tflops(
    case: Mapping[str, Any], name: str, given: float | None
) -> float | None:
    """Returns the peak that a case is compared with, or None."""
    from training import throughput

    precision = case["precision"]
    if given is not None and precision in ("bfloat16", "float16"):
        return given
    return throughput.published(name, precision)


def run_case(
    case: Case, directory: str, flops: float | None = None
) -> dict[str, Any]:
    """Returns the case's result; a failure is its text."""
    if case.work == "losses":
        return attempt(case, lambda: first_losses(case))
    return attempt(case, lambda: measure(case, directory, flops))


def attempt(
    case: Case, compute: Callable[[], Mapping[str, Any]]
) -> dict[str, Any]:
    """Returns the case with what `compute` returns, or the text of its error.

    Errors of TensorFlow, JAX and PyTorch for lack of memory get the same text.
    """
    try:
        values = compute()
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        kind = type(error).__name__
        is_memory = kind in _MEMORY_ERRORS or "RESOURCE_EXHAUSTED" in lines[0]
        values = {
            "failure": "out of memory" if is_memory else kind,
            "message": " ".join(lines)[:2000],
        }
    gc.collect()
    return {**dataclasses.asdict(case), **values}


def not_installed(
    case: Case, packages: Sequence[str], flag: str
) -> dict[str, Any]:
    """Returns the result of a case whose Python, of a flag, lacks packages."""
    missing = " and ".join(packages)
    failure = f"not run: {missing} not installed in --{flag}"
    return {**dataclasses.asdict(case), "failure": failure}


def device() -> dict[str, Any]:
    """Returns what the numbers were measured on."""
    import keras
    import tensorflow as tf

    from training import throughput

    return {
        "device": throughput.device_name() or "CPU",
        "is_gpu": bool(_gpus()),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
    }


def serve(
    name_device: Callable[[], Mapping[str, Any]],
    run_case: Callable[[Case, str, float | None], Mapping[str, Any]],
) -> None:
    """Writes a line about the device, then one for each case of the input."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # What libraries print is not taken for a result.
    out.write(json.dumps(name_device()) + "\n")
    for line in sys.stdin:
        request = json.loads(line)
        case = Case(**request["case"])
        flops = request["sequence_flops"]
        result = run_case(case, request["directory"], flops)
        out.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.dirname(here))
    serve(device, run_case)
