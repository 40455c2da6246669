"""Embeddings on two replicas: the update and the vectors of one.

python -m pytest tests/run_embeddings_replicas_test.py
"""

import numpy as np
import pytest
import replica_runs
import run_embeddings_test as embedding_runs
import tiny_runs

import run_embeddings


@pytest.mark.all
def test_two_replicas_with_gradient_caches_train_as_one(tmp_path):
    """Each replica has the negatives of its part, as a micro-batch has."""
    words = tiny_runs.SPECIAL + embedding_runs.WORDS + embedding_runs.FILLERS
    tiny_runs.save_encoder(
        tmp_path / "encoder",
        words,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    columns = ("anchor", "positive", "negative")
    embedding_runs.write_pairs(tmp_path / "train.csv", 240, columns)
    texts = embedding_runs.WORDS + [f"q{i} w{i % 9} a2" for i in range(13)]
    (tmp_path / "lines.txt").write_text("\n".join(texts) + "\n")
    replica_runs.run(
        run_embeddings,
        run_embeddings.EmbeddingsFlags,
        tmp_path,
        "--do_train",
        "--do_predict",
        only_one={"gradient_accumulation_steps": 2},
        train_file=tmp_path / "train.csv",
        test_file=tmp_path / "lines.txt",
        init_checkpoint=tmp_path / "encoder",
        max_seq_length=16,
        precision="float32",
        learning_rate=3e-3,
        train_batch_size=24,
        num_train_epochs=2,
        # Of the 36 texts of a replica; the last part is filled up.
        gradient_cache_size=10,
    )
    vectors = {}
    for name in ("one", "two"):
        with np.load(tmp_path / name / "embeddings.npz") as file:
            vectors[name] = file["embedding"]
    assert vectors["one"].shape == (len(texts), 16)
    assert vectors["one"].std(axis=0).mean() > 0.05
    np.testing.assert_allclose(vectors["two"], vectors["one"], atol=1e-5)
