"""Proves that several workers refuse to read standard input.

python -m pytest tests/jobs/finetuning_test.py
"""

import types

import pytest

import run_classifier
import run_ner
import run_squad
from foundation import config_flags, errors
from jobs import assembly, finetuning
from training import strategy

CLASSIFIER = run_classifier.ClassifierConfig
NER, SQUAD = run_ner.NerConfig, run_squad.SquadConfig


@pytest.mark.parametrize(
    ("kind", "flags", "refused"),
    [
        (CLASSIFIER, "--task_name=csv --do_predict --test_file=-", "test_file"),
        (CLASSIFIER, "--task_name=csv --do_train --test_file=-", None),
        (CLASSIFIER, "--task_name=csv --do_predict --test_file=a", None),
        (NER, "--do_predict --text_file=-", "text_file"),
        (NER, "--do_predict --text_file=a", None),
        (NER, "--interactive", "interactive"),
        (SQUAD, "--interactive", "interactive"),
        (SQUAD, "--question=Who? --context=I.", None),
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
        finetuning.open_strategy(config, start)
        assert begun == [1]
        return
    with pytest.raises(errors.InputError, match=rf"^--{refused}: standard inp"):
        finetuning.open_strategy(config, start)
    assert not begun
