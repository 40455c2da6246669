"""Tiny models in the form of sentence-transformers, for tests and goldens."""

import json
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import safetensors.numpy

from weights import sentence_modules

ENCODER = pathlib.Path(__file__).parents[1] / "testdata" / "tiny_pretrained"
TEXTS = [
    "The cat sees a river in spring.",
    "My friend",
    "the OLD man remembers some snow every day. A child wakes slowly again.",
]
FLAGS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
}
# What each golden vector is made with: arguments of `save`.
CASES: dict[str, dict[str, Any]] = {
    "first token": {"pooling": ["cls"], "max_seq_length": 8},
    "dense": {
        "pooling": ["mean"],
        "dense": [(16, 4, "torch.nn.modules.activation.Tanh")],
        "normalize": True,
        "is_old": False,
    },
    "joined": {
        "pooling": ["cls", "mean"],
        "dense": [
            (32, 5, "torch.nn.modules.activation.GELU"),
            (5, 3, "torch.nn.modules.linear.Identity"),
        ],
        "is_old": False,
        "max_seq_length": 12,
    },
    "all poolings": {
        "pooling": [
            "max",
            "mean_sqrt_len_tokens",
            "weightedmean",
            "lasttoken",
        ],
        "is_old": False,
        "normalize": True,
    },
    "folder": {
        "pooling": ["mean", "max"],
        "encoder": "0_Transformer",
        "do_lower_case": True,
        "max_seq_length": 10,
    },
}
WRITTEN: dict[str, Any] = {
    "pooling": "max",
    "normalize": True,
    "max_seq_length": 9,
}


def save(
    directory: pathlib.Path,
    *,
    pooling: Sequence[str],
    dense: Sequence[tuple[int, int, str]] = (),
    normalize: bool = False,
    encoder: str = "",
    is_old: bool = True,
    max_seq_length: int | None = None,
    do_lower_case: bool = False,
) -> pathlib.Path:
    """Saves a model.

    Args:
      directory: is made.
      pooling: names of sentence-transformers.
      dense: input size, output size and activation of each layer.
      normalize: whether there is a Normalize module.
      encoder: the folder of the encoder.
      is_old: whether the files are those of versions before 5.
      max_seq_length: None writes none; the tokenizer has 48.
      do_lower_case: lower-cases the text before a cased tokenizer.
    """
    shutil.copytree(ENCODER, directory / encoder)
    sentences = {"max_seq_length": max_seq_length}
    if do_lower_case:
        sentences["do_lower_case"] = True
        edit(directory / encoder / "tokenizer_config.json", do_lower_case=False)
    write(directory / encoder / "sentence_bert_config.json", sentences)
    config: dict[str, Any] = {"pooling_mode": list(pooling)}
    if is_old:
        config = {flag: name in pooling for name, flag in FLAGS.items()}
    config["word_embedding_dimension"] = 16
    modules = [("Transformer", encoder), ("Pooling", "1_Pooling")]
    write(directory / "1_Pooling" / "config.json", config)
    for number, (inputs, outputs, activation) in enumerate(dense, 2):
        folder = f"{number}_Dense"
        modules.append(("Dense", folder))
        config = {
            "in_features": inputs,
            "out_features": outputs,
            "bias": True,
            "activation_function": activation,
        }
        write(directory / folder / "config.json", config)
        rng = np.random.default_rng(number)
        size = (outputs, inputs)
        weights = {
            "linear.weight": rng.normal(0, 0.3, size).astype(np.float32),
            "linear.bias": rng.normal(0, 0.3, outputs).astype(np.float32),
        }
        safetensors.numpy.save_file(
            weights, directory / folder / "model.safetensors"
        )
    if normalize:
        modules.append(("Normalize", f"{len(modules)}_Normalize"))
    entries = [
        {"idx": i, "name": str(i), "path": path, "type": _type(name, is_old)}
        for i, (name, path) in enumerate(modules)
    ]
    write(directory / "modules.json", entries)
    return directory


def save_written(directory: pathlib.Path) -> pathlib.Path:
    """Saves a model whose modules this project writes."""
    shutil.copytree(ENCODER, directory)
    modules = sentence_modules.SentenceModules(**WRITTEN)
    sentence_modules.write(str(directory), modules, hidden_size=16)
    return directory


def _type(name: str, is_old: bool) -> str:
    if is_old:
        return f"sentence_transformers.models.{name}"
    room = "sentence_transformer" if name == "Pooling" else "base"
    return f"sentence_transformers.{room}.modules.{name.lower()}.{name}"


def write(path: pathlib.Path, value: Any) -> None:
    """Writes a JSON file and its folder."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))


def edit(path: pathlib.Path, **values: Any) -> None:
    """Replaces values of a JSON object in a file; None removes them."""
    found = json.loads(path.read_text()) if path.exists() else {}
    found = {k: x for k, x in (found | values).items() if x is not None}
    write(path, found)
