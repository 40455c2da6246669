"""Proves what is refused before training, trained again, and kept of it.

python -m pytest tests/jobs/finetuning_test.py
"""

import os
import types

import pytest

from foundation import config_flags, errors
from jobs import (
    assembly,
    finetuning,
    run_directory,
)
from tasks.classification.settings import ClassifierConfig
from tasks.ner.settings import NerConfig
from tasks.squad.settings import SquadConfig
from training import strategy


@pytest.mark.parametrize(
    ("kind", "flags", "refused"),
    [
        (
            ClassifierConfig,
            "--task_name=csv --do_predict --test_file=-",
            "test_file",
        ),
        (ClassifierConfig, "--task_name=csv --do_train --test_file=-", None),
        (ClassifierConfig, "--task_name=csv --do_predict --test_file=a", None),
        (NerConfig, "--do_predict --text_file=-", "text_file"),
        (NerConfig, "--do_predict --text_file=a", None),
        (NerConfig, "--interactive", "interactive"),
        (SquadConfig, "--interactive", "interactive"),
        (SquadConfig, "--question=Who? --context=I.", None),
    ],
)
def test_several_workers_refuse_standard_input_before_training(
    monkeypatch, tmp_path, kind, flags, refused
):
    argv = ["command", f"--output_dir={tmp_path}", *flags.split()]
    config = config_flags.parse(kind, argv)
    begun = []
    monkeypatch.setattr(assembly, "make_strategy", lambda *_: None)
    monkeypatch.setattr(assembly, "check_batch_sizes", lambda *_, **__: None)
    monkeypatch.setattr(strategy, "is_multi_worker", lambda _: True)
    monkeypatch.setattr(strategy, "is_chief", lambda _: True)
    monkeypatch.setattr(
        finetuning.run_directory, "begin", lambda *_, **__: begun.append(1)
    )
    start = types.SimpleNamespace(config=None)
    if refused is None:
        finetuning.open_run(config, start)
        assert begun == [1]
        return
    with pytest.raises(errors.InputError, match=rf"^--{refused}: standard inp"):
        finetuning.open_run(config, start)
    assert not begun


@pytest.mark.parametrize("is_chief", [True, False])
def test_the_best_model_has_the_flags_of_its_training(tmp_path, is_chief):
    flags = "--task_name=mrpc --do_train --max_seq_length=64"
    argv = ["command", f"--output_dir={tmp_path}", *flags.split()]
    saved = []
    start = types.SimpleNamespace(tokenizer="tokenizer")
    hooks = finetuning._RunHooks(
        job=types.SimpleNamespace(
            config=config_flags.parse(ClassifierConfig, argv),
            task=types.SimpleNamespace(save=lambda *given: saved.append(given)),
            source=types.SimpleNamespace(start=start),
            is_chief=is_chief,
        ),
        task_model=types.SimpleNamespace(model="model"),
        run=None,
    )
    best = str(tmp_path / "best")
    hooks.export(best)
    if not is_chief:
        assert not saved and not os.path.exists(best)
        return
    assert saved == [("model", best, "tokenizer")]
    found = run_directory.training_flags(best)
    assert (found["task_name"], found["max_seq_length"]) == ("mrpc", 64)


def test_too_few_examples_for_a_batch_are_refused_with_what_helps():
    with pytest.raises(errors.InputError) as error:
        finetuning.num_train_steps(17, 32, 1.0)
    assert "--train_batch_size=32: 17 examples" in str(error.value)
    assert "--num_train_epochs" in str(error.value)
