"""Proves that the plans that compare steps end in time and can be continued.

pytest tests/benchmarks/accelerator_trials_test.py
"""

import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
from unittest import mock

import pytest

DEVICE = {"device": "a GPU", "is_gpu": True, "tensorflow": "1", "keras": "2"}
SPEEDS = {
    "today": 100.0,
    "today, again": 102.0,
    "batch 512": 110.0,
    "dot merger 512 MB": 101.5,
    "vocabulary padded to 128": 104.0,
    "cuBLASLt": 95.0,
}


@pytest.fixture(scope="module")
def trials(repository):
    sys.path.insert(0, str(repository / "benchmarks"))
    import accelerator_trials

    return accelerator_trials


class FakeWorker:
    """Measures what SPEEDS says; notes what it was asked for."""

    def __init__(self, log, case, environment, clock, device=DEVICE, fails=()):
        """Takes what to note requests in, and the clock to move."""
        self.log, self.case, self.clock = log, case, clock
        self.environment, self.fails = environment, fails
        self.device = dict(device)

    def start(self, timeout):
        self.log.append(self.case.name)

    def send(self, case, directory, sequence_flops):
        self.flops = sequence_flops

    def receive(self, case, timeout):
        self.clock[0] += 60.0
        values = dataclasses.asdict(case)
        if any(x in str(self.environment) for x in self.fails):
            return {**values, "failure": "the process ended with code -6"}
        speed = SPEEDS.get(case.name, 100.0)
        return {
            **values,
            "seconds": case.batch / speed,
            "spread": 0.01,
            "sequences_per_second": speed,
            "first_call_seconds": 50.0,
            "peak_gib": 1.0,
            "tflops": self.flops or 1.0,
        }

    def stop(self):
        self.case = None


class StrayWorker(FakeWorker):
    """Finds no GPU in the process of another framework."""

    def start(self, timeout):
        super().start(timeout)
        if self.case.work in ("jax", "peer"):
            self.device = {"is_gpu": False}


def run(trials, directory, cases, *, minutes=30.0, kind=FakeWorker, **options):
    """Runs cases by fake workers and a clock that they move."""
    log, clock = [], [0.0]
    with mock.patch.object(trials.time, "monotonic", lambda: clock[0]):
        running = trials.Trials(
            str(directory),
            minutes=minutes,
            case_seconds=300.0,
            make_worker=lambda case, environment: kind(
                log, case, environment, clock, **options
            ),
        )
        results = list(running.run(cases))
    return running, results, log


def test_it_ends_in_time_and_continues_where_it_stopped(trials, tmp_path):
    cases = trials.levers()
    # A case takes a minute: the fifth would not end in 4.5.
    _, results, log = run(trials, tmp_path, cases, minutes=4.5)
    assert log == [case.name for case in cases[:4]]
    left_out = [r["failure"] for r in results if "failure" in r]
    assert left_out == ["left out: no time"] * (len(cases) - 4)
    with open(tmp_path / "results.jsonl", "a") as file:
        file.write('{"name": "killed wh')
    _, results, log = run(trials, tmp_path, cases)
    assert log == [case.name for case in cases[4:]]
    assert not any("failure" in r for r in results)


def test_another_device_begins_again(trials, tmp_path):
    cases = trials.levers()[:2]
    run(trials, tmp_path, cases)
    more = [*cases, trials.levers()[2]]
    other = {**DEVICE, "device": "another GPU"}
    running, _, log = run(trials, tmp_path, more, device=other)
    assert log == [more[2].name]
    assert running.device == other
    assert [r["device"] for r in running.results] == ["another GPU"]


def test_a_flag_that_ends_the_process_costs_only_its_row(trials, tmp_path):
    cases = trials.levers()
    options = {"fails": ("enable_cublaslt",)}
    running, _, _ = run(trials, tmp_path, cases, **options)
    failed = [r["name"] for r in running.results if "failure" in r]
    assert failed == ["cuBLASLt"]
    # Nor is it tried again.
    _, _, log = run(trials, tmp_path, cases, **options)
    assert log == []


def test_what_was_missing_is_tried_again(trials, tmp_path):
    cases = trials.levers()[:3]
    _, results, _ = run(trials, tmp_path, cases, kind=StrayWorker)
    failed = {r["name"]: r["failure"] for r in results if "failure" in r}
    # On the CPU it would take all the time.
    assert failed == {"under JAX": "not run: accelerator_jax.py finds no GPU"}
    _, results, log = run(trials, tmp_path, cases)
    assert log == ["under JAX"]
    assert not any("failure" in r for r in results)


WORKERS = {
    "hangs": "import time; time.sleep(60)",
    "ends": "raise SystemExit(1)",
}


@pytest.mark.parametrize("way", WORKERS)
def test_a_process_that_does_not_start_is_named(trials, tmp_path, way):
    script = tmp_path / "script.py"
    script.write_text(WORKERS[way])
    worker = trials.accelerator_process.Worker(script=str(script))
    with pytest.raises(RuntimeError, match="script.py (does|did) not start"):
        worker.start(1.0 if way == "hangs" else 60.0)
    worker.stop()


def test_a_python_that_does_not_exist_costs_only_its_rows(trials, tmp_path):
    def make_worker(case, environment):
        return trials.accelerator_process.Worker(python=str(tmp_path / "no"))

    running = trials.Trials(
        str(tmp_path), minutes=1.0, case_seconds=9.0, make_worker=make_worker
    )
    for result in running.run(trials.peer()[1:3]):
        assert result["failure"].startswith("not run: ")
        assert str(tmp_path / "no") in result["failure"]


