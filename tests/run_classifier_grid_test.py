"""Proves what run_classifier.py does with several runs, and keeps of them.

python -m pytest tests/run_classifier_grid_test.py
"""

import gc
import json
import shutil
import weakref

import classifier_runs
import numpy as np
import pytest
import safetensors.numpy
import tiny_runs

import convert_checkpoint
from jobs import task_model


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    classifier_runs.make_data(root)
    return root


# The best one is not the last: the model to evaluate is loaded at the end.
GRID = {"learning_rate": "5e-3,1e-5,1e-6", "num_train_epochs": 3}


def run_grid(root, **flags):
    return classifier_runs.run_csv(
        root, "grid", "--do_train", "--do_eval", **(GRID | flags)
    )


@pytest.fixture(scope="module")
def grid(root):
    """A grid's folder, and how many models were alive at every build."""
    build, alive, made = task_model.Builder.build, [], []

    def build_and_count(builder, seed):
        alive.append(sum(held() is not None for held in made))
        built = build(builder, seed)
        made.append(weakref.ref(built.model))
        value = built.model.weights[0].value
        # What a graph that was left behind would hold is the handle.
        made.extend([weakref.ref(value), weakref.ref(value.handle)])
        return built

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_model.Builder, "build", build_and_count)
        gc.disable()  # What Python frees by itself it frees at any time.
        try:
            folder = run_grid(root)
        finally:
            gc.enable()
    return folder, alive


def test_one_model_at_a_time_is_in_memory(grid):
    _, alive = grid
    assert len(alive) == 4  # Three runs, and the best of them once more.
    assert not any(alive)


def test_a_grid_reports_every_run_and_continues(
    root, grid, capsys, monkeypatch
):
    folder, _ = grid
    record = json.loads((folder / "grid_results.json").read_text())
    assert len(record["runs"]) == 3
    assert "0.005" in record["best"]
    scores = [r["accuracy"] for r in record["runs"]]
    found = record["summary"]["accuracy"]
    assert found["mean"] == pytest.approx(np.mean(scores))
    assert found["median"] == pytest.approx(np.median(scores))
    assert found["std"] == pytest.approx(np.std(scores, ddof=1))
    assert found["best"] == max(scores)
    assert tiny_runs.eval_results(folder)["eval_accuracy"] == pytest.approx(
        max(scores)
    )
    # As if it had been interrupted before the last run.
    last = folder / "runs" / "lr1e-06_seed12345" / "result.json"
    kept = {p: p.read_bytes() for p in folder.glob("runs/*/result.json")}
    last.unlink()
    run_grid(root)
    assert "median" in capsys.readouterr().out
    again = json.loads((folder / "grid_results.json").read_text())
    assert again["runs"] == record["runs"]
    for path, text in kept.items():
        assert (path.read_bytes() == text) or path == last


def test_runs_of_other_settings_are_not_taken_for_those_of_a_grid(
    root, grid, capsys
):
    other = root / "other_dev.csv"
    other.write_text((root / "dev.csv").read_text().replace("no", "yes"))
    for flags, message in (
        ({"num_train_epochs": 2}, "--num_train_epochs was 3.0, is 2.0"),
        ({"dev_file": other}, "--dev_file had other contents"),
    ):
        with pytest.raises(SystemExit) as caught:
            run_grid(root, **flags)
        assert caught.value.code == 2
        assert message in capsys.readouterr().err.splitlines()[-1]


def test_runs_of_other_initial_weights_are_refused(root, grid, capsys):
    """The path is the same, its model was trained further."""
    folder, _ = grid
    started = shutil.copytree(folder, root / "started")
    for path in (started / "runs").glob("*/result.json"):
        path.unlink()
    path = root / "encoder" / "model.safetensors"
    before = path.read_bytes()
    tensors = safetensors.numpy.load(before)
    tensors["bert.embeddings.LayerNorm.bias"][0] += 1e-3
    try:
        safetensors.numpy.save_file(tensors, path)
        for name in ("grid", "started"):
            with pytest.raises(SystemExit):
                classifier_runs.run_csv(
                    root, name, "--do_train", "--do_eval", **GRID
                )
            error = capsys.readouterr().err.splitlines()[-1]
            assert "--init_checkpoint had other contents: " in error
    finally:
        path.write_bytes(before)
    # Runs of an earlier version have no digest.
    for path in (folder / "runs").glob("*/result.json"):
        values = json.loads(path.read_text())
        del values["settings"]["init_checkpoint contents"]
        path.write_text(json.dumps(values))
    run_grid(root)


def test_an_unfinished_run_goes_on_as_it_was_begun_or_not_at_all(
    root, grid, capsys
):
    folder, _ = grid
    shutil.copytree(folder, root / "cut_short")
    for path in (root / "cut_short" / "runs").glob("*/result.json"):
        path.unlink()
    flags = GRID | {"num_train_epochs": 2}
    with pytest.raises(SystemExit) as caught:
        classifier_runs.run_csv(root, "cut_short", "--do_train", **flags)
    assert caught.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "--num_train_epochs was 3.0, is 2.0: " in error
    assert "was begun so; take another --output_dir" in error


