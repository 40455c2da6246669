"""Proves that the settings of question answering are read as written.

python -m pytest tests/weights/squad_settings_test.py
"""

import pytest

from foundation import errors
from weights import task_files
from weights.task_files import SquadSettings


@pytest.mark.parametrize(
    "settings",
    [
        task_files.SQUAD_1,
        SquadSettings(
            version_2_with_negative=True, null_score_diff_threshold=-1.5
        ),
    ],
)
def test_what_is_stored_is_read_again(tmp_path, settings):
    assert task_files.read_settings(str(tmp_path)) is None
    task_files.write_settings(str(tmp_path), settings)
    assert task_files.read_settings(str(tmp_path)) == settings


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
def test_other_files_of_that_name_are_refused(tmp_path, text):
    (tmp_path / task_files.SQUAD_SETTINGS).write_text(text)
    with pytest.raises(errors.InputError, match="question_answering.json: "):
        task_files.read_settings(str(tmp_path))
