"""Proves what a directory remembers, and what it refuses.

python -m pytest tests/finetuning/record_test.py
"""

import pathlib
import subprocess
import sys

import pytest

from finetuning import flags as flags_lib
from finetuning import record
from foundation import config_flags, errors

Flags = flags_lib.FinetuningFlags
READ = {"train": "a" * 64}


def flags(folder, **given):
    return config_flags.build(
        Flags, output_dir=str(folder), do_train=True, **given
    )


def ended(score, step=30):
    values = {"accuracy": score, record.SCORE: score}
    return {"step": step, "seconds": 2.0, "values": values, "failed": ""}


FAILED = ended(0.0) | {"values": {}, "failed": "step 12: the loss is nan"}


def begun(folder, *, made_from=READ, **given):
    found = record.RunRecord(str(folder))
    found.begin(flags(folder, **given), made_from)
    return found


def test_a_second_look_finds_the_same(tmp_path):
    journal = begun(tmp_path, learning_rate=1e-4)
    journal.finish("one", ended(0.5))
    journal.note_set("train", examples=7)
    journal.note_evaluation("dev", values={"accuracy": 0.5})
    journal.write(flags={**journal.flags, "threshold": 0.25})
    again = record.RunRecord(str(tmp_path))
    assert again.best == {"run": "one", "step": 30}
    assert again.flags["learning_rate"] == 1e-4
    assert again.flags["threshold"] == 0.25
    for part in ("made_from", "runs", "evaluations", "sets"):
        assert getattr(again, part) == getattr(journal, part) != {}


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([0.5], 0),
        ([0.5, 0.9, 0.7], 1),
        ([0.9, 0.9], 0),
        ([-0.5, float("nan")], 0),
        ([float("nan"), -0.5], 1),
        ([None, 0.1], 1),
        ([None], None),
    ],
)
def test_the_best_run_is_kept(tmp_path, scores, best):
    journal = begun(tmp_path)
    for i, score in enumerate(scores):
        result = FAILED if score is None else ended(score, step=i)
        is_best = journal.is_best(str(i), result)
        journal.finish(str(i), result)
        assert is_best == (journal.best.get("run") == str(i))
    expected = {} if best is None else {"run": str(best), "step": best}
    assert record.RunRecord(str(tmp_path)).best == expected


def test_a_better_model_has_not_been_evaluated(tmp_path):
    journal = begun(tmp_path)
    journal.finish("one", ended(0.5))
    journal.note_evaluation("dev", values={})
    journal.finish("two", ended(0.4))
    journal.finish("one", ended(0.5))  # As when a grid is made of a run.
    assert journal.evaluations
    journal.finish("three", ended(0.6))
    assert not journal.evaluations


def with_checkpoint(folder, **given):
    """Leaves what a training leaves that is killed after a checkpoint."""
    begun(folder, **given)
    (folder / "checkpoint").touch()


@pytest.mark.parametrize(
    ("first", "then", "words"),
    [
        ({}, {"made_from": {"train": "b" * 64}}, "train had other contents"),
        ({}, {"max_seq_length": 5}, "--max_seq_length was 128, is 5"),
        (
            {},
            {"max_seq_length": 5, "made_from": {"train": "b" * 64}},
            "^--max_seq_length was 128, is 5, train had other contents: ",
        ),
        ({}, {"learning_rate": 0.5}, None),
        ({}, {"save_checkpoints_steps": 7}, None),
    ],
)
def test_a_stopped_training_reads_what_it_has_read(
    tmp_path, caplog, first, then, words
):
    with_checkpoint(tmp_path, **first)
    if words is None:
        begun(tmp_path, **then)
        changed = "learning_rate" in then
        assert ("--learning_rate was 5e-05" in caplog.text) == changed
        return
    with pytest.raises(errors.InputError, match=words):
        begun(tmp_path, **then)
    begun(tmp_path, **first)


