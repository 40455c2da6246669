"""Proves that create_vocabulary.py writes what it promises, or says why not.

python -m pytest tests/create_vocabulary_test.py
"""

import gzip
import os
import re
import subprocess
import sys

import pytest
import tiny_runs

from data.tokenization import vocabulary, wordpiece

LEVEL = "TF_CPP_MIN_LOG_LEVEL"  # As conftest.py sets it.
TEXT = """The quick brown fox jumps over the lazy dog. The dog sleeps.
\u00c9t\u00e9 \u4e2d\u56fd, \u041c\u043e\u0441\u043a\u0432\u0430!

Newer and newest, lower and lowest; slower, slowest: wider, widest.
The quicker foxes were jumping over the laziest dogs of the newest town.
"""


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "one.txt").write_text(TEXT, encoding="utf-8")
    with gzip.open(tmp_path / "two.txt.gz", "wt", encoding="utf-8") as file:
        file.write(TEXT.upper() * 3)
    return tmp_path


def create(corpus, **flags):
    flags = {"input_file": f"{corpus}/*.txt,{corpus}/*.gz", **flags}
    flags.setdefault("output_file", str(corpus / "vocab.txt"))
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    tiny_runs.start("create_vocabulary", *arguments)
    return vocabulary.Vocabulary.from_file(flags["output_file"])


@pytest.mark.parametrize("do_lower_case, size", [(True, 240), (False, 255)])
def test_the_text_itself_has_no_unknown_word(corpus, do_lower_case, size):
    made = create(corpus, vocab_size=size, do_lower_case=do_lower_case)
    assert len(made) == len(set(made.tokens)) == size
    special = (made.pad_id, made.unk_id, made.cls_id, made.sep_id)
    assert (*special, made.mask_id) == (0, 100, 101, 102, 103)
    tokenizer = wordpiece.Tokenizer(made, do_lower_case=do_lower_case)
    tokens = tokenizer.tokenize([TEXT, TEXT.upper()])
    assert not any("[UNK]" in row for row in tokens)


def test_a_process_of_its_own_writes_the_same_and_shows_only_its_run(
    corpus, repository
):
    """Whatever its hash seed is, and without TensorFlow's notices."""
    flags = {"input_file": corpus / "one.txt", "vocab_size": 185}
    flags["min_frequency"] = 1
    create(corpus, **flags)
    path = corpus / "vocab.other"
    environment = {k: v for k, v in os.environ.items() if k != LEVEL}
    done = subprocess.run(
        [
            sys.executable, "create_vocabulary.py", f"--output_file={path}",
            *(f"--{name}={value}" for name, value in flags.items()),
        ],
        cwd=repository,
        env={**environment, "PYTHONHASHSEED": "1"},
        check=True,
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert path.read_bytes() == (corpus / "vocab.txt").read_bytes()
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    known = re.compile(r"\d\d:\d\d:\d\d ")
    assert [line for line in lines if not known.match(line)] == []
