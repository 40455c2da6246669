r"""Compares statistics of pre-training instances with google-research/bert.

    python benchmarks/data_statistics.py \
      --reference=PATH_TO_CHECKOUT --seeds=20

Both sides cut, pair and mask the same text. Every token occurs in it once, so
that each record shows its origin: which sentences it contains, how many tokens
truncation removed at which end, and which kinds of tokens were masked. Prints
for each statistic both means over the seeds, their standard errors and the
difference in standard errors (z). A second table shows how well the origin and
the lengths of A and B predict the next-sentence label (AUC; 0.5 is chance).
Exits with code 1 if a |z| exceeds 4.5. Without --reference only our side runs.
"""

import argparse
import importlib
import os
import pathlib
import random
import sys
import tempfile
from typing import NamedTuple

import numpy as np
import speed

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
UNK, CLS, SEP, MASK = range(1, 5)
FIRST = len(SPECIAL)  # Id of the token at position 0 of the corpus.
SPECIAL_CLASS, WORD, CONTINUATION, UNKNOWN = range(4)
LIMIT = 4.5


class Text(NamedTuple):
    """A corpus in which every token occurs once."""

    lines: list[str]
    tokens: list[str]  # The vocabulary.
    kinds: np.ndarray  # The class of each vocabulary entry.
    sentences: np.ndarray  # First token of each sentence, and the end.
    documents: np.ndarray  # First sentence of each document, and the end.


class Found(NamedTuple):
    """The records of one run, N rows of S tokens."""

    ids: np.ndarray  # int [N, S], before masking
    shown: np.ndarray  # int [N, S], after masking
    used: np.ndarray  # bool [N, S], whether predicted
    is_random: np.ndarray  # int [N]
    segments: np.ndarray  # int [N, S], 1 for A and 2 for B


def make_text(documents: int, seed: int) -> Text:
    """Draws documents of sentences of words; every token is a new one."""
    rng = np.random.default_rng(seed)
    lines, tokens = [], list(SPECIAL)
    kinds = [SPECIAL_CLASS] * FIRST
    sentences, starts, position = [], [], 0
    for _ in range(documents):
        starts.append(len(sentences))
        for _ in range(1 + rng.geometric(0.08)):
            sentences.append(position)
            words, end = [], position + 1 + int(rng.gamma(1.5, 9))
            while position < end:
                size = min(int(rng.choice([1, 1, 1, 2, 3])), end - position)
                unknown = size == 1 and rng.random() < 0.03
                names = [
                    f"b{position + n}" if n else f"a{position}"
                    for n in range(size)
                ]
                words.append("zz" if unknown else "".join(names))
                for n, name in enumerate(names):
                    tokens.append("##" + name if n else name)
                    kinds.append(CONTINUATION if n else WORD)
                if unknown:
                    kinds[-1] = UNKNOWN
                position += size
            lines.append(" ".join(words))
        lines.append("")
    return Text(
        lines,
        tokens,
        np.array(kinds),
        np.array([*sentences, position]),
        np.array([*starts, len(sentences)]),
    )


def ours(arguments, text, path, seed) -> Found:
    """Runs our data creation."""
    import tensorflow as tf

    length = arguments.max_seq_length
    predictions = arguments.max_predictions_per_seq
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "vocab.txt").write_text("\n".join(text.tokens) + "\n")
        speed.run(
            speed.ours(
                "create_pretraining_data.py",
                input_file=path,
                vocab_file=folder / "vocab.txt",
                output_prefix=folder / "x",
                num_shards=1,
                max_seq_length=length,
                max_predictions_per_seq=predictions,
                short_seq_prob=arguments.short_seq_prob,
                dupe_factor=arguments.dupe_factor,
                do_whole_word_mask=arguments.do_whole_word_mask,
                random_seed=seed,
            )
        )
        (shard,) = map(str, folder.glob("x-*.tfrecord"))
        serialized = [x.numpy() for x in tf.data.TFRecordDataset(shard)]
    features = {
        name: tf.io.FixedLenFeature([size], kind)
        for name, size, kind in (
            ("input_ids", length, tf.int64),
            ("input_mask", length, tf.int64),
            ("segment_ids", length, tf.int64),
            ("masked_lm_positions", predictions, tf.int64),
            ("masked_lm_ids", predictions, tf.int64),
            ("masked_lm_weights", predictions, tf.float32),
            ("next_sentence_labels", 1, tf.int64),
        )
    }
    rows = tf.io.parse_example(serialized, features)
    rows = {name: values.numpy() for name, values in rows.items()}
    shown, ids = rows["input_ids"], rows["input_ids"].copy()
    used = np.zeros(ids.shape, bool)
    row, column = np.nonzero(rows["masked_lm_weights"] > 0)
    masked = (row, rows["masked_lm_positions"][row, column])
    ids[masked] = rows["masked_lm_ids"][row, column]
    used[masked] = True
    segments = rows["segment_ids"] + rows["input_mask"]
    return Found(ids, shown, used, rows["next_sentence_labels"][:, 0], segments)


