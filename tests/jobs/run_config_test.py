"""Proves what the flags of the commands affect, and what follows from it.

python -m pytest tests/jobs/run_config_test.py
"""

import importlib
import re

import pytest

import run_classifier
from foundation import config_flags

# Of every command that trains.
RESULT = {
    "adam_beta_1",
    "adam_beta_2",
    "adam_epsilon",
    "bias_correction",
    "clip_norm",
    "freeze_layers",
    "lr_decay",
    "weight_decay_rate",
    "gradient_accumulation_steps",
    "init_checkpoint",
    "learning_rate",
    "optimizer",
    "precision",
}
EXECUTION = {
    "deterministic",
    "gcp_project",
    "keep_checkpoint_max",
    "master",
    "num_replicas",
    "num_tpu_cores",
    "recompute",
    "save_checkpoints_steps",
    "strategy",
    "tpu_name",
    "tpu_zone",
    "use_tpu",
    "use_xla",
}
# Of every command that trains a task.
FINETUNING = {
    "records": {
        "do_lower_case",
        "group_by_length",
        "max_seq_length",
        "random_seed",
        "train_batch_size",
        "train_file",
        "vocab_file",
    },
    "result": RESULT
    | {
        "bilstm_size",
        "distillation_temperature",
        "distillation_weight",
        "early_stopping_patience",
        "eval_every_steps",
        "init_layers",
        "layer_decay",
        "num_train_epochs",
        "reinit_layers",
        "teacher_dir",
        "warmup_proportion",
    },
    "execution": EXECUTION | {"eval_every_epoch"},
}


@pytest.mark.parametrize(
    ("command", "name", "expected"),
    [
        (
            "run_classifier",
            "ClassifierConfig",
            {
                "records": {
                    "task_name",
                    "problem_type",
                    "label_names",
                    "dev_fraction",
                    "long_texts",
                    "doc_stride",
                    "max_windows",
                },
                "evaluation": {"dev_file"},
                "result": {"class_weights", "window_pooling"},
            },
        ),
        (
            "run_ner",
            "NerConfig",
            {
                "records": {"document_context", "doc_stride"},
                "evaluation": {"dev_file"},
                "result": {
                    "crf",
                    "entity_types",
                    "lstm_dropout",
                    "lstm_learning_rate",
                    "lstm_size",
                    "model_scheme",
                },
            },
        ),
        (
            "run_embeddings",
            "EmbeddingsConfig",
            {
                "records": {"max_score"},
                "evaluation": {"dev_file"},
                "result": {
                    "gradient_cache_size",
                    "normalize",
                    "pooling",
                    "scale",
                },
            },
        ),
        (
            "run_squad",
            "SquadConfig",
            {
                "records": {"doc_stride", "max_query_length"},
                "evaluation": {
                    "exact_answers",
                    "max_answer_length",
                    "n_best_size",
                    "null_score_diff_threshold",
                    "predict_file",
                    "version_2_with_negative",
                },
            },
        ),
    ],
)
def test_every_flag_of_a_task_says_what_it_affects(command, name, expected):
    config_class = getattr(importlib.import_module(command), name)
    found = {}
    for flag in config_flags.flags_of(config_class).values():
        found.setdefault(flag.affects, set()).add(flag.name)
    del found["nothing"]
    for effect, names in found.items():
        common = FINETUNING.get(effect, set())
        assert names == common | expected.get(effect, set()), effect


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("run_classifier", "ClassifierConfig"),
        ("run_embeddings", "EmbeddingsConfig"),
        ("run_ner", "NerConfig"),
        ("run_squad", "SquadConfig"),
    ],
)
def test_help_begins_with_ten_flags_of_a_beginner(command, name):
    config_class = getattr(importlib.import_module(command), name)
    first = config_class.FIRST_FLAGS
    assert len({*first}) == 10
    assert config_flags.flags_of(config_class).keys() >= {*first}
    assert {"num_train_epochs", "train_batch_size"} < {*first}


CONFIG = config_flags.build(
    run_classifier.ClassifierConfig,
    task_name="csv",
    do_train=True,
    output_dir="out",
    init_checkpoint="model",
)


def test_paths_are_compared_independently_of_the_working_directory(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    values = config_flags.affecting(CONFIG, "result").to_json()
    assert values["init_checkpoint"] == str(tmp_path / "model")
    assert "random_seed" not in values


def finetuning(**flags):
    given = {"task_name": "csv", "do_train": True, "output_dir": "out"} | flags
    return config_flags.build(run_classifier.ClassifierConfig, **given)


def test_several_batch_sizes_or_epochs_make_a_grid():
    one = finetuning(train_batch_size="16", num_train_epochs="2")
    assert one.grid.train_batch_size == (16,)
    assert one.grid.num_train_epochs == (2.0,)
    assert not one.is_grid
    assert config_flags.given(finetuning(train_batch_size=32)).keys() == {
        "task_name",
        "do_train",
        "output_dir",
    }
    several = finetuning(train_batch_size="16,32", num_train_epochs="2,3.5")
    assert several.is_grid
    assert several.grid.train_batch_size == (16, 32)
    assert several.grid.num_train_epochs == (2.0, 3.5)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"train_batch_size": "16,0"}, "=16,0: must be at least 1"),
        ({"output_dir": f"{__file__}/run"}, f"/run: {__file__} is a file"),
        ({"train_batch_size": "16,16"}, "one occurs twice"),
        ({"train_batch_size": "1.5"}, "not a number"),
        ({"num_train_epochs": "0"}, "must be above 0"),
        ({"num_train_epochs": "2,nan"}, "must be a finite number"),
        ({"profile_steps": "7"}, "--profile_steps=7: must be A:B"),
        ({"profile_steps": "7:7"}, "with A < B"),
        (
            {"bias_correction": True, "optimizer": "lamb"},
            "--bias_correction needs --optimizer=adamw",
        ),
        (
            {"use_tpu": True, "strategy": "mirrored"},
            "--use_tpu and --strategy=mirrored exclude each other",
        ),
    ],
)
def test_wrong_values_are_named(flags, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        finetuning(**flags)
