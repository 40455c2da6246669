"""Proves that both dialects of a BERT config are read for what they mean.

python -m pytest tests/modeling/config_test.py
"""

import dataclasses
import json

import pytest

from foundation import errors
from modeling import config, layers


def _write(path, values):
    path.write_text(json.dumps(values))
    return path


def test_gelu_means_what_its_file_means_by_it(tmp_path):
    values = {"vocab_size": 30, "hidden_act": "gelu"}
    released = _write(tmp_path / "bert_config.json", values)
    theirs = _write(tmp_path / "config.json", values)
    typed = _write(tmp_path / "x.json", values | {"model_type": "bert"})
    read = config.BertConfig.from_json_file
    assert read(released).hidden_act == "gelu"
    assert read(theirs).hidden_act == "gelu_erf"
    assert read(typed).hidden_act == "gelu_erf"


def test_the_two_forms_of_gelu_are_the_published_ones():
    # Values of 0.5 x (1 + erf(x / sqrt 2)) and of the tanh form at 1.
    assert float(layers.ACTIVATIONS["gelu_erf"](1.0)) == pytest.approx(
        0.8413447, abs=1e-6
    )
    assert float(layers.ACTIVATIONS["gelu"](1.0)) == pytest.approx(
        0.8411920, abs=1e-6
    )


def test_defaults_are_the_released_ones():
    assert config.BertConfig(vocab_size=1).to_dict() == {
        "vocab_size": 1,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": 512,
        "type_vocab_size": 16,
        "initializer_range": 0.02,
    }


def test_unknown_keys_are_named_and_those_of_releases_are_not(caplog):
    values = {"vocab_size": 9, "directionality": "bidi", "pooler_type": "x"}
    with caplog.at_level("WARNING", logger="absl"):
        config.BertConfig.from_dict(values)
        assert not caplog.records
        config.BertConfig.from_dict(values | {"hiden_size": 8})
        assert "hiden_size" in caplog.text
        read = config.BertConfig.from_hugging_face
        read({"vocab_size": 9, "classifier_dropout": 0.3})
        assert "classifier_dropout=0.3" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 0}, "vocab_size: "),
        ({"vocab_size": None}, "vocab_size: "),
        ({"hidden_size": 9}, "not a multiple"),
        ({"hidden_size": 8.0}, "hidden_size: "),
        ({"num_hidden_layers": 0}, "num_hidden_layers: "),
        ({"num_attention_heads": True}, "num_attention_heads: "),
        ({"hidden_act": "swish"}, "'swish' is none of"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob: "),
        ({"initializer_range": "x"}, "initializer_range: "),
        ({"vocab_size": 2**62}, "vocab_size: "),
        ({"num_hidden_layers": 10**8}, "num_hidden_layers: "),
        ({"hidden_act": {}}, "hidden_act: "),
    ],
)
def test_nonsense_gets_one_line(change, message, tiny_config):
    values = dataclasses.asdict(tiny_config) | change
    with pytest.raises(errors.InputError, match=message) as raised:
        config.BertConfig.from_dict(values)
    assert "\n" not in str(raised.value)


def test_a_file_is_named_in_its_errors(tmp_path):
    path = _write(tmp_path / "bert_config.json", {"hidden_size": 8})
    with pytest.raises(errors.InputError, match="bert_config.json.*vocab_size"):
        config.BertConfig.from_json_file(path)
    path.write_text("not json")
    with pytest.raises(
        errors.InputError, match="bert_config.json: malformed JSON"
    ):
        config.BertConfig.from_json_file(path)
    _write(path, [1])
    with pytest.raises(errors.InputError, match="Expected `?object"):
        config.BertConfig.from_json_file(path)


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "roberta"},
        {"layer_norm_eps": 1e-5},
        {"position_embedding_type": "relative_key"},
        {"hidden_act": "silu"},
    ],
)
def test_models_that_are_not_bert_are_refused(change):
    values = {"vocab_size": 30} | change
    with pytest.raises(errors.InputError):
        config.BertConfig.from_hugging_face(values)
