"""Compares ONNX graphs, run by onnxruntime, with the models they are made of.

python -m pytest tests/serving/onnx_graph_test.py
"""

import numpy as np
import pytest
import tiny_runs

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from foundation import errors  # noqa: E402
from modeling import crf, encoder, models  # noqa: E402
from serving import exported, onnx_graph  # noqa: E402
from tasks.features import heads  # noqa: E402
from weights import sentence_modules  # noqa: E402

_WORDS = [*tiny_runs.SPECIAL, *(f"word{i}" for i in range(40))]


def _config(**fields):
    return tiny_runs.config(
        _WORDS,
        num_hidden_layers=2,
        max_position_embeddings=24,
        initializer_range=0.4,
        **fields,
    )


def _features(*shape):
    """Returns rows of different lengths; the first has no padding."""
    random = np.random.default_rng(1)
    lengths = random.integers(1, shape[-1] + 1, shape[:-1])
    lengths.flat[0] = shape[-1]
    mask = (np.arange(shape[-1]) < lengths[..., None]).astype(np.int32)
    ids = random.integers(0, len(_WORDS), shape)
    segments = random.integers(0, 2, shape)
    return {
        "input_ids": (ids * mask).astype(np.int32),
        "input_mask": mask,
        "segment_ids": (segments * mask).astype(np.int32),
    }


def _run(model, features, **options):
    """Returns the outputs of a model's graph by name."""
    proto = onnx_graph.make(model, **options)
    onnx.checker.check_model(proto, full_check=True)
    assert {node.domain for node in proto.graph.node} == {""}
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    inputs = {
        exported.ONNX_NAMES[name]: x.astype(np.int64)
        for name, x in features.items()
    }
    return dict(zip(names, session.run(names, inputs), strict=True))


def _outputs(found):
    """Returns the outputs of a model under the names of the graph."""
    if isinstance(found, models.SpanOutputs):
        return found._asdict()
    return {"logits": getattr(found, "masked_lm_logits", found)}


@pytest.mark.parametrize("attention", encoder.ATTENTIONS)
@pytest.mark.parametrize(
    ("make", "activation", "options"),
    [
        (models.ClassificationModel, "gelu", {"num_classes": 3}),
        (models.MultipleChoiceModel, "gelu_erf", {}),
        (models.QuestionAnsweringModel, "relu", {}),
        (models.TaggingModel, "tanh", {"num_classes": 5}),
        (crf.CrfTaggingModel, "linear", {"num_classes": 5}),
        (models.PretrainingModel, "gelu_erf", {}),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_every_head_is_that_of_the_model(make, activation, options, attention):
    model = make(_config(hidden_act=activation), attention=attention, **options)
    is_choice = make is models.MultipleChoiceModel
    for shape in ((3, 9), (1, 24)):
        shape = (shape[0], 2, shape[1]) if is_choice else shape
        features = _features(*shape)
        found = _run(model, features)
        expected = _outputs(model(features))
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, atol=5e-5)


@pytest.mark.parametrize(
    "pooling", [*sentence_modules.POOLINGS, "cls,mean", "none"]
)
def test_vectors_of_texts_are_those_of_the_encoder(pooling):
    random = np.random.default_rng(2)
    config = _config()
    size, activations = config.hidden_size, sentence_modules.ACTIVATIONS
    is_alone = pooling in sentence_modules.POOLINGS
    modules = sentence_modules.SentenceModules(
        pooling=pooling,
        dense=tuple(
            sentence_modules.Dense(
                random.normal(0, 0.2, (size, size)).astype(np.float32),
                np.full(size, 0.1, np.float32),
                activation,
            )
            for activation in (activations if is_alone else ())
        ),
        normalize=pooling != "none",
        truncate_dim=3 if pooling == "max" else None,
    )
    layer = -2
    head = heads.LayersHead([layer], modules)
    model, features = encoder.make_encoder(config), _features(4, 11)
    count = config.num_hidden_layers + layer + 1
    found = _run(model, features, num_layers=count, modules=modules)
    states = model(**features).all_encoder_layers[layer]
    np.testing.assert_allclose(found["last_hidden_state"], states, atol=5e-5)
    assert ("sentence_embedding" in found) == (pooling != "none")
    if pooling != "none":
        (expected,) = head.predict(model, features).values()
        assert expected.shape[-1] == modules.vector_size(config.hidden_size)
        np.testing.assert_allclose(
            found["sentence_embedding"], expected, atol=5e-5
        )


def test_a_bilstm_is_refused():
    model = models.ClassificationModel(_config(), num_classes=2, bilstm_size=3)
    with pytest.raises(errors.InputError, match="--format=onnx.*BiLSTM"):
        onnx_graph.make(model)
