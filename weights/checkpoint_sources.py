"""Finds out what a checkpoint is: the one place that knows all kinds.

    .../bert_model.ckpt, model.ckpt-1000     TensorFlow, released TF1 names
    .../bert_model.ckpt-1, ckpt-5            TensorFlow 2, by Model Garden
    a directory with model.safetensors       Hugging Face, and our own
    models--bert-base-cased                  a folder of the Hugging Face cache
    a directory with `checkpoint` or one .index; model.safetensors itself;
    pytorch_model.bin, where torch is installed

All become one `Source`: stored tensors under our names, in our layout, and what
lies beside them. Of a directory that holds several kinds, safetensors count.
"""

import dataclasses
import os

import tensorflow as tf

from foundation import errors, file_system
from modeling.config import BertConfig
from weights import (
    hugging_face,
    model_directory,
    model_garden,
    stored_weights,
    tensorflow_checkpoints,
    tokenizer_files,
)
from weights.stored_weights import Matched, StoredTensor

TENSORFLOW, TENSORFLOW_2 = "TensorFlow checkpoint", "Model Garden checkpoint"
SAFETENSORS, TORCH = "safetensors", "PyTorch state dict"
# What is read beside weights.
_READ_BESIDE = (
    model_directory.CONFIG,
    model_directory.RELEASED_CONFIG,
    tokenizer_files.VOCABULARY,
    tokenizer_files.SETTINGS,
    tokenizer_files.FAST,
)
# What else people have, which nothing here reads.
_UNREADABLE = ("tf_model.h5", "flax_model.msgpack", "model.onnx")
# Settings by which two models of the same shapes may differ, and the shapes.
MUST_AGREE = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "max_position_embeddings",
    "type_vocab_size",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A checkpoint of any kind, its values not read yet.

    Attributes:
      path: the file, or the prefix of the files.
      kind: one of this module's constants.
      directory: where the config and the vocabulary lie, if anywhere; of a
        checkpoint in a bucket, a folder with copies of them.
      config: what lies beside the weights; None without.
      tensors: our path -> tensor in our layout.
      others: name -> tensor that BERT has no place for.
      training_state: name -> optimizer slot or step.
      num_attention_heads: where the weights show it, else None.
    """

    path: str
    kind: str
    directory: str
    config: BertConfig | None
    tensors: dict[str, StoredTensor]
    others: dict[str, StoredTensor]
    training_state: dict[str, StoredTensor]
    num_attention_heads: int | None = None

    @property
    def has_settings(self) -> bool:
        """Whether a config.json lies beside the weights."""
        path = os.path.join(self.directory, model_directory.CONFIG)
        return os.path.isfile(path)

    @property
    def problem_type(self) -> str | None:
        """What transformers is told of a classifier's labels, if anything."""
        if not self.has_settings:
            return None
        return model_directory.read_problem_type(self.directory)


def read(path: str, *, needs_data: bool = True) -> Source:
    """Opens a checkpoint.

    Args:
      path: a file, the prefix of TensorFlow's files, or a directory.
      needs_data: whether the values must be there, not only their names.

    Raises:
      InputError: there is none, or it is damaged.
    """
    path = path.rstrip("/") or path
    if tf.io.gfile.isdir(path):
        path = _in_directory(_snapshot(path))
    if path.endswith((".safetensors", hugging_face.INDEX)):
        return _safetensors(path)
    if os.path.basename(path) == hugging_face.TORCH_NAME or path.endswith(
        (".bin", ".pt", ".pth")
    ):
        if not file_system.exists(path):
            raise errors.InputError(f"{path}: no such file")
        stored = hugging_face.read_torch_file(file_system.local(path))
        return _hugging_face(path, TORCH, stored)
    return _tensorflow(_prefix(path), needs_data)


def check_config(source: Source, config: BertConfig, name: str) -> None:
    """Refuses weights that were made for another model.

    Args:
      source: the weights.
      config: the model they are meant for.
      name: where `config` is from, e.g. "--bert_config_file".
    """
    found = source.num_attention_heads
    if found and found != config.num_attention_heads:
        raise errors.InputError(
            f"{source.path} has {found} attention heads, but {name} says "
            f"{config.num_attention_heads}"
        )
    if source.config is None:
        return
    for key in MUST_AGREE:
        theirs, ours = getattr(source.config, key), getattr(config, key)
        if theirs != ours:
            hint = ""
            if key == "hidden_act" and {theirs, ours} == {"gelu", "gelu_erf"}:
                hint = (
                    " (gelu is the released tanh form, gelu_erf the one that "
                    'Hugging Face calls "gelu")'
                )
            raise errors.InputError(
                f"{source.path} belongs to a model whose {key} is {theirs}, "
                f"but {name} says {ours}{hint}"
            )


