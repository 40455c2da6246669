"""The plans of accelerator.py that compare complete steps with today's.

    python benchmarks/accelerator.py --plan=levers --output_dir=D --minutes=12
    python benchmarks/accelerator.py --plan=peer --output_dir=D2 --minutes=12

levers: the same step under JAX, which shows what XLA can make of it, then flags
of XLA, larger batches and the changes of accelerator_levers.py, the largest
expected gain first, and at the end all that gained together. peer:
BertForPreTraining of transformers in several forms, beside our step.

Each configuration has a process of its own, and only one process at a time uses
the accelerator. A process starts only if the longest one so far would still end
in time. The same command continues where it stopped: what `results.jsonl` has
on the same kind of device is not measured again. XLA's choices of kernels are
kept in `autotune/` and used by the next process. (TensorFlow's cache of whole
programs is not used: that its key contains XLA's flags is not documented.) The
first configuration and the one under JAX write XLA's program to `hlo/` and
`hlo_jax/`, for hlo_transposes.py.
"""

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import accelerator_cases
import accelerator_process
import hlo_transposes
from absl import logging

Case = accelerator_cases.Case
Result = Mapping[str, Any]
TODAY, AGAIN, TOGETHER = "today", "today, again", "all that gained"
# Work of other frameworks -> the script of its process.
_OTHERS = {"jax": "accelerator_jax.py", "peer": "accelerator_peer.py"}
# Folder of XLA's program -> what it computes.
_PROGRAMS = {"hlo": TODAY, "hlo_jax": "under JAX"}
# Work on such a machine is short; less than this is no configuration.
_SHORTEST = 5.0


def levers() -> list[Case]:
    """Returns today's step and what may be faster, in the order of gain."""

    def case(name: str, **options: Any) -> Case:
        return Case(**{"name": name, "batch": 256, **options})

    return [
        case(TODAY),
        case("under JAX", work="jax"),
        case("labels compared, not scattered", levers="labels"),
        case("gradient of the gather by a product", levers="gather"),
        case("batch 512", batch=512),
        case(
            "dot merger 512 MB",
            xla_flags="--xla_gpu_dot_merger_threshold_mb=512",
        ),
        case("one product for query, key, value", levers="qkv"),
        case(
            "cuDNN LayerNorm",
            xla_flags="--xla_gpu_enable_cudnn_layer_norm=true",
        ),
        case(AGAIN),
        case("batch 1024", batch=1024),
        case("cuBLASLt", xla_flags="--xla_gpu_enable_cublaslt=true"),
        case(
            "device API",
            tf_xla_flags="--tf_xla_enable_device_api_for_gpu=true",
        ),
        case("vocabulary padded to 128", levers="vocabulary"),
        case("two masks per hash word", levers="masks"),
    ]


def peer() -> list[Case]:
    """Returns our step and the peer's, its likely best form first."""
    ours = Case(name=TODAY, batch=256)
    forms = {
        "transformers, head on masked positions": "compile,masked",
        "transformers": "compile",
        "transformers, CUDA graphs": "reduce-overhead,masked",
        "transformers, max-autotune": "max-autotune-no-cudagraphs,masked",
    }
    return [
        ours,
        *(
            dataclasses.replace(ours, name=name, work="peer", levers=form)
            for name, form in forms.items()
        ),
        dataclasses.replace(ours, name=AGAIN),
    ]


PLANS: dict[str, Callable[[], list[Case]]] = {"levers": levers, "peer": peer}


