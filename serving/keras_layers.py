"""A model of modeling/ as a functional Keras model, one layer for each part.

    embeddings, layer_0, ..., layer_11, pooler, classifier

`functional` wraps the layers of a model: the Keras model has the same
variables, so training one trains the other. The wrappers add what Keras needs
and the layers themselves do not have: they are registered, their config is the
BertConfig and their scope in the released checkpoints, and a generator gives
the dropout of `training=True` its seeds. So Keras can save, load and clone such
a model; a wrapper made from a config has weights of its own.
"""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from foundation import errors
from modeling import heads, layers, lstm, models, variables
from modeling.config import BertConfig
from weights import stored_weights

_register = keras.saving.register_keras_serializable(package="bert")
INPUTS = ("input_ids", "input_mask", "segment_ids")
_POOLER, _NEXT_SENTENCE = "bert/pooler/dense", "cls/seq_relationship/"


class _Wrapper(keras.layers.Layer):
    """What the wrappers have in common; `_make` makes the layer to wrap.

    Attributes:
      bert_config: the hyperparameters.
      scope: the prefix of the variables in the released checkpoints.
      inner: the wrapped layer, or a list of layers and variables.
      options: what else a kind of wrapper needs to know.
    """

    def __init__(
        self,
        bert_config: Mapping[str, Any],
        scope: str,
        options: Mapping[str, Any] = types.MappingProxyType({}),
        *,
        inner: Any = None,
        **of_layer: Any,
    ):
        """Wraps a layer, or makes one with random weights.

        `of_layer` are name, dtype and trainable of keras.layers.Layer.
        """
        super().__init__(autocast=False, **of_layer)
        self.bert_config = BertConfig(**bert_config)
        self.scope, self.options = scope, dict(options)
        make = variables.Maker(
            stddev=self.bert_config.initializer_range,
            seed=0,
            dtype=self.dtype_policy,
        )
        self.inner = self._make(make) if inner is None else inner
        self.seed_generator = keras.random.SeedGenerator()
        self.built = True

    def get_config(self) -> dict[str, Any]:
        """Returns what the constructor needs."""
        config = super().get_config()
        config.pop("autocast", None)
        return config | {
            "bert_config": dataclasses.asdict(self.bert_config),
            "scope": self.scope,
            "options": self.options,
        }

    def _dropout_seed(self, training: bool | None) -> Any:
        """Returns a new seed, int32 [2], or None for inference."""
        if not training:
            return None
        return ops.cast(self.seed_generator.next(), "int32")


@_register
class Embeddings(_Wrapper):
    """Maps input_ids and segment_ids to hidden states; see layers.Embeddings.

    It also returns the embeddings of words, float32 [V, H], which the masked-LM
    head multiplies with: so both have one variable, also after Keras has saved,
    loaded or cloned the model.
    """

    def _make(self, make):
        return layers.Embeddings(self.scope, self.bert_config, make)

    def call(self, input_ids, segment_ids, training=None):
        """Maps int32 [B, S] to float [B, S, H] and [V, H]."""
        seed = self._dropout_seed(training)
        x = self.inner(input_ids, segment_ids, None, seed)
        return x, ops.convert_to_tensor(self.inner.word_embeddings)


@_register
class Block(_Wrapper):
    """One of the L layers; see layers.TransformerBlock."""

    def _make(self, make):
        return layers.TransformerBlock(self.scope, self.bert_config, make)

    def call(self, x, input_mask, training=None):
        """Maps float [B, S, H] and int32 [B, S] to float [B, S, H]."""
        bias = layers.attention_bias(input_mask, packed=False, **self.options)
        return self.inner(x, x, bias, self._dropout_seed(training))


@_register
class Pooler(_Wrapper):
    """Dense and tanh at a position that sees all others.

    That is the first position, in a left-to-right model the last real one.
    """

    def _make(self, make):
        size = self.bert_config.hidden_size
        return layers.Dense(self.scope, size, size, make, activation="tanh")

    def call(self, x, input_mask):
        """Maps float [B, S, H] and int32 [B, S] to float [B, H]."""
        if not self.options["left_to_right"]:
            return self.inner(x[:, 0])
        lengths = ops.sum(input_mask, axis=1, keepdims=True)
        last = ops.maximum(lengths - 1, 0)  # [B, 1]
        return self.inner(layers.gather(x, last)[:, 0])