def load_reference(checkout):
    """Imports the reference: its script, tokenizer and flags."""
    import tensorflow as real
    import tensorflow.compat.v1 as tf

    sys.modules["tensorflow"] = tf  # The only change that they need.
    sys.path.insert(0, checkout)
    found = [
        importlib.import_module(name)
        for name in ("create_pretraining_data", "tokenization")
    ]
    tf.flags.FLAGS(["benchmark"], known_only=True)
    sys.modules["tensorflow"] = real
    return (*found, tf.flags.FLAGS)


def reference(arguments, text, path, seed, released) -> Found:
    """Runs the data creation of the reference."""
    script, tokenization, flags = released
    flags.do_whole_word_mask = arguments.do_whole_word_mask
    with tempfile.NamedTemporaryFile("w") as vocab:
        vocab.write("\n".join(text.tokens) + "\n")
        vocab.flush()
        tokenizer = tokenization.FullTokenizer(vocab.name, do_lower_case=True)
    made = script.create_training_instances(
        [path],
        tokenizer,
        arguments.max_seq_length,
        arguments.dupe_factor,
        arguments.short_seq_prob,
        0.15,
        arguments.max_predictions_per_seq,
        random.Random(seed),
    )
    shape = (len(made), arguments.max_seq_length)
    shown, segments = np.zeros(shape, int), np.zeros(shape, int)
    used, ids = np.zeros(shape, bool), np.zeros(shape, int)
    for row, one in enumerate(made):
        size = len(one.tokens)
        shown[row, :size] = tokenizer.convert_tokens_to_ids(one.tokens)
        segments[row, :size] = np.array(one.segment_ids) + 1
        ids[row] = shown[row]
        labels = tokenizer.convert_tokens_to_ids(one.masked_lm_labels)
        ids[row, one.masked_lm_positions] = labels
        used[row, one.masked_lm_positions] = True
    labels = np.array([one.is_random_next for one in made]).astype(int)
    return Found(ids, shown, used, labels, segments)


class Spans(NamedTuple):
    """Corpus positions of A and B of every record, [N]; -1 if unknown."""

    a: np.ndarray
    a_end: np.ndarray
    b: np.ndarray
    b_end: np.ndarray


def spans(found: Found) -> Spans:
    """Finds A and B in the corpus by their known tokens."""
    result = []
    column = np.arange(found.ids.shape[1])
    for number in (1, 2):
        real = (found.segments == number) & (found.ids != SEP)
        real &= found.ids != CLS
        length, begin = real.sum(1), real.argmax(1)
        known = real & (found.ids >= FIRST)
        at = known.argmax(1)  # The first known token gives the start.
        token = np.take_along_axis(found.ids, at[:, None], 1)[:, 0] - FIRST
        start = token - (column[at] - begin)
        start = np.where(known.any(1), start, -1)
        result += [start, start + length]
    return Spans(*result)


def statistics(arguments, text: Text, found: Found) -> dict[str, float]:
    """Returns the statistics of one run."""
    at, count = spans(found), len(found.ids)
    lengths = (found.segments > 0).sum(1)
    result = {
        "instances": count,
        "random next": found.is_random.mean(),
        "length": lengths.mean(),
        "length sd": lengths.std(),
        "full length": (lengths == arguments.max_seq_length).mean(),
        "length A": (at.a_end - at.a).mean(),
        "length B, real next": (at.b_end - at.b)[found.is_random == 0].mean(),
        "length B, random": (at.b_end - at.b)[found.is_random == 1].mean(),
    }
    result |= _truncation(text, found, at)
    result |= _usage(arguments, text, found, at)
    return result | _masking(text, found)


