"""Proves that a table's commands run, continue after kills, and are compared.

python -m pytest tests/paper/paper_test.py
"""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from foundation import errors
from paper import compare, tables
from tests import tiny_runs
from tests.paper import toy_data


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Flags that name toy data for all tables."""
    return toy_data.Maker(tmp_path_factory.mktemp("data")).make()


def start(repository, output_dir, **flags):
    """Starts python -m paper in a process group of its own."""
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    command = [sys.executable, "-m", "paper", "--scale=tiny", *arguments]
    return subprocess.Popen(
        [*command, f"--output_dir={output_dir}"],
        cwd=repository,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(repository, output_dir, **flags):
    process = start(repository, output_dir, **flags)
    output, _ = process.communicate()
    return process.returncode, output


def command(name, folder, program="run_classifier.py"):
    return tables.Command(name, program, {"output_dir": str(folder / name)})


def test_cells_show_the_paper_ours_and_what_was_not_run(tmp_path):
    commands = [command(f"seed{seed}", tmp_path) for seed in (1, 2, 3)]
    for i, x in enumerate(commands, 1):
        (tmp_path / x.name).mkdir()
        text = f"eval_accuracy = 0.8{i}\neval_loss = 1.5\n"
        (tmp_path / x.name / "eval_results.txt").write_text(text)
    squad = command("seed1", tmp_path, "run_squad.py")
    rows = [
        tables.Row(
            "one",
            [80.5, None],
            {"MNLI-m": (commands, "accuracy"), "loss": ([squad], "eval_loss")},
        ),
        tables.Row("two", [84.0], {"MNLI-m": (commands[2:], "accuracy")}),
    ]
    table = tables.Table("title", "note", lambda lab: iter(rows))
    text = compare.markdown("5", table, rows, {"seed1", "seed2"})
    assert text.splitlines()[-6:] == [
        "| --- | --- | --- | --- |",
        "| one | paper | 80.5 |  |",
        "|  | ours | 81.5 +- 0.7 (2) | 1.5 |",
        "|  | difference | +1.0 |  |",
        "| two | paper | 84.0 |  |",
        "|  | ours | not run |  |",
    ]
    (tmp_path / "seed1/scores_test.txt").write_text(
        "accuracy: 98.00%; precision: 91.00%; recall: 90.00%; FB1:  90.50\n"
        " LOC: precision: 1.00%; recall: 1.00%; FB1:  1.00  3\n"
    )
    assert compare.value(commands[0], "test_f1") == 90.5
    with pytest.raises(errors.InputError, match="seed1/eval_.*has no f1"):
        compare.value(commands[0], "f1")


@pytest.mark.all
def test_a_table_runs_once_and_refuses_other_flags(repository, tmp_path, data):
    words = [*tiny_runs.SPECIAL, *"river stone paper garden winter .".split()]
    encoder = tiny_runs.save_encoder(
        tmp_path / "encoder", words, max_position_embeddings=64
    )
    flags = dict(table="4", swag_dir=data["swag_dir"])
    flags |= dict(base_checkpoint=encoder, large_checkpoint=encoder)
    code, output = run(repository, tmp_path / "out", **flags)
    assert code == 0, output
    # Both start from the same weights with the same seed.
    ours = re.findall(r"^\|  \| ours \| (\d+\.\d) \|", output, re.M)
    assert len(ours) == 2 and ours[0] == ours[1]
    assert "| BERT-Large | paper | 86.6 |" in output
    assert (tmp_path / "out/results.md").read_text() in output
    (path, _) = (tmp_path / "out").rglob("eval_results.txt")
    before = path.stat().st_mtime_ns
    code, again = run(repository, tmp_path / "out", **flags)
    assert code == 0 and path.stat().st_mtime_ns == before
    assert again in output
    code, output = run(
        repository, tmp_path / "out", **flags, precision="float32"
    )
    assert code == 2 and "other flags" in output.splitlines()[-1]


@pytest.mark.parametrize(
    "flags, named",
    [
        (dict(table="9"), "--table=9"),
        (
            dict(table="4", base_checkpoint="x", large_checkpoint="x"),
            "swag_dir",
        ),
    ],
)
def test_what_the_user_can_correct_is_one_line(
    repository, tmp_path, flags, named
):
    code, output = run(repository, tmp_path, **flags)
    assert code == 2
    (line,) = output.splitlines()
    assert named in line


def test_a_dry_run_prints_commands_without_data(repository, tmp_path):
    code, output = run(repository, tmp_path / "out", dry_run=True)
    assert code == 0
    assert (
        "python -m tasks.squad.triviaqa '--input_file=<triviaqa_dir>" in output
    )
    lines = output.splitlines()
    assert len(lines) > 100
    assert all(line.startswith("python ") for line in lines)
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"configs"}


@pytest.mark.all
def test_sigterm_lets_the_command_save_and_kills_change_nothing(
    repository, tmp_path, data
):
    # Without data of GLUE's tasks, there are the pre-trainings only.
    flags = dict(data, table="6", glue_dir=tmp_path / "no_glue")
    (tmp_path / "no_glue").mkdir()
    code, whole = run(repository, tmp_path / "whole", **flags)
    assert code == 0, whole
    out = tmp_path / "killed"
    for number, log in (
        (signal.SIGTERM, "vocabulary/vocab.txt"),
        (signal.SIGKILL, "finished/records/heldout_corpus/80-10-10/64.txt"),
    ):
        process = start(repository, out, **flags)
        while not (out / log).exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        if number == signal.SIGTERM:
            process.terminate()
        else:
            os.killpg(process.pid, number)
        process.communicate()
        assert process.returncode not in (0, 2)
    code, output = run(repository, out, **flags)
    assert code == 0, output
    tables_of = [
        (x / "results.md").read_text() for x in (out, tmp_path / "whole")
    ]
    assert tables_of[0] == tables_of[1]
    assert "not run" in tables_of[0] and "| 4/16/2 | ours |" in tables_of[0]


@pytest.mark.all
def test_every_table_runs(repository, tmp_path, data):
    code, output = run(repository, tmp_path / "out", **data)
    assert code == 0, output[-3000:]
    assert "not run" not in (tmp_path / "out/results.md").read_text()