class Trials:
    """Measures cases one after the other until the time is over.

    Attributes:
        device: what the numbers were measured on; known after the first.
        results: those of this run and of earlier ones.
    """

    def __init__(
        self,
        directory: str,
        *,
        minutes: float,
        case_seconds: float,
        make_worker: Callable[[Case, Mapping[str, str]], Any],
    ):
        """Reads what earlier runs measured.

        Args:
            directory: of all files.
            minutes: from now, for everything.
            case_seconds: for one case at most.
            make_worker: takes a case and the environment of its process.
        """
        self._directory = directory
        self._case_seconds = case_seconds
        self._make_worker = make_worker
        self._deadline = time.monotonic() + 60 * minutes
        self._path = os.path.join(directory, "results.jsonl")
        self._longest = _SHORTEST
        self._shares_choices = True
        self.device: dict[str, Any] = {}
        self.results: list[dict[str, Any]] = []
        self._earlier = _read(self._path)

    def run(self, cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
        """Yields the results in order; leaves out what time does not allow."""
        for case in cases:
            result = self._found(case)
            if result is None:
                result = self._measure(case)
            if result["name"] == TODAY and "failure" in result:
                # Perhaps because of what today's commands do not do.
                if self._shares_choices and not _is_left_out(result):
                    self._shares_choices = False
                    result = self._measure(case)
            self.results.append(result)
            yield result

    def _found(self, case: Case) -> dict[str, Any] | None:
        """Returns the result of an earlier run on the same kind of device."""
        wanted = dataclasses.asdict(case)
        del wanted["seconds"]  # In a result those of a step.
        for result in self._earlier:
            if not wanted.items() <= result.items():
                continue
            # A case that fails would fail again; for these the time was short,
            # or something is missing on the machine.
            if result.get("failure", "").startswith(("stopped", "not run")):
                continue
            self.device = self.device or _device(result)
            if self.device == _device(result):
                return result
        return None

    def _measure(self, case: Case) -> dict[str, Any]:
        left = self._deadline - time.monotonic()
        if left < self._longest:
            return {**dataclasses.asdict(case), "failure": "left out: no time"}
        limit = min(left, self._case_seconds)
        logging.info("%s: at most %.0f s", case.name, limit)
        started = time.monotonic()
        worker = self._make_worker(case, self._environment(case))
        try:
            worker.start(limit)
            self._check_device(case, worker.device)
            worker.send(case, self._directory, self._sequence_flops())
            limit -= time.monotonic() - started
            result = worker.receive(case, max(0.0, limit))
        except (RuntimeError, OSError) as error:
            failure = f"not run: {error}"
            result = {**dataclasses.asdict(case), "failure": failure}
        finally:
            worker.stop()
        if case.work not in _OTHERS and worker.device:
            if self.device and self.device != worker.device:
                # Another machine than the earlier run's: begin again.
                self.results.clear()
                self._earlier.clear()
            self.device = worker.device
        self._longest = max(self._longest, time.monotonic() - started)
        result = {**self.device, **result}
        with open(self._path, "a") as file:
            file.write(json.dumps(result) + "\n")
        return result

    def _check_device(self, case: Case, device: Result) -> None:
        """Raises RuntimeError if another framework would use the CPU only."""
        is_on_cpu = device.get("is_gpu") is False
        if case.work in _OTHERS and self.device.get("is_gpu") and is_on_cpu:
            raise RuntimeError(f"{_OTHERS[case.work]} finds no GPU")

    def _environment(self, case: Case) -> dict[str, str]:
        """Returns the variables of the case's process."""
        flags = [os.environ.get("XLA_FLAGS", ""), case.xla_flags]
        folder = os.path.abspath(self._directory)
        if self._shares_choices and case.work not in _OTHERS:
            choices = os.path.join(folder, "autotune")
            os.makedirs(choices, exist_ok=True)
            flags.append(f"--xla_gpu_per_fusion_autotune_cache_dir={choices}")
        for program, name in _PROGRAMS.items():
            if case.name == name and self._shares_choices:
                path = os.path.join(folder, program)
                flags += [f"--xla_dump_to={path}", "--xla_dump_hlo_as_text"]
        tf_flags = [os.environ.get("TF_XLA_FLAGS", ""), case.tf_xla_flags]
        return {
            "XLA_FLAGS": " ".join(filter(None, flags)),
            "TF_XLA_FLAGS": " ".join(filter(None, tf_flags)),
        }

    def _sequence_flops(self) -> float | None:
        """Returns the operations of one sequence: the same in all cases."""
        for r in self.results:
            if "tflops" in r:
                return 1e12 * r["tflops"] / r["sequences_per_second"]
        return None


def _is_left_out(result: Result) -> bool:
    return result.get("failure", "").startswith("left out")


def _read(path: str) -> list[dict[str, Any]]:
    """Returns the lines of results.jsonl; cuts off an incomplete last one."""
    if not os.path.exists(path):
        return []
    with open(path, "r+") as file:
        text = file.read()
        complete = text[: text.rfind("\n") + 1]
        file.truncate(len(complete.encode()))
    return [json.loads(line) for line in complete.splitlines()]


def _device(result: Result) -> dict[str, Any]:
    names = "device", "is_gpu", "tensorflow", "keras"
    return {name: result[name] for name in names if name in result}


def gain(result: Result, results: Sequence[Result]) -> float | None:
    """Returns the gain in sequences per second over the mean of today's."""
    today = _speeds_of_today(results)
    if "failure" in result or not today:
        return None
    return result["sequences_per_second"] * len(today) / sum(today) - 1


def noise(result: Result, results: Sequence[Result]) -> float:
    """Returns the largest spread: of calls, and between today's processes."""
    today = [r for r in results if r["name"] in (TODAY, AGAIN)]
    speeds = _speeds_of_today(results)
    spreads = [r["spread"] for r in (*today, result) if "spread" in r]
    return max([*spreads, max(speeds) / min(speeds) - 1])


def _speeds_of_today(results: Sequence[Result]) -> list[float]:
    return [
        r["sequences_per_second"]
        for r in results
        if r["name"] in (TODAY, AGAIN) and "failure" not in r
    ]


def together(cases: Sequence[Case], results: Sequence[Result]) -> Case | None:
    """Returns one case with all that gained more than the noise, if any."""
    better = []
    by_name = {r["name"]: r for r in results}
    for case in cases:
        result = by_name.get(case.name, {"failure": ""})
        found = gain(result, results)
        if case.name in (TODAY, AGAIN) or case.work in _OTHERS or found is None:
            continue
        if found > noise(result, results):
            better.append((found, case))
    if len(better) < 2:
        return None
    batches = [x for x in better if x[1].batch != cases[0].batch]
    largest = max(batches, key=lambda x: x[0])[1] if batches else cases[0]

    def joined(name: str, separator: str) -> str:
        values = [getattr(case, name) for _, case in better]
        return separator.join(filter(None, values))

    return dataclasses.replace(
        cases[0],
        name=TOGETHER,
        batch=largest.batch,
        xla_flags=joined("xla_flags", " "),
        tf_xla_flags=joined("tf_xla_flags", " "),
        levers=joined("levers", ","),
    )


def table(
    results: Sequence[Result], device: Result, given_peak: float | None = None
) -> str:
    """Returns the Markdown table of complete steps."""
    lines = [
        f"{device.get('device', 'unknown')}, TensorFlow "
        f"{device.get('tensorflow', '?')}. Spread: of three calls, relative to "
        "their median. Gain: sequences/s over the mean of today's rows; in "
        "brackets if not more than the noise.",
        "",
        "| configuration | batch x length | ms per step | spread | sequences/s "
        "| utilization | peak GiB | first call s | gain |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join(
        [*lines, *(_row(r, results, device, given_peak) for r in results)]
    )


def _row(
    r: Result,
    results: Sequence[Result],
    device: Result,
    given_peak: float | None,
) -> str:
    start = f"| {r['name']} | {r['batch']} x {r['length']} |"
    if "failure" in r:
        text = " ".join([r["failure"], r.get("message", "")[:100]]).strip()
        return f"{start} {text} | | | | | | |"
    used = "-"
    peak = accelerator_cases.peak_tflops(
        r, device.get("device", ""), given_peak
    )
    if peak and "tflops" in r:
        used = f"{100 * r['tflops'] / peak:.1f} %"
    found = gain(r, results)
    shown = "-"
    if found is not None:
        shown = f"{100 * found:+.1f} %"
        if abs(found) <= noise(r, results):
            shown = f"({shown})"
    return (
        f"{start} {1000 * r['seconds']:.1f} | {100 * r['spread']:.1f} % "
        f"| {r['sequences_per_second']:.0f} | {used} | {r['peak_gib']:.1f} "
        f"| {r['first_call_seconds']:.0f} | {shown} |"
    )


def main(
    cases: Sequence[Case],
    directory: str,
    *,
    minutes: float,
    case_seconds: float,
    given_peak: float | None,
    pythons: Mapping[str, str],
) -> None:
    """Runs a plan; writes `table.md` after every case and prints it.

    `pythons` has the Python of each other framework, by the case's work.
    """
    cache = os.path.abspath(os.path.join(directory, "inductor"))

    def make_worker(case: Case, environment: Mapping[str, str]):
        if case.work not in _OTHERS:
            return accelerator_process.Worker(environment=environment)
        return accelerator_process.Worker(
            script=_OTHERS[case.work],
            python=pythons[case.work],
            environment={**environment, "TORCHINDUCTOR_CACHE_DIR": cache},
        )

    trials = Trials(
        directory,
        minutes=minutes,
        case_seconds=case_seconds,
        make_worker=make_worker,
    )

    def write() -> str:
        text = table(trials.results, trials.device, given_peak)
        for folder, name in _PROGRAMS.items():
            program = hlo_transposes.find(os.path.join(directory, folder))
            if program:
                text += f"\n\nXLA's program, {name}:\n\n"
                text += hlo_transposes.table(program)
        with open(os.path.join(directory, "table.md"), "w") as file:
            file.write(text + "\n")
        return text

    def run(selected: Sequence[Case]) -> None:
        for result in trials.run(selected):
            write()
            logging.info(
                "%s: %s",
                result["name"],
                result.get("failure")
                or f"{result['sequences_per_second']:.0f} sequences/s",
            )

    run(cases)
    combined = together(cases, trials.results)
    if combined is not None:
        run([combined])
    print(write())
