r"""Measures one accelerator in about fifteen minutes, or a CPU at small size.

    python benchmarks/accelerator.py --output_dir=/tmp/accelerator
    python benchmarks/accelerator.py --output_dir=/tmp/small --small \
        --plan=smoke

BERT-Base and BERT-Large train through training.step.TrainStep on arrays in
memory; the table has the time of a step, the model FLOPs utilization, the peak
memory, the first losses beside the CPU's, and the kernels of the slowest
configuration. `results.jsonl` gets a line as soon as a configuration has been
measured; `results.json` and `table.md` are written at the end. For
--plan=levers and --plan=peer see accelerator_trials.py.

A configuration that fails, for lack of memory or otherwise, is a row with the
reason. The most important ones come first; --minutes leaves out the last.
"""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import accelerator_cases as cases
import accelerator_process
import accelerator_trials
import smoke
from absl import logging

from foundation import config_flags

Case = cases.Case
Worker = accelerator_process.Worker
field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What to measure, how long, and relative to what."""

    output_dir: str = field("Where the results go.")
    plan: Literal["full", "short", "smoke", "levers", "peer"] = field(
        "short: without the less important half; smoke: a few small models; "
        "levers: what may shorten a step; peer: transformers.",
        "full",
    )
    minutes: float = field("Starts no configuration after so many.", 15.0)
    case_seconds: float = field("Stops a configuration after so many.", 300.0)
    peak_tflops: float | None = field(
        "Dense peak of one device at 16 bits, where its name is not known.",
        None,
    )
    small: bool = field(
        "Replaces every size by tiny, divides batches and lengths.", False
    )
    only: str | None = field("Comma list of parts of names to run.", None)
    peer_python: str = field(
        "Python with torch and transformers, for --plan=peer.", sys.executable
    )
    jax_python: str = field(
        "Python with jax and keras, for the control of --plan=levers.",
        sys.executable,
    )


def plan(name: str) -> list[Case]:
    """Returns the configurations, the most important first."""
    if name == "smoke":
        return _smoke()
    if name in accelerator_trials.PLANS:
        return accelerator_trials.PLANS[name]()
    half = {"precision": "bfloat16"}
    first = [
        Case(name="base 128", batch=256, **half),
        Case(name="large 128", size="large", batch=128, **half),
        Case(name="base 512", length=512, batch=64, **half),
        Case(name="large 512", size="large", length=512, batch=32, **half),
        *_losses(),
        Case(name="base 128, no XLA", batch=256, xla=False, **half),
        Case(name="base 128, float16", batch=256, precision="float16"),
        Case(
            name="base 512, packed", task="packed", length=512, batch=64, **half
        ),
        Case(
            name="base 128, 4 micro-batches", batch=1024, accumulation=4, **half
        ),
    ]
    rest = [
        Case(
            name="predict classification",
            work="predict",
            task="classification",
            batch=256,
            **half,
        ),
        Case(
            name="predict squad",
            work="predict",
            task="squad",
            length=384,
            batch=128,
            **half,
        ),
        Case(name="train squad", task="squad", length=384, batch=32, **half),
        Case(
            name="train classification", task="classification", batch=32, **half
        ),
        Case(
            name="large 128, float16",
            size="large",
            batch=128,
            precision="float16",
        ),
        Case(
            name="large 512, recompute",
            size="large",
            length=512,
            batch=64,
            recompute="blocks",
            **half,
        ),
        Case(name="base 128, tf32", batch=128, precision="tf32"),
        Case(name="base 128, float32", batch=128, precision="float32"),
        Case(name="base 512, no XLA", length=512, batch=64, xla=False, **half),
    ]
    return first if name == "short" else first + rest


def _losses(**options: Any) -> list[Case]:
    options = {"work": "losses", "batch": 8, **options}
    variants = [
        ("float32", False),
        ("float32", True),
        ("tf32", True),
        ("bfloat16", True),
        ("float16", True),
    ]
    return [
        Case(
            name=f"losses, {precision}{'' if xla else ', no XLA'}",
            precision=precision,
            xla=xla,
            **options,
        )
        for precision, xla in variants
    ]


def _smoke() -> list[Case]:
    options = {"size": "tiny", "length": 16, "batch": 4, "seconds": 0.1}
    exact = {**options, "precision": "float32"}
    return [
        Case(name="tiny", **exact),
        Case(name="tiny, packed", task="packed", xla=False, **exact),
        Case(name="too large", **{**exact, "batch": 2**42}),
        Case(name="predict", work="predict", task="squad", xla=False, **exact),
        Case(name="losses, float32", work="losses", xla=False, **exact),
    ]


def shrunk(case: Case) -> Case:
    """Returns the case at a size that a CPU measures in seconds."""
    return dataclasses.replace(
        case,
        size="tiny",
        length=case.length // 8,
        batch=max(case.accumulation, case.batch // 32),
        seconds=0.2,
    )


def run(
    selected: Sequence[Case], config: Config, device: Worker, cpu: Worker
) -> Iterator[dict[str, Any]]:
    """Yields the results as they come, the CPU's losses among them."""
    deadline = time.monotonic() + 60 * config.minutes
    references = _references(selected)
    for reference in references:
        # On the CPU while the GPU is busy; received at the end.
        cpu.send(reference, config.output_dir)
    measured = []
    for case in selected:
        if time.monotonic() > deadline:
            values = dataclasses.asdict(case)
            yield {**values, "failure": "left out: no time"}
            continue
        device.send(case, config.output_dir)
        values = device.receive(case, config.case_seconds)
        measured.append(values)
        yield values
    slowest = _slowest(measured)
    if slowest is not None and time.monotonic() < deadline:
        names = {f.name for f in dataclasses.fields(Case)}
        options = {k: v for k, v in slowest.items() if k in names}
        options |= {"name": f"profile of {slowest['name']}", "work": "profile"}
        case = Case(**options)
        device.send(case, config.output_dir)
        yield device.receive(case, config.case_seconds)
    for reference in references:
        yield cpu.receive(reference, config.case_seconds)


