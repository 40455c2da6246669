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
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import onnx
from onnx import helper, numpy_helper

from foundation import errors
from modeling import crf, encoder, layers, models
from modeling.config import LAYER_NORM_EPSILON
from serving import onnx_names
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
_BOOL = onnx.TensorProto.BOOL
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
      InputError: the model has a BiLSTM, or pools windows.
    """
    if isinstance(model, models.DocumentModel):
        raise errors.InputError(
            "--format=onnx: a model with --long_texts=windows cannot be "
            "written; leave out --format"
        )
    if getattr(getattr(model, "tagger", model), "bilstm_size", 0):
        raise errors.InputError(
            "--format=onnx: a model with a BiLSTM cannot be written; leave out "
            "--format"
        )
    writer = _Writer(model)
    if isinstance(model, encoder.BertEncoder):
        outputs = writer.encoder(num_layers, modules)
    elif isinstance(model, models.MultipleChoiceModel):
        outputs = writer.multiple_choice()
    elif isinstance(model, models.ClassificationModel):
        outputs = writer.classifier()
    elif isinstance(model, models.QuestionAnsweringModel):
        outputs = writer.question_answering()
    elif isinstance(model, models.TaggingModel | crf.CrfTaggingModel):
        outputs = writer.tagger()
    else:
        outputs = writer.masked_lm()
    return writer.graph.finish(writer.input_axes, outputs)


class _Graph:
    """Nodes and constants, which are added one after another."""

    def __init__(self):
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._types: dict[str, int] = {}
        self._numbers = itertools.count()

    def constant(self, name: str, values: Any) -> str:
        """Adds an array, if it has not been added; returns its name."""
        if name not in self._constants:
            array = np.ascontiguousarray(values).reshape(np.shape(values))
            self._constants[name] = numpy_helper.from_array(array, name)
        return name

    def ints(self, *values: int) -> str:
        """Adds int64 [n]; returns its name."""
        name = "ints_" + "_".join(map(str, values))
        return self.constant(name, np.array(values, np.int64))

    def int_(self, value: int) -> str:
        """Adds an int64 number; returns its name."""
        return self.constant(f"int_{value}", np.int64(value))

    def float_(self, value: float) -> str:
        """Adds a float32 number; returns its name."""
        return self.constant(f"float_{value:g}", np.float32(value))

    def add(
        self,
        operator: str,
        *inputs: str,
        type: int = _FLOAT,
        name: str | None = None,
        **attributes: Any,
    ) -> str:
        """Adds a node.

        Args:
          operator: the type of the node.
          *inputs: names of constants and of outputs of other nodes.
          type: the type of its output; onnxruntime's quantizer needs all types.
          name: the name of its output; by default a new one.
          **attributes: the attributes of the operator.

        Returns:
          The name of its output.
        """
        name = name or f"{operator}_{next(self._numbers)}"
        node = helper.make_node(
            operator, inputs, [name], name=name, **attributes
        )
        self._nodes.append(node)
        self._types[name] = type
        return name

    def finish(
        self, input_axes: tuple[str, ...], outputs: _Outputs
    ) -> onnx.ModelProto:
        """Returns the graph.

        Args:
          input_axes: names of the axes of all inputs.
          outputs: name -> names or sizes of its axes.
        """
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self._nodes,
            "bert",
            [
                info(name, _INT64, input_axes)
                for name in onnx_names.INPUTS.values()
            ],
            [info(name, _FLOAT, axes) for name, axes in outputs.items()],
            list(self._constants.values()),
            value_info=[
                info(name, type, None)
                for name, type in self._types.items()
                if name not in outputs
            ],
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
        )


class _Writer:
    """Adds the layers of a model to a graph.

    Attributes:
      graph: what has been added.
      input_axes: names of the axes of the inputs.
    """

    def __init__(self, model: Any):
        self.graph = _Graph()
        self.input_axes: tuple[str, ...] = "batch_size", "sequence_length"
        self._config = model.config
        self._values = {v.path: np.asarray(v) for v in model.weights}
        bert = getattr(model, "bert", model)
        self._is_causal = bert.attention == "left_to_right"

    # The heads. Each method returns the outputs and their axes.

    def classifier(self) -> _Outputs:
        """Adds a classifier's logits [B, C]."""
        self._score(self._pooled(), "", name="logits")
        return {"logits": (self.input_axes[0], self._count(""))}

    def multiple_choice(self) -> _Outputs:
        """Adds the logits of choices [B, K]."""
        batch, length = self.input_axes
        self.input_axes = batch, "num_choices", length
        scores = self._score(self._pooled(), "")  # [B * K, 1]
        shape = self.graph.add(
            "Shape", onnx_names.INPUTS["input_ids"], type=_INT64, start=0, end=2
        )
        self.graph.add("Reshape", scores, shape, name="logits")
        return {"logits": self.input_axes[:2]}

    def question_answering(self) -> _Outputs:
        """Adds start and end logits, each [B, S]."""
        scores = self._score(self._encode(), "cls/squad/")
        names = "start_logits", "end_logits"
        for number, name in enumerate(names):
            at = self.graph.int_(number)
            self.graph.add("Gather", scores, at, name=name, axis=2)
        return dict.fromkeys(names, self.input_axes)

    def tagger(self) -> _Outputs:
        """Adds the logits of tags [B, S, C]."""
        self._score(self._encode(), "", name="logits")
        return {"logits": (*self.input_axes, self._count(""))}

    def masked_lm(self) -> _Outputs:
        """Adds the logits of words [B, S, V]."""
        graph, config, path = self.graph, self._config, "cls/predictions"
        x = self._dense(
            self._encode(), f"{path}/transform/dense", config.hidden_act
        )
        x = self._layer_norm(x, f"{path}/transform/LayerNorm")
        # The table of words is not stored a second time.
        x = graph.add("Reshape", x, graph.ints(-1, config.hidden_size))
        x = graph.add(
            "Gemm",
            x,
            self._weight("bert/embeddings/word_embeddings"),
            self._weight(f"{path}/output_bias"),
            transB=1,
        )
        shape = graph.add(
            "Concat",
            graph.add("Shape", onnx_names.INPUTS["input_ids"], type=_INT64),
            graph.ints(config.vocab_size),
            type=_INT64,
            axis=0,
        )
        graph.add("Reshape", x, shape, name="logits")
        return {"logits": (*self.input_axes, config.vocab_size)}

    def encoder(
        self,
        num_layers: int | None,
        modules: sentence_modules.SentenceModules | None,
    ) -> _Outputs:
        """Adds the states of tokens [B, S, H], and the vectors of texts."""
        x = self._encode(num_layers, name="last_hidden_state")
        size = self._config.hidden_size
        outputs: dict[str, tuple[str | int, ...]] = {
            x: (*self.input_axes, size)
        }
        if modules and modules.pooling != sentence_modules.NO_POOLING:
            self._vectors(x, modules, name="sentence_embedding")
            size = modules.vector_size(size)
            outputs["sentence_embedding"] = self.input_axes[0], size
        return outputs

    def _score(self, x: str, scope: str, name: str | None = None) -> str:
        """Adds the scores of [..., H]; see heads.ScoreHead."""
        path = f"{scope}output_weights"
        kernel = self.graph.constant(f"{path}/kernel", self._values[path].T)
        bias = self._weight(f"{scope}output_bias")
        x = self.graph.add("MatMul", x, kernel)
        return self.graph.add("Add", x, bias, name=name)

    def _count(self, scope: str) -> int:
        return len(self._values[f"{scope}output_bias"])

    # The encoder.

    @functools.cached_property
    def _features(self) -> dict[str, str]:
        """The inputs as [B, S]; those of choices follow each other."""
        if len(self.input_axes) == 2:
            return onnx_names.INPUTS
        graph = self.graph
        return {
            feature: graph.add(
                "Reshape",
                name,
                graph.add(
                    "Concat",
                    graph.ints(-1),
                    graph.add("Shape", name, type=_INT64, start=2, end=3),
                    type=_INT64,
                    axis=0,
                ),
                type=_INT64,
            )
            for feature, name in onnx_names.INPUTS.items()
        }

    def _encode(
        self, num_layers: int | None = None, name: str | None = None
    ) -> str:
        """Adds the states after some layers, [B, S, H]."""
        if num_layers is None:
            num_layers = self._config.num_hidden_layers
        x = self._embeddings()
        for layer in range(num_layers):
            is_last = layer == num_layers - 1
            x = self._block(layer, x, x, name=name if is_last else None)
        return x

    def _pooled(self) -> str:
        """Adds the pooled output [B, H]; see models._pooled_output."""
        graph, last = self.graph, self._config.num_hidden_layers - 1
        states = self._encode(last)
        if self._is_causal:
            query = self._last_real(states)
        else:
            query = graph.add(
                "Slice", states, graph.ints(0), graph.ints(1), graph.ints(1)
            )
        x = self._block(last, query, states)  # [B, 1, H]
        x = graph.add("Squeeze", x, graph.ints(1))
        return self._dense(x, "bert/pooler/dense", "tanh")

    def _last_real(self, states: str) -> str:
        """Adds the states of the last real tokens, [B, 1, H]."""
        graph, mask = self.graph, self._features["input_mask"]
        length = graph.add(
            "ReduceSum", mask, graph.ints(1), type=_INT64, keepdims=1
        )
        last = graph.add("Sub", length, graph.int_(1), type=_INT64)
        last = graph.add("Max", last, graph.int_(0), type=_INT64)
        last = graph.add("Unsqueeze", last, graph.ints(2), type=_INT64)
        return graph.add("GatherND", states, last, batch_dims=1)

    def _embeddings(self) -> str:
        graph, path = self.graph, "bert/embeddings"
        ids = self._features["input_ids"]
        words = graph.add(
            "Gather", self._weight(f"{path}/word_embeddings"), ids
        )
        types = graph.add(
            "Gather",
            self._weight(f"{path}/token_type_embeddings"),
            self._features["segment_ids"],
        )
        positions = graph.add(
            "Slice",
            self._weight(f"{path}/position_embeddings"),
            graph.ints(0),
            graph.add("Shape", ids, type=_INT64, start=1, end=2),
            graph.ints(0),
        )
        x = graph.add("Add", graph.add("Add", words, types), positions)
        return self._layer_norm(x, f"{path}/LayerNorm")

    def _block(
        self, layer: int, x: str, memory: str, name: str | None = None
    ) -> str:
        """Adds a layer for the positions x, which read those of memory."""
        graph, path = self.graph, f"bert/encoder/layer_{layer}"
        context = self._attend(x, memory, f"{path}/attention/self")
        context = self._dense(context, f"{path}/attention/output/dense")
        x = graph.add("Add", context, x)
        x = self._layer_norm(x, f"{path}/attention/output/LayerNorm")
        y = self._dense(
            x, f"{path}/intermediate/dense", self._config.hidden_act
        )
        y = self._dense(y, f"{path}/output/dense")
        x = graph.add("Add", y, x)
        return self._layer_norm(x, f"{path}/output/LayerNorm", name=name)

    def _attend(self, x: str, memory: str, path: str) -> str:
        """Adds what the heads read: [B, Q, H] of [B, Q, H] and [B, S, H]."""
        graph, config = self.graph, self._config
        sources = {"query": x, "key": memory, "value": memory}
        inputs = [
            self._dense(y, f"{path}/{name}") for name, y in sources.items()
        ]
        # A single position, the first or the last real one, sees all real ones.
        bias = self._square_bias if x == memory else self._mask_bias
        count = config.num_attention_heads
        return graph.add(
            "Attention", *inputs, bias, q_num_heads=count, kv_num_heads=count
        )

    @functools.cached_property
    def _is_real(self) -> str:
        """Whether a position is real, bool [B, 1, 1, S]."""
        graph = self.graph
        mask = graph.add(
            "Unsqueeze",
            self._features["input_mask"],
            graph.ints(1, 2),
            type=_INT64,
        )
        return graph.add("Greater", mask, graph.int_(0), type=_BOOL)

    @functools.cached_property
    def _mask_bias(self) -> str:
        """What hides padding, [B, 1, 1, S]."""
        return self._hiding(self._is_real)

    @functools.cached_property
    def _square_bias(self) -> str:
        """What hides padding, and later positions if it must, [B, 1, S, S]."""
        graph = self.graph
        length = graph.add(
            "Shape", self._features["input_ids"], type=_INT64, start=1, end=2
        )
        length = graph.add("Squeeze", length, type=_INT64)
        order = graph.add(
            "Range", graph.int_(0), length, graph.int_(1), type=_INT64
        )
        queries = graph.add("Unsqueeze", order, graph.ints(1), type=_INT64)
        last = queries  # That each query sees.
        if not self._is_causal:
            last = graph.add("Max", queries, length, type=_INT64)
        is_seen = graph.add("LessOrEqual", order, last, type=_BOOL)
        is_visible = graph.add("And", self._is_real, is_seen, type=_BOOL)
        return self._hiding(is_visible)

    def _hiding(self, is_visible: str) -> str:
        bias = self.graph.float_(layers.HIDDEN_BIAS)
        return self.graph.add("Where", is_visible, self.graph.float_(0), bias)

    # Vectors of texts: the formulas of tasks.features.feature_extraction.

    def _vectors(
        self, x: str, modules: sentence_modules.SentenceModules, name: str
    ) -> None:
        """Adds the vectors of texts, [B, size], of the states [B, S, H]."""
        graph = self.graph
        pooled = [self._pool(x, part) for part in modules.pooling.split(",")]
        x = pooled[0]
        if len(pooled) > 1:
            x = graph.add("Concat", *pooled, axis=-1)
        for number, dense in enumerate(modules.dense):
            path = f"sentence/dense_{number}"
            kernel = graph.constant(f"{path}/kernel", dense.kernel)
            bias = graph.constant(f"{path}/bias", dense.bias)
            x = graph.add("Add", graph.add("MatMul", x, kernel), bias)
            x = self._activate(x, dense.activation)
        if modules.normalize:
            norm = graph.add("ReduceL2", x, graph.ints(-1), keepdims=1)
            x = graph.add(
                "Div", x, graph.add("Max", norm, graph.float_(_MIN_NORM))
            )
        if modules.truncate_dim:
            count = graph.ints(modules.truncate_dim)
            x = graph.add("Slice", x, graph.ints(0), count, graph.ints(-1))
        graph.add("Identity", x, name=name)

    def _pool(self, x: str, pooling: str) -> str:
        """Adds one vector for each text, [B, H]."""
        graph = self.graph
        if pooling == "cls":
            return graph.add("Gather", x, graph.int_(0), axis=1)
        if pooling == "lasttoken":
            return graph.add("Squeeze", self._last_real(x), graph.ints(1))
        mask = self._features["input_mask"]
        mask = graph.add("Cast", mask, to=_FLOAT)
        weights = graph.add("Unsqueeze", mask, graph.ints(2))  # [B, S, 1]
        if pooling == "max":
            is_real = graph.add("Cast", weights, type=_BOOL, to=_BOOL)
            x = graph.add("Where", is_real, x, graph.float_(_LOWEST))
            return graph.add("ReduceMax", x, graph.ints(1), keepdims=0)
        if pooling == "weightedmean":
            shape = graph.add("Shape", weights, type=_INT64)
            one = helper.make_tensor("one", _FLOAT, [1], [1.0])
            ones = graph.add("ConstantOfShape", shape, value=one)
            position = graph.add("CumSum", ones, graph.int_(1))
            weights = graph.add("Mul", weights, position)
        total = graph.add("ReduceSum", weights, graph.ints(1), keepdims=0)
        total = graph.add("Max", total, graph.float_(_MIN_WEIGHT))
        if pooling == "mean_sqrt_len_tokens":
            total = graph.add("Sqrt", total)
        x = graph.add("Mul", x, weights)
        x = graph.add("ReduceSum", x, graph.ints(1), keepdims=0)
        return graph.add("Div", x, total)

    # What all layers use.

    def _weight(self, path: str) -> str:
        return self.graph.constant(path, self._values[path])

    def _dense(self, x: str, path: str, activation: str = "linear") -> str:
        """Adds activation(x W + b)."""
        x = self.graph.add("MatMul", x, self._weight(f"{path}/kernel"))
        x = self.graph.add("Add", x, self._weight(f"{path}/bias"))
        return self._activate(x, activation)

    def _activate(self, x: str, activation: str) -> str:
        if activation in _IDENTITIES:
            return x
        if activation == "SiLU":
            return self.graph.add("Mul", x, self.graph.add("Sigmoid", x))
        operator, attributes = _ACTIVATIONS[activation]
        return self.graph.add(operator, x, **attributes)

    def _layer_norm(self, x: str, path: str, name: str | None = None) -> str:
        return self.graph.add(
            "LayerNormalization",
            x,
            self._weight(f"{path}/gamma"),
            self._weight(f"{path}/beta"),
            name=name,
            axis=-1,
            epsilon=LAYER_NORM_EPSILON,
        )
