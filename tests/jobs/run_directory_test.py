"""Proves who trains in a directory, and what its flags and results show.

python -m pytest tests/jobs/run_directory_test.py
"""

import subprocess
import sys

import full_disk
import pytest
import tensorflow as tf

from foundation import atomic, config_flags, errors
from jobs import finetuning, grid, outputs, run_config, run_directory
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


def test_a_lock_that_cannot_be_written_is_named(tmp_path):
    with full_disk.longest_file(0), pytest.raises(OSError) as caught:
        run_directory.lock(str(tmp_path))
    assert caught.value.filename == str(tmp_path / run_directory.LOCK)


def test_a_dry_run_neither_reserves_the_directory_nor_writes_flags(tmp_path):
    for do_train in (True, False):
        config = config_flags.build(
            run_config.FinetuningConfig,
            output_dir=str(tmp_path / "out"),
            do_train=do_train,
            dry_run=True,
        )
        run_directory.begin(config, is_chief=True)
    assert not list(tmp_path.iterdir())
    run_directory.begin(
        config_flags.replace_unchecked(config, dry_run=False), is_chief=True
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
    assert run_directory.set_name(paths) == name


def test_each_name_is_of_one_set(tmp_path):
    def predict(name, digest):
        run_directory.keep_other_sets(
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


def test_a_command_ends_with_the_files_to_open(tmp_path, caplog):
    caplog.set_level("INFO")
    folder = f"{tmp_path}/"
    names = "scores_test.txt", "model.safetensors", "x.bin", "scores_dev.txt"
    for name in names:
        atomic.write_text(f"{folder}{name}", "")
    atomic.write_text(f"{tmp_path}/other", "")
    run_directory.announce(folder)
    run_directory.announce(folder)  # Nothing new.
    run_directory.announce(str(tmp_path), {"o*": "unknown by now"})
    assert caplog.messages == [
        f"wrote into {folder}:\n"
        "  scores_dev.txt, scores_test.txt  metrics of each set\n"
        "  model.safetensors                the model; its other files are "
        "beside it"
    ]


def test_what_may_be_deleted_is_named_with_its_size(tmp_path, caplog):
    caplog.set_level("INFO")
    run_directory.announce_deletable(str(tmp_path))
    assert not caplog.messages
    for name, size in (("data", 3_000_000), ("index", 200_000)):
        (tmp_path / f"model.ckpt-3.{name}").write_bytes(bytes(size))
    run_directory.announce_deletable(str(tmp_path))
    (line,) = caplog.messages
    assert line.startswith(f"{tmp_path}/model.ckpt-* (3.2 MB) may be deleted")
    assert "--keep_optimizer=false" in line


def test_the_console_shows_results_in_words(tmp_path, caplog):
    caplog.set_level("INFO")
    values = {"accuracy": 0.75, "loss": 0.5, "score": 0.75}
    values = run_directory.eval_results(values, 7)
    run_directory.write_eval_results(str(tmp_path), values)
    assert caplog.messages == ["results: loss 0.5, accuracy 0.75"]
    lines = (tmp_path / "eval_results.txt").read_text().splitlines()
    # The loss has one name.
    names = [line.partition(" = ")[0] for line in lines]
    expected = ["eval_accuracy", "eval_loss", "eval_score", "global_step"]
    assert names == expected
    assert "eval_score = 0.75" in lines


@pytest.mark.parametrize(
    ("flags", "selected"),
    [
        ({}, "weights of the last step"),
        ({"eval_every_steps": 5}, "weights of the last step, the folder best/"),
        (
            {"eval_every_steps": 5, "early_stopping_patience": 2},
            "weights of the step that was best",
        ),
    ],
)
def test_the_report_says_what_the_score_has_selected(tmp_path, flags, selected):
    writer = outputs.Outputs(
        output_dir=str(tmp_path),
        flags={"do_train": True, **flags},
        given_flags={},
        results=grid.Results(str(tmp_path)),
    )

    def shown(**values):
        described = outputs.Description(
            scores=outputs.Scores("dev", None, {}, values),
            digest="",
            title="a task",
            panels=[],
            sections=[],
            facts={},
        )
        writer.write_report(described)
        return (tmp_path / "report.html").read_text()

    report = shown(eval_score=0.5, eval_f1=0.5, eval_loss=1.0)
    assert f"eval_score is eval_f1; the model has the {selected}" in report
    assert "eval_score is the mean of" in shown(eval_score=0.5, eval_f1=0.25)
    report = shown(eval_score=1.0, eval_accuracy=1.0, eval_f1=1.0)
    assert "eval_score is eval_accuracy = eval_f1;" in report
