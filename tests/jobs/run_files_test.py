"""Proves that output files of other sets are kept under their names.

python -m pytest tests/jobs/run_files_test.py
"""

import dataclasses
import subprocess
import sys

import pytest
import tensorflow as tf

from foundation import errors
from jobs import assembly, finetuning, run_config, run_files


@pytest.mark.parametrize(
    ("paths", "name"),
    [
        (["/data/dev-v1.1.json"], "dev-v1.1"),
        (["gs://x/eng.testb.gz"], "eng.testb"),
        (["a.json", "b.json.bz2"], "a+b"),
        (["/data/test/"], "test"),
    ],
)
def test_a_set_has_the_name_of_its_files(paths, name):
    assert run_files.set_name(paths) == name


def test_each_name_is_of_one_set(tmp_path):
    def predict(name, digest):
        run_files.keep_other_sets(
            str(tmp_path), ["p.json"], name=name, digest=digest
        )
        (tmp_path / "p.json").write_text(digest)

    for name, digest in (
        ("dev", "1"),
        ("dev", "1"),
        ("test", "22222222x"),
        ("test", "333333333"),
        ("dev", "1"),
        ("test", "22222222x"),
    ):
        predict(name, digest)
        assert (tmp_path / "p.json").read_text() == digest
    found = {path.name: path.read_text() for path in tmp_path.glob("p*_*.json")}
    del found["predicted_sets.json"]
    assert found == {
        "p_dev.json": "1",
        "p_test.json": "22222222x",
        "p_test-33333333.json": "333333333",
    }


HOLDER = """
import sys, time
from jobs import run_files
run_files.lock(sys.argv[1])
print("locked", flush=True)
time.sleep(100)
"""


def test_a_directory_is_trained_in_by_one_process_until_it_dies(
    tmp_path, repository
):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        cwd=repository,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(errors.InputError) as caught:
            run_files.lock(str(tmp_path))
        assert f"--output_dir={tmp_path}: " in str(caught.value)
        assert f"process {holder.pid} on " in str(caught.value)
    finally:
        holder.kill()
        holder.wait()
    run_files.lock(str(tmp_path))
    run_files.lock(str(tmp_path))  # A process may train there again.


def test_a_dry_run_neither_reserves_the_directory_nor_writes_flags(tmp_path):
    for do_train in (True, False):
        config = run_config.FinetuningConfig(
            output_dir=str(tmp_path / "out"), do_train=do_train, dry_run=True
        )
        run_files.begin(config, is_chief=True)
    assert not list(tmp_path.iterdir())
    run_files.begin(dataclasses.replace(config, dry_run=False), is_chief=True)
    assert run_files.flags(config.output_dir)["output_dir"] == config.output_dir


def test_only_the_chief_keeps_tokenized_examples(monkeypatch):
    config = run_config.FinetuningConfig(output_dir="out")
    strategy = tf.distribute.get_strategy()
    assert finetuning.records_dir(config, strategy) == "out"
    monkeypatch.setattr(assembly, "is_chief", lambda strategy: False)
    assert finetuning.records_dir(config, strategy) is None