@_register
class BiLstm(_Wrapper):
    """The BiLSTM between encoder and head; see lstm.BidirectionalLstm.

    Each direction has `size` units; `is_pooled` is an option, too.
    """

    def _make(self, make):
        inputs, size = self.bert_config.hidden_size, self.options["size"]
        return lstm.BidirectionalLstm(self.scope, inputs, size, seed=0)

    def call(self, x, input_mask):
        """Maps [B, S, H] to float32 [B, S, 2 size], pooled [B, 2 size]."""
        is_pooled = self.options["is_pooled"]
        return self.inner(x, input_mask > 0, is_pooled=is_pooled)


@_register
class Scores(_Wrapper):
    """Dropout and a linear layer; see heads.ScoreHead.

    It has `outputs` scores of `inputs` values, which dropout sets to 0 at
    `rate`.
    """

    def _make(self, make):
        return heads.ScoreHead(self.scope, make=make, **self.options)

    def call(self, x, training=None):
        """Maps float [..., inputs] to float32 [..., outputs]."""
        return self.inner(x, self._dropout_seed(training))


@_register
class MaskedLm(_Wrapper):
    """The masked-LM head; see heads.MaskedLmHead.

    The embeddings of words are an input, see Embeddings.
    """

    def _make(self, make):
        return heads.MaskedLmHead(self.bert_config, make)

    def call(self, x, table):
        """Maps float [B, S, H] and [V, H] to float32 [B, S, V]."""
        return self.inner(x, table)


@_register
class Choices(keras.layers.Layer):
    """Sequences of choices after one another, or their scores side by side."""

    def call(self, x, input_ids=None):
        """Maps int32 [B, K, S] to [B * K, S]; scores [B * K, 1] to [B, K].

        Args:
          x: ids or scores.
          input_ids: int32 [B, K, S], with scores.
        """
        if input_ids is None:
            return ops.reshape(x, (-1, ops.shape(x)[2]))
        return ops.reshape(x, (-1, ops.shape(input_ids)[1]))


class _Encoder:
    """The encoder of a model as wrappers, applied to inputs.

    Attributes:
      states: L + 1 times float [B, S, H]; the embeddings come first.
      table: the embeddings of words.
    """

    def __init__(self, bert: Any, inputs: list):
        """Applies the embeddings and the blocks of `bert`, a BertEncoder."""
        ids, self.mask, segments = inputs
        self.config, self._dtype = bert.config, bert.embeddings.dtype_policy
        self._order = {"left_to_right": bert.attention == "left_to_right"}
        embeddings = self.wrap(
            Embeddings, "bert/embeddings", bert.embeddings, name="embeddings"
        )
        x, self.table = embeddings(ids, segments)
        self.states = [x]
        for i, block in enumerate(bert.blocks):
            scope, name = f"bert/encoder/layer_{i}", f"layer_{i}"
            layer = self.wrap(Block, scope, block, self._order, name=name)
            x = layer(x, self.mask)
            self.states.append(x)

    def wrap(
        self,
        wrapper: type,
        scope: str,
        inner: Any,
        options: Mapping[str, Any] = types.MappingProxyType({}),
        *,
        name: str,
    ) -> Any:
        """Wraps a layer of the model, or makes one with stored weights.

        Args:
          wrapper: the class of the wrapper.
          scope: see _Wrapper.
          inner: the layer; or path -> weight of a checkpoint.
          options: see _Wrapper.
          name: name of the layer in Keras.
        """
        is_stored = isinstance(inner, Mapping)
        made = wrapper(
            dataclasses.asdict(self.config),
            scope,
            options,
            inner=None if is_stored else inner,
            dtype=getattr(inner, "dtype_policy", self._dtype),
            name=name,
        )
        if is_stored:
            own = {x.path: inner[x.path] for x in made.inner.weights}
            stored_weights.assign(made.inner, own, where=scope)
        return made

    def pool(self, pooler: Any) -> Any:
        """Applies a pooler, see `wrap`, to the last layer."""
        layer = self.wrap(Pooler, _POOLER, pooler, self._order, name="pooler")
        return layer(self.states[-1], self.mask)

    def score(self, scope: str, head: heads.ScoreHead, x: Any, name: str):
        """Applies a head."""
        outputs, inputs = head.output_weights.shape
        options = {"outputs": outputs, "inputs": inputs, "rate": head.rate}
        return self.wrap(Scores, scope, head, options, name=name)(x)


