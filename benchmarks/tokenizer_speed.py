r"""Compares the tokenizer's speed with TensorFlow Text's FastBertTokenizer.

    python benchmarks/tokenizer_speed.py --vocab_file=vocab.txt \
        --input_file=sentences.txt [--peer=tokenization.py]

Prints megabytes of UTF-8 per second, the best of five turns. FastBertTokenizer
is fast, but gives other tokens for thousands of characters. --peer adds
google-research/bert's tokenization.py (without its line `import tensorflow`)
and compares its tokens with ours.
"""

import argparse
import importlib.util
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import tensorflow as tf
import tensorflow_text as tf_text

from data import corpus
from data.tokenization import vocabulary, wordpiece

_TURNS = 5
_PEER_LINES = 3000


def main() -> None:
    """Lets all tokenizers take turns and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--input_file", required=True)
    parser.add_argument("--peer")
    parser.add_argument("--lines", type=int, default=50000)
    options = parser.parse_args()
    lines = []
    for block in corpus.read_blocks(corpus.find_files(options.input_file)):
        lines += block.data.split(b"\n")
    tokens = vocabulary.Vocabulary.from_file(options.vocab_file)
    began = time.perf_counter()
    tokenizer = wordpiece.Tokenizer(tokens)
    tokenizer.encode(lines[:2000])
    print(f"start-up: {time.perf_counter() - began:.2f} s")
    if options.peer:
        _compare_with_peer(options, tokenizer, lines[:_PEER_LINES])
    is_ascii = [line.isascii() for line in lines]
    kinds = {
        "all lines": lines,
        "ASCII": [x for x, a in zip(lines, is_ascii, strict=True) if a],
        "others": [x for x, a in zip(lines, is_ascii, strict=True) if not a],
    }
    for kind, chosen in kinds.items():
        if chosen:
            _measure(kind, tokenizer, tokens, chosen[: options.lines])


def _measure(kind, tokenizer, tokens, lines) -> None:
    fast_bert = tf_text.FastBertTokenizer(
        list(tokens.tokens),
        token_out_type=tf.int32,
        max_bytes_per_word=200,
        lower_case_nfd_strip_accents=True,
    )
    texts = tf.constant(lines)
    tokenizers = {
        "FastBertTokenizer": lambda: fast_bert.tokenize(texts),
        "ours, one thread": lambda: tokenizer.encode_graph(texts),
        "ours, encode": lambda: tokenizer.encode(lines),
    }
    best = dict.fromkeys(tokenizers, float("inf"))
    for _ in range(_TURNS):
        for name, run in tokenizers.items():
            began = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - began)
    megabytes = sum(map(len, lines)) / 1e6
    for name, seconds in best.items():
        ratio = best["FastBertTokenizer"] / seconds
        rate = megabytes / seconds
        print(f"{kind:10} {name:18} {rate:6.1f} MB/s  {ratio:5.2f}")


def _compare_with_peer(options, tokenizer, lines) -> None:
    spec = importlib.util.spec_from_file_location("peer", options.peer)
    peer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peer)
    basic = peer.BasicTokenizer(do_lower_case=True)
    wordpieces = peer.WordpieceTokenizer(vocab=tokenizer.vocabulary.ids)
    began = time.perf_counter()
    expected = [
        [t for word in basic.tokenize(line) for t in wordpieces.tokenize(word)]
        for line in lines
    ]
    rate = sum(map(len, lines)) / 1e6 / (time.perf_counter() - began)
    same = expected == tokenizer.tokenize(lines)
    print(f"peer: {rate:.2f} MB/s; tokens {'equal' if same else 'DIFFER'}")


if __name__ == "__main__":
    main()
