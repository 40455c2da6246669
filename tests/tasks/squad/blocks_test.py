"""Proves that a set predicted in blocks has the answers of a set at once.

python -m pytest tests/tasks/squad/blocks_test.py
"""

import dataclasses
import io
import json
import tempfile

import full_disk
import numpy as np
import pytest

from data.tokenization import vocabulary, wordpiece
from foundation import errors
from jobs import streaming
from tasks.squad import blocks, dataset, decoding, settings, windowing
from tasks.squad.decoding import Answer, AnswerList

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "?", "who"]
WORDS += [f"w{i}" for i in range(50)]
TOKENIZER = wordpiece.Tokenizer(vocabulary.Vocabulary.from_tokens(WORDS))
SIZES = settings.WindowSizes(
    max_seq_length=16, doc_stride=4, max_query_length=4
)
RULES = settings.AnswerRules(version_2_with_negative=True)


def question_set():
    """Paragraphs with 0 to 3 questions; one has no token."""
    rng = np.random.default_rng(1)
    contexts = [
        " ".join(rng.choice(WORDS[7:], rng.integers(40))) for _ in "x" * 9
    ]
    contexts[4] = " "
    questions = [
        dataset.Question(id=f"{i}-{j}", text="who ?", paragraph=i)
        for i in range(9)
        for j in range(i % 4)
    ]
    return dataset.QuestionSet(path="", contexts=contexts, questions=questions)


def logits_of(windows):
    """Logits that depend on the tokens only."""
    ids = windows.features.ragged["input_ids"].astype(np.float32)
    return decoding.SpanLogits(np.sin(ids), np.cos(ids))


def answer(to, calls=None):
    def counted(windows):
        if calls is not None:
            calls.append(len(windows))
        return logits_of(windows)

    stream = blocks.QuestionStream(
        question_set(),
        TOKENIZER,
        SIZES,
        RULES,
        counted,
        has_files=not isinstance(to, blocks.InMemory),
    )
    assert streaming.run(stream, to) == len(question_set())
    return blocks.read_answers(to)


def store(folder):
    return streaming.Blocks(str(folder / blocks.UNFINISHED), {"x": 1})


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "_BLOCK_QUESTIONS", 3)


@pytest.fixture
def windows():
    return windowing.make_windows(question_set(), TOKENIZER, SIZES)


def test_answers_are_those_of_a_set_at_once(tmp_path, windows, small_blocks):
    found = question_set()
    expected = decoding.decode(
        found, windows, logits_of(windows), tokenizer=TOKENIZER, rules=RULES
    )
    kept = [AnswerList(a.candidates, a.null_odds) for a in expected]
    assert answer(blocks.InMemory()) == kept
    to = store(tmp_path)
    assert answer(to) == kept
    assert len(list(to.parts("n_best"))) == 4
    blocks.write_lists(str(tmp_path / "lists.json"), to)
    lists = {
        question.id: [
            {name: getattr(e, name) for name in Answer._fields[:-1]}
            for e in answers.entries
        ]
        for question, answers in zip(found.questions, expected, strict=True)
    }
    text = (tmp_path / "lists.json").read_text()
    assert text == json.dumps(lists, indent=4) + "\n"
    for before, after in zip(expected, kept, strict=True):
        for threshold in (None, -9.0, 9.0):
            assert before.text(threshold) == after.text(threshold)
        assert len(after.entries) <= 2


def test_logits_are_written_as_numpy_writes_them(
    tmp_path, windows, small_blocks
):
    to = store(tmp_path)
    answer(to)
    path = tmp_path / blocks.LOGITS
    blocks.write_logits(str(path), to, SIZES)
    digest = blocks.digest_of_windows(question_set(), TOKENIZER, SIZES)
    expected = io.BytesIO()
    np.savez(
        expected,
        **logits_of(windows)._asdict(),
        windows=np.array(digest),
        **dataclasses.asdict(SIZES),
    )
    assert path.read_bytes() == expected.getvalue()
    stored = blocks.open_logits(str(tmp_path))
    assert (stored.sizes, stored.digest) == (SIZES, digest)
    count = windows.features.row_splits[-1]
    parts = [stored.read(5), stored.read(count - 5)]
    for name, values in logits_of(windows)._asdict().items():
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(joined, values)


def test_other_windows_have_another_digest(small_blocks, monkeypatch):
    def digest(**changes):
        sizes = dataclasses.replace(SIZES, **changes)
        return blocks.digest_of_windows(question_set(), TOKENIZER, sizes)

    first = digest()
    assert first != digest(doc_stride=5)
    monkeypatch.setattr(blocks, "_BLOCK_QUESTIONS", 100)
    assert first == digest()
    with full_disk.longest_file(0), pytest.raises(OSError) as caught:
        digest()
    assert caught.value.filename == tempfile.gettempdir()


def test_what_a_killed_prediction_left_is_used(tmp_path, small_blocks):
    calls = []
    expected = answer(store(tmp_path), calls)
    assert len(calls) == 4
    (tmp_path / blocks.UNFINISHED / "block-0000003").unlink()
    again = []
    to = store(tmp_path)
    assert answer(to, again) == expected
    assert again == calls[3:4]
    blocks.write_logits(str(tmp_path / blocks.LOGITS), to, SIZES)
    answer(other := store(tmp_path / "other"))
    blocks.write_logits(str(tmp_path / "other" / blocks.LOGITS), other, SIZES)
    paths = [tmp_path / blocks.LOGITS, tmp_path / "other" / blocks.LOGITS]
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"x", b"\x93NUMPY"])
def test_damaged_logits_are_named(tmp_path, content):
    assert blocks.open_logits(str(tmp_path)) is None
    path = tmp_path / blocks.LOGITS
    path.write_bytes(content)
    with pytest.raises(errors.InputError, match="npz: cannot be read: "):
        blocks.open_logits(str(tmp_path))
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(errors.InputError, match="npz: cannot be read: "):
        blocks.open_logits(str(tmp_path))
    np.savez(path, start=np.zeros(3, np.float32), end=np.zeros(1, np.float32))
    with pytest.raises(errors.InputError, match="npz: cannot be read: "):
        blocks.open_logits(str(tmp_path)).read(3)
