"""Proves that shards are read with the tokenizer that made them.

pytest tests/tasks/pretraining/shard_tokenizer_test.py
"""

import json

import pytest
import tiny_runs

from foundation import errors
from tasks.pretraining import pretraining_data

UNCASED = [*tiny_runs.SPECIAL, "the", "cat", "##s"]
CASED = [*UNCASED, "The"]


@pytest.fixture
def find(tmp_path):
    """Finds the tokenizer of shards without a manifest."""

    def call(words, do_lower_case=None, init_checkpoint=None):
        vocab_file = tmp_path / "vocab.txt"
        vocab_file.write_text("\n".join(words) + "\n")
        shards = [str(tmp_path / "a.tfrecord")]
        found = pretraining_data.find_tokenizer(
            shards, str(vocab_file), do_lower_case, init_checkpoint
        )
        return found.settings

    return call


@pytest.mark.parametrize("words", [CASED, UNCASED])
def test_capitals_in_the_vocabulary_mean_a_cased_model(find, words):
    assert find(words)["do_lower_case"] == (words is UNCASED)
    assert find(words, do_lower_case=True)["do_lower_case"]
    assert not find(words, do_lower_case=False)["do_lower_case"]


def test_the_settings_of_the_checkpoint_come_first(find, tmp_path, monkeypatch):
    folder = tmp_path / "cased_L-2_H-16_A-2"
    tiny_runs.save_encoder(folder, CASED)
    settings = folder / "tokenizer_config.json"
    settings.unlink(missing_ok=True)
    weights = f"{folder}/model.safetensors"
    assert not find(UNCASED, init_checkpoint=weights)["do_lower_case"]
    expected = {"do_lower_case": True, "strip_accents": False}
    settings.write_text(json.dumps(expected))
    monkeypatch.chdir(folder)
    for path in (str(folder), weights, "model.safetensors"):
        found = find(CASED, init_checkpoint=path)
        assert {name: found[name] for name in expected} == expected


def test_without_a_vocabulary_there_is_no_tokenizer(tmp_path):
    shards = [str(tmp_path / "a.tfrecord")]
    assert pretraining_data.find_tokenizer(shards, None, None, None) is None
    with pytest.raises(errors.InputError, match="--do_lower_case: has no"):
        pretraining_data.find_tokenizer(shards, None, True, None)
