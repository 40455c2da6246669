"""Runs the examples at their smallest size. See also serving/example_test.

python -m pytest tests/example_scripts_test.py
"""

import json
import re

import pytest
import tiny_runs

NAMES = ("masked_lm_accuracy", "next_sentence_accuracy", "package_accuracy")


@pytest.mark.all
def test_the_complete_path_prints_what_it_has_learned(tmp_path, capsys):
    folder = tmp_path / "new"
    sizes = "--num_train_steps=2", "--num_characters=150000"
    tiny_runs.start("examples/minimal", f"--output_dir={folder}", *sizes)
    shown = capsys.readouterr().out
    for name in NAMES:
        assert re.search(rf"{name} 0\.\d+, baseline 0\.\d+", shown), name
    # Two sentences, each with the four best tokens.
    assert len(re.findall(r"\[MASK\].*(  \S+ 0\.\d+){4}$", shown, re.M)) == 2
    assert (folder / "pretrained" / "model.safetensors").exists()


def test_two_grids_are_compared_by_their_seeds(tmp_path, monkeypatch, capsys):
    for name, scores in (("a", (0.7, 0.72, 0.74)), ("b", (0.77, 0.73, 0.74))):
        runs = {
            f"lr1e-4_seed{seed}": {"values": {"score": score}}
            for seed, score in zip((1, 2, 3), scores, strict=True)
        }
        (tmp_path / name).mkdir()
        text = json.dumps({"runs": dict(sorted(runs.items(), reverse=True))})
        (tmp_path / name / "run.json").write_text(text)
    monkeypatch.chdir(tmp_path)
    tiny_runs.start("examples/compare_grids", "a", "b")
    # Of the differences 0.07, 0.01, 0: t = 1.2200 with 2 degrees of freedom, so
    # p = 1 - t / sqrt(t * t + 2). Welch's t is 1.6, with 3.9936 degrees.
    assert capsys.readouterr().out.splitlines() == [
        "a: 0.7200 +- 0.0200 (3 seeds)",
        "b: 0.7467 +- 0.0208 (3 seeds)",
        "difference +0.0267, p 0.347 paired, 0.185 Welch",
    ]


RELATIONS = {
    "born_in": "Ada was born in London .",
    "works_for": "Ada works for Siemens .",
}


def relations(path, count):
    """Writes lines whose label is the word between the entities."""
    lines = []
    for i in range(count):
        label = [*RELATIONS][i % 2]
        text = RELATIONS[label]
        tail = len(text) - 2
        spans = {"head": [0, 3], "tail": [text.rindex(" ", 0, tail) + 1, tail]}
        lines.append(json.dumps({"text": text, "label": label, **spans}))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.slow
def test_a_task_of_ones_own_trains_and_predicts(tmp_path, capsys):
    words = [*tiny_runs.SPECIAL, ".", "ada", "born", "for", "in", "london"]
    words += ["siemens", "was", "works"]
    start = tiny_runs.save_encoder(
        tmp_path / "start", words, hidden_dropout_prob=0.0
    )
    train = relations(tmp_path / "train.jsonl", 64)
    test = relations(tmp_path / "test.jsonl", 5)
    out = tmp_path / "out"

    tiny_runs.start(
        "examples/relations",
        f"--train_file={train}",
        f"--dev_file={train}",
        f"--init_checkpoint={start}",
        f"--output_dir={out}",
        "--learning_rate=0.01",
        "--num_train_epochs=20",
        "--max_seq_length=32",
        "--do_train",
        "--do_eval",
    )
    predict = [f"--output_dir={out}", f"--test_file={test}", "--do_predict"]
    tiny_runs.start("examples/relations", *predict)
    rows = (out / "predictions.jsonl").read_text().splitlines()
    labels = [json.loads(row)["label"] for row in rows]
    assert labels == [[*RELATIONS][i % 2] for i in range(5)]
    tokens = (out / "vocab.txt").read_text().split()
    assert tokens[-4:] == ["[E1]", "[/E1]", "[E2]", "[/E2]"]
    # Two entities cannot overlap; the place of a mark would be ambiguous.
    row = json.loads(test.read_text().splitlines()[0])
    for wrong in ({"tail": [1, 2]}, {"text": f"{row['text']} [E1]"}):
        test.write_text(json.dumps(row | wrong) + "\n")
        with pytest.raises(SystemExit):
            tiny_runs.start("examples/relations", *predict)
        line = capsys.readouterr().err.splitlines()[-1]
        assert f"{test}:1: head and tail" in line
