"""Writes checkpoints in forms that others write and we only read."""

import json
import pathlib
import re

import h5py
import numpy as np
import safetensors.numpy
import tensorflow as tf

from weights import stored_weights

REVISION = "0123456789abcdef0123456789abcdef01234567"
# A released path -> the name of a TensorFlow model of transformers 4.
_KERAS_NAMES = (
    (r"(.*/word_embeddings)", r"\1/weight"),
    (r"(.*/(?:position|token_type)_embeddings)", r"\1/embeddings"),
    (r"(.*)/layer_(\d+)/(.*)", r"\1/layer_._\2/\3"),
    (r"cls/predictions/output_bias", "mlm___cls/predictions/bias"),
    (r"cls/predictions/(.*)", r"mlm___cls/predictions/\1"),
    (r"cls/seq_relationship/(.*)", r"nsp___cls/seq_relationship/\1"),
    (r"cls/squad/(.*)", r"qa_outputs/\1"),
    (r"(output_(?:weights|bias))", r"classifier/\1"),
)


def _hugging_face(source) -> dict:
    """Returns the tensors under Hugging Face's names."""
    tensors = {}
    for path, tensor in source.tensors.items():
        row = stored_weights.by_path(path)
        value = tensor.read()
        tensors[row.hugging_face] = np.ascontiguousarray(
            value.T if row.is_transposed else value
        )
    return tensors


def _config(source, directory: pathlib.Path) -> None:
    """Writes config.json."""
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(source.config.to_hugging_face())
    (directory / "config.json").write_text(text)


def sharded(source, directory: pathlib.Path) -> pathlib.Path:
    """Splits the weights over two files and an index, as large models are."""
    _config(source, directory)
    tensors = _hugging_face(source)
    names, weight_map = sorted(tensors), {}
    for i, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-{i:05d}-of-00002.safetensors"
        safetensors.numpy.save_file(
            {name: tensors[name] for name in part}, directory / file
        )
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def old_names(source, directory: pathlib.Path) -> pathlib.Path:
    """Writes gamma and beta, no "bert.", and copies of tied tensors."""
    _config(source, directory)
    tensors = {}
    for name, value in _hugging_face(source).items():
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        old = old.replace("LayerNorm.bias", "LayerNorm.beta")
        tensors[old.removeprefix("bert.")] = value
    words = tensors["embeddings.word_embeddings.weight"]
    tensors["cls.predictions.decoder.weight"] = words.copy()
    tensors["embeddings.position_ids"] = np.arange(512)[None]
    safetensors.numpy.save_file(tensors, directory / "model.safetensors")
    return directory


def hub_cache(source, directory: pathlib.Path) -> pathlib.Path:
    """Lays out a folder of the Hugging Face cache, with its links."""
    folder = directory / "models--sentence-transformers--all-MiniLM-L6-v2"
    snapshot = folder / "snapshots" / REVISION
    _config(source, snapshot)
    (folder / "blobs").mkdir()
    (folder / "refs").mkdir()
    (folder / "refs/main").write_text(REVISION)
    (folder / "snapshots" / ("f" * 40)).mkdir()
    safetensors.numpy.save_file(_hugging_face(source), folder / "blobs/abc")
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
    return folder


# Parts of our paths, and what Model Garden calls them.
_GARDEN_NAMES = (
    ("bert/encoder/layer_", "_transformer_layers/"),
    (r"attention/self/(\w+)", r"_attention_layer/_\1_dense"),
    ("attention/output/dense", "_attention_layer/_output_dense"),
    ("attention/output/LayerNorm", "_attention_layer_norm"),
    ("(?<=[0-9]/)intermediate/dense", "_intermediate_dense"),
    ("(?<=[0-9]/)output/dense", "_output_dense"),
    ("(?<=[0-9]/)output/LayerNorm", "_output_layer_norm"),
    ("bert/embeddings/LayerNorm", "_embedding_norm_layer"),
    ("bert/embeddings/word_.*", "_embedding_layer/embeddings"),
    ("bert/embeddings/position_.*", "_position_embedding_layer/embeddings"),
    ("bert/embeddings/token_.*", "_type_embedding_layer/embeddings"),
    ("bert/pooler/dense", "_pooler_layer"),
    ("cls/predictions/transform/LayerNorm", "masked_lm/layer_norm"),
    ("cls/predictions/transform/dense", "masked_lm/dense"),
    ("cls/predictions/output_bias", "masked_lm/bias"),
    ("cls/seq_relationship", "next_sentence"),
    ("cls/squad", "span_labeling"),
    ("^output_", "sentence_prediction/output_"),
    ("output_weights", "kernel"),
    ("output_bias", "bias"),
)


