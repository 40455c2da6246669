"""A task of one's own is exported with a signature of token ids, and served.

python -m pytest tests/serving/own_task_test.py
"""

import exports
import numpy as np
import pytest
import tiny_runs

from data.tokenization import plain_wordpiece, vocabulary
from examples import relations
from foundation import errors
from serving import exported, servable, tensorflow_engine
from tasks.classification import heads, label_kinds

NAMES = tuple(exported.HUB_NAMES.values())


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("relations")
    words = vocabulary.Vocabulary.from_tokens(exports.WORDS)
    words = words.with_added(relations.MARKERS)
    tokenizer = plain_wordpiece.PlainTokenizer(words, do_lower_case=True)
    kind = label_kinds.OneLabel(["born_in", "works_for"])
    head = heads.TokenHead(kind, [words.ids["[E1]"], words.ids["[E2]"]])
    model = head.build(
        tiny_runs.config(list(words.tokens), initializer_range=0.4), seed=1
    )
    head.save(model, str(folder), tokenizer)
    ids = ["[CLS]", "[E1]", "mary", "[/E1]", "lives", "[E2]", "paris", "[/E2]"]
    row = np.array([words.ids[x] for x in [*ids, "[SEP]"]], np.int32)
    features = {
        "input_ids": np.stack([row, row[::-1]]),
        "input_mask": np.ones((2, len(row)), np.int32),
        "segment_ids": np.zeros((2, len(row)), np.int32),
    }
    return folder, features, np.array(model(features))


def test_its_export_maps_token_ids_to_logits(model_dir, tmp_path):
    folder, features, expected = model_dir
    task = "examples.relations:Relations"
    exports.export(folder, tmp_path / "out", task=task)
    model = servable.load("m", str(tmp_path / "out"), tensorflow_engine.ENGINE)
    model.warm_up()
    assert {*model.signatures} == {"serving_default", "serve"}
    inputs = dict(zip(NAMES, features.values(), strict=True))
    for name in model.signatures:
        found = [x["logits"] for x in model.model.predict(name, inputs)]
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.ptp(expected) > 0.1
    inputs[NAMES[0]] = 1000 + inputs[NAMES[0]]
    with pytest.raises(errors.InputError, match="is not from 0 to "):
        model.model.predict("serve", inputs)


@pytest.mark.parametrize(
    "flags, message",
    [
        ({"task": "examples.relations:No"}, "--task=examples.relations:No"),
        ({"task": "examples.no:Relations"}, "--task=examples.no:Relations"),
        ({"task": "relations"}, "none of classification"),
        ({"task": "examples.relations:Relations", "format": "onnx"}, "onnx"),
    ],
)
def test_what_cannot_be_exported_is_one_line(
    flags, message, model_dir, tmp_path, capsys
):
    with pytest.raises(SystemExit):
        exports.export(model_dir[0], tmp_path / "out", **flags)
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()
