"""Small CoNLL files that can be learned, and calls of run_ner.py."""

import pathlib
import random

import tiny_runs

import run_ner

FIRST, LAST = ["jim", "ann", "bob"], ["smith", "jones", "li"]
CITIES = ["rome", "paris", "lima"]
FILLING = [f"w{i}" for i in range(20)] + ["."]
WORDS = tiny_runs.SPECIAL + FIRST + LAST + CITIES + FILLING


def sentence(rng):
    """Returns words and IOB1 tags: names of persons and of cities."""
    words, tags = [], []
    for _ in range(rng.choice([1, 2, 3, 9, 40])):
        kind = rng.random()
        if kind < 0.2:
            is_neighbor = tags and tags[-1].endswith("PER")
            words.append(rng.choice(FIRST))
            tags.append("B-PER" if is_neighbor else "I-PER")
            if rng.random() < 0.5:
                words.append(rng.choice(LAST))
                tags.append("I-PER")
        elif kind < 0.3 and not (tags and tags[-1] == "I-LOC"):
            words.append(rng.choice(CITIES))
            tags.append("I-LOC")
        else:
            words.append(rng.choice(FILLING))
            tags.append("O")
    return words, tags


def write_file(path, seed, count, *, tags=True):
    rng = random.Random(seed)
    lines = []
    for i in range(count):
        if i % 8 == 0:
            lines += ["-DOCSTART- -X- O\n", "\n"]
        words, found = sentence(rng)
        rows = zip(words, found, strict=True)
        lines += [f"{w} x {t}\n" if tags else f"{w}\n" for w, t in rows]
        lines.append("\n")
    path.write_text("".join(lines))


def make_data(
    folder: pathlib.Path,
    sentences: tuple[int, int, int] = (300, 60, 50),
    **sizes: float,
) -> pathlib.Path:
    """Writes a tiny encoder, its vocabulary and data; returns the folder."""
    train, dev, test = sentences
    tiny_runs.save_encoder(folder / "encoder", WORDS, **sizes)
    write_file(folder / "eng.train", 1, train)
    write_file(folder / "eng.testa", 2, dev)
    write_file(folder / "eng.testb", 3, test)
    write_file(folder / "words.txt", 3, test, tags=False)
    return folder


def run(folder, name, *switches, **flags):
    """Calls run_ner.py with flags; returns its output directory."""
    flags = {
        "data_dir": folder,
        "init_checkpoint": folder / "encoder",
        "output_dir": folder / name,
        "max_seq_length": 32,
        "learning_rate": 5e-3,
        "save_checkpoints_steps": 1000,
        "precision": "float32",
        "num_train_epochs": 8,
    } | flags
    tiny_runs.run(run_ner, run_ner.NerFlags, *switches, **flags)
    return folder / name
