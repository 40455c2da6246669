"""Tiny SQuAD files, and calls of run_squad.py with command-line flags."""

import json
import random
import shutil

import tiny_runs

import run_squad

NAMES = ["anna", "bert", "carl", "dora"]
FILLING = [f"w{i}" for i in range(20)]
WORDS = [*tiny_runs.SPECIAL, *NAMES, *FILLING, "who", "?", "."]


def dataset(seed, count, *, impossible=False, answers=True):
    """Returns paragraphs with one name each, which is the answer."""
    rng = random.Random(seed)
    paragraphs = []
    for number in range(count):
        words = rng.choices(FILLING, k=rng.choice([3, 10, 40]))
        words = [word.title() for word in words]
        qa = {"id": f"q{seed}-{number}", "question": "Who?", "answers": []}
        is_impossible = impossible and rng.random() < 0.4
        if not is_impossible:
            position = rng.randrange(len(words))
            name = rng.choice(NAMES).title()
            words.insert(position, name)
            start = len("  ".join(words[:position])) + (2 if position else 0)
            qa["answers"] = [{"text": name, "answer_start": start}]
        if impossible:
            qa["is_impossible"] = is_impossible
        if not answers:
            qa["answers"] = []
            qa.pop("is_impossible", None)
        context = "  ".join(words) + "."
        paragraphs.append({"context": context, "qas": [qa]})
    return {"version": "x", "data": [{"title": "t", "paragraphs": paragraphs}]}


def save_data(folder, **sizes):
    """Saves a tiny encoder with its vocabulary, and data of both versions."""
    tiny_runs.save_encoder(
        folder / "encoder", WORDS, max_position_embeddings=32, **sizes
    )
    for name, seed, count, impossible in (
        ("train1", 1, 200, False),
        ("dev1", 2, 40, False),
        ("train2", 3, 200, True),
        ("dev2", 4, 40, True),
    ):
        made = dataset(seed, count, impossible=impossible)
        (folder / f"{name}.json").write_text(json.dumps(made))
    for name, seed, impossible in (("test1", 2, False), ("test2", 4, True)):
        made = dataset(seed, 40, impossible=impossible, answers=False)
        (folder / f"{name}.json").write_text(json.dumps(made))
    return folder


def run(folder, name, *switches, version=1, **flags):
    """Calls run_squad.py with flags; returns its output directory."""
    flags = {
        "train_file": folder / f"train{version}.json",
        "predict_file": folder / f"dev{version}.json",
        "init_checkpoint": folder / "encoder",
        "output_dir": folder / name,
        "max_seq_length": 32,
        "doc_stride": 8,
        "max_query_length": 4,
        "learning_rate": 1e-2,
        "precision": "float32",
        "num_train_epochs": 10,
    } | flags
    tiny_runs.run(run_squad, run_squad.SquadFlags, *switches, **flags)
    return folder / name


def read(folder, name):
    """Reads a JSON file of a run."""
    return json.loads((folder / name).read_text())


def killed(folder, to):
    """Copies what a training leaves that is killed before its end."""
    to.mkdir()
    for path in folder.iterdir():
        if path.name.startswith(("checkpoint", "model.ckpt-")):
            shutil.copy(path, to)
    journal = read(folder, "run.json")
    for name in ("runs", "best", "evaluations", "sets"):
        journal.pop(name, None)
    (to / "run.json").write_text(json.dumps(journal))
    return to
