"""Proves that a refused command leaves the run in --output_dir as it was.

python -m pytest tests/refused_changes_test.py
"""

import json

import classifier_runs
import pytest

ONCE = {"num_train_epochs": 1, "keep_checkpoint_max": 5}


def classify(root, name, data):
    files = {"train_file": root / f"{data}.csv"}
    return classifier_runs.run_csv(root, name, "--do_train", **ONCE, **files)


def tree(folder):
    """Returns the contents of all files, but not of the lock."""
    paths = [x for x in folder.rglob("*") if x.is_file()]
    return {x: x.read_bytes() for x in paths if x.name != ".training.lock"}


def stopped(folder):
    """Leaves what a kill between the last checkpoint and the end leaves."""
    (folder / "model.safetensors").unlink()
    journal = json.loads((folder / "run.json").read_text())
    kept = {name: journal[name] for name in ("flags", "made_from")}
    (folder / "run.json").write_text(json.dumps(kept))
    return folder


def test_changes_are_refused_before_a_killed_run_changes(tmp_path, capsys):
    classifier_runs.make_data(tmp_path)
    folder = stopped(classify(tmp_path, "out", "train"))
    before = tree(folder)
    assert any("model.ckpt-" in path.name for path in before)
    with pytest.raises(SystemExit) as exit:
        classify(tmp_path, "out", "dev")
    assert exit.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "train had other contents" in error
    assert tree(folder) == before
    classifier_runs.make_data(tmp_path, hidden_size=8)
    with pytest.raises(SystemExit):
        classify(tmp_path, "out", "train")
    assert "another model" in capsys.readouterr().err.splitlines()[-1]
    assert tree(folder)[folder / "run.json"] == before[folder / "run.json"]
