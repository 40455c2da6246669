r"""Compares the F1 of named entities over seeds with transformers.

    python benchmarks/tagging_scores.py --data_dir=conll2003 \
        --init_checkpoint=MODEL_DIR --peer_python=/path/to/python/with/torch \
        --output_dir=scores --num_train_epochs=1 --num_seeds=3

Ours is run_ner.py, the peer is tagging_peer.py. Both have the same encoder,
batch size, epochs, peak learning rate, warm-up, linear decay and weight decay.
The files that both write are scored by the rules of conlleval. If it was
interrupted, the same command continues with the next seed. Exits with code 1 if
the means differ by more than three standard errors.
"""

import dataclasses
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Literal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import comparison
import smoke

from foundation import config_flags

field = config_flags.field
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
SPLITS = ("dev", "test")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(comparison.ScoreComparison):
    """The flags of this comparison."""

    data_dir: str = field("Directory of eng.train, eng.testa and eng.testb.")
    document_context: Literal["none", "maximal"] = field(
        "Document context of our side.", "none"
    )
    doc_stride: int = field("Of our side; see run_ner.py.", 0)


def run_ours(config: Config, seed: int, folder: str) -> None:
    """Runs run_ner.py."""
    flags = config.our_flags(
        "data_dir",
        "document_context",
        "doc_stride",
        output_dir=folder,
        random_seed=seed,
    )
    command = [sys.executable, os.path.join(ROOT, "run_ner.py"), *flags]
    command += ["--do_train", "--do_eval", "--do_predict"]
    subprocess.run(command, check=True)


def run_peer(config: Config, seed: int, folder: str) -> None:
    """Runs tagging_peer.py."""
    flags = config.peer_flags(
        data_dir=config.data_dir, seed=seed, output_dir=folder
    )
    script = os.path.join(os.path.dirname(__file__), "tagging_peer.py")
    subprocess.run([config.peer_python, script, *flags], check=True)


def f1(path: str) -> float:
    """Returns the F1 of a file that ends in true and predicted tags."""
    from tasks.ner import tag_spans

    true: list[list[str]] = [[]]
    found: list[list[str]] = [[]]
    for line in pathlib.Path(path).read_text(encoding="utf-8").split("\n"):
        cells = line.split()
        if cells:
            true[-1].append(cells[-2])
            found[-1].append(cells[-1])
        else:
            true.append([])
            found.append([])
    return 100 * tag_spans.score(true, found).total.f1


def scores(config: Config, side: str, run: Callable) -> dict[str, list[float]]:
    """Runs a side with all seeds; returns split -> F1 of each seed."""
    found: dict[str, list[float]] = {split: [] for split in SPLITS}
    for seed in range(1, config.num_seeds + 1):
        folder = os.path.join(config.output_dir, f"{side}{seed}")
        paths = {
            x: os.path.join(folder, f"predictions_{x}.txt") for x in SPLITS
        }
        if not all(os.path.exists(path) for path in paths.values()):
            run(config, seed, folder)
        for split, path in paths.items():
            found[split].append(f1(path))
    return found


def main(config: Config) -> None:
    """Prints mean, standard deviation and difference for both splits."""
    config.check_recipe()
    sides = {"ours": scores(config, "ours", run_ours)}
    if config.peer_python:
        sides["peer"] = scores(config, "peer", run_peer)
    is_far = False
    for split in SPLITS:
        title = f"F1, {split}, context {config.document_context}"
        columns = {side: found[split] for side, found in sides.items()}
        is_far |= comparison.compare_scores(title, columns)
    sys.exit(1 if is_far else 0)


if __name__ == "__main__":
    with smoke.flags(
        {
            "data_dir": "DATA/conll2003",
            "init_checkpoint": "DATA/model",
            "output_dir": "DATA/scores",
            "num_seeds": 1,
            "num_train_epochs": 1,
        },
        smoke.encoder,
    ):
        config_flags.run(Config, main)