@pytest.mark.parametrize(
    ("first", "then", "is_refused"),
    [
        ({}, {"clip_norm": 2.0}, True),
        ({}, {"learning_rate": 0.5}, True),
        ({"learning_rate": "1e-4,1e-5"}, {"learning_rate": "1e-4,1e-3"}, False),
        ({"num_seeds": 2}, {"num_seeds": 5}, False),
        ({}, {"num_seeds": 2}, False),
        ({"num_seeds": 2}, {}, False),
        ({"num_seeds": 2}, {"num_seeds": 2, "clip_norm": 2.0}, True),
    ],
)
def test_results_are_not_told_under_other_flags(
    tmp_path, first, then, is_refused
):
    begun(tmp_path, **first).finish("one", ended(0.5))
    if not is_refused:
        begun(tmp_path, **then)
        return
    with pytest.raises(errors.InputError, match="another --output_dir$"):
        begun(tmp_path, **then)


def test_a_path_may_be_written_in_several_ways(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begun(tmp_path, init_checkpoint="bert").finish("one", ended(0.5))
    begun(tmp_path, init_checkpoint=f"{tmp_path}/bert/")
    with pytest.raises(errors.InputError, match="--init_checkpoint was"):
        begun(tmp_path, init_checkpoint="other")


def test_a_damaged_journal_is_named(tmp_path):
    (tmp_path / record.NAME).write_text('{"flags": 3')
    with pytest.raises(errors.InputError, match=f"{record.NAME}"):
        record.RunRecord(str(tmp_path))


def test_others_than_the_chief_write_nothing(tmp_path):
    journal = record.RunRecord(str(tmp_path), is_chief=False)
    journal.begin(flags(tmp_path), READ)
    journal.finish("one", ended(0.5))
    assert journal.best and not [*tmp_path.iterdir()]


HOLD = """
import sys
from finetuning import record
record.lock(sys.argv[1])
print(flush=True)
sys.stdin.read()
"""


def test_two_processes_do_not_train_in_one_directory(tmp_path, repository):
    owner = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        cwd=repository,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        owner.stdout.readline()
        with pytest.raises(errors.InputError, match=f"process {owner.pid} on"):
            begun(tmp_path)
    finally:
        owner.kill()
        owner.wait()
    begun(tmp_path)


def test_names_of_runs_are_exact_and_differ(tmp_path):
    given = flags(
        tmp_path,
        learning_rate=(3e-5, 5e-5, 0.1 + 0.2),
        train_batch_size=(16, 32),
        num_train_epochs=(1.0, 2.5),
        num_seeds=2,
        random_seed=7,
    )
    runs = record.plan(given)
    assert len({run.name for run in runs}) == len(runs) == 24
    assert runs[0].name == "lr3e-05_batch16_epochs1.0_seed7"
    assert "lr0.30000000000000004_batch32_epochs2.5_seed8" in {
        run.name for run in runs
    }
    folders = [pathlib.Path(run.directory) for run in runs]
    assert {x.parent for x in folders} == {tmp_path / record.RUNS}
    (single,) = record.plan(flags(tmp_path))
    assert single.directory == str(tmp_path)


def test_a_table_names_failures_and_does_not_count_them(tmp_path):
    runs = record.plan(flags(tmp_path, learning_rate=(1e-5, 2e-5), num_seeds=3))
    results = {run.name: ended(0.5) for run in runs}
    results[runs[0].name] = FAILED
    scores = iter((0.5, 0.6, 0.9))
    for run in runs:
        if run.learning_rate == 2e-5:
            results[run.name] = ended(next(scores))
    first, second = record.summary(results).values()
    assert first == {"best": 0.5, "mean": 0.5, "median": 0.5, "deviation": 0}
    assert second["best"] == 0.9 and second["median"] == 0.6
    assert second["deviation"] == pytest.approx(0.2081666)
    lines = record.table(results).splitlines()
    assert len(lines) == 6 + 2
    assert lines[0].endswith("step 12: the loss is nan")
