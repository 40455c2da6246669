"""Proves that the accelerator benchmark measures, and survives what fails.

pytest tests/benchmarks/accelerator_test.py
"""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

FOLDER = "benchmarks"


@pytest.fixture(scope="module")
def benchmark(repository):
    sys.path.insert(0, str(repository / FOLDER))
    import accelerator

    return accelerator


@pytest.fixture(scope="module")
def results(repository, tmp_path_factory):
    """The files of one run of the smallest plan."""
    directory = tmp_path_factory.mktemp("accelerator")
    subprocess.run(
        [
            sys.executable,
            str(repository / FOLDER / "accelerator.py"),
            f"--output_dir={directory}",
            "--plan=smoke",
            "--peak_tflops=0.5",
        ],
        check=True,
        capture_output=True,
        timeout=300,
    )
    return directory


@pytest.mark.all
def test_every_configuration_has_a_row(results, benchmark):
    device, *found = json.loads((results / "results.json").read_text())
    assert device["device"] == "CPU" and not device["is_gpu"]
    by_name = {r["name"]: r for r in found}
    for case in benchmark.plan("smoke"):
        assert by_name[case.name]["length"] == case.length
    for name in ("tiny", "tiny, packed", "predict"):
        assert by_name[name]["seconds"] > 0
        assert by_name[name]["tflops"] > 0
    assert np.isfinite(by_name["tiny"]["last_loss"])
    assert by_name["profile of tiny"]["kinds"]
    lines = (results / "results.jsonl").read_text().splitlines()
    assert len(lines) == len(found)
    table = (results / "table.md").read_text()
    assert all(f"| {name} |" in table for name in ("tiny", "predict"))


@pytest.mark.all
def test_a_configuration_that_does_not_fit_costs_only_itself(results):
    _, *found = json.loads((results / "results.json").read_text())
    names = [r["name"] for r in found]
    failed = [r for r in found if "failure" in r]
    assert [r["name"] for r in failed] == ["too large"]
    assert failed[0]["failure"] == "out of memory"
    assert names.index("predict") > names.index("too large")


@pytest.mark.all
def test_the_first_losses_are_the_cpus(results, benchmark):
    _, *found = json.loads((results / "results.json").read_text())
    losses = [r["losses"] for r in found if r["work"] == "losses"]
    assert len(losses) == 2 and len(losses[0]) == 10
    assert benchmark.relative_difference(*losses) < 1e-6


def test_the_operations_are_the_projects_own_count(benchmark):
    cases = benchmark.cases
    squad = cases.Case(name="tiny", size="tiny", task="squad")
    size, layers, length = 128, 2, 128
    block = 12 * size**2 + 2 * length * size
    expected = pytest.approx(6.0 * length * layers * block, rel=0.02)
    assert cases.sequence_flops(squad) == expected
    predicted = dataclasses.replace(squad, work="predict")
    assert 3 * cases.sequence_flops(predicted) == expected


def test_packed_rows_are_what_the_schema_asks_for(benchmark):
    from data import schema

    cases = benchmark.cases
    case = cases.Case(name="x", task="packed", length=32, batch=4)
    features = cases.arrays(case)
    kind = schema.packed_pretraining(32, cases.num_predictions(32), 3)
    assert set(features) == set(kind.names)
    for feature in kind.features:
        assert features[feature.name].shape == (16, *feature.shape)
    starts = features["next_sentence_positions"]
    rows = np.arange(16)[:, None]
    assert (features["position_ids"][rows, starts] == 0).all()
    mask = features["input_mask"]
    assert mask.min() >= 1 and (np.diff(mask, axis=1) >= 0).all()


def test_the_slowest_of_16_bits_is_profiled(benchmark):
    case = dataclasses.asdict(benchmark.Case(name="a"))
    results = [
        {**case, "name": "float32", "precision": "float32", "tflops": 1.0},
        {**case, "name": "no XLA", "xla": False, "tflops": 2.0},
        {**case, "name": "slow", "tflops": 3.0},
        {**case, "name": "fast", "tflops": 4.0},
        {**case, "name": "failed", "failure": "out of memory"},
    ]
    assert benchmark._slowest(results)["name"] == "slow"


def test_utilization_is_relative_to_the_precisions_own_peak(benchmark):
    name = "NVIDIA H100 80GB HBM3"
    peaks = [
        benchmark.cases.peak_tflops({"precision": precision}, name, None)
        for precision in ("bfloat16", "tf32", "float32")
    ]
    assert peaks == [989.0, 494.0, 67.0]
    assert (
        benchmark.cases.peak_tflops({"precision": "float16"}, name, 5.0) == 5.0
    )
