"""Proves which threshold applies to the answers of a command.

python -m pytest tests/tasks/squad/squad_task_test.py
"""

import dataclasses
import types

import pytest

from foundation import config_flags, errors
from tasks.squad import settings, task
from weights import task_files


def test_a_given_threshold_is_not_the_models(caplog):
    config = settings.SquadConfig(
        output_dir="out",
        question="Who?",
        context="Anna.",
        null_score_diff_threshold=5.0,
    )
    stored = task_files.SquadSettings(
        version_2_with_negative=True, null_score_diff_threshold=-1.5
    )
    with caplog.at_level("INFO", logger="absl"):
        sets = task.open_sets(config, stored)
        assert (sets.threshold, sets.stored_threshold) == (5.0, -1.5)
        assert not caplog.messages
        config = dataclasses.replace(config, null_score_diff_threshold=None)
        sets = task.open_sets(config, stored)
        assert (sets.threshold, sets.stored_threshold) == (-1.5, -1.5)
    assert caplog.messages == ["threshold: -1.5, stored with the model"]


def test_a_given_length_must_fit_the_questions_of_the_training():
    config = settings.SquadConfig(
        output_dir="out", question="Who?", context="Anna."
    )
    config = config_flags.replace_unchecked(
        config, max_seq_length=128, max_query_length=200
    )
    with pytest.raises(errors.InputError, match="--max_query_length=200"):
        task.SquadTask(config, types.SimpleNamespace(start=None))