def functional(
    model: Any,
    name: str,
    *,
    layer: int = -1,
    tensors: Mapping[str, Any] = types.MappingProxyType({}),
    hidden_states: bool = False,
) -> keras.Model:
    """Returns a functional Keras model with the variables of a model.

    It maps a dict of input_ids, input_mask and segment_ids, int32 [B, S], of
    multiple choice [B, K, S], to a dict.

    Args:
      model: one of modeling.models, a CrfTaggingModel, or a BertEncoder.
      name: see weights.kinds.ARCHITECTURES, which names the Keras model.
      layer: the layer of an encoder whose states are sequence_output.
      tensors: path -> weight of the checkpoint. If it has the pooler, an
        encoder gives pooled_output, too; if it has the head of next sentences,
        a masked LM gives next_sentence_logits, too.
      hidden_states: whether the states after the embeddings and after each
        layer are an output, a list of L + 1 times [B, S, H].

    Raises:
      InputError: the model pools windows, or is of a task of one's own.
    """
    if isinstance(model, models.DocumentModel | models.PositionsModel):
        raise errors.InputError(
            "a model that pools windows, or of a task of one's own, has no "
            "Keras model; use predict"
        )
    model = getattr(model, "tagger", model)  # Of a model with a CRF.
    is_choice = name == "multiple_choice"
    shape = (None, None) if is_choice else (None,)
    inputs = {x: keras.Input(shape, dtype="int32", name=x) for x in INPUTS}
    features = list(inputs.values())
    if is_choice:
        features = [
            Choices(name=f"flat_{name}")(x) for name, x in inputs.items()
        ]
    masked_lm = getattr(model, "masked_lm", None)
    encoder = _Encoder(getattr(model, "bert", model), features)
    outputs: dict[str, Any] = {}
    if masked_lm is not None:
        head = encoder.wrap(
            MaskedLm, "cls/predictions", masked_lm, name="masked_lm"
        )
        outputs["masked_lm_logits"] = head(encoder.states[-1], encoder.table)
        if any(x.startswith(_NEXT_SENTENCE) for x in tensors):
            size = encoder.config.hidden_size
            options = {"outputs": 2, "inputs": size, "rate": 0.0}
            scores = encoder.wrap(
                Scores, _NEXT_SENTENCE, tensors, options, name="next_sentence"
            )
            outputs["next_sentence_logits"] = scores(encoder.pool(tensors))
    elif hasattr(model, "head"):
        logits = _scores(model, encoder)
        if is_choice:
            logits = Choices(name="choices")(logits, inputs["input_ids"])
        if isinstance(model, models.QuestionAnsweringModel):
            outputs["start_logits"] = logits[..., 0]
            outputs["end_logits"] = logits[..., 1]
        else:
            outputs["logits"] = logits
    else:
        outputs["sequence_output"] = encoder.states[1:][layer]
        if any(x.startswith(_POOLER) for x in tensors):
            outputs["pooled_output"] = encoder.pool(tensors)
    if hidden_states:
        outputs["hidden_states"] = encoder.states
    return keras.Model(inputs, outputs, name=name)


def _scores(model: Any, encoder: _Encoder) -> Any:
    """Applies what a task's model has on its encoder."""
    x, scope = encoder.states[-1], "bilstm"
    reads_positions = isinstance(
        model, models.QuestionAnsweringModel | models.TaggingModel
    )
    if model.bilstm is not None:
        options = {"size": model.bilstm_size, "is_pooled": not reads_positions}
        bilstm = encoder.wrap(BiLstm, scope, model.bilstm, options, name=scope)
        x = bilstm(x, encoder.mask)
    elif not reads_positions:
        x = encoder.pool(model.bert.pooler)
    if isinstance(model, models.QuestionAnsweringModel):
        return encoder.score("cls/squad/", model.head, x, "spans")
    return encoder.score("", model.head, x, "classifier")