def test_a_smaller_grid_ends_with_the_model_that_it_reports(root, grid):
    folder, _ = grid
    before = json.loads((folder / "kept.json").read_text())
    assert before["learning_rate"] == 5e-3
    run_grid(root, learning_rate="1e-5,1e-6")
    kept = json.loads((folder / "kept.json").read_text())
    assert kept["learning_rate"] < 5e-3
    record = json.loads((folder / "grid_results.json").read_text())
    assert f"rate {kept['learning_rate']:g}, " in record["best"]
    loss = tiny_runs.eval_results(folder)["eval_loss"]
    assert loss == pytest.approx(record["summary"]["loss"]["best"])
    # And the model of the directory is that one.
    other = classifier_runs.run_csv(
        root, "grid", "--do_eval", init_checkpoint=None
    )
    assert tiny_runs.eval_results(other)["eval_loss"] == pytest.approx(loss)
    assert tiny_runs.eval_results(other)["global_step"] == kept["step"]
    (folder / "model.safetensors").unlink()
    run_grid(root, learning_rate="1e-5,1e-6")
    assert (folder / "model.safetensors").exists()
    again = tiny_runs.eval_results(folder)["eval_loss"]
    assert again == pytest.approx(loss)
    page = (folder / "report.html").read_text()
    assert "All runs" in page and "<svg" in page


def test_a_grid_of_random_weights_never_starts_from_its_best_run(root):
    flags = {
        "init_checkpoint": None,
        "bert_config_file": root / "encoder" / "bert_config.json",
        "vocab_file": root / "encoder" / "vocab.txt",
        "learning_rate": "5e-3,1e-5",
        "num_train_epochs": 1,
    }
    folder = classifier_runs.run_csv(root, "random", "--do_train", **flags)
    record = (folder / "grid_results.json").read_text()
    assert (folder / "model.safetensors").exists()
    # As if it had been interrupted after the first run had been kept.
    shutil.rmtree(folder / "runs" / "lr1e-05_seed12345")
    classifier_runs.run_csv(root, "random", "--do_train", **flags)
    again = (folder / "grid_results.json").read_text()
    assert json.loads(again)["runs"] == json.loads(record)["runs"]


def test_training_ends_early_and_keeps_the_best(root, capsys):
    flags = {
        "eval_every_steps": 3,
        "early_stopping_patience": 2,
        "num_train_epochs": 40,
        "layer_decay": 0.9,
        "reinit_layers": 1,
        "learning_rate": 5e-3,
    }
    switches = ("--do_train", "--do_eval", "--bias_correction")
    folder = classifier_runs.run_csv(root, "early", *switches, **flags)
    lines = [
        json.loads(line)
        for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]
    scores = {x["step"]: x["eval/score"] for x in lines if "eval/score" in x}
    best = max(scores, key=lambda step: (scores[step], -step))
    values = tiny_runs.eval_results(folder)
    assert max(scores) == best + 6
    assert max(scores) < 203 * 40 // 32
    assert values["global_step"] == best
    assert values["eval_accuracy"] == pytest.approx(
        next(
            x["eval/accuracy"]
            for x in lines
            if x["step"] == best and "eval/accuracy" in x
        )
    )
    # Evaluated again without the flags, the directory still has the best.
    classifier_runs.run_csv(root, "early", "--do_eval")
    again = tiny_runs.eval_results(folder)
    assert again["global_step"] == best
    assert again["eval_loss"] == pytest.approx(values["eval_loss"])
    _check_best_directory(root, folder, values)
    # The best of one set, had it been killed, is not gone on with on another.
    (folder / "result.json").unlink()
    other = root / "half_dev.csv"
    lines = (root / "dev.csv").read_text().splitlines(keepends=True)
    other.write_text("".join(lines[: len(lines) // 2]))
    with pytest.raises(SystemExit):
        classifier_runs.run_csv(
            root, "early", *switches, **flags, dev_file=other
        )
    assert "--dev_file had other" in capsys.readouterr().err.splitlines()[-1]


def _check_best_directory(root, folder, values):
    """Checks that commands can start from the files of best/ alone."""
    best = folder / "best"
    names = ("config.json", "vocab.txt", "tokenizer_config.json")
    others = ("bert_config.json", "model.safetensors", "run_config.json")
    for name in names + others:
        assert (best / name).read_bytes() == (folder / name).read_bytes()
    (index,) = best.glob("model.ckpt-*.index")
    code = convert_checkpoint.main(
        convert_checkpoint.ConversionConfig(
            input=str(best), check=str(index).removesuffix(".index")
        )
    )
    assert code == 0
    copy = root / "copy_of_best"
    copy.mkdir()
    for name in (*names, "model.safetensors"):
        shutil.copy(best / name, copy / name)
    other = classifier_runs.run_csv(
        root, "from_best", "--do_eval", init_checkpoint=copy
    )
    found = tiny_runs.eval_results(other)
    assert found["eval_loss"] == pytest.approx(values["eval_loss"])
