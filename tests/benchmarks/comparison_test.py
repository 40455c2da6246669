"""The comparisons of scores do not mix runs of different recipes."""

import importlib
import subprocess
import sys

import pytest

from foundation import errors


@pytest.fixture
def comparison(repository, monkeypatch):
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    return importlib.import_module("comparison")


def test_runs_with_other_flags_are_not_used_again(comparison, tmp_path):
    def config(**flags):
        output_dir = str(tmp_path / "scores")
        return comparison.ScoreComparison(
            init_checkpoint="model", output_dir=output_dir, **flags
        )

    config(num_seeds=2).check_recipe()
    config(num_seeds=5, peer_python="python3").check_recipe()
    with pytest.raises(errors.InputError, match="^--learning_rate: .* other"):
        config(learning_rate=1e-4).check_recipe()


def test_the_process_of_a_peer_needs_few_packages(repository):
    """Its environment has absl-py, numpy, torch and transformers."""
    code = (
        "import sys; sys.path.insert(0, 'benchmarks'); "
        "sys.modules |= dict.fromkeys(('msgspec', 'tensorflow', 'keras')); "
        "import comparison, examples"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=repository)
    assert done.returncode == 0
