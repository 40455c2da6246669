"""Proves that a directory has one training, and remembers its flags.

python -m pytest tests/jobs/run_directory_test.py
"""

import dataclasses
import json
import subprocess
import sys

import pytest
import tensorflow as tf

from foundation import config_flags, errors
from jobs import finetuning, run_config, run_directory
from training import strategy as strategies

HOLDER = """
import sys, time
from jobs import run_directory
run_directory.lock(sys.argv[1])
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
            run_directory.lock(str(tmp_path))
        assert f"--output_dir={tmp_path}: " in str(caught.value)
        assert f"process {holder.pid} on " in str(caught.value)
    finally:
        holder.kill()
        holder.wait()
    run_directory.lock(str(tmp_path))
    run_directory.lock(str(tmp_path))  # A process may train there again.


def test_a_dry_run_neither_reserves_the_directory_nor_writes_flags(tmp_path):
    for do_train in (True, False):
        config = run_config.FinetuningConfig(
            output_dir=str(tmp_path / "out"), do_train=do_train, dry_run=True
        )
        run_directory.begin(config, is_chief=True)
    assert not list(tmp_path.iterdir())
    run_directory.begin(
        dataclasses.replace(config, dry_run=False), is_chief=True
    )
    assert (
        run_directory.flags(config.output_dir)["output_dir"]
        == config.output_dir
    )


def test_only_the_chief_keeps_tokenized_examples(monkeypatch):
    config = run_config.FinetuningConfig(output_dir="out")
    strategy = tf.distribute.get_strategy()
    assert finetuning.records_dir(config, strategy) == "out"
    monkeypatch.setattr(strategies, "is_chief", lambda strategy: False)
    assert finetuning.records_dir(config, strategy) is None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns(run_config.FinetuningConfig):
    """Flags of columns."""

    text_column: str | None = config_flags.field("Of text.", None)
    word_column: int | None = config_flags.field("Of words.", None)


def test_missing_flags_are_those_of_the_training(tmp_path, caplog):
    def remembered(**flags):
        config = Columns(output_dir=str(tmp_path / "new"), **flags)
        names = ("text_column", "word_column")
        config = run_directory.as_trained(config, names)
        return config.text_column, config.word_column

    caplog.set_level("INFO")
    trained = {"do_train": True, "text_column": "review", "word_column": 0}
    start = tmp_path / "model.safetensors"
    (tmp_path / "run_config.json").write_text(json.dumps(trained))
    assert remembered(init_checkpoint=str(start)) == ("review", 0)
    assert caplog.messages == [
        "as the model was trained: --text_column=review --word_column=0"
    ]
    flags = {"init_checkpoint": str(tmp_path), "text_column": "other"}
    assert remembered(**flags) == ("other", 0)
    assert remembered(**flags, do_train=True) == ("other", None)
    assert remembered() == (None, None)
