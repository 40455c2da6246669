"""Proves that shards are read as they were made, whoever says how.

pytest tests/tasks/shard_tokenizer_test.py
"""

import json

import pytest
import tiny_runs

import errors
from tasks import shard_tokenizer

UNCASED = [*tiny_runs.SPECIAL, "the", "cat", "##s"]
CASED = [*UNCASED, "The"]


@pytest.fixture
def find(tmp_path):
    """Asks for shards without a manifest."""

    def call(words, do_lower_case=None, init_checkpoint=None):
        vocab_file = tmp_path / "vocab.txt"
        vocab_file.write_text("\n".join(words) + "\n")
        shards = [str(tmp_path / "a.tfrecord")]
        found = shard_tokenizer.find(
            shards, str(vocab_file), do_lower_case, init_checkpoint
        )
        return found.settings

    return call


@pytest.mark.parametrize("words", [CASED, UNCASED])
def test_capitals_of_the_vocabulary_tell_its_case(find, words):
    assert find(words)["do_lower_case"] == (words is UNCASED)
    assert find(words, do_lower_case=True)["do_lower_case"]
    assert not find(words, do_lower_case=False)["do_lower_case"]


def test_the_checkpoint_knows_better(find, tmp_path):
    folder = tmp_path / "cased_L-2_H-16_A-2"
    folder.mkdir()
    path = f"{folder}/bert_model.ckpt"
    assert not find(UNCASED, init_checkpoint=path)["do_lower_case"]
    settings = {"do_lower_case": True, "strip_accents": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    found = find(CASED, init_checkpoint=str(folder))
    assert {name: found[name] for name in settings} == settings


def test_without_a_vocabulary_there_is_nothing_to_say(tmp_path):
    shards = [str(tmp_path / "a.tfrecord")]
    assert shard_tokenizer.find(shards, None, None, None) is None
    with pytest.raises(errors.InputError, match="--do_lower_case: nothing"):
        shard_tokenizer.find(shards, None, True, None)


def test_other_ways_to_find_words_are_refused(find, tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"word_tokenizer_type": "mecab"})
    )
    with pytest.raises(errors.InputError, match="word_tokenizer_type is 'mec"):
        find(UNCASED, init_checkpoint=str(tmp_path))
