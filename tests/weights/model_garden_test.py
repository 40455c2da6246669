"""Proves that the names in Model Garden's TF2 checkpoints are understood.

python -m pytest tests/weights/model_garden_test.py
"""

import numpy as np
import pytest
import tensorflow as tf

from foundation import errors
from weights import tensorflow_checkpoints
from weights.stored_weights import StoredTensor

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


def _stored(shapes):
    return {
        name + _VALUE: StoredTensor(
            name + _VALUE, shape, "float32", lambda: None
        )
        for name, shape in shapes.items()
    }


def _functional(root="", output="_attention_layer/_output_dense"):
    """The layers of a one-layer functional encoder, H=4, N=2."""
    names = {"0/embeddings": (9, 4), "1/embeddings": (6, 4)}
    names |= {"2/embeddings": (2, 4), "3/gamma": (4,), "3/beta": (4,)}
    names |= {f"4/{output}/kernel": (2, 2, 4), f"4/{output}/bias": (4,)}
    names |= {
        "4/_attention_layer/_query_dense/kernel": (4, 2, 2),
        "4/_attention_layer/_query_dense/bias": (2, 2),
        "4/_output_dense/kernel": (8, 4),
        "5/kernel": (4, 4),
    }
    return {f"{root}layer_with_weights-{n}": s for n, s in names.items()}


@pytest.mark.parametrize(
    "root", ["", "encoder/", "model/", "model/layer_with_weights-0/"]
)
@pytest.mark.parametrize(
    "output", ["_attention_layer/_output_dense", "_attention_output_dense"]
)
def test_a_functional_encoder_is_found_below_any_object(root, output):
    found = tensorflow_checkpoints.match_model_garden(
        "x", _stored(_functional(root, output))
    )
    layer = "bert/encoder/layer_0"
    assert {p: t.shape for p, t in found.tensors.items()} == {
        "bert/embeddings/word_embeddings": (9, 4),
        "bert/embeddings/position_embeddings": (6, 4),
        "bert/embeddings/token_type_embeddings": (2, 4),
        "bert/embeddings/LayerNorm/gamma": (4,),
        "bert/embeddings/LayerNorm/beta": (4,),
        f"{layer}/attention/output/dense/kernel": (4, 4),
        f"{layer}/attention/output/dense/bias": (4,),
        f"{layer}/attention/self/query/kernel": (4, 4),
        f"{layer}/attention/self/query/bias": (4,),
        f"{layer}/output/dense/kernel": (8, 4),
        "bert/pooler/dense/kernel": (4, 4),
    }
    assert found.num_attention_heads == 2
    assert not found.others


def _attributes(root):
    layer = f"{root}_transformer_layers/0/_attention_layer/_query_dense"
    return {f"{layer}/kernel": (4, 2, 2), f"{layer}/bias": (2, 2)}


@pytest.mark.parametrize(
    "names",
    [
        _functional("student/") | _functional("teacher/"),
        _functional("student/") | _attributes("teacher/"),
        _attributes("student/") | _attributes("teacher/"),
        _attributes("student/") | _attributes("student/teacher/"),
    ],
)
def test_a_checkpoint_of_two_encoders_is_refused(names):
    with pytest.raises(errors.InputError, match="x: student/.*teacher/") as e:
        tensorflow_checkpoints.match_model_garden("x", _stored(names))
    assert "2 encoders" in str(e.value) and "\n" not in str(e.value)


def test_the_pooler_of_a_pretrainer_is_in_its_head(tmp_path):
    dense = tf.Module()
    dense.kernel = tf.Variable(np.eye(4, dtype=np.float32))
    root = tf.train.Checkpoint(**{"next_sentence.pooler_dense": dense})
    prefix = root.write(str(tmp_path / "ckpt"))
    stored = tensorflow_checkpoints.read(prefix)
    # A pretrainer's encoder has no pooler of its own.
    encoder = _functional("encoder/")
    encoder.pop("encoder/layer_with_weights-5/kernel")
    found = tensorflow_checkpoints.match_model_garden(
        "x", {**stored, **_stored(encoder)}
    )
    pooler = found.tensors["bert/pooler/dense/kernel"]
    np.testing.assert_array_equal(pooler.read(), np.eye(4))


@pytest.mark.parametrize(
    ("owner", "path"),
    [
        ("next_sentence", "cls/seq_relationship/output_weights"),
        ("sentence_prediction", "output_weights"),
    ],
)
def test_the_poolers_name_decides_which_head_scores_are(owner, path):
    names = _functional() | {
        f"{owner}..pooler_dense/bias": (4,),
        "model/classification_heads/0/out_proj/kernel": (4, 2),
    }
    found = tensorflow_checkpoints.match_model_garden("x", _stored(names))
    assert found.tensors[path].shape == (2, 4)


def test_optimizer_slots_are_no_weights():
    name = "encoder/layer_with_weights-5/kernel/.OPTIMIZER_SLOT/optimizer/m"
    names = {name: (4, 4), "optimizer/iter": (), "encoder/x/kernel": (4, 4)}
    found = tensorflow_checkpoints.match_model_garden(
        "x", _stored(names | _functional())
    )
    assert list(found.training_state) == [
        name + _VALUE,
        "optimizer/iter" + _VALUE,
    ]
    assert list(found.others) == ["encoder/x/kernel" + _VALUE]
