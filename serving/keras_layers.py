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
from typing import Any

import keras
from keras import ops

from foundation import errors
from modeling import heads, layers, lstm, models, variables
from modeling.config import BertConfig

_register = keras.saving.register_keras_serializable(package="bert")
INPUTS = ("input_ids", "input_mask", "segment_ids")


class _Wrapper(keras.layers.Layer):
    """What the wrappers have in common.

    A subclass has further attributes, named in `_OPTIONS`, which are arguments
    of the constructor and of the config.

    Attributes:
      bert_config: the hyperparameters.
      scope: the prefix of the variables in the released checkpoints.
      inner: the wrapped layer.
    """

    _OPTIONS: tuple[str, ...] = ()

    def __init__(
        self,
        bert_config: BertConfig | dict[str, Any],
        scope: str,
        *,
        inner: Any = None,
        **options: Any,
    ):
        """Wraps a layer, or makes one with random weights.

        `bert_config` may be a dict. `options` are `_OPTIONS`, and name, dtype
        and trainable of keras.layers.Layer.
        """
        for option in self._OPTIONS:
            if option in options:
                setattr(self, option, options.pop(option))
        options["autocast"] = False
        super().__init__(**options)
        if isinstance(bert_config, dict):
            bert_config = BertConfig(**bert_config)
        self.bert_config, self.scope = bert_config, scope
        make = variables.Maker(
            stddev=bert_config.initializer_range,
            seed=0,
            dtype=self.dtype_policy,
        )
        self.inner = self._make(make) if inner is None else inner
        self.seed_generator = keras.random.SeedGenerator()
        self.built = True

    def _make(self, make: variables.Maker) -> Any:
        """Makes the layer to wrap."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Returns what the constructor needs."""
        config = super().get_config()
        config.pop("autocast", None)
        return config | {
            "bert_config": dataclasses.asdict(self.bert_config),
            "scope": self.scope,
            **{option: getattr(self, option) for option in self._OPTIONS},
        }

    def _dropout_seed(self, training: bool | None) -> Any:
        """Returns a new seed, int32 [2], or None for inference."""
        if not training:
            return None
        return ops.cast(self.seed_generator.next(), "int32")


@_register
class Embeddings(_Wrapper):
    """Maps input_ids and segment_ids to hidden states; see layers.Embeddings.

    With `has_table` it also returns the embeddings of words, float32 [V, H],
    which the masked-LM head multiplies with: so both have one variable, also
    after Keras has saved, loaded or cloned the model.
    """

    _OPTIONS = ("has_table",)
    has_table = False

    def _make(self, make):
        return layers.Embeddings(self.scope, self.bert_config, make)

    def call(self, input_ids, segment_ids, training=None):
        """Maps int32 [B, S] to float [B, S, H]."""
        longest = self.bert_config.max_position_embeddings
        length = input_ids.shape[1]
        if length is not None and length > longest:
            raise errors.InputError(
                f"sequences of {length} tokens are longer than the model's "
                f"max_position_embeddings {longest}"
            )
        seed = self._dropout_seed(training)
        x = self.inner(input_ids, segment_ids, None, seed)
        if not self.has_table:
            return x
        return x, ops.convert_to_tensor(self.inner.word_embeddings)


@_register
class Block(_Wrapper):
    """One of the L layers; see layers.TransformerBlock."""

    _OPTIONS = ("left_to_right",)
    left_to_right = False

    def _make(self, make):
        return layers.TransformerBlock(self.scope, self.bert_config, make)

    def call(self, x, input_mask, training=None):
        """Maps float [B, S, H] and int32 [B, S] to float [B, S, H]."""
        bias = layers.attention_bias(
            input_mask, left_to_right=self.left_to_right, packed=False
        )
        return self.inner(x, x, bias, self._dropout_seed(training))


@_register
class Pooler(_Wrapper):
    """Dense and tanh at a position that sees all others.

    That is the first position, in a left-to-right model the last real one.
    """

    _OPTIONS = ("left_to_right",)
    left_to_right = False

    def _make(self, make):
        size = self.bert_config.hidden_size
        return layers.Dense(self.scope, size, size, make, activation="tanh")

    def call(self, x, input_mask):
        """Maps float [B, S, H] and int32 [B, S] to float [B, H]."""
        if not self.left_to_right:
            return self.inner(x[:, 0])
        lengths = ops.sum(input_mask, axis=1, keepdims=True)
        last = ops.maximum(lengths - 1, 0)  # [B, 1]
        return self.inner(layers.gather(x, last)[:, 0])


