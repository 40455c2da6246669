"""Writes a model as an ONNX graph: its encoder, its head, its weights.

    input_ids, attention_mask, token_type_ids   int64 [B, S]; of multiple choice
                                                [B, K, S]
    logits                                      float32 [B, C]; of other heads
                                                [B, K], [B, S, C], [B, S, V]
    start_logits, end_logits                    of question answering, [B, S]
    last_hidden_state, sentence_embedding       of encoders: [B, S, H], [B, O]

The names are those of transformers and Optimum; B, K and S are any numbers. The
graph computes what `modeling` computes, in float32 and without dropout. Where a
head reads one position, the last layer computes this one only.

All operators are standard (opset 23).
"""

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import onnx
from onnx import helper, numpy_helper

from foundation import errors
from modeling import encoder, layers, models
from modeling.config import LAYER_NORM_EPSILON
from serving import exported
from weights import sentence_modules

_OPSET = 23  # The first with Attention.
_IR_VERSION = 11  # The first with this opset, so that old runtimes read it.
# Of modeling.layers, and of the dense layers of sentence-transformers.
_ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "gelu": ("Gelu", {"approximate": "tanh"}),
    "gelu_erf": ("Gelu", {}),
    "GELU": ("Gelu", {}),
    "relu": ("Relu", {}),
    "ReLU": ("Relu", {}),
    "tanh": ("Tanh", {}),
    "Tanh": ("Tanh", {}),
    "Sigmoid": ("Sigmoid", {}),
}
_IDENTITIES = ("linear", "Identity")
# As in tasks.features.feature_extraction.
_MIN_NORM, _MIN_WEIGHT, _LOWEST = 1e-12, 1e-9, -1e9
_FLOAT, _INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
# Output -> names or sizes of its axes.
_Outputs = Mapping[str, tuple[str | int, ...]]


def make(
    model: keras.Model | encoder.BertEncoder,
    *,
    num_layers: int | None = None,
    modules: sentence_modules.SentenceModules | None = None,
) -> onnx.ModelProto:
    """Returns the graph of a model, with its weights.

    Args:
      model: one of modeling.models, a tagger with a CRF (whose scores of tag
        sequences are not in the graph), or an encoder.
      num_layers: the number of layers of an encoder that are computed; all by
        default.
      modules: how an encoder makes vectors of texts; None for none.

    Raises:
      InputError: the model has a BiLSTM, or another head.
    """
    # A tagger with a CRF is one without, whose scores are beside the graph.
    model = getattr(model, "tagger", model)
    kind, size = type(model), getattr(model, "bilstm_size", 0)
    writer = _Writer(model)
    if isinstance(model, encoder.BertEncoder):
        outputs = writer.encoder(num_layers, modules)
    elif kind in _HEADS and not size:
        outputs = _HEADS[kind](writer)
    else:
        what = "a BiLSTM" if size else f"the head of {kind.__name__}"
        raise errors.InputError(
            f"--format=onnx: a model with {what} cannot be written; leave out "
            "--format"
        )
    return writer.finish(outputs)


