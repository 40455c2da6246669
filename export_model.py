r"""Exports a model as a SavedModel that takes text, or as ONNX.

The tokenizer is part of the graph. A program needs only tensorflow and
tensorflow_text to load it; serve.py and TensorFlow Serving serve it.

    python export_model.py --model_dir=mrpc --output_dir=exported/mrpc

    import tensorflow as tf
    import tensorflow_text

    model = tf.saved_model.load("exported/mrpc")
    model.signatures["serving_default"](
        text=tf.constant(["He left."]), text_pair=tf.constant(["He went."]))

--model_dir is a model directory of any task, or a released checkpoint, of which
the masked-LM head or, with --task=sentence_embedding, the encoder is exported:

    python export_model.py --model_dir=all-MiniLM-L6-v2 \
        --task=sentence_embedding --output_dir=exported/minilm

A task of your own is named by its class; its export takes token ids:

    python export_model.py --model_dir=relations \
        --task=examples.relations:Relations --output_dir=exported/relations

--format=onnx writes model.onnx, which takes token ids, for onnxruntime:

    python export_model.py --model_dir=mrpc --format=onnx --output_dir=onnx/mrpc
"""

import dataclasses
import importlib.util
from typing import Any, Literal

from absl import logging

from foundation import config_flags, errors
from serving.settings import ModelOptions

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportConfig(ModelOptions):
    """Everything export_model.py needs to know."""

    model_dir: str = field("A model directory or a released checkpoint.")
    output_dir: str = field("Directory of the SavedModel or of model.onnx.")
    format: Literal["saved_model", "onnx"] = field(
        "onnx: the encoder and its head, from token ids to logits.",
        "saved_model",
    )
    precision: Literal["float32", "bfloat16", "int8"] = field(
        "bfloat16, of a SavedModel, is faster on hardware that multiplies it; "
        "int8, of ONNX, has weights of 8 bits.",
        "float32",
    )

    def __post_init__(self):
        """Raises ValueError for flags that exclude each other."""
        super().__post_init__()
        other = "int8" if self.format == "saved_model" else "bfloat16"
        if self.precision == other:
            raise ValueError(
                f"--precision={other}: not with --format={self.format}"
            )


def main(config: ExportConfig) -> None:
    """Loads the model, and writes it with its tokenizer."""
    options = config
    if config.format == "onnx":
        _check_onnx()
        # The quantizer reads float32.
        options = config_flags.replace_unchecked(config, precision="float32")
    import foundation.tensorflow_setup  # noqa: F401
    from serving import exported, opened_model, saved_model

    exported.check_folder(config.output_dir)
    opened = opened_model.OpenedModel(config.model_dir, options)
    save: Any = saved_model.save
    if config.format == "onnx":
        from serving import onnx_model

        save = onnx_model.save
    save(opened, config.output_dir, precision=config.precision)
    engine = " --engine=onnxruntime" if config.format == "onnx" else ""
    text = "exported; to serve it: serve.py%s --models=%s"
    logging.info(text, engine, config.output_dir)


def _check_onnx() -> None:
    """Refuses --format=onnx without its packages, before others are read."""
    for package in ("onnx", "onnxruntime"):
        if importlib.util.find_spec(package) is None:
            raise errors.InputError(
                f"--format=onnx needs {package}: pip install -r "
                "requirements-onnx.txt"
            )


if __name__ == "__main__":
    config_flags.run(ExportConfig, main)
