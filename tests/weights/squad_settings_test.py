"""Proves which stored settings a question answering model uses.

python -m pytest tests/weights/squad_settings_test.py
"""

import json
import pathlib
import types

import pytest

from foundation import errors
from jobs import run_config, source
from tasks.squad import task
from weights import model_directory, pretrained, task_files
from weights.task_files import SquadSettings

NEW = SquadSettings(
    version_2_with_negative=True, null_score_diff_threshold=-1.5
)
OLD = SquadSettings()


@pytest.fixture
def model(tmp_path, monkeypatch):
    """Makes folders; those whose name begins with "model" hold weights."""
    monkeypatch.setattr(
        model_directory,
        "has_model",
        lambda path: "model" in path.rpartition("/")[2],
    )

    def open_start(*, init_checkpoint, output_dir, **unused):
        weights = init_checkpoint
        if weights is None and model_directory.has_model(output_dir):
            weights = output_dir
        config = types.SimpleNamespace(max_position_embeddings=8)
        return types.SimpleNamespace(init_checkpoint=weights, config=config)

    monkeypatch.setattr(pretrained, "open_start", open_start)
    monkeypatch.setattr(
        run_config.FinetuningConfig, "max_seq_length", property(lambda _: 8)
    )

    def make(name, settings=None):
        (tmp_path / name).mkdir()
        if settings is not None:
            task_files.write_settings(str(tmp_path / name), settings)
        return str(tmp_path / name)

    return make


def find(output_dir, start):
    """Returns the settings that a command without training uses."""
    config = run_config.FinetuningConfig(
        output_dir=output_dir, init_checkpoint=start
    )
    return task.stored_settings(source.resolve(config), output_dir)


def test_what_is_stored_is_read_again(model):
    assert task_files.read_settings(model("new", NEW)) == NEW
    assert task_files.read_settings(model("old", OLD)) == OLD
    assert task_files.read_settings(model("without")) is None


def test_a_model_of_1_1_in_output_dir_comes_before_one_of_2_0(model):
    output_dir, start = model("model", OLD), model("start", NEW)
    assert find(output_dir, start) == OLD
    assert find(model("empty"), start) == NEW
    assert find(model("nothing"), None) is None
    # Settings without weights belong to predictions, not to a model.
    assert find(model("answers", OLD), start) == NEW


def test_settings_of_predictions_belong_to_the_predicting_model(model):
    start = model("start")
    folder = model("answers", NEW)
    flags = pathlib.Path(folder) / "run_config.json"
    flags.write_text(json.dumps({"init_checkpoint": f"{start}/"}))
    assert find(folder, start) == NEW
    assert find(folder, f"{start}/model.ckpt-3") == NEW
    for other in (model("other"), model("start2"), None):
        assert find(folder, other) is None
    flags.unlink()
    assert find(folder, start) is None


def test_settings_are_read_beside_the_checkpoint_only(model, tmp_path):
    start = model("start", NEW)
    empty = model("empty")
    assert find(empty, f"{start}/model.ckpt-12") == NEW
    # A folder in a model directory, there already or not, is not that model.
    (tmp_path / "start" / "inner").mkdir()
    for name in ("inner", "new"):
        assert find(f"{start}/{name}", None) is None
    assert find(empty, f"{start}/inner") is None


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"other": 1}',
        '{"version_2_with_negative": 1}',
        '{"null_score_diff_threshold": "0"}',
        '{"null_score_diff_threshold": NaN}',
    ],
    ids=["list", "name", "version", "threshold", "nan"],
)
def test_other_files_of_that_name_are_refused(model, tmp_path, text):
    directory = model("model", NEW)
    (tmp_path / "model" / task_files.SQUAD_SETTINGS).write_text(text)
    with pytest.raises(errors.InputError, match="question_answering.json: "):
        find(directory, None)
