"""Proves that run_ner.py refuses flags that would be of no effect.

python -m pytest tests/run_ner_flags_test.py
"""

import pytest

import run_ner
from foundation import config_flags, errors
from tasks.ner import feature_based


def config(**flags):
    flags = {"output_dir": "ner", "do_train": True} | flags
    return config_flags.build(run_ner.NerConfig, **flags)


UNUSED = {
    "text": ({"text_file": "a.txt"}, "--text_file needs --do_predict"),
    "lstm": (
        {"lstm_size": 9, "lstm_learning_rate": 0.1},
        "--lstm_size, --lstm_learning_rate: needs --features",
    ),
    "dropout": ({"lstm_dropout": 0.2}, "--lstm_dropout: needs --features"),
}
OF_FEATURES = {
    "crf": {"crf": True},
    "interactive": {"interactive": True},
    "text_file": {"text_file": "a.txt", "do_predict": True},
    "eval_every_steps": {"eval_every_steps": 2},
    "early_stopping_patience": {
        "eval_every_steps": 2,
        "early_stopping_patience": 1,
    },
    "reinit_layers": {"reinit_layers": 1},
    "layer_decay": {"layer_decay": 0.5},
    "bilstm_size": {"bilstm_size": 0},
}


@pytest.mark.parametrize("flags, message", UNUSED.values(), ids=UNUSED)
def test_what_would_have_no_effect_is_refused(flags, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        config(**flags)


@pytest.mark.parametrize("name", OF_FEATURES)
def test_what_a_tagger_of_features_does_not_know_is_refused(name):
    flags = OF_FEATURES[name]
    with pytest.raises(ValueError, match=f"^--features=last excludes .*{name}"):
        config(features="last", **flags)
    if name != "bilstm_size":  # 0 is what most encoders have.
        assert config_flags.flat_values(config(**flags))[name]


def test_features_have_no_rates_of_an_encoder():
    with pytest.raises(ValueError, match="several values of --learning_rate$"):
        config(features="all", learning_rate="1e-5,2e-5")


def test_the_card_of_a_tagger_of_features_has_the_rate_that_is_used():
    flags = config(features="last", learning_rate="5e-3", lstm_size=4)
    given = feature_based.card_flags(flags, {"lstm_learning_rate": 1e-3})
    assert given["lstm_learning_rate"] == 1e-3
    assert given["lstm_size"] == 4
    assert "learning_rate" not in given


def test_activations_are_on_a_disk():
    with pytest.raises(errors.InputError, match="^--output_dir=gs://b/x: "):
        config(features="last", output_dir="gs://b/x")
