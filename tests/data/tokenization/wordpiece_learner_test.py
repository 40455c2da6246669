"""Proves that a vocabulary has the given size and splits what it has seen.

python -m pytest tests/data/tokenization/wordpiece_learner_test.py
"""

import collections

import pytest

from data.tokenization import normalization, wordpiece_learner
from foundation import errors
from tests.data.tokenization import random_text

WORDS = {
    "low": 50, "lower": 20, "lowest": 15, "new": 40, "newer": 30, "newest": 60,
    "wide": 25, "wider": 10, "widest": 8, "slow": 12, "slowest": 5, "!": 70,
}  # fmt: skip


def learn(words, size, **options):
    return wordpiece_learner.learn(words, size, set().union(*words), **options)


@pytest.mark.parametrize("size", [22, 23, 30, 44])
def test_the_size_is_exact_and_all_tokens_differ(size):
    tokens = learn(WORDS, size)
    assert len(tokens) == len(set(tokens)) == size


def test_the_alphabet_comes_first_and_frequent_tokens_follow():
    tokens = learn(WORDS, 33)
    assert tokens[:22] == [*"!deilnorstw", *("##" + x for x in "!deilnorstw")]
    assert {"new", "low"} < set(tokens[22:])
    assert wordpiece_learner.alphabet({"aab": 2, "c": 1}, 0.5) == {"a"}


def test_every_word_of_kept_characters_can_be_split():
    for size in (22, 30, 40):
        tokens = set(learn(WORDS, size))
        for word in WORDS:
            split = wordpiece_learner.split_word(word, tokens)
            joined = "".join(token.removeprefix("##") for token in split)
            assert joined == word
    assert wordpiece_learner.coverage(WORDS, tokens)[1] == 0


def test_merges_follow_recounted_pairs():
    # Counted anew after each merge, by hand: a+b 9 times, then ab+c 6 times,
    # then d+e 5 times; b+c, with 7 at first, has only 1 left.
    words = {"abc": 6, "ab": 3, "de": 5, "bc": 1}
    tokens = list(
        wordpiece_learner._merges(
            words, wordpiece_learner.initial_tokens(set("abcde")), 1
        )
    )
    assert tokens == ["ab", "abc", "de", "bc"]


def test_sizes_that_the_words_cannot_give_say_what_they_can():
    with pytest.raises(errors.InputError, match="gives 44 at most"):
        learn(WORDS, 1000)
    with pytest.raises(errors.InputError, match="107 reserved .* are 129"):
        learn(WORDS, 110, num_reserved=107)


def test_counted_words_are_the_tokenizers_words():
    texts = random_text.texts(500, seed=3) + ["qa\x1czb \x85c\x0bd e"] * 2
    tables = normalization.Normalization()
    expected = collections.Counter()
    for text in texts:
        expected.update(tables.words(text))
    counter = wordpiece_learner.WordCounter(tables)
    counter.add(texts)
    short = {word: n for word, n in expected.items() if len(word) <= 200}
    assert counter.counts == short
    assert counter.too_long == sum(expected.values()) - sum(short.values()) > 0
    assert counter.counts["qazb"] == 2


def test_counting_forgets_the_rarest_words_when_memory_is_short():
    counter = wordpiece_learner.WordCounter(normalization.Normalization(), 10)
    counter.add(["the fox " * 5])
    counter.add([" ".join(f"w{number}" for number in range(50))])
    assert counter.counts == {"the": 5, "fox": 5}
