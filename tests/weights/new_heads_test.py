"""Proves that heads and tokens which BERT does not have are stored with it.

python -m pytest tests/weights/new_heads_test.py
"""

import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from foundation import errors, tensor_files
from modeling import encoder, heads, variables
from modeling.config import BertConfig
from weights import (
    checkpoint_sources,
    conversion,
    model_directory,
    stored_weights,
    tokenizer_files,
)

PRETRAINED = pathlib.Path(__file__).parent.parent / "testdata/tiny_pretrained"
WORDS = "bert/embeddings/word_embeddings"


class RelationModel(keras.Model):
    """An encoder with a head of its own, of the size 3 * H."""

    def __init__(self, config, seed=1):
        """Makes both."""
        super().__init__(autocast=False)
        self.config = config
        make = variables.Maker(stddev=0.02, seed=seed, dtype=None)
        self.bert = encoder.BertEncoder(config, make, pooler=False)
        size = 3 * config.hidden_size
        self.scores = heads.ScoreHead("relation/", 5, size, make)
        self.built = True


@pytest.fixture
def saved(tmp_path):
    """A model with the head, in a directory."""
    config = BertConfig.from_json_file(PRETRAINED / "config.json")
    model, path = RelationModel(config), str(tmp_path / "model")
    tokenizer = tokenizer_files.load(str(PRETRAINED))
    labels = list("abcde")
    settings = model_directory.Settings(architecture="BertModel", labels=labels)
    tokenizer_files.save(tokenizer, path, max_length=48)
    values = {x.path: x.numpy() for x in model.weights}
    model_directory.write(path, config, values, settings)
    return model, path


def load(model, path, **options):
    source = checkpoint_sources.read(path)
    return stored_weights.assign(
        model, source.tensors, where=path, others=source.others, **options
    )


def test_a_new_head_is_stored_under_its_own_path(saved, tmp_path):
    model, path = saved
    assert {*checkpoint_sources.read(path).others} == {
        "relation.output_weights",
        "relation.output_bias",
    }
    for step in ("tf1", "model_directory"):
        copy = conversion.load(checkpoint_sources.read(path))
        assert copy.settings.labels == list("abcde")
        path = conversion.write(copy, str(tmp_path / step), step)
        again = RelationModel(model.config, seed=2)
        report = load(again, path)
        assert not report.initialized and not report.left_over
        for ours, theirs in zip(model.weights, again.weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    again = RelationModel(model.config, seed=2)
    before = again.scores.weights[0].numpy()
    report = load(again, path, initial=["relation/"])
    assert {*report.initialized} == {x.path for x in again.scores.weights}
    np.testing.assert_array_equal(again.scores.weights[0], before)
    copy = conversion.load(checkpoint_sources.read(path), drop_heads=True)
    assert not copy.others and copy.settings.labels is None


def test_embeddings_grow_by_the_tokens_that_a_task_adds(saved):
    model, path = saved
    config = model.config
    grown = BertConfig(**config.to_dict() | {"vocab_size": 42 + 2})
    again = RelationModel(grown, seed=2)
    initial = again.weights[0].numpy()
    assert again.weights[0].path == WORDS
    load(again, path, added_tokens=2)
    np.testing.assert_array_equal(again.weights[0][:42], model.weights[0])
    np.testing.assert_array_equal(again.weights[0][42:], initial[42:])
    for added, size in ((1, 44), (9, 41)):
        other = BertConfig(**config.to_dict() | {"vocab_size": size})
        with pytest.raises(errors.InputError, match="does not fit"):
            load(RelationModel(other), path, added_tokens=added)


PROGRAM = """
import sys
from data.tokenization import plain_wordpiece
from weights import checkpoint_sources, pretrained, tokenizer_files
for path in sys.argv[1:]:
    source = checkpoint_sources.read(path)
    found = tokenizer_files.load(source.directory)
    words = found.vocabulary.with_added(["[E1]"])
    tokenizer = plain_wordpiece.PlainTokenizer(words, **found.settings)
    print(source.config.hidden_size, source.settings.labels)
    print(*tokenizer.tokenize(["The cat[E1]"])[0])
print(*({"tensorflow", "keras"} & {*sys.modules}))
"""


def test_a_model_is_found_without_tensorflow_and_keras(saved, repository):
    _, path = saved
    folder = pathlib.Path(path).parent
    values = {"bert/embeddings/word_embeddings": np.zeros((42, 16))}
    tf1 = folder / "uncased_L-2_H-16_A-2" / "bert_model.ckpt"
    tensor_files.write(str(tf1), values)
    for name in ("bert_config.json", "vocab.txt"):
        text = (PRETRAINED / name).read_text()
        (tf1.parent / name).write_text(text)
    command = [sys.executable, "-c", PROGRAM, path, tf1, tf1.parent]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=repository, check=True
    )
    tokens = "the cat [E1]"
    assert done.stdout.splitlines() == [
        "16 ['a', 'b', 'c', 'd', 'e']",
        tokens,
        *["16 None", tokens] * 2,
        "",
    ]
