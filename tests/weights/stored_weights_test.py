"""Proves that stored_weights' table of names is a bijection, as released.

python -m pytest tests/weights/stored_weights_test.py
"""

import json
import math
import pathlib

from modeling.config import BertConfig
from weights import stored_weights

TESTDATA = pathlib.Path(__file__).parent.parent / "testdata"
BASE = BertConfig(vocab_size=30522, type_vocab_size=2)
CHINESE = BertConfig(vocab_size=21128, type_vocab_size=2)
PRETRAINING = (stored_weights.MASKED_LM, stored_weights.NEXT_SENTENCE)
ALL_HEADS = (*PRETRAINING, stored_weights.CLASSIFIER, stored_weights.SPAN)


def _released_shapes() -> dict:
    """Expands the golden shapes of the released Chinese base model."""
    golden = json.loads((TESTDATA / "variable_shapes_base.json").read_text())
    shapes = {name: tuple(shape) for name, shape in golden["other"].items()}
    for i in range(golden["layers"]):
        for name, shape in golden["layer_N"].items():
            shapes[f"bert/encoder/layer_{i}/{name}"] = tuple(shape)
    return shapes


def test_names_and_shapes_are_those_of_a_release():
    released = _released_shapes()
    assert len(released) == 206
    assert stored_weights.shapes(CHINESE, *PRETRAINING) == released


def test_base_with_both_heads_has_the_published_size():
    shapes = stored_weights.shapes(BASE, *PRETRAINING)
    assert sum(math.prod(s) for s in shapes.values()) == 110_106_428


def test_the_table_is_a_bijection_over_base_with_all_heads():
    paths = stored_weights.shapes(BASE, *ALL_HEADS)
    assert len(paths) == 206 + 2 + 2
    there = {path: stored_weights.by_path(path) for path in paths}
    assert len({row.hugging_face for row in there.values()}) == len(paths)
    for path, row in there.items():
        assert row.path == path
        assert stored_weights.by_hugging_face(row.hugging_face) == row
        assert row.is_transposed == path.endswith("/kernel")


def test_older_spellings_are_understood():
    gamma = "bert.encoder.layer.3.output.LayerNorm.gamma"
    row = stored_weights.by_hugging_face(gamma)
    assert row.path == "bert/encoder/layer_3/output/LayerNorm/gamma"
    assert not row.is_transposed
    row = stored_weights.by_hugging_face("pooler.dense.weight")
    assert row.path == "bert/pooler/dense/kernel"
    assert row.is_transposed
    for name in ("cls.predictions.decoder.weight", "embeddings.position_ids"):
        assert stored_weights.is_derived(name)


def test_unknown_names_stay_unknown():
    for name in ("lm_head.weight", "bert.encoder.layer.x.output.dense.bias"):
        assert stored_weights.by_hugging_face(name) is None
    assert stored_weights.by_path("global_step") is None
    assert not stored_weights.is_derived("bert.pooler.dense.weight")
