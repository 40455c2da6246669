"""Every way out gives the same results.

python -m pytest tests/serving/parity_test.py

tests/slow/texts_test.py does this with many texts.
"""

import exports
import numpy as np
import pytest
import tensorflow as tf

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from foundation import errors  # noqa: E402
from serving import api, exported, servable  # noqa: E402
from tests.slow import parity  # noqa: E402

# The threads of batches run until the process ends.
pytestmark = pytest.mark.last
# The commands read tables, in which these characters have a meaning.
TEXTS = [text.replace("\0", " ") for text in exports.TEXTS]
TEXTS += parity.CONTEXTS


@pytest.fixture(scope="module")
def model_dirs(tiny_models, tmp_path_factory):
    return parity.more_models(tiny_models, tmp_path_factory.mktemp("more"))


@pytest.fixture(scope="module")
def export(model_dirs):
    """A function that exports a case, once in each form."""
    ways = {
        name: parity.Ways(
            name, TEXTS[:1], model_dirs, model_dirs / f"of_{name}"
        )
        for name in ("pairs", "fill_mask", "token_classification")
    }
    return lambda case, form: ways[case].exported(form)


@pytest.mark.parametrize(
    "case",
    [
        x
        if x in ("pairs", "exact_answers")
        else pytest.param(x, marks=pytest.mark.all)
        for x in parity.CASES
    ],
)
def test_all_ways_agree(case, model_dirs):
    parity.check(case, TEXTS, model_dirs, model_dirs / f"of_{case}")


def test_the_graph_gives_the_labels_of_tokens(tiny_models):
    source = tiny_models / "token_classification"
    loaded = api.load(source, max_seq_length=parity.LENGTH)
    texts = ["Mary lives in Paris", "the cat sat on the mat", "", "cafe\u0301"]
    long = "mary lives in paris the cat sat " * 9
    found = exports.graph(source, max_seq_length=parity.LENGTH)(
        text=[*texts, long]
    )
    tokens = loaded.tokenize([*texts, long])
    logits = loaded.keras_model(loaded.encode(texts[:2]))["logits"].numpy()
    for number, row in enumerate(tokens):
        spans = zip(found["start"][number], found["end"][number], strict=True)
        own = [span for span in spans if span != (-1, -1)]
        assert own == [(token.start, token.end) for token in row]
        labels = found["label"][number]
        assert set(labels[: len(row)]) <= {x.encode() for x in exports.TAGS}
        assert set(labels[len(row) :]) <= {b""}
        if number < 2:
            best = logits[number, 1 : len(row) + 1].argmax(axis=1)
            names = [exports.TAGS[i].encode() for i in best]
            assert labels[: len(row)].tolist() == names


def test_ids_give_the_same_outputs_or_the_same_line(export):
    names = tuple(exported.HUB_NAMES.values())
    ids = {name: np.ones((3, 9), np.int32) for name in names}
    ids["input_mask"][1, 5:] = 0
    found, lines = [], []
    bad = [
        {0: -ids[names[0]]},
        {0: 1000 * ids[names[0]]},
        {1: 2 * ids[names[0]]},
        {2: 2 * ids[names[0]]},
        {1: ids[names[1]][:, :4]},
        dict.fromkeys(range(3), np.ones((2, 600), np.int32)),
        dict.fromkeys(range(3), np.ones((2, 0), np.int32)),
    ]
    for form, engine in parity.ENGINES.items():
        model = engine.load(export("pairs", form))
        found.append([x["logits"] for x in model.predict("serve", ids)])
        for changed in bad:
            inputs = {n: changed.get(i, ids[n]) for i, n in enumerate(names)}
            with pytest.raises(errors.InputError) as error:
                model.check("serve", inputs)
            assert "\n" not in str(error.value)
            lines.append(str(error.value))
    np.testing.assert_allclose(*found, atol=1e-5)
    assert lines[: len(bad)] == lines[len(bad) :]
    assert lines[1] == "input_word_ids: row 0: 1000 is not from 0 to " + str(
        len(exports.WORDS) - 1
    )
    # Rows are computed by length, the row of a line is that of the request.
    rows = {n: x.repeat(20, 0).tolist() for n, x in ids.items()}
    rows[names[0]][3] = [99] * 9
    rows[names[1]][3] = [1] + [0] * 8
    served = servable.load("m", export("pairs", "onnx"), parity.ENGINES["onnx"])
    request = {"signature_name": "serve", "inputs": rows}
    ((status, answer),) = parity.post(served, request)
    assert status == 400 and "input_word_ids: row 3: 99 is" in answer["error"]
    # The SavedModel itself refuses them, too, for other servers.
    serve = tf.saved_model.load(export("pairs", "saved_model")).signatures
    for changed in bad[:4]:
        inputs = {n: changed.get(i, ids[n]) for i, n in enumerate(names)}
        with pytest.raises(tf.errors.InvalidArgumentError, match="not from 0"):
            serve["serve"](**{k: tf.constant(x) for k, x in inputs.items()})


def test_a_refused_row_fails_no_other_request(export):
    model = servable.load(
        "m", export("fill_mask", "onnx"), parity.ENGINES["onnx"]
    )
    good, bad = {"text": "the [MASK]"}, {"text": "the cat"}
    requests = [[good], [bad, good], [good] * 5, [bad]] * 2
    found = parity.post(model, *({"instances": x} for x in requests))
    assert [status for status, _ in found] == [200, 400, 200, 400] * 2
    assert all("[MASK]" in x["error"] for s, x in found if s == 400)


def test_odd_texts_are_answered(export):
    odd = ["", "   ", "\0", {"b64": "/w=="}, "x" * 3000]
    model = servable.load(
        "m",
        export("token_classification", "saved_model"),
        parity.ENGINES["saved_model"],
    )
    found = parity.post(model, *({"instances": [text]} for text in odd))
    assert {status for status, _ in found} == {200}, found