def _truncation(text, found, at) -> dict[str, float]:
    result = {}
    for name, start, end in (("A", at.a, at.a_end), ("B", at.b, at.b_end)):
        known = start >= 0
        start, end = start[known], end[known]
        first = np.searchsorted(text.sentences, start, "right") - 1
        last = np.searchsorted(text.sentences, end, "left")
        front = start - text.sentences[first]
        back = text.sentences[last] - end
        result[f"{name} cut in front"] = (front > 0).mean()
        result[f"{name} cut behind"] = (back > 0).mean()
        cut = front + back
        result[f"{name} tokens cut"] = cut.mean()
        result[f"{name} fraction cut in front"] = front.sum() / cut.sum()
    return result


def _usage(arguments, text, found, at) -> dict[str, float]:
    """Returns how often sentences are used in each pass over the text."""
    total = len(text.sentences) - 1
    uses = {}
    groups = (
        ("A", at.a, at.a_end, np.ones(len(at.a), bool)),
        ("B, real next", at.b, at.b_end, found.is_random == 0),
        ("B, random", at.b, at.b_end, found.is_random == 1),
    )
    for name, start, end, wanted in groups:
        wanted = wanted & (start >= 0)
        first = np.searchsorted(text.sentences, start[wanted], "right") - 1
        last = np.searchsorted(text.sentences, end[wanted], "left")
        steps = np.bincount(first, minlength=total + 1).astype(int)
        steps -= np.bincount(last, minlength=total + 1)
        uses[name] = np.cumsum(steps)[:total] / arguments.dupe_factor
    result = {
        f"uses of a sentence, {name}": x.mean() for name, x in uses.items()
    }
    every = sum(uses.values())
    result["uses, sd over sentences"] = every.std()
    result["sentences never used"] = (every == 0).mean()
    result["uses of first sentences"] = every[text.documents[:-1]].mean()
    result["uses of last sentences"] = every[text.documents[1:] - 1].mean()
    return result


def _masking(text, found) -> dict[str, float]:
    kinds = text.kinds[found.ids]
    kinds[found.ids == UNK] = UNKNOWN
    real = found.segments > 0
    result = {"predictions": found.used.sum(1).mean()}
    for name, kind in (
        ("special", SPECIAL_CLASS),
        ("words", WORD),
        ("continuations", CONTINUATION),
        ("unknown", UNKNOWN),
    ):
        of_kind = real & (kinds == kind)
        result[f"masked, {name}"] = found.used[of_kind].mean()
    shown, was = found.shown[found.used], found.ids[found.used]
    replaced = (shown != was) & (shown != MASK)
    result["masked, replaced by [MASK]"] = (shown == MASK).mean()
    result["masked, unchanged"] = (shown == was).mean()
    result["masked, random token"] = replaced.mean()
    result["mean id of random tokens"] = shown[replaced].mean() / len(
        text.tokens
    )
    result["mean masked position"] = np.nonzero(found.used)[1].mean()
    return result


def leaks(text: Text, found: Found) -> dict[str, float]:
    """Returns the AUC of each feature as predictor of the label."""
    at = spans(found)
    known = (at.a >= 0) & (at.b >= 0)  # A few consist of unknown tokens only.
    at = Spans(*(x[known] for x in at))
    is_random = found.is_random[known]
    sentence, document, part = {}, {}, {}
    for name, start in (("A", at.a), ("B", at.b)):
        sentence[name] = np.searchsorted(text.sentences, start, "right") - 1
        document[name] = (
            np.searchsorted(text.documents, sentence[name], "right") - 1
        )
        part[name] = sentence[name] - text.documents[document[name]]
    sizes = np.diff(text.documents)
    features = {"position of the record in the shard": np.arange(len(at.a))}
    for name in "AB":
        features[f"document of {name}"] = document[name]
        features[f"sentences in document of {name}"] = sizes[document[name]]
        features[f"sentence number of {name}"] = part[name]
    features["length of A"] = at.a_end - at.a
    features["length of B"] = at.b_end - at.b
    features["length of both"] = at.a_end - at.a + at.b_end - at.b
    result = {name: auc(values, is_random) for name, values in features.items()}
    chosen = is_random == 1
    distance = np.abs(document["A"] - document["B"])[chosen]
    count = len(sizes)
    result["random B: distance / documents"] = distance.mean() / count
    result["random B: from ten nearest"] = (distance <= 5).mean()
    result["random B: same document"] = (distance == 0).mean()
    result["real B: same document"] = (document["A"] == document["B"])[
        ~chosen
    ].mean()
    return result


