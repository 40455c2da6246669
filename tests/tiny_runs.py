"""A tiny encoder, and calls of commands with command-line flags."""

import pathlib
import runpy
import shutil
import sys
import types
from unittest import mock

from modeling import models
from modeling.config import BertConfig
from weights import model_directory

ROOT = pathlib.Path(__file__).resolve().parent.parent
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SEED = 3


def config(words: list[str], **sizes: float) -> BertConfig:
    """Returns tiny hyperparameters for a vocabulary."""
    tiny = dict(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=48,
        type_vocab_size=2,
    )
    return BertConfig(vocab_size=len(words), **(tiny | sizes))


def save_encoder(
    directory: pathlib.Path,
    words: list[str],
    *,
    attention: str = "bidirectional",
    **sizes: float,
) -> pathlib.Path:
    """Saves random weights and their vocabulary; returns the directory."""
    encoder = models.PretrainingModel(
        config(words, **sizes), attention=attention, seed=SEED
    )
    model_directory.save(encoder, str(directory))
    (directory / "vocab.txt").write_text("\n".join(words) + "\n")
    return directory


def start(command: str, *arguments: object) -> None:
    """Runs a command as its users start it, but in this process."""
    path = str(ROOT / f"{command}.py")
    with mock.patch.object(sys, "argv", [path, *map(str, arguments)]):
        runpy.run_path(path, run_name="__main__")


def run(runner: types.ModuleType, flag_names: type, *switches, **flags) -> None:
    """Starts a command; flags that are None are omitted."""
    del flag_names
    given = [f"--{k}={v}" for k, v in flags.items() if v is not None]
    start(runner.__name__, *given, *switches)


def killed(folder: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
    """Copies what a training leaves that is killed before its end."""
    to.mkdir()
    for path in folder.iterdir():
        if path.name.startswith(
            ("checkpoint", "model.ckpt-", "run_config", "run.json")
        ):
            shutil.copy(path, to)
    return to


def eval_results(folder: pathlib.Path) -> dict[str, float]:
    """Reads eval_results.txt."""
    lines = (folder / "eval_results.txt").read_text().splitlines()
    return {k: float(v) for k, v in (line.split(" = ") for line in lines)}