@_register
class BiLstm(_Wrapper):
    """The BiLSTM between encoder and head; see lstm.BidirectionalLstm.

    Each direction has `size` units. With `is_pooled` it returns the final state
    of each direction.
    """

    _OPTIONS = "size", "is_pooled"
    size: int
    is_pooled = False

    def _make(self, make):
        inputs = self.bert_config.hidden_size
        return lstm.BidirectionalLstm(self.scope, inputs, self.size, seed=0)

    def call(self, x, input_mask):
        """Maps [B, S, H] to float32 [B, S, 2 size], pooled [B, 2 size]."""
        x = self.inner(x, input_mask > 0)
        if not self.is_pooled:
            return x
        forward, backward = ops.split(x, 2, axis=-1)
        return ops.concatenate([forward[:, -1], backward[:, 0]], axis=-1)


@_register
class Scores(_Wrapper):
    """Dropout and a linear layer; see heads.ScoreHead.

    It has `outputs` scores of `inputs` values, which dropout sets to 0 at
    `rate`.
    """

    _OPTIONS = "outputs", "inputs", "rate"
    outputs: int
    inputs: int
    rate: float

    def _make(self, make):
        return heads.ScoreHead(
            self.scope, self.outputs, self.inputs, make, rate=self.rate
        )

    def call(self, x, training=None):
        """Maps float [..., inputs] to float32 [..., outputs]."""
        return self.inner(x, self._dropout_seed(training))


@_register
class MaskedLm(_Wrapper):
    """The masked-LM head; see heads.MaskedLmHead.

    The embeddings of words are an input, see Embeddings, and the parts of the
    head are wrapped one by one, because the head also owns the embeddings.
    """

    def __init__(self, *arguments: Any, inner: Any = None, **options: Any):
        """Wraps a head; `arguments` and `options` as for all wrappers."""
        super().__init__(*arguments, inner=inner and inner.dense, **options)
        if inner is None:
            size, count = (
                self.bert_config.hidden_size,
                self.bert_config.vocab_size,
            )
            make = variables.Maker(stddev=0.0, seed=0, dtype=self.dtype_policy)
            self.layer_norm = layers.LayerNorm(
                f"{self.scope}/transform/LayerNorm", size, make
            )
            self.output_bias = make.zeros(f"{self.scope}/output_bias", (count,))
        else:
            self.layer_norm = inner.layer_norm
            self.output_bias = inner.output_bias

    def _make(self, make):
        return layers.Dense(
            f"{self.scope}/transform/dense",
            self.bert_config.hidden_size,
            self.bert_config.hidden_size,
            make,
            activation=self.bert_config.hidden_act,
        )

    def call(self, x, table):
        """Maps float [B, S, H] and [V, H] to float32 [B, S, V]."""
        x = self.layer_norm(self.inner(x))
        scores = ops.matmul(x, ops.transpose(ops.cast(table, x.dtype)))
        return ops.cast(scores, "float32") + self.output_bias


@_register
class FlattenChoices(keras.layers.Layer):
    """Makes one sequence of each choice."""

    def call(self, ids):
        """Maps int32 [B, K, S] to [B * K, S]."""
        return ops.reshape(ids, (-1, ops.shape(ids)[2]))


@_register
class GroupChoices(keras.layers.Layer):
    """Puts the scores of each example's choices beside each other."""

    def call(self, scores, input_ids):
        """Maps float32 [B * K, 1] and int32 [B, K, S] to float32 [B, K]."""
        return ops.reshape(scores, (-1, ops.shape(input_ids)[1]))