def _references(selected: Sequence[Case]) -> list[Case]:
    """Returns what the CPU computes for comparison.

    XLA makes dropout's masks in another way than TensorFlow, but the same way
    on every device: each kind has its own reference.
    """
    found = {c.xla: c for c in selected if c.work == "losses"}
    return [
        dataclasses.replace(c, name=_reference_name(xla), precision="float32")
        for xla, c in found.items()
    ]


def _reference_name(xla: bool) -> str:
    return f"losses, CPU, float32{'' if xla else ', no XLA'}"


def _slowest(results: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Returns the training in 16 bits by XLA that uses the device least."""
    found = [
        r
        for r in results
        if "tflops" in r and r["work"] == "train" and r["xla"]
    ]
    half = [r for r in found if r["precision"] in ("bfloat16", "float16")]
    return min(half or found, key=lambda r: r["tflops"], default=None)


def table(
    results: Sequence[Mapping[str, Any]],
    device: Mapping[str, Any],
    given_peak: float | None = None,
) -> str:
    """Returns the Markdown tables: steps, losses and the profile."""
    lines = [
        f"{device['device']}, TensorFlow {device['tensorflow']}, "
        f"Keras {device['keras']}. Utilization is relative to the dense peak "
        "and does not count recomputation.",
        "",
        "| configuration | batch x length | ms per step | sequences/s "
        "| TFLOP/s | utilization | peak GiB | first call s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        if r["work"] in ("train", "predict"):
            lines.append(
                _row(r, cases.peak_tflops(r, device["device"], given_peak))
            )
    lines += _loss_table([r for r in results if r["work"] == "losses"])
    for r in results:
        if r["work"] == "profile":
            lines += _profile_table(r)
    return "\n".join(lines) + "\n"


def _row(r: Mapping[str, Any], peak: float | None) -> str:
    start = f"| {r['name']} | {r['batch']} x {r['length']} |"
    if "failure" in r:
        return f"{start} {r['failure']} | | | | | |"
    used = f"{100 * r['tflops'] / peak:.1f} %" if peak else "-"
    return (
        f"{start} {1000 * r['seconds']:.1f} | {r['sequences_per_second']:.0f} "
        f"| {r['tflops']:.1f} | {used} | {r['peak_gib']:.1f} "
        f"| {r['first_call_seconds']:.0f} |"
    )


def _loss_table(results: Sequence[Mapping[str, Any]]) -> list[str]:
    found = {r["name"]: r for r in results}
    lines = [
        "",
        "| first ten losses | first | last | largest relative difference "
        "from the CPU's float32 |",
        "|---|---|---|---|",
    ]
    for r in results:
        if "losses" not in r:
            lines.append(f"| {r['name']} | {r['failure']} | | |")
            continue
        apart = "-"
        reference = found.get(_reference_name(r["xla"]), {}).get("losses")
        if reference:
            apart = f"{relative_difference(r['losses'], reference):.1e}"
        first, last = r["losses"][0], r["losses"][-1]
        lines.append(f"| {r['name']} | {first:.5f} | {last:.5f} | {apart} |")
    return lines if found else []


def relative_difference(
    values: Sequence[float], reference: Sequence[float]
) -> float:
    """Returns the largest |value / reference - 1|."""
    pairs = zip(values, reference, strict=True)
    return max(abs(value / other - 1) for value, other in pairs)


def _profile_table(r: Mapping[str, Any]) -> list[str]:
    if "kinds" not in r:
        return ["", f"{r['name']}: {r['failure']}"]
    total = sum(r["kinds"].values())
    lines = [
        "",
        f"| {r['name']}: {1000 * r['seconds']:.1f} ms per step | ms | share |",
        "|---|---|---|",
    ]
    for kind, milliseconds in list(r["kinds"].items())[:25]:
        share = 100 * milliseconds / total
        lines.append(f"| `{kind}` | {milliseconds:.2f} | {share:.1f} % |")
    return lines


def select(config: Config) -> list[Case]:
    """Returns the cases that the flags select."""
    selected = plan(config.plan)
    if config.only:
        parts = config.only.split(",")
        selected = [c for c in selected if any(p in c.name for p in parts)]
    return [shrunk(c) if config.small else c for c in selected]


def main(config: Config) -> None:
    """Measures, writes the results and prints the table."""
    os.makedirs(config.output_dir, exist_ok=True)
    if config.plan in accelerator_trials.PLANS:
        return accelerator_trials.main(
            select(config),
            config.output_dir,
            minutes=config.minutes,
            case_seconds=config.case_seconds,
            given_peak=config.peak_tflops,
            pythons={"peer": config.peer_python, "jax": config.jax_python},
        )
    device, cpu = Worker(), Worker(environment={"CUDA_VISIBLE_DEVICES": "-1"})
    results = []
    try:
        device.start()
        path = os.path.join(config.output_dir, "results.jsonl")
        with open(path, "w", buffering=1) as file:
            for result in run(select(config), config, device, cpu):
                file.write(json.dumps({**device.device, **result}) + "\n")
                results.append(result)
                logging.info("%s", summary(result))
    finally:
        device.stop()
        cpu.stop()
    text = table(results, device.device, config.peak_tflops)
    for name, content in (
        ("results.json", json.dumps([device.device, *results], indent=1)),
        ("table.md", text),
    ):
        with open(os.path.join(config.output_dir, name), "w") as file:
            file.write(content)
    print(text)


def summary(result: Mapping[str, Any]) -> str:
    """Returns one line of the log."""
    if "failure" in result:
        message = result.get("message", "")[:200]
        return f"{result['name']}: {result['failure']} {message}"
    if "tflops" in result:
        return (
            f"{result['name']}: {1000 * result['seconds']:.1f} ms, "
            f"{result['tflops']:.1f} TFLOP/s, {result['peak_gib']:.1f} GiB, "
            f"first call {result['first_call_seconds']:.0f} s"
        )
    return f"{result['name']}: done"


if __name__ == "__main__":
    with smoke.flags(
        {
            "output_dir": "DATA/results",
            "plan": "smoke",
        }
    ):
        config_flags.run(Config, main)
