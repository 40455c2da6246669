"""Tests that a run starts from a model of the Hub, and stores its name.

python -m pytest tests/run_classifier_hub_test.py
"""

import json
import shutil
import sys
import types

import pytest
import tiny_runs

import bert
import run_classifier
from foundation import hub

NAME = "hf://me/small-bert"
WORDS = [*tiny_runs.SPECIAL, *"a fine dull film . the".split()]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache as the library lays it out, and a library that returns it."""
    hub._download.cache_clear()
    made = tiny_runs.save_encoder(tmp_path / "made", WORDS)
    snapshot = tmp_path / "cache" / "models--me--small-bert" / "snapshots" / "9"
    shutil.copytree(made, snapshot)
    library = types.SimpleNamespace(
        snapshot_download=lambda name, **options: str(snapshot)
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    yield tmp_path / "cache"
    hub._download.cache_clear()


@pytest.mark.all
def test_a_run_stores_the_name_and_no_path_of_the_cache(cache, tmp_path):
    rows = ["text,label", *["a fine film .,1", "the dull film .,0"] * 8]
    (tmp_path / "table.csv").write_text("\n".join(rows) + "\n")
    output_dir = tmp_path / "out"

    def run(*switches):
        tiny_runs.run(
            run_classifier,
            run_classifier.ClassifierFlags,
            *switches,
            task_name="csv",
            train_file=tmp_path / "table.csv",
            dev_file=tmp_path / "table.csv",
            init_checkpoint=NAME,
            output_dir=output_dir,
            max_seq_length=16,
            num_train_epochs=1,
            train_batch_size=8,
        )

    run("--do_train", "--do_eval")
    stored = json.loads((output_dir / "run.json").read_text())
    assert stored["flags"]["init_checkpoint"] == NAME
    card = (output_dir / "README.md").read_text()
    assert "base_model: me/small-bert" in card.replace('"', "")
    for path in output_dir.rglob("*"):
        if path.is_file():
            assert str(cache).encode() not in path.read_bytes(), path
    before = (output_dir / "model.safetensors").read_bytes()
    run("--do_train", "--do_eval")
    assert (output_dir / "model.safetensors").read_bytes() == before
    model = bert.load(NAME, task="sentence_embedding")
    assert NAME in repr(model)
    assert model.predict(["a film"]).shape[0] == 1