def model_garden(
    source, directory: pathlib.Path, numbered: bool = True
) -> pathlib.Path:
    """Saves objects that are named as Model Garden's encoder names them.

    Args:
      source: the weights.
      directory: where to.
      numbered: a functional encoder's layer_with_weights-N, else attributes.
    """
    directory.mkdir(parents=True, exist_ok=True)
    heads = source.config.num_attention_heads
    layers = source.config.num_hidden_layers
    root = tf.train.Checkpoint()
    for path, tensor in source.tensors.items():
        value = tensor.read()
        if "/attention/" in path and "LayerNorm" not in path:
            if path.endswith("/bias"):
                shape = (heads, -1)
            elif "/attention/output/" in path:
                shape = (heads, -1, value.shape[1])
            else:
                shape = (value.shape[0], heads, value.shape[1] // heads)
            if not path.endswith("output/dense/bias"):
                value = value.reshape(shape)
        if path.endswith("output_weights"):
            value = value.T
        name = path
        for pattern, form in _GARDEN_NAMES:
            name = re.sub(pattern, form, name)
        _track(root, _placed(name, layers, numbered), value)
    root.save_counter  # noqa: B018 (is made on first use)
    prefix = root.write(str(directory / "ckpt-1"))
    text = json.dumps(source.config.to_dict())
    (directory / "bert_config.json").write_text(text)
    return pathlib.Path(prefix)


def _placed(name: str, layers: int, numbered: bool) -> list[str]:
    """Returns the objects on the way to a variable."""
    first, *rest = name.split("/")
    if first in ("masked_lm", "span_labeling"):
        return [first, *rest]
    if first in ("next_sentence", "sentence_prediction"):
        return ["model", "classification_heads", "0", "out_proj", *rest]
    if not numbered:
        return ["encoder", first, *rest]
    order = {
        "_embedding_layer": 0,
        "_position_embedding_layer": 1,
        "_type_embedding_layer": 2,
        "_embedding_norm_layer": 3,
        "_pooler_layer": 4 + layers,
    }
    number = order.get(first)
    if number is None:
        number, rest = 4 + int(rest[0]), rest[1:]
    return ["encoder", f"layer_with_weights-{number}", *rest]


def keras_values(tensors) -> dict[str, np.ndarray]:
    """Returns weights as a TensorFlow model of transformers 4 has them.

    Args:
      tensors: our path -> StoredTensor.
    """
    values = {}
    for path, tensor in tensors.items():
        name, value = path, tensor.read()
        for pattern, form in _KERAS_NAMES:
            if found := re.fullmatch(pattern, path):
                name = found.expand(form)
                break
        if name.endswith("output_weights"):
            value = value.T
        name = name.replace("output_weights", "kernel")
        name = name.replace("output_bias", "bias")
        values[f"{name}:0"] = np.ascontiguousarray(value)
    return values


def keras_hdf5(
    tensors,
    path: pathlib.Path,
    *,
    model: str = "tf_bert_for_pre_training",
    root: str = "",
    is_nested: bool = False,
) -> pathlib.Path:
    """Writes tf_model.h5 of transformers 4, or a Keras model's own file.

    Args:
      tensors: our path -> StoredTensor.
      path: the file.
      model: the name of the encoder's model.
      root: the group of the layers.
      is_nested: whether the model is a layer of a Keras model; otherwise its
        layers are at the top, and those that use the word embeddings have them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        group = file.require_group(root) if root else file
        for name, value in keras_values(tensors).items():
            layers = [model] if is_nested else [name.partition("/")[0]]
            if "word_embeddings" in name and not is_nested:
                layers.append("mlm___cls")
            for layer in layers:
                group[f"{layer}/{model}/{name}"] = value
        group.create_group("dropout_37")
    return path


# A name in a file of Keras 2 -> the attributes of the objects.
_KERAS_ATTRIBUTES = (
    ("word_embeddings/weight", "weight"),
    ("position_embeddings/embeddings", "embeddings"),
    ("token_type_embeddings/embeddings", "token_type_embeddings"),
    ("layer_._", "layer/"),
    ("attention/self/", "attention/self_attention/"),
    ("attention/output/", "attention/dense_output/"),
    ("mlm___cls", "mlm"),
    ("nsp___cls", "nsp"),
)


def keras_checkpoint(tensors, prefix: str, *, scope: str = "") -> None:
    """Writes the checkpoint of a Keras model, with slots of its optimizer.

    Args:
      tensors: our path -> StoredTensor.
      prefix: the path of the files up to ".index".
      scope: where the model of transformers is, ending in "/".
    """
    root = tf.train.Checkpoint()
    for name, value in keras_values(tensors).items():
        path = name.removesuffix(":0")
        for scopes, attributes in _KERAS_ATTRIBUTES:
            path = path.replace(scopes, attributes)
        if re.search(r"/layer/\d+/output/", path):
            path = path.replace("/output/", "/bert_output/")
        _track(root, [*scope.split("/")[:-1], *path.split("/")], value)
    _track(root, ["optimizer", "_variables", "1"], np.ones(3, np.float32))
    root.save_counter  # noqa: B018 (is made on first use)
    root.write(prefix)


def _track(parent, names: list[str], value: np.ndarray) -> None:
    """Attaches a variable below objects of these names."""
    *scopes, last = names
    for scope in scopes:
        child = getattr(parent, scope, None)
        if child is None:
            child = tf.Module()
            setattr(parent, scope, child)
        parent = child
    setattr(parent, last, tf.Variable(value))
