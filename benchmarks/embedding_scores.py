r"""Compares run_embeddings.py over seeds with sentence-transformers.

    python benchmarks/embedding_scores.py --train_file=STS-B/train.tsv \
        --dev_file=STS-B/dev.tsv --max_score=5 --init_checkpoint=MODEL_DIR \
        --peer_python=/path/to/python/with/sentence-transformers \
        --num_train_epochs=1 --output_dir=embedding_scores

Both sides start from the same weights, and train with the same texts, loss,
batch size, epochs, peak learning rate and warm-up, in batches of similar
length: the peer with CosineSimilarityLoss or MultipleNegativesRankingLoss. With
--bias_correction --peer_schedule=released, optimizer and decay are equal. The
peer tokenizes by itself; our functions compute the scores of both. If it was
interrupted, the same command continues with the next seed. Prints processor
seconds of training, also. Exits with code 1 if the means differ by more than
three standard errors.
"""

import dataclasses
import json
import os
import sys
import time
import types

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import comparison
import numpy as np
import smoke

from foundation import config_flags

field = config_flags.field
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(comparison.ScoreComparison):
    """The flags of this comparison."""

    train_file: str = field("Training set of run_embeddings.py.")
    dev_file: str = field("Development set of run_embeddings.py.")
    max_score: float = field("The score that means a cosine of 1.", 1.0)
    max_seq_length: int = field("Maximum number of tokens.", 128)
    peer_seed: int = field("Set by the script itself.", 0)


def ours(config: Config) -> list[dict[str, float]]:
    """Runs run_embeddings.py with all seeds; returns the scores of each."""
    scores = []
    for seed in range(1, config.num_seeds + 1):
        folder = os.path.join(config.output_dir, f"ours{seed}")
        path = os.path.join(folder, "eval_results.json")
        if not os.path.exists(path):
            flags = config.our_flags(
                "train_file",
                "dev_file",
                "max_score",
                "max_seq_length",
                output_dir=folder,
                random_seed=seed,
            )
            program = os.path.join(ROOT, "run_embeddings.py")
            switches = ["--do_train", "--do_eval", "--eval_every_epoch=false"]
            seconds = comparison.run(
                [sys.executable, program, *flags, *switches]
            )
            print(f"ours, seed {seed}: {seconds:.0f} processor seconds")
        with open(path) as file:
            values = json.load(file)
        names = ("eval_score", "eval_spearman", "eval_mrr_at_10")
        scores.append(
            {x.removeprefix("eval_"): values[x] for x in names if x in values}
        )
    return scores


def peer(config: Config) -> list[dict[str, float]]:
    """Runs the peer with all seeds; returns the scores of each."""
    from tasks.embeddings import objective, text_groups

    groups = text_groups.open_groups(config.dev_file, "--dev_file")
    for name in ("train", "dev"):
        _write_texts(config, name)
    scores = []
    for seed in range(1, config.num_seeds + 1):
        path = os.path.join(config.output_dir, f"peer{seed}.npy")
        if not os.path.exists(path):
            command = comparison.command(
                __file__,
                config,
                config.peer_python,
                peer_seed=seed,
                precision=comparison.resolve_precision(config.precision),
            )
            seconds = comparison.run(command)
            print(f"peer, seed {seed}: {seconds:.0f} processor seconds")
        vectors = np.load(path)
        if groups.have_scores:
            scores.append(objective.correlations(vectors, groups.scores(None)))
        else:
            scores.append(objective.retrieval(list(groups.texts), vectors))
    return scores


def _write_texts(config: Config, name: str) -> None:
    """Writes the groups of texts of a set, and their scores, for the peer."""
    from tasks.embeddings import text_groups

    path = getattr(config, f"{name}_file")
    groups = text_groups.open_groups(path, f"--{name}_file")
    values = {"texts": [[x.first, *x.second] for x in groups.texts]}
    if groups.have_scores:
        largest = config.max_score if name == "train" else None
        values["scores"] = groups.scores(largest)[:, 0].tolist()
    with open(os.path.join(config.output_dir, f"{name}.json"), "w") as file:
        json.dump(values, file)


def train_peer(config: Config) -> None:
    """Trains sentence-transformers' model; writes the vectors of dev_file."""
    import sentence_transformers
    import torch
    import torch_peer
    import transformers
    from sentence_transformers import losses

    sets = {}
    for name in ("train", "dev"):
        with open(os.path.join(config.output_dir, f"{name}.json")) as file:
            sets[name] = json.load(file)
    transformers.set_seed(config.peer_seed)
    model = sentence_transformers.SentenceTransformer(
        config.init_checkpoint, device="cpu"
    )
    model.max_seq_length = config.max_seq_length
    texts, scores = sets["train"]["texts"], sets["train"].get("scores")
    make_loss = (
        losses.MultipleNegativesRankingLoss
        if scores is None
        else losses.CosineSimilarityLoss
    )

    class WithLoss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.loss = make_loss(model)

        def forward(self, features, labels):
            return types.SimpleNamespace(loss=self.loss(features, labels))

    def make_batch(rows):
        columns = zip(*(texts[i] for i in rows), strict=True)
        labels = [0.0 if scores is None else scores[i] for i in rows]
        return {
            "features": [model.tokenize(list(column)) for column in columns],
            "labels": torch.tensor(labels),
        }

    started = time.process_time()
    torch_peer.fit(
        WithLoss(),
        make_batch,
        [max(map(len, group)) for group in texts],
        batch_size=config.train_batch_size,
        epochs=config.num_train_epochs,
        learning_rate=config.learning_rate,
        seed=config.peer_seed,
        schedule_name=config.peer_schedule,
        precision=config.precision,
    )
    seconds = time.process_time() - started
    print(f"peer, training: {seconds:.0f} processor seconds", file=sys.stderr)
    groups = sets["dev"]["texts"]
    flat = [text for group in groups for text in group]
    vectors = model.encode(flat).reshape(len(groups), len(groups[0]), -1)
    path = os.path.join(config.output_dir, f"peer{config.peer_seed}.npy")
    np.save(path, vectors)


def main(config: Config) -> None:
    """Prints mean, standard deviation and difference of the score."""
    if config.peer_seed:
        return train_peer(config)
    config.check_recipe()
    sides = {"ours": ours(config)}
    if config.peer_python:
        sides["peer"] = peer(config)
    values = {side: [x["score"] for x in runs] for side, runs in sides.items()}
    sys.exit(1 if comparison.compare_scores("score", values) else 0)


if __name__ == "__main__":
    with smoke.flags(
        {
            "train_file": "DATA/glue/STS-B/train.tsv",
            "dev_file": "DATA/glue/STS-B/dev.tsv",
            "max_score": 5,
            "init_checkpoint": "DATA/model",
            "output_dir": "DATA/scores",
            "num_seeds": 1,
            "num_train_epochs": 1,
        },
        smoke.encoder,
    ):
        config_flags.run(Config, main)