class _Encoder:
    """The encoder of a model as wrappers, applied to inputs.

    Attributes:
      states: L + 1 times float [B, S, H]; the embeddings come first.
      table: the embeddings of words, if they are asked for.
    """

    def __init__(self, bert: Any, inputs: list, *, has_table: bool):
        """Applies the embeddings and the blocks of `bert`, a BertEncoder."""
        ids, self.mask, segments = inputs
        self.config = bert.config
        self.is_left_to_right = bert.attention == "left_to_right"
        embeddings = self.wrap(
            Embeddings,
            bert.embeddings,
            "bert/embeddings",
            name="embeddings",
            has_table=has_table,
        )
        x, self.table = embeddings(ids, segments), None
        if has_table:
            x, self.table = x
        self.states = [x]
        for i, block in enumerate(bert.blocks):
            x = self.wrap(
                Block,
                block,
                f"bert/encoder/layer_{i}",
                name=f"layer_{i}",
                left_to_right=self.is_left_to_right,
            )(x, self.mask)
            self.states.append(x)

    def wrap(self, wrapper: type, inner: Any, scope: str, **options) -> Any:
        """Wraps a layer of the model."""
        dtype = inner.dtype_policy
        return wrapper(self.config, scope, inner=inner, dtype=dtype, **options)

    def pool(self, pooler: Any) -> Any:
        """Applies the pooler to the last layer."""
        return self.wrap(
            Pooler,
            pooler,
            "bert/pooler/dense",
            name="pooler",
            left_to_right=self.is_left_to_right,
        )(self.states[-1], self.mask)

    def score(self, head: heads.ScoreHead, scope: str, x: Any, **options):
        """Applies a head."""
        outputs, inputs = head.output_weights.shape
        return self.wrap(
            Scores,
            head,
            scope,
            outputs=outputs,
            inputs=inputs,
            rate=head.rate,
            **options,
        )(x)


def functional(
    model: Any,
    name: str,
    *,
    layer: int = -1,
    pooler: layers.Dense | None = None,
    next_sentence: heads.ScoreHead | None = None,
    hidden_states: bool = False,
) -> keras.Model:
    """Returns a functional Keras model with the variables of a model.

    It maps a dict of input_ids, input_mask and segment_ids, int32 [B, S], of
    multiple choice [B, K, S], to a dict.

    Args:
      model: one of modeling.models, a CrfTaggingModel, or a BertEncoder.
      name: an export_name of weights.kinds, which names the Keras model.
      layer: the layer of an encoder whose states are sequence_output.
      pooler: the pooler of an encoder, which gives pooled_output, too.
      next_sentence: the head of a masked LM with a pooler that gives
        next_sentence_logits, too.
      hidden_states: whether the states after the embeddings and after each
        layer are an output, a list of L + 1 times [B, S, H].

    Raises:
      InputError: the model pools windows.
    """
    if isinstance(model, models.DocumentModel):
        raise errors.InputError(
            "a model with --long_texts=windows has no Keras model; use predict"
        )
    model = getattr(model, "tagger", model)  # Of a model with a CRF.
    is_choice = name == "multiple_choice"
    shape = (None, None) if is_choice else (None,)
    inputs = {x: keras.Input(shape, dtype="int32", name=x) for x in INPUTS}
    features = list(inputs.values())
    if is_choice:
        flat = [FlattenChoices(name=f"flat_{x}") for x in INPUTS]
        features = [f(x) for f, x in zip(flat, features, strict=True)]
    masked_lm = getattr(model, "masked_lm", None)
    encoder = _Encoder(
        getattr(model, "bert", model),
        features,
        has_table=masked_lm is not None,
    )
    outputs: dict[str, Any] = {}
    if masked_lm is not None:
        head = encoder.wrap(
            MaskedLm, masked_lm, "cls/predictions", name="masked_lm"
        )
        outputs["masked_lm_logits"] = head(encoder.states[-1], encoder.table)
        if pooler is not None and next_sentence is not None:
            outputs["next_sentence_logits"] = encoder.score(
                next_sentence,
                "cls/seq_relationship/",
                encoder.pool(pooler),
                name="next_sentence",
            )
    elif hasattr(model, "head"):
        logits = _scores(model, encoder)
        if is_choice:
            logits = GroupChoices(name="choices")(logits, inputs["input_ids"])
        if isinstance(model, models.QuestionAnsweringModel):
            outputs["start_logits"] = logits[..., 0]
            outputs["end_logits"] = logits[..., 1]
        else:
            outputs["logits"] = logits
    else:
        outputs["sequence_output"] = encoder.states[1:][layer]
        if pooler is not None:
            outputs["pooled_output"] = encoder.pool(pooler)
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
        bilstm = encoder.wrap(
            BiLstm,
            model.bilstm,
            scope,
            name=scope,
            size=model.bilstm_size,
            is_pooled=not reads_positions,
        )
        x = bilstm(x, encoder.mask)
    elif not reads_positions:
        x = encoder.pool(model.bert.pooler)
    if isinstance(model, models.QuestionAnsweringModel):
        return encoder.score(model.head, "cls/squad/", x, name="spans")
    return encoder.score(model.head, "", x, name="classifier")
