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

--format=onnx writes model.onnx, which takes token ids, for onnxruntime:

    python export_model.py --model_dir=mrpc --format=onnx --output_dir=onnx/mrpc
"""

import dataclasses
import importlib.util
from typing import Any, Literal

from foundation import config_flags, errors
from tasks.squad.settings import AnswerSettings
from weights import checkpoint_sources

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Everything export_model.py needs to know."""

    model_dir: str = field("A model directory or a released checkpoint.")
    output_dir: str = field("Directory of the SavedModel or of model.onnx.")
    format: Literal["saved_model", "onnx"] = field(
        "onnx: the encoder and its head, from token ids to logits.",
        "saved_model",
    )
    task: (
        Literal[
            "classification",
            "regression",
            "multilabel",
            "multiple_choice",
            "question_answering",
            "token_classification",
            "fill_mask",
            "sentence_embedding",
        ]
        | None
    ) = field("By default, the task of the model's head.", None)
    max_seq_length: int | None = field(
        "Maximum number of tokens; by default, as the model was trained. "
        "fill_mask uses all positions of the model.",
        None,
        at_least=3,
    )
    precision: Literal["float32", "bfloat16", "int8"] = field(
        "bfloat16, of a SavedModel, is faster on hardware that multiplies it; "
        "int8, of ONNX, has weights of 8 bits.",
        "float32",
    )
    text_pair: bool | None = field(
        "Whether the input is a pair of texts; by default, as the model was "
        "trained.",
        None,
    )
    label_names: str | None = field(
        "Comma-separated labels in the order of the model's outputs, if its "
        "classes have no names.",
        None,
    )
    doc_stride: int | None = field(
        "Tokens from one window's start to the next, in question answering. "
        "By default, this and the next six are as the model was trained.",
        None,
        at_least=1,
    )
    max_query_length: int | None = field(
        "Tokens of a question.", None, at_least=1
    )
    n_best_size: int | None = field("Answers to a question.", None, at_least=1)
    max_answer_length: int | None = field(
        "Tokens of an answer.", None, at_least=1
    )
    version_2_with_negative: bool | None = field(
        "Whether questions may have no answer.", None
    )
    null_score_diff_threshold: float | None = field(
        "Null odds above which there is no answer.", None
    )
    exact_answers: bool | None = field(
        "Answer with the characters of the tokens instead of complete words.",
        None,
    )
    document_context: Literal["none", "maximal"] = field(
        "maximal: fill the windows of a tagger with the sentences around.",
        "none",
    )
    top_k: int = field("Number of words for each mask.", 5, at_least=1)
    pooling: (
        Literal[
            "cls",
            "mean",
            "max",
            "mean_sqrt_len_tokens",
            "weightedmean",
            "lasttoken",
        ]
        | None
    ) = field(
        "How sentence embeddings are made from the vectors of tokens; by "
        "default as the files of sentence-transformers say, mean without them.",
        None,
    )
    layer: int = field("Layer of sentence embeddings; -1 is the last.", -1)
    normalize: bool | None = field(
        "Scale every sentence embedding to length 1; by default as the files "
        "of sentence-transformers say.",
        None,
    )

    def __post_init__(self):
        """Raises ValueError for flags that exclude each other."""
        other = "int8" if self.format == "saved_model" else "bfloat16"
        if self.precision == other:
            raise ValueError(
                f"--precision={other}: not with --format={self.format}"
            )

    @property
    def options(self) -> Any:
        """The flags that determine the graph, as opened_model.Options."""
        from serving import opened_model

        squad_flags = AnswerSettings().besides_length
        names = None
        if self.label_names is not None:
            names = [name.strip() for name in self.label_names.split(",")]
        return opened_model.Options(
            task=self.task,
            max_seq_length=self.max_seq_length,
            # The quantizer reads float32.
            precision="float32" if self.format == "onnx" else self.precision,
            labels=names,
            text_pair=self.text_pair,
            squad={name: getattr(self, name) for name in squad_flags},
            document_context=self.document_context == "maximal",
            top_k=self.top_k,
            pooling=self.pooling,
            layer=self.layer,
            normalize=self.normalize,
        )


def main(config: ExportConfig) -> None:
    """Loads the model, and writes it with its tokenizer."""
    if config.format == "onnx":
        _check_onnx(config.model_dir)
    import foundation.tensorflow_setup  # noqa: F401
    from serving import opened_model, saved_model, task_graphs

    saved_model.check_folder(config.output_dir)
    opened = opened_model.OpenedModel(config.model_dir, config.options)
    opened.check_options()
    graph = task_graphs.make(opened.load())
    save: Any = saved_model.save
    if config.format == "onnx":
        from serving import onnx_model

        save = onnx_model.save
    save(
        graph,
        config.output_dir,
        precision=config.precision,
        source=opened.description,
    )


def _check_onnx(path: str) -> None:
    """Refuses what --format=onnx cannot write, before TensorFlow is there."""
    for package in ("onnx", "onnxruntime"):
        if importlib.util.find_spec(package) is None:
            raise errors.InputError(
                f"--format=onnx needs {package}: pip install -r "
                "requirements-onnx.txt"
            )
    if checkpoint_sources.read(path).settings.bilstm_size:
        raise errors.InputError(
            f"--format=onnx: {path} has a BiLSTM, which cannot be written; "
            "leave out --format"
        )


if __name__ == "__main__":
    config_flags.run(ExportConfig, main)