class _Writer:
    """Adds the layers of a model to a graph, node by node.

    Attributes:
      input_axes: names of the axes of the inputs.
    """

    def __init__(self, model: Any):
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._numbers = itertools.count()
        self.input_axes: tuple[str, ...] = "batch_size", "sequence_length"
        self._config = model.config
        self._values = {v.path: np.asarray(v) for v in model.weights}
        bert = getattr(model, "bert", model)
        self._is_causal = bert.attention == "left_to_right"

    def constant(self, name: str, values: Any) -> str:
        """Adds an array, if it has not been added; returns its name."""
        if name not in self._constants:
            array = np.ascontiguousarray(values).reshape(np.shape(values))
            self._constants[name] = numpy_helper.from_array(array, name)
        return name

    def array(self, values: Any) -> str:
        """Adds int64 or float32, a number or a list; returns its name."""
        array = np.array(values)
        is_float = array.dtype.kind == "f"
        array = array.astype(np.float32 if is_float else np.int64)
        return self.constant(f"{array.dtype}_{values}", array)

    def add(
        self,
        operator: str,
        *inputs: Any,
        name: str | None = None,
        **attributes: Any,
    ) -> str:
        """Adds a node.

        Args:
          operator: the type of the node.
          *inputs: names of constants and of outputs of other nodes, or
            numbers.
          name: the name of its output; by default a new one.
          **attributes: the attributes of the operator.

        Returns:
          The name of its output.
        """
        name = name or f"{operator}_{next(self._numbers)}"
        names = [x if isinstance(x, str) else self.array(x) for x in inputs]
        node = helper.make_node(
            operator, names, [name], name=name, **attributes
        )
        self._nodes.append(node)
        return name

    def finish(self, outputs: _Outputs) -> onnx.ModelProto:
        """Returns the graph; `outputs` are names and their axes."""
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self._nodes,
            "bert",
            [
                info(name, _INT64, self.input_axes)
                for name in exported.ONNX_NAMES.values()
            ],
            [info(name, _FLOAT, axes) for name, axes in outputs.items()],
            list(self._constants.values()),
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
        )

    # The heads. Each method returns the outputs and their axes.

    def scores(self, x: str, *axes: str) -> _Outputs:
        """Adds the logits of classes [..., C] of [..., H]."""
        self._score(x, "", name="logits")
        return {"logits": (*axes, len(self._values["output_bias"]))}

    def multiple_choice(self) -> _Outputs:
        """Adds the logits of choices [B, K]."""
        batch, length = self.input_axes
        self.input_axes = batch, "num_choices", length
        scores = self._score(self.pooled(), "")  # [B * K, 1]
        shape = self.add(
            "Shape", exported.ONNX_NAMES["input_ids"], start=0, end=2
        )
        self.add("Reshape", scores, shape, name="logits")
        return {"logits": self.input_axes[:2]}

    def question_answering(self) -> _Outputs:
        """Adds start and end logits, each [B, S]."""
        scores = self._score(self.encode(), "cls/squad/")
        names = "start_logits", "end_logits"
        for number, name in enumerate(names):
            self.add("Gather", scores, number, name=name, axis=2)
        return dict.fromkeys(names, self.input_axes)

    def masked_lm(self) -> _Outputs:
        """Adds the logits of words [B, S, V]."""
        config, path = self._config, "cls/predictions"
        x = self._dense(
            self.encode(), f"{path}/transform/dense", config.hidden_act
        )
        x = self._layer_norm(x, f"{path}/transform/LayerNorm")
        # The table of words is not stored a second time.
        x = self.add("Reshape", x, [-1, config.hidden_size])
        x = self.add(
            "Gemm",
            x,
            self._weight("bert/embeddings/word_embeddings"),
            self._weight(f"{path}/output_bias"),
            transB=1,
        )
        shape = self.add(
            "Concat",
            self.add("Shape", exported.ONNX_NAMES["input_ids"]),
            [config.vocab_size],
            axis=0,
        )
        self.add("Reshape", x, shape, name="logits")
        return {"logits": (*self.input_axes, config.vocab_size)}

    def encoder(
        self,
        num_layers: int | None,
        modules: sentence_modules.SentenceModules | None,
    ) -> _Outputs:
        """Adds the states of tokens [B, S, H], and the vectors of texts."""
        x, size = self.encode(num_layers), self._config.hidden_size
        name = self.add("Identity", x, name="last_hidden_state")
        outputs: dict[str, tuple[str | int, ...]] = {
            name: (*self.input_axes, size)
        }
        if modules and modules.pooling != sentence_modules.NO_POOLING:
            self._vectors(x, modules, name="sentence_embedding")
            size = modules.vector_size(size)
            outputs["sentence_embedding"] = self.input_axes[0], size
        return outputs

    def _score(self, x: str, scope: str, name: str | None = None) -> str:
        """Adds the scores of [..., H]; see heads.ScoreHead."""
        path = f"{scope}output_weights"
        kernel = self.constant(f"{path}/kernel", self._values[path].T)
        bias = self._weight(f"{scope}output_bias")
        x = self.add("MatMul", x, kernel)
        return self.add("Add", x, bias, name=name)

    # The encoder.

    @functools.cached_property
    def _features(self) -> dict[str, str]:
        """The inputs as [B, S]; those of choices follow each other."""
        if len(self.input_axes) == 2:
            return exported.ONNX_NAMES
        return {
            feature: self.add(
                "Reshape",
                name,
                self.add(
                    "Concat",
                    [-1],
                    self.add("Shape", name, start=2, end=3),
                    axis=0,
                ),
            )
            for feature, name in exported.ONNX_NAMES.items()
        }

    def encode(self, num_layers: int | None = None) -> str:
        """Adds the states after some layers, [B, S, H]."""
        if num_layers is None:
            num_layers = self._config.num_hidden_layers
        x = self._embeddings()
        for layer in range(num_layers):
            x = self._block(layer, x, x)
        return x

    def pooled(self) -> str:
        """Adds the pooled output [B, H]; see models._pooled_output."""
        last = self._config.num_hidden_layers - 1
        states = self.encode(last)
        if self._is_causal:
            query = self._last_real(states)
        else:
            query = self.add("Slice", states, [0], [1], [1])
        x = self._block(last, query, states)  # [B, 1, H]
        x = self.add("Squeeze", x, [1])
        return self._dense(x, "bert/pooler/dense", "tanh")

    def _last_real(self, states: str) -> str:
        """Adds the states of the last real tokens, [B, 1, H]."""
        mask = self._features["input_mask"]
        length = self.add("ReduceSum", mask, [1], keepdims=1)
        last = self.add("Sub", length, 1)
        last = self.add("Max", last, 0)
        last = self.add("Unsqueeze", last, [2])
        return self.add("GatherND", states, last, batch_dims=1)

    def _embeddings(self) -> str:
        path, ids = "bert/embeddings", self._features["input_ids"]
        words = self.add("Gather", self._weight(f"{path}/word_embeddings"), ids)
        types = self.add(
            "Gather",
            self._weight(f"{path}/token_type_embeddings"),
            self._features["segment_ids"],
        )
        positions = self.add(
            "Slice",
            self._weight(f"{path}/position_embeddings"),
            [0],
            self.add("Shape", ids, start=1, end=2),
            [0],
        )
        x = self.add("Add", self.add("Add", words, types), positions)
        return self._layer_norm(x, f"{path}/LayerNorm")

    def _block(self, layer: int, x: str, memory: str) -> str:
        """Adds a layer for the positions x, which read those of memory."""
        path = f"bert/encoder/layer_{layer}"
        context = self._attend(x, memory, f"{path}/attention/self")
        context = self._dense(context, f"{path}/attention/output/dense")
        x = self.add("Add", context, x)
        x = self._layer_norm(x, f"{path}/attention/output/LayerNorm")
        y = self._dense(
            x, f"{path}/intermediate/dense", self._config.hidden_act
        )
        y = self._dense(y, f"{path}/output/dense")
        x = self.add("Add", y, x)
        return self._layer_norm(x, f"{path}/output/LayerNorm")

    def _attend(self, x: str, memory: str, path: str) -> str:
        """Adds what the heads read: [B, Q, H] of [B, Q, H] and [B, S, H]."""
        config = self._config
        sources = {"query": x, "key": memory, "value": memory}
        inputs = [
            self._dense(y, f"{path}/{name}") for name, y in sources.items()
        ]
        # A single position, the first or the last real one, sees all real ones.
        is_all, count = x == memory, config.num_attention_heads
        return self.add(
            "Attention",
            *inputs,
            self._square_bias if is_all else self._bias,
            q_num_heads=count,
            kv_num_heads=count,
            is_causal=int(is_all and self._is_causal),
        )

    @functools.cached_property
    def _bias(self) -> str:
        """What hides padding, [B, 1, 1, S]."""
        mask = self._features["input_mask"]
        mask = self.add("Unsqueeze", mask, [1, 2])
        is_real = self.add("Greater", mask, 0)
        return self.add("Where", is_real, 0.0, layers.HIDDEN_BIAS)

    @functools.cached_property
    def _square_bias(self) -> str:
        """The same for each position, [B, 1, S, S]; onnxruntime needs all."""
        ids = self._features["input_ids"]
        length = self.add("Shape", ids, start=1, end=2)
        shape = self.add("Concat", [1, 1], length, [1], axis=0)
        return self.add("Expand", self._bias, shape)

    # Vectors of texts: the formulas of tasks.features.feature_extraction.

    def _vectors(
        self, x: str, modules: sentence_modules.SentenceModules, name: str
    ) -> None:
        """Adds the vectors of texts, [B, size], of the states [B, S, H]."""
        pooled = [self._pool(x, part) for part in modules.pooling.split(",")]
        x = pooled[0]
        if len(pooled) > 1:
            x = self.add("Concat", *pooled, axis=-1)
        for number, dense in enumerate(modules.dense):
            path = f"sentence/dense_{number}"
            kernel = self.constant(f"{path}/kernel", dense.kernel)
            bias = self.constant(f"{path}/bias", dense.bias)
            x = self.add("Add", self.add("MatMul", x, kernel), bias)
            x = self._activate(x, dense.activation)
        if modules.normalize:
            norm = self.add("ReduceL2", x, [-1], keepdims=1)
            x = self.add("Div", x, self.add("Max", norm, _MIN_NORM))
        if modules.truncate_dim:
            x = self.add("Slice", x, [0], [modules.truncate_dim], [-1])
        self.add("Identity", x, name=name)

    def _pool(self, x: str, pooling: str) -> str:
        """Adds one vector for each text, [B, H]."""
        if pooling == "cls":
            return self.add("Gather", x, 0, axis=1)
        if pooling == "lasttoken":
            return self.add("Squeeze", self._last_real(x), [1])
        mask = self._features["input_mask"]
        mask = self.add("Cast", mask, to=_FLOAT)
        weights = self.add("Unsqueeze", mask, [2])  # [B, S, 1]
        if pooling == "max":
            is_real = self.add("Cast", weights, to=onnx.TensorProto.BOOL)
            x = self.add("Where", is_real, x, _LOWEST)
            return self.add("ReduceMax", x, [1], keepdims=0)
        if pooling == "weightedmean":
            position = self.add("CumSum", weights, 1)  # Of the real tokens.
            weights = self.add("Mul", weights, position)
        total = self.add("ReduceSum", weights, [1], keepdims=0)
        total = self.add("Max", total, _MIN_WEIGHT)
        if pooling == "mean_sqrt_len_tokens":
            total = self.add("Sqrt", total)
        x = self.add("Mul", x, weights)
        x = self.add("ReduceSum", x, [1], keepdims=0)
        return self.add("Div", x, total)

    # What all layers use.

    def _weight(self, path: str) -> str:
        return self.constant(path, self._values[path])

    def _dense(self, x: str, path: str, activation: str = "linear") -> str:
        """Adds activation(x W + b)."""
        x = self.add("MatMul", x, self._weight(f"{path}/kernel"))
        x = self.add("Add", x, self._weight(f"{path}/bias"))
        return self._activate(x, activation)

    def _activate(self, x: str, activation: str) -> str:
        if activation in _IDENTITIES:
            return x
        if activation == "SiLU":
            return self.add("Mul", x, self.add("Sigmoid", x))
        operator, attributes = _ACTIVATIONS[activation]
        return self.add(operator, x, **attributes)

    def _layer_norm(self, x: str, path: str) -> str:
        return self.add(
            "LayerNormalization",
            x,
            self._weight(f"{path}/gamma"),
            self._weight(f"{path}/beta"),
            axis=-1,
            epsilon=LAYER_NORM_EPSILON,
        )


# Class of a model -> what adds its outputs.
_HEADS: Mapping[type, Callable[[_Writer], _Outputs]] = {
    models.ClassificationModel: lambda x: x.scores(x.pooled(), x.input_axes[0]),
    models.MultipleChoiceModel: _Writer.multiple_choice,
    models.QuestionAnsweringModel: _Writer.question_answering,
    models.TaggingModel: lambda x: x.scores(x.encode(), *x.input_axes),
    models.PretrainingModel: _Writer.masked_lm,
}