def _snapshot(directory: str) -> str:
    """Steps down from a folder of the Hugging Face cache to its files."""
    snapshots = os.path.join(directory, "snapshots")
    if not os.path.isdir(snapshots):
        return directory
    main = os.path.join(directory, "refs", "main")
    if os.path.isfile(main):
        with open(main, encoding="utf-8") as file:
            revision = file.read(200).strip()
        if revision in os.listdir(snapshots):
            return os.path.join(snapshots, revision)
    found = sorted(os.listdir(snapshots))
    if len(found) != 1:
        raise errors.InputError(
            f"{directory}: {len(found)} snapshots and no refs/main that names "
            "one of them"
        )
    return os.path.join(snapshots, found[0])


def _in_directory(directory: str) -> str:
    """Finds the checkpoint of a directory."""
    for name in (hugging_face.NAME, hugging_face.INDEX):
        path = os.path.join(directory, name)
        if file_system.exists(path):
            return path
    prefix = tensorflow_checkpoints.find(directory)
    if prefix is not None:
        return prefix
    path = os.path.join(directory, hugging_face.TORCH_NAME)
    if file_system.exists(path):
        return path
    found = [
        name
        for name in _UNREADABLE
        if file_system.exists(os.path.join(directory, name))
    ]
    because = f"; {found[0]} cannot be read here" if found else ""
    raise errors.InputError(
        f"{directory}: no {hugging_face.NAME} and no TensorFlow "
        f"checkpoint there{because}"
    )


def _prefix(path: str) -> str:
    """Accepts one of the checkpoint's files for their prefix."""
    for mark in (".index", ".data-"):
        head, found, _ = path.rpartition(mark)
        if found and tf.io.gfile.exists(head + ".index"):
            return head
    if tf.io.gfile.exists(path + ".index"):
        return path
    raise errors.InputError(f"{path}: no such checkpoint or directory")


def _tensorflow(prefix: str, needs_data: bool) -> Source:
    """Opens what TensorFlow wrote."""
    stored = tensorflow_checkpoints.read(prefix, needs_data=needs_data)
    kind, heads = TENSORFLOW, None
    if tensorflow_checkpoints.OBJECT_GRAPH in stored:
        kind = TENSORFLOW_2
        matched, heads = model_garden.read(prefix, stored)
    else:
        matched = tensorflow_checkpoints.match(stored)
    state = {
        name: tensor
        for name, tensor in matched.others.items()
        if tensorflow_checkpoints.is_training_state(name)
        or kind == TENSORFLOW_2
        and model_garden.is_training_state(name)
    }
    directory = _beside(prefix)
    names = (model_directory.RELEASED_CONFIG, model_directory.CONFIG)
    others = {k: v for k, v in matched.others.items() if k not in state}
    return Source(
        path=prefix,
        kind=kind,
        directory=directory,
        config=_config(directory, names),
        tensors=matched.tensors,
        others=others,
        training_state=state,
        num_attention_heads=heads,
    )


def _safetensors(path: str) -> Source:
    """Opens one file, or the parts that an index names."""
    if path.endswith(hugging_face.INDEX):
        folder = os.path.dirname(path) or "."
        parts = tf.io.gfile.glob(os.path.join(folder, "*.safetensors"))
        names = [hugging_face.INDEX, *map(os.path.basename, parts)]
        folder = file_system.local_folder(folder, names)
        stored = hugging_face.read_directory(folder)
    elif file_system.exists(path):
        stored = hugging_face.read_file(file_system.local(path))
    else:
        raise errors.InputError(f"{path}: no such file")
    return _hugging_face(path, SAFETENSORS, stored)


def _hugging_face(
    path: str, kind: str, stored: dict[str, StoredTensor]
) -> Source:
    """Makes a source of tensors under Hugging Face's names."""
    directory = _beside(path)
    names = (model_directory.CONFIG, model_directory.RELEASED_CONFIG)
    matched: Matched = stored_weights.from_hugging_face(path, stored)
    return Source(
        path=path,
        kind=kind,
        directory=directory,
        config=_config(directory, names),
        tensors=matched.tensors,
        others=matched.others,
        training_state={},
    )


def _beside(path: str) -> str:
    """Returns the folder of a file, or of copies of what is read there."""
    folder = os.path.dirname(path) or "."
    return file_system.local_folder(folder, _READ_BESIDE)


def _config(directory: str, names: tuple) -> BertConfig | None:
    """Reads the first of these configs that there is."""
    for name in names:
        path = os.path.join(directory, name)
        if os.path.exists(path):
            return BertConfig.from_json_file(path)
    return None
