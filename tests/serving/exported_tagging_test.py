"""Exported taggers find the entities of run_ner.py.

python -m pytest tests/serving/exported_tagging_test.py
"""

import json
import random

import exports
import numpy as np
import pytest
import tensorflow as tf
import tiny_runs

import run_ner
from modeling import crf, models
from serving import raw_text, tagging
from tasks.ner import raw_text as raw_text_lib
from tasks.ner import tagging as tagging_lib

LABELS = exports.TAGS
PLAIN = ["NN", "VB"]
ATOMS = [
    *"abzABZ09 .,!?'\"()[]-\n\t\u2019\u201c\u201d\u2026%/",
    *["Mr", "Dr.", "etc", "U.S", "n't", "'s", "\u2019re", "'LL", " the"],
    *[" The", " He", "[1]", "[note]", "\u0301", "\u4e2d", "\u6587", "A."],
    *["\u3002", "\uff01", " ", ". ", " , ", ".", "B. ", "12", "\u00e9"],
    *["\u017f", "\u0130", "am 3. ", "z. B. ", "\u200d", "\U0001f600"],
    *["\u05e9", "\u00aa", "\u00b2", "_", "\u06d4", "\u00a0", "\u3000"],
    *["co", "Inc", "St", "bzw", "i.e", "p.m", "usw", "\u00bb", "\u00ab"],
]
TEXTS = [
    *exports.TEXTS,
    "Mary's dog sat in Paris. The cat (Mary) isn't in the U.S. now.",
    "MARY LIVES IN PARIS . the cat sat",
    "mary. Paris.\nThe mat\u3002\u4e2d\u6587 cat",
]


@pytest.fixture(scope="module")
def splitter():
    return tf.function(
        raw_text.WordSplitter().__call__,
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )


def check_words(splitter, texts):
    places = list(map(raw_text_lib.split, texts))
    found = splitter(tf.constant(texts))
    rows = [
        (number, *place)
        for number, sentences in enumerate(places)
        for sentence in sentences
        for place in sentence
    ]
    columns = (found.texts, found.starts, found.ends)
    assert (
        list(zip(*(x.numpy().tolist() for x in columns), strict=False)) == rows
    )
    words = [x.decode() for x in found.strings.numpy()]
    assert words == [texts[i][start:end] for i, start, end in rows]
    lengths = [len(sentence) for text in places for sentence in text]
    splits = np.cumsum([0, *lengths]).tolist()
    assert found.sentence_splits.numpy().tolist() == splits


def test_words_and_sentences_are_those_of_raw_text(splitter):
    check_words(splitter, TEXTS)
    rng = random.Random(1)
    for _ in range(4):
        texts = [
            "".join(rng.choices(ATOMS, k=rng.choice([0, 1, 2, 5, 15, 30])))
            for _ in range(500)
        ]
        check_words(splitter, texts)


def test_words_of_real_text_are_those_of_raw_text(splitter, shared_data):
    folder = shared_data / "corpus" / "multilingual"
    for path in sorted(folder.glob("*.txt")):
        check_words(splitter, path.read_text().splitlines()[:100])


@pytest.mark.parametrize(
    "kind, context",
    [("words", "none"), ("crf", "maximal"), ("plain", "none")],
)
def test_entities_are_those_of_the_command(kind, context, tmp_path):
    labels = PLAIN if kind == "plain" else LABELS
    model_dir = tmp_path / "model"
    exports.save_model(
        model_dir, models.TaggingModel, num_classes=len(labels), labels=labels
    )
    settings = {"do_lower_case": False, "strip_accents": False}
    (model_dir / "tokenizer_config.json").write_text(json.dumps(settings))
    if kind == "crf":
        model = crf.CrfTaggingModel(
            tiny_runs.config(exports.WORDS),
            num_classes=len(labels),
            forbidden=crf.Scores(**tagging_lib.forbidden(labels, "bio2")),
        )
        rng = np.random.default_rng(1)
        shapes = ((5, 5), (5,), (5,))
        scores = crf.Scores(
            *(rng.normal(size=shape).astype(np.float32) for shape in shapes)
        )
        model.set_scores(scores)
        tagging_lib.save_crf(model, labels, str(model_dir))
    # The command reads a text a line, and refuses zero bytes.
    texts = [text.replace("\n", " ").replace("\0", "") for text in TEXTS]
    (tmp_path / "texts.txt").write_text("".join(f"{x}\n" for x in texts))
    tiny_runs.run(
        run_ner,
        run_ner.NerFlags,
        "--do_predict",
        text_file=tmp_path / "texts.txt",
        init_checkpoint=model_dir,
        output_dir=tmp_path / "predicted",
        max_seq_length=16,
        document_context=context,
        precision="float32",
    )
    lines = (tmp_path / "predicted" / "entities.jsonl").read_text()
    expected = [json.loads(x)["entities"] for x in lines.splitlines()]
    assert sum(map(len, expected)) > 20
    function = exports.graph(
        model_dir, max_seq_length=16, document_context=context
    )
    for batch_size in (1, 32):
        found = []
        for start in range(0, len(texts), batch_size):
            found += entities(function(text=texts[start : start + batch_size]))
        assert_same_entities(found, expected)
    assert function(text=[])["entity"].shape[0] == 0


def entities(outputs):
    """Returns the entities of each text as run_ner.py writes them."""
    return [
        [
            {
                "type": outputs["entity_type"][row, i].decode(),
                "start": int(start),
                "end": int(outputs["end"][row, i]),
                "text": outputs["entity"][row, i].decode(),
                "probability": float(outputs["score"][row, i]),
            }
            for i, start in enumerate(starts)
            if start >= 0
        ]
        for row, starts in enumerate(outputs["start"])
    ]


def assert_same_entities(found, expected):
    assert [len(row) for row in found] == [len(row) for row in expected]
    for one, other in zip(sum(found, []), sum(expected, []), strict=True):
        difference = one.pop("probability") - other["probability"]
        assert abs(difference) <= 1e-5
        assert one == {k: v for k, v in other.items() if k != "probability"}


def test_best_sequences_are_those_of_viterbi():
    rng = np.random.default_rng(3)
    splits = np.array([0, 1, 5, 6, 46])
    logits = rng.normal(size=(46, 4)).astype(np.float32)
    shapes = ((4, 4), (4,), (4,))
    scores = crf.Scores(
        *(rng.normal(size=shape).astype(np.float32) for shape in shapes)
    )
    found = tagging.best_sequences(
        tf.constant(logits), tf.constant(splits, tf.int64), scores
    )
    expected = [
        tag
        for start, end in zip(splits[:-1], splits[1:], strict=True)
        for tag in tagging_lib.viterbi(logits[start:end], *scores)
    ]
    assert found.numpy().tolist() == expected
    nothing = tagging.best_sequences(
        tf.zeros([0, 4]), tf.constant([0], tf.int64), scores
    )
    assert nothing.shape == [0]
