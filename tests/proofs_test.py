"""Proves on public data that results are those of the official programs.

make proofs DATA=...   (docs/results.md lists the files)

A file that DATA lacks makes its tests fail: a proof is never skipped.
"""

import gzip
import hashlib
import itertools
import json

import numpy as np
import pytest

from data import sentences
from data.tokenization import plain_wordpiece, vocabulary, wordpiece
from tasks.ner import tag_spans
from tasks.squad import dataset, metrics, triviaqa
from tests import tiny_runs

pytestmark = pytest.mark.proofs

# Name of a released vocabulary -> do_lower_case.
RELEASED = {
    "uncased": True,
    "cased": False,
    "multi_cased": False,
    "chinese": True,
}
# Of google-research/bert's FullTokenizer under Python 3.11: the tokens of
# "ab" + c + "cd" for every code point c, joined by spaces, a line each.
EVERY_CODE_POINT = {
    "uncased": (
        "d935553a826487834a1e057d291035b5d514594d54d7a3db2741fc6ceeb2f8fd"
    ),
    "cased": (
        "b99a7fd49a0195bfad1f583d7cbfe5049d587ae22911935c2c3e4536c598e26f"
    ),
}
TOKENIZERS = [plain_wordpiece.PlainTokenizer, wordpiece.Tokenizer]


def tokenizer(kind, data_dir, name):
    words = vocabulary.Vocabulary.from_file(
        data_dir / "vocab" / f"{name}_vocab.txt"
    )
    return kind(words, do_lower_case=RELEASED[name])


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("name", RELEASED)
def test_pieces_are_those_of_google_research_bert(data_dir, kind, name):
    path = data_dir / "tokenization" / "released_tokens.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    found = tokenizer(kind, data_dir, name).tokenize([x["text"] for x in rows])
    assert found == [row[name] for row in rows]


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("name", EVERY_CODE_POINT)
def test_every_code_point_is_tokenized_alike(data_dir, kind, name):
    ours = tokenizer(kind, data_dir, name)
    code_points = [*range(0xD800), *range(0xE000, 0x110000)]
    texts = [f"ab{chr(code_point)}cd" for code_point in code_points]
    names = np.array(ours.vocabulary.tokens, object)
    digest = hashlib.sha256()
    for start in range(0, len(texts), 100_000):
        found = ours.encode(texts[start : start + 100_000])
        tokens = names[found.ids].tolist()
        for a, b in itertools.pairwise(found.row_splits.tolist()):
            digest.update((" ".join(tokens[a:b]) + "\n").encode())
    assert digest.hexdigest() == EVERY_CODE_POINT[name]


def test_a_learned_vocabulary_begins_like_the_released_one(data_dir):
    tokens = tokenizer(TOKENIZERS[0], data_dir, "uncased").vocabulary.tokens
    assert tokens[:999] == tuple(vocabulary.reserved_tokens(30522))


@pytest.mark.parametrize(
    ("name", "count"),
    [("uncased", 0), ("chinese", 0), ("cased", 593), ("multi_cased", 22729)],
)
def test_vocabularies_show_whether_accents_were_kept(data_dir, name, count):
    words = tokenizer(TOKENIZERS[0], data_dir, name).vocabulary
    assert len(words.accented) == count
    assert words.is_accented == bool(count)


def test_sentences_of_articles_are_of_sensible_length(data_dir):
    path = data_dir / "corpus" / "wikipedia.paragraphs.txt.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = list(itertools.islice(file, 2000))
    found = [x for line in lines for x in sentences.split(line)]
    words = sorted(len(x.split()) for x in found)
    assert 18 <= words[len(words) // 2] <= 26
    assert sum(x[0].islower() for x in found) < 0.01 * len(found)
    assert sum(len(x.split()) > 100 for x in found) < 0.005 * len(found)


@pytest.mark.parametrize(
    ("predictions", "data"),
    [
        ("v1.1_BERT__ensemble___Google_", "dev-v1.1"),
        ("v1.1_Match_LSTM_with_Ans_Ptr_", "dev-v1.1"),
        ("v2.0_BERT_single", "dev-v2.0.first_of_two"),
    ],
)
def test_scores_of_squad_are_the_official_ones(data_dir, predictions, data):
    expected = json.loads((data_dir / "expected_scores.json").read_text())
    name = f"squad/official_predictions/{predictions}.json.gz"
    found = dataset.read(str(data_dir / "squad" / f"{data}.json"))
    given = metrics.read_json(str(data_dir / name), str)
    values = metrics.evaluate(found, given)
    assert list(values.items()) == list(expected[name].items())


@pytest.mark.parametrize("letter", "abc")
def test_scores_of_conll_are_those_of_conlleval(data_dir, letter):
    expected = json.loads((data_dir / "expected_scores.json").read_text())
    name = f"conll2003/testa.predicted_{letter}.txt.gz"
    with gzip.open(data_dir / name, "rt", encoding="utf-8") as file:
        rows = [line.split() for line in file]
    blocks = [
        list(block)
        for has_words, block in itertools.groupby(rows, bool)
        if has_words
    ]
    true = [[row[-2] for row in block] for block in blocks]
    predicted = [[row[-1] for row in block] for block in blocks]
    text = tag_spans.score(true, predicted).text()
    assert text.splitlines() == expected[name]


def test_triviaqa_is_read_in_its_official_form(data_dir, tmp_path):
    (tmp_path / "Andrew_Lloyd_Webber.txt").write_text("He wrote Sunset Blvd.")
    path = str(data_dir / "squad" / "triviaqa_sample.json")
    made, _ = triviaqa.convert(path, str(tmp_path))
    (qa,) = made["data"][0]["paragraphs"][0]["qas"]
    assert qa["id"] == "tc_33--Andrew_Lloyd_Webber.txt"
    assert qa["answers"][0] == {"text": "Sunset Blvd.", "answer_start": 9}


def test_the_index_of_a_released_checkpoint_is_listed(data_dir, capsys):
    folder = data_dir / "checkpoints" / "bert_base_chinese_index"
    tiny_runs.start(
        "convert_checkpoint", f"--input={folder}/bert_model.ckpt", "--list"
    )
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "206 variables, 102,882,442 parameters"
