"""Proves which stored settings a question answering model uses.

python -m pytest tests/weights/squad_settings_test.py
"""

import json
import pathlib

import pytest

from foundation import errors
from tasks.squad import squad_job
from weights import model_directory, task_files
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

    def make(name, settings=None):
        (tmp_path / name).mkdir()
        if settings is not None:
            task_files.write_settings(str(tmp_path / name), settings)
        return str(tmp_path / name)

    return make


def test_what_is_stored_is_read_again(model):
    assert task_files.read_settings(model("new", NEW)) == NEW
    assert task_files.read_settings(model("old", OLD)) == OLD
    assert task_files.read_settings(model("without")) is None


def test_a_model_of_1_1_in_output_dir_comes_before_one_of_2_0(model):
    output_dir, start = model("model", OLD), model("start", NEW)
    assert squad_job.find_settings(output_dir, start) == OLD
    assert squad_job.find_settings(model("empty"), start) == NEW
    assert squad_job.find_settings(model("nothing"), None) is None
    # Settings without weights belong to predictions, not to a model.
    assert squad_job.find_settings(model("answers", OLD), start) == NEW


def test_settings_of_predictions_belong_to_the_predicting_model(model):
    start = model("start")
    folder = model("answers", NEW)
    flags = pathlib.Path(folder) / "run_config.json"
    flags.write_text(json.dumps({"init_checkpoint": f"{start}/"}))
    assert squad_job.find_settings(folder, start) == NEW
    assert squad_job.find_settings(folder, f"{start}/model.ckpt-3") == NEW
    for other in (model("other"), model("start2"), None):
        assert squad_job.find_settings(folder, other) is None
    flags.unlink()
    assert squad_job.find_settings(folder, start) is None


def test_settings_are_read_beside_the_checkpoint_only(model, tmp_path):
    start = model("start", NEW)
    empty = model("empty")
    assert squad_job.find_settings(empty, f"{start}/model.ckpt-12") == NEW
    # A folder in a model directory, there already or not, is not that model.
    (tmp_path / "start" / "inner").mkdir()
    for name in ("inner", "new"):
        assert squad_job.find_settings(f"{start}/{name}", None) is None
    assert squad_job.find_settings(empty, f"{start}/inner") is None


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
        squad_job.find_settings(directory, None)