def auc(values, labels, bins: int = 64) -> float:
    """Estimates P(label | bin) on half of the records; ranks the others."""
    marks = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1]))
    bin_of = np.searchsorted(marks, values, "right")
    train = np.arange(len(values)) % 2 == 0
    train = np.random.default_rng(0).permutation(train)
    counts = np.bincount(bin_of[train], minlength=bins) + 2
    hits = np.bincount(bin_of[train], labels[train], minlength=bins) + 1
    score = (hits / counts)[bin_of[~train]]
    label = labels[~train]
    _, rank, ties = np.unique(score, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(ties) - (ties - 1) / 2
    positive = label.sum()
    total = mean_rank[rank][label == 1].sum() - positive * (positive + 1) / 2
    return total / (positive * (len(label) - positive))


def table(title, samples: dict[str, list[dict]]) -> float:
    """Prints means and standard errors; returns the largest |z|."""
    sides = list(samples)
    print(f"\n{title:34}", *(f"{x:>12} {'+-':>8}" for x in sides), "      z")
    largest, squares = 0.0, []
    for name in samples[sides[0]][0]:
        cells, means, errors = [], [], []
        for side in sides:
            values = np.array([x[name] for x in samples[side]], float)
            means.append(values.mean())
            errors.append(values.std(ddof=1) / len(values) ** 0.5)
            cells.append(f"{means[-1]:12.5f} {errors[-1]:8.5f}")
        z = 0.0
        if len(sides) == 2 and sum(errors):
            z = (means[1] - means[0]) / np.hypot(*errors)
            squares.append(z * z)
        largest = max(largest, abs(z))
        print(f"{name:34}", *cells, f"{z:7.2f}")
    if squares:
        print(
            f"mean z squared {np.mean(squares):.2f}, largest |z| {largest:.2f}"
        )
    return largest


def main() -> int:
    """Runs all seeds and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", default="")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first_seed", type=int, default=1)
    parser.add_argument("--documents", type=int, default=150)
    parser.add_argument("--max_seq_length", type=int, default=64)
    parser.add_argument("--max_predictions_per_seq", type=int, default=10)
    parser.add_argument("--dupe_factor", type=int, default=10)
    parser.add_argument("--short_seq_prob", type=float, default=0.1)
    parser.add_argument("--do_whole_word_mask", action="store_true")
    arguments = parser.parse_args()
    text = make_text(arguments.documents, seed=0)
    print(
        f"{len(text.tokens) - FIRST} tokens, {len(text.sentences) - 1} "
        f"sentences, {len(text.documents) - 1} documents; {arguments.seeds} "
        f"seeds; maximum length {arguments.max_seq_length}, short sequences "
        f"{arguments.short_seq_prob}"
    )
    released = (
        load_reference(arguments.reference) if arguments.reference else None
    )
    numbers, auc_numbers = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "text.txt")
        pathlib.Path(path).write_text("\n".join(text.lines) + "\n")
        for seed in range(
            arguments.first_seed, arguments.first_seed + arguments.seeds
        ):
            found = {}
            if released:
                found["reference"] = reference(
                    arguments, text, path, seed, released
                )
            found["ours"] = ours(arguments, text, path, seed)
            for side, rows in found.items():
                numbers.setdefault(side, []).append(
                    statistics(arguments, text, rows)
                )
                auc_numbers.setdefault(side, []).append(leaks(text, rows))
    largest = table("statistic", numbers)
    print("\nAUC of single features as predictors of the next-sentence label")
    largest = max(largest, table("feature", auc_numbers))
    return int(largest > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
