"""Makes golden_squad.json: windows and answers of google-research/bert.

Takes the folder of its source, which runs on today's TensorFlow by way of
tensorflow.compat.v1; the tests need neither:

    python tests/testdata/make_golden_squad.py path/to/google-research/bert
"""

import json
import pathlib
import string
import sys
import tempfile

import tensorflow as tf
import tokenization  # noqa: E402
from absl import flags  # noqa: E402

import run_squad  # noqa: F401

sys.modules["tensorflow"] = tf.compat.v1
sys.path.insert(0, sys.argv[1])


LENGTH, STRIDE, QUERY = 40, 12, 9
CONTEXTS = [
    # Combining marks, an answer at a window's edge, in several windows.
    "  Cafe\u0301 n\u00e4\u0131ve\u0301 e\u0301te\u0301! The man went to the "
    "store and bought a gallon of milk (1895-1943).  He paid.",
    # Emoji, other spaces: U+00A0 and U+202F, the latter between words only.
    "A \U0001f600\U0001f600 b\u00a0c d\u202fe f\tg\u200bh\ni ## a##b x.y.z",
    # Chinese, and a word without any token.
    "\u4e1c\u4eac\u662f\u65e5\u672c(1943) \u0301 \u65e5\u672c\u7684\u3002end",
    "short",
    " \u200b ",
]
QUESTIONS = ["Who?", "How many gallons were bought there?", ""]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES += [*string.ascii_lowercase, *string.digits, *"(-).!?#"]
PIECES += [f"##{char}" for char in string.ascii_lowercase + string.digits]
PIECES += ["the", "man", "##ed", "\u65e5", "\u672c", "\u4eac"]


def logit(place: int, factor: int) -> float:
    """Returns a score that looks random and often equals another."""
    return (place * factor % 101 - 50) / 8


def write(folder: pathlib.Path) -> tuple[str, str]:
    """Writes the questions and the vocabulary; returns their paths."""
    number = 0
    paragraphs = []
    for context in CONTEXTS:
        qas = []
        for question in QUESTIONS:
            qas.append({"id": f"q{number}", "question": question})
            number += 1
        paragraphs.append({"context": context, "qas": qas})
    data, vocabulary = folder / "data.json", folder / "vocab.txt"
    data.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    vocabulary.write_text("\n".join(PIECES) + "\n")
    return str(data), str(vocabulary)


def predict(examples, features, results, version_2: bool) -> dict:
    """Returns what the released program writes."""
    flags.FLAGS.version_2_with_negative = version_2
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{name}" for name in ("p", "n", "o")]
        run_squad.write_predictions(
            examples, features, results, 20, 9, True, *paths
        )
        names = ["predictions", "nbest_predictions", "null_odds"]
        return {
            name: json.loads(pathlib.Path(path).read_text())
            for name, path in zip(names, paths, strict=True)
            if pathlib.Path(path).exists()
        }


def main() -> None:
    """Writes golden_squad.json beside this file."""
    flags.FLAGS(
        ["x", "--vocab_file=v", "--bert_config_file=c", "--output_dir=o"]
    )
    with tempfile.TemporaryDirectory() as folder:
        data, vocabulary = write(pathlib.Path(folder))
        examples = run_squad.read_squad_examples(data, False)
        tokenizer = tokenization.FullTokenizer(vocabulary, True)
    features = []
    run_squad.convert_examples_to_features(
        examples, tokenizer, LENGTH, STRIDE, QUERY, False, features.append
    )
    windows, results, place = [], [], 0
    for feature in features:
        count = sum(feature.input_mask)
        positions = range(place, place + count)
        place += count
        # Padding may not be among the best, which it can be as released.
        padding = [-1e5] * (LENGTH - count)
        results.append(
            run_squad.RawResult(
                feature.unique_id,
                [logit(i, 37) for i in positions] + padding,
                [logit(i, 53) for i in positions] + padding,
            )
        )
        windows.append(
            {
                "question": feature.example_index,
                "input_ids": feature.input_ids[:count],
                "segment_ids": feature.segment_ids[:count],
                "words": list(feature.token_to_orig_map.items()),
                "max_context": [
                    i for i, x in feature.token_is_max_context.items() if x
                ],
            }
        )
    # Without any window the released program ends in an error in 2.0.
    kept = [
        i
        for i in range(len(examples))
        if any(f.example_index == i for f in features)
    ]
    some = [examples[i] for i in kept]
    for feature in features:
        feature.example_index = kept.index(feature.example_index)
    golden = {
        "sizes": [LENGTH, STRIDE, QUERY],
        "contexts": CONTEXTS,
        "questions": QUESTIONS,
        "tokens": PIECES,
        "windows": windows,
        "1.1": predict(some, features, results, False),
        "2.0": predict(some, features, results, True),
    }
    path = pathlib.Path(__file__).with_name("golden_squad.json")
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
