"""Proves that run_embeddings.py trains vectors that other commands repeat.

python -m pytest tests/run_embeddings_test.py
"""

import json
import random
import shutil

import numpy as np
import pytest
import tiny_runs

import bert
import run_embeddings
from finetuning import given_model
from foundation import config_flags
from tasks.embeddings.task import Embeddings
from weights import sentence_modules

TOPICS = 24
WORDS = [f"{side}{i}" for side in "qa" for i in range(TOPICS)]
FILLERS = [f"w{i}" for i in range(9)]


def write_pairs(path, count, columns):
    """Writes pairs that share a topic: q3 and a3."""
    generator = random.Random(str(path))
    lines = [",".join(columns)]
    for i in range(count):
        topic = i % TOPICS
        names = [f"q{topic}", f"a{topic}", f"a{(topic + 7) % TOPICS}"]
        cells = [f"{x} {generator.choice(FILLERS)}" for x in names]
        lines.append(",".join(cells[: len(columns)]))
    path.write_text("\n".join(lines) + "\n")


def run(root, out="out", *switches, **flags):
    common = {
        "output_dir": root / out,
        "precision": "float32",
        "max_seq_length": 16,
    }
    if "do_train" in switches:
        common |= {
            "init_checkpoint": root / "encoder",
            "learning_rate": 3e-3,
            "train_batch_size": 24,
        }
    tiny_runs.run(
        run_embeddings,
        run_embeddings.EmbeddingsFlags,
        *(f"--{x}" for x in switches),
        **common | flags,
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("embeddings")
    words = tiny_runs.SPECIAL + WORDS + FILLERS
    tiny_runs.save_encoder(root / "encoder", words)
    columns = ("anchor", "positive", "negative")
    write_pairs(root / "train.csv", 240, columns)
    write_pairs(root / "dev.csv", 48, columns[:2])
    files = {"dev_file": root / "dev.csv"}
    run(root, "before", "do_eval", init_checkpoint=root / "encoder", **files)
    run(
        root,
        "out",
        "do_train",
        "do_eval",
        train_file=root / "train.csv",
        num_train_epochs=4,
        pooling="max",
        **files,
    )
    return root


def test_training_finds_the_right_text(root):
    before = tiny_runs.eval_results(root / "before")
    after = tiny_runs.eval_results(root / "out")
    assert before["eval_recall_at_5"] < 0.3
    assert after["eval_recall_at_5"] > 0.9
    assert after["eval_score"] == after["eval_mrr_at_10"]
    lines = (root / "out" / "metrics.jsonl").read_text().splitlines()
    steps = [x["step"] for x in map(json.loads, lines) if "eval/score" in x]
    assert steps == [10, 20, 30, 40]
    page = (root / "out" / "report.html").read_text()
    assert "Worst pairs" in page and "dev.csv:" in page
    assert "MRR" in page


def test_the_python_api_gives_the_vectors_of_the_evaluated_model(root):
    texts = ["q1 w2", "a1", "w3 w4 w5"]
    (root / "lines.txt").write_text("\n".join(texts) + "\n")
    run(root, "out", "do_predict", test_file=root / "lines.txt")
    with np.load(root / "out" / "embeddings.npz") as file:
        written = file["embedding"]
    found = sentence_modules.read(str(root / "out"))
    assert (found.pooling, found.normalize) == ("max", True)
    assert found.max_seq_length == 16
    np.testing.assert_allclose(np.linalg.norm(written, axis=1), 1, rtol=1e-5)
    model = bert.load(root / "out", precision="float32")
    np.testing.assert_allclose(model.predict(texts), written, atol=1e-5)
    again = tiny_runs.eval_results(root / "out")
    run(root, "out", "do_eval", dev_file=root / "dev.csv")
    assert tiny_runs.eval_results(root / "out") == again


def test_pairs_with_scores_have_a_correlation(root):
    lines = ["sentence1,sentence2,score"]
    lines += [f"q{i},a{(i * i) % TOPICS},{i % 6}" for i in range(TOPICS)]
    (root / "scores.csv").write_text("\n".join(lines) + "\n")
    scores = {"train_file": root / "scores.csv", "max_score": 5}
    scores |= {"dev_file": root / "scores.csv", "num_train_epochs": 1}
    run(root, "scored", "do_train", "do_eval", **scores)
    assert "eval_spearman" in tiny_runs.eval_results(root / "scored")
    text = (root / "scored" / "metrics.jsonl").read_text()
    assert json.loads(text.splitlines()[0])["train/grad_norm"] > 0.01


def opened(root, tmp_path, path, **flags):
    """Returns the task of a training on a table."""
    config = config_flags.build(
        run_embeddings.EmbeddingsFlags,
        **{
            "do_train": True,
            "train_file": str(path),
            "init_checkpoint": str(root / "encoder"),
            "output_dir": str(tmp_path / "out"),
            "max_seq_length": 16,
        }
        | flags,
    )
    model, config = given_model.find(config)
    return Embeddings(config, model)


def test_positives_that_are_all_the_same_are_named(root, tmp_path, caplog):
    """Each is a negative of the others."""
    path = tmp_path / "same.csv"
    path.write_text("anchor,positive\n" + "q1,a1\n" * 9)
    opened(root, tmp_path, path)
    assert "1 different positives in 9 examples" in caplog.text


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, ("cls", False)), ({"pooling": "max"}, ("max", False))],
)
def test_the_files_of_the_start_decide_without_flags(
    root, tmp_path, given, expected
):
    """A training keeps the pooling of the model that it starts from."""
    start = tmp_path / "start"
    shutil.copytree(root / "encoder", start)
    own = sentence_modules.SentenceModules(pooling="cls")
    sentence_modules.write(str(start), own, hidden_size=16)
    given = {"init_checkpoint": str(start), **given}
    found = opened(root, tmp_path, root / "train.csv", **given).modules
    assert (found.pooling, found.normalize) == expected


def test_negatives_make_a_batch_of_one_enough(root, tmp_path):
    path = tmp_path / "train.csv"
    path.write_text("anchor,positive,negative\nq1,a1,a2\n")
    opened(root, tmp_path, path, train_batch_size=(1,))
