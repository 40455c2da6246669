"""Proves that the tables of the paper run, continue after kills, and divide.

python -m pytest tests/reproduce_test.py
"""

import json
import os
import signal
import subprocess
import sys
import time
import zipfile

import pytest

import reproduce
from tests import tiny_runs
from tests.paper import toy_data
from training import preemption


def start(repository, output_dir, **flags):
    """Starts the command in a process group of its own."""
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    return subprocess.Popen(
        [
            sys.executable,
            str(repository / "reproduce.py"),
            "--scale=tiny",
            f"--output_dir={output_dir}",
            *arguments,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(repository, output_dir, **flags):
    process = start(repository, output_dir, **flags)
    output, _ = process.communicate()
    return process.returncode, output


def numbers(output_dir):
    """Returns the scores of all tables, without times."""
    tables = json.loads((output_dir / "results.json").read_text())
    return {
        name: [(row["label"], row["ours"]) for row in table["rows"]]
        for name, table in tables.items()
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Flags that name toy data for all tables."""
    return toy_data.Maker(tmp_path_factory.mktemp("data")).make()


@pytest.mark.slow
def test_a_table_runs_from_checkpoints_to_results(repository, tmp_path, data):
    words = [*tiny_runs.SPECIAL, *"river stone paper garden winter .".split()]
    encoder = tiny_runs.save_encoder(
        tmp_path / "encoder", words, max_position_embeddings=64
    )
    flags = dict(
        table="4",
        swag_dir=data["swag_dir"],
        base_checkpoint=encoder,
        large_checkpoint=encoder,
    )
    code, output = run(repository, tmp_path / "out", **flags)
    assert code == 0, output
    ((_, base), (_, large)) = numbers(tmp_path / "out")["4"]
    # Both start from the same weights with the same seed.
    assert base == large
    assert 0 <= base["accuracy"]["values"][0][0] <= 100
    record = next((tmp_path / "out/commands/finetuned/base").glob("*.json"))
    before = record.stat().st_mtime_ns
    code, output = run(repository, tmp_path / "out", **flags)
    assert code == 0 and record.stat().st_mtime_ns == before
    assert "BERT-Large | paper | 86.6" in output


@pytest.mark.parametrize(
    "flags, message",
    [
        (dict(table="9"), "--table=9: must be one of 1, 2"),
        (dict(part="3/2"), "--part=3/2: must be k/n"),
        (dict(pretraining_seeds=0), "--pretraining_seeds=0: "),
        (
            dict(table="1", glue_dir="none"),
            "--glue_dir=none: no such directory",
        ),
        (
            dict(table="4", base_checkpoint="x", large_checkpoint="x"),
            "--table=4 needs --swag_dir",
        ),
    ],
)
def test_what_the_user_can_correct_is_one_line(
    tmp_path, capsys, flags, message
):
    flags = {"scale": "tiny", "output_dir": tmp_path} | flags
    with pytest.raises(SystemExit) as ended:
        tiny_runs.run(reproduce, reproduce.ReproduceConfig, **flags)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_the_plan_needs_no_data(repository, tmp_path):
    code, output = run(
        repository, tmp_path / "out", dry_run=True, pretraining_seeds=2
    )
    assert code == 0
    assert "80-10-10_seed2 " in output
    assert "# Table 8" in output
    assert "--glue_submission" in output
    assert not (tmp_path / "out").exists()


@pytest.mark.all
def test_every_table_runs_in_two_parts(repository, tmp_path, data):
    out = tmp_path / "out"
    parts = [start(repository, out, part=f"{k}/2", **data) for k in (1, 2)]
    outputs = [process.communicate()[0] for process in parts]
    assert [process.returncode for process in parts] == [0, 0], outputs
    code, output = run(repository, out, **data)
    assert code == 0 and "not run" not in output
    assert len(numbers(out)) == 9
    for name in ("base", "large"):
        path = out / f"glue_submission_{name}" / "submission.zip"
        assert len(zipfile.ZipFile(path).namelist()) == 11


def test_sigterm_ends_it_with_the_code_for_again(repository, tmp_path, data):
    flags = dict(table="5", **data)
    process = start(repository, tmp_path / "out", **flags)
    log = tmp_path / "out/commands/vocabulary.log"
    while not log.exists():
        assert process.poll() is None
        time.sleep(0.1)
    process.terminate()
    output, _ = process.communicate()
    assert process.returncode == preemption.EXIT_CODE, output
    assert "the same command continues" in output


@pytest.mark.all
def test_a_table_that_was_killed_ends_with_the_same_numbers(
    repository, tmp_path, data
):
    flags = dict(table="6", **data)
    code, output = run(repository, tmp_path / "undisturbed", **flags)
    assert code == 0, output
    for seconds in (20, 30):
        process = start(repository, tmp_path / "killed", **flags)
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    code, output = run(repository, tmp_path / "killed", **flags)
    assert code == 0, output
    assert numbers(tmp_path / "killed") == numbers(tmp_path / "undisturbed")
