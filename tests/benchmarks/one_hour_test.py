"""The measurement of one hour reports a failed step in one line."""

import subprocess
import sys


def _run(repository, tmp_path, **flags: str) -> subprocess.CompletedProcess:
    flags = {
        "corpus": str(tmp_path / "missing.txt"),
        "glue_dir": str(tmp_path),
        "output_dir": str(tmp_path / "out"),
    } | flags
    script = str(repository / "benchmarks" / "one_hour.py")
    return subprocess.run(
        [sys.executable, script, *(f"--{k}={v}" for k, v in flags.items())],
        capture_output=True,
        text=True,
    )


def test_a_missing_corpus_is_reported_by_the_step_that_needs_it(
    repository, tmp_path
):
    done = _run(repository, tmp_path)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "missing.txt" in done.stderr
    assert "vocabulary failed with exit code" in done.stderr
    assert not (tmp_path / "out" / "ours_seed1" / "scores.json").exists()


def test_an_unknown_objective_is_refused_before_the_first_step(
    repository, tmp_path
):
    done = _run(repository, tmp_path, objective="nonsense")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "nonsense" in done.stderr
    assert not (tmp_path / "out").exists()