def test_where_the_cache_of_choices_fails_it_is_not_used(trials, tmp_path):
    cases = trials.levers()
    running, results, log = run(trials, tmp_path, cases, fails=("autotune",))
    assert log[:2] == ["today", "today"]
    assert not any("failure" in r for r in results)
    assert len(log) == len(cases) + 1


def test_what_gained_more_than_the_noise_is_measured_together(trials, tmp_path):
    cases = trials.levers()
    running, results, _ = run(trials, tmp_path, cases)
    combined = trials.together(cases, results)
    # Of today's two processes 2 % apart, the merger's 0.5 % are noise.
    assert combined.batch == 512
    assert combined.levers == "vocabulary"
    assert combined.xla_flags == combined.tf_xla_flags == ""
    text = trials.table(results, DEVICE)
    assert "| batch 512 | 512 x 128 | 4654.5 | 1.0 % | 110 |" in text
    assert "| +8.9 % |" in text and "| (+0.5 %) |" in text


def test_a_row_of_the_peer_has_its_failure(trials, tmp_path):
    cases = trials.peer()
    running, results, _ = run(trials, tmp_path, cases)
    results[1] = {
        **{k: results[1][k] for k in ("name", "batch", "length", "precision")},
        "failure": "not run: torch not installed in --peer_python",
    }
    text = trials.table(results, DEVICE)
    assert "torch not installed in --peer_python" in text
    assert trials.together(cases, results) is None


HLO = """HloModule step

%transposing (p: bf16[8,4]) -> bf16[4,8] {
  %p = bf16[8,4]{1,0} parameter(0)
  ROOT %t = bf16[4,8]{1,0} transpose(%p), dimensions={1,0}
}

%adding (p: bf16[8,4]) -> bf16[8,4] {
  %p = bf16[8,4]{1,0} parameter(0)
  ROOT %a = bf16[8,4]{1,0} add(%p, %p)
}

ENTRY %main (x: bf16[8,4]) -> f32[4,4] {
  %x = bf16[8,4]{1,0} parameter(0)
  %f = bf16[4,8]{1,0} fusion(%x), kind=kInput, calls=%transposing
  %g = bf16[8,4]{1,0} fusion(%x), kind=kLoop, calls=%adding
  %b = bf16[8,4]{1,0} bitcast(%g)
  ROOT %c = (f32[4,4]{1,0}, s8[64]{0}) custom-call(%f, %b), \
custom_call_target="__cublas$gemm", metadata={op_name="block/MatMul"}
}
"""


def test_transposed_operands_of_products_are_found(trials, tmp_path):
    path = tmp_path / "module_1.step.sm_9.0_gpu_after_optimizations.txt"
    path.write_text(HLO)
    (tmp_path / "module_0.x.sm_9.0_gpu_after_optimizations.txt").write_text("")
    found = trials.hlo_transposes.find(str(tmp_path))
    assert found == str(path)
    first, second = trials.hlo_transposes.operands(found)
    assert first == ("transpose", 64e-6, "block/MatMul")
    assert second.writer == "fusion"
    assert "`block/MatMul`, transpose" in trials.hlo_transposes.table(found)


@pytest.fixture
def variables(trials):
    """All flags of the plan: one that TensorFlow does not know ends a process.

    XLA's optimizations for a CPU would be half of the time.
    """
    cases = trials.levers()
    flags = [case.xla_flags for case in cases]
    return {
        "XLA_FLAGS": " ".join([*flags, "--xla_backend_optimization_level=0"]),
        "TF_XLA_FLAGS": " ".join(case.tf_xla_flags for case in cases),
    }


def run_command(command, variables, seconds):
    """Returns the output of a command; after so many seconds it fails.

    A failure shows the log, which names each configuration at its start.
    """
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | variables,
        start_new_session=True,
    )
    try:
        output, log = process.communicate(timeout=seconds)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)  # Its processes, too.
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        _, log = process.communicate()
        pytest.fail(f"more than {seconds} s\n{log[-3000:]}")
    assert process.returncode == 0, log[-3000:]
    return output


@pytest.mark.all
@pytest.mark.parametrize("plan", ["levers", "peer"])
def test_a_plan_runs_on_a_cpu(repository, tmp_path, variables, plan):
    command = [
        sys.executable,
        str(repository / "benchmarks" / "accelerator.py"),
        f"--output_dir={tmp_path}",
        f"--plan={plan}",
        "--small",
        "--only=today,JAX,masks,transformers",
        # It ends by itself, with a row for what hung.
        "--minutes=8",
        "--case_seconds=120",
    ]
    output = run_command(command, variables, 600)
    lines = (tmp_path / "results.jsonl").read_text().splitlines()
    results = {r["name"]: r for r in map(json.loads, lines)}
    names = {"today", "today, again"}
    if plan == "levers":
        names.add("two masks per hash word")
        assert "XLA's program, today" in output
        assert "operands of products" in output
        if importlib.util.find_spec("jax"):
            names.add("under JAX")
            assert "XLA's program, under JAX" in output
        else:
            failure = results["under JAX"]["failure"]
            assert failure == "not run: jax not installed in --jax_python"
    failures = {name: results.get(name, {}).get("failure") for name in names}
    assert not any(failures.values()), (failures, output)
    assert all(results[name]["sequences_per_second"] > 0 for name in names)
    loss = results["today"]["last_loss"]
    for name in names - {"two masks per hash word"}:
        assert results[name]["last_loss"] == pytest.approx(loss, rel=0.05)
    # Without torch one line for each form of the peer.
    for name in results.keys() - names - {"all that gained"}:
        assert "failure" in results[name] or results[name]["last_loss"] > 0
    assert run_command(command, variables, 600) == output
