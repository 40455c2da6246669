"""Proves that words between white space are masked together.

pytest tests/data/pretraining/white_space_test.py
"""

import numpy as np
import pytest

from data.pretraining import white_space
from data.tokenization import vocabulary, wordpiece
from tasks.pretraining import objectives
from tests.data.pretraining import recipes

# Sentences as a segmenter divides them, and what Chinese-BERT-wwm's collator
# joins: the positions, after [CLS], of its file, and those of ## tokens.
SENTENCES = {
    "使用 语言 模型 来 预测 下 一个 词 。": [2, 4, 6, 9, 12],
    "哈尔滨 是 黑龙江 的 省会": [2, 3, 6, 7, 10],
    "我\u3000在  2024 年 学习 playing": [6, 8],
}


@pytest.fixture(scope="module")
def tokenizer():
    characters = sorted({*"".join(SENTENCES)} - {*" \u3000"})
    tokens = [*vocabulary.SPECIAL_TOKENS, "2024", "play", "##ing", *characters]
    return wordpiece.Tokenizer(vocabulary.Vocabulary.from_tokens(tokens))


@pytest.mark.parametrize("sentence", SENTENCES)
def test_continuations_are_those_of_the_reference_file(tokenizer, sentence):
    words = white_space.words_of(sentence)
    encoded = tokenizer.encode(words)
    marked = white_space.marked(encoded.ids, np.diff(encoded.row_splits))
    ids, continues = white_space.unmarked(marked)
    assert ids.tolist() == tokenizer.encode([sentence]).ids.tolist()
    unsegmented = sentence.translate({0x20: "", 0x3000: ""})
    if "play" not in sentence:
        assert ids.tolist() == tokenizer.encode([unsegmented]).ids.tolist()
    assert (np.flatnonzero(continues) + 1).tolist() == SENTENCES[sentence]


def test_a_word_without_tokens_marks_nothing():
    lengths = np.array([0, 2, 0, 1, 3, 0])
    ids = np.arange(1, 7)
    found, continues = white_space.unmarked(white_space.marked(ids, lengths))
    assert found.tolist() == ids.tolist()
    assert continues.tolist() == [False, True, False, False, True, True]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(recipes.random_documents(1))
    return str(path)


@pytest.mark.parametrize("packed", [False, True], ids=["alone", "packed"])
def test_words_of_records_are_masked_together(text, tmp_path, packed):
    """A word of the text may end with a full stop: a, ##b and . are one."""
    rules = {"do_whole_word_mask": True, "pack_sequences": packed}
    made = []
    for words in ("vocabulary", "white_space"):
        folder = tmp_path / words
        folder.mkdir()
        recipe = recipes.recipe_for(text, folder, words=words, **rules)
        assert recipes.make(recipe).job["words"] == words
        made.append(recipes.parsed(recipe))
    without, columns = made
    originals, others = (
        np.array(objectives.unmasked_ids(x)) for x in (columns, without)
    )
    if not packed:  # Else rows depend on the number of predictions.
        np.testing.assert_array_equal(originals, others)
    tokens = recipe.vocabulary.tokens
    continues = np.isin(
        originals,
        [i for i, x in enumerate(tokens) if x.startswith("##") or x == "."],
    )
    is_masked = np.zeros(originals.shape, bool)
    rows, columns_used = np.nonzero(columns["masked_lm_weights"])
    positions = columns["masked_lm_positions"][rows, columns_used]
    is_masked[rows, positions] = True
    # Words that truncation has cut begin anew after [CLS] and [SEP].
    within = continues[:, 1:] & ~np.isin(originals[:, :-1], (2, 3))
    same = is_masked[:, 1:] == is_masked[:, :-1]
    assert same[within].all()
    assert is_masked[:, 1:][within].any()
    assert not same[~continues[:, 1:]].all()
