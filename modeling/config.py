"""The hyperparameters of a BERT model: the keys of a bert_config.json.

The two kinds of file use the name "gelu" for different functions: the released
bert_config.json for the tanh approximation, Hugging Face's config.json for the
exact form. A `BertConfig` has the released names, and calls the exact form
"gelu_erf":

    bert_config.json   BertConfig    config.json (Hugging Face)
    gelu               gelu          gelu_new
    gelu_erf           gelu_erf      gelu
"""

import dataclasses
import os
import re
from typing import Annotated

import msgspec
from absl import logging

from foundation import errors, metadata

# https://github.com/google-research/bert/blob/master/modeling.py#L370
LAYER_NORM_EPSILON = 1e-12

_FROM_HUGGING_FACE = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
_TO_HUGGING_FACE = {
    "gelu": "gelu_new",
    "gelu_erf": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
# google-research/bert's 24 small models, of which all else follows.
_SMALL = re.compile(
    r"uncased_L-(?P<layers>2|4|6|8|10|12)_H-(?P<size>128|256|512|768)_A-\d+"
)
# Keys of releases that do not change the model.
_HARMLESS = ("directionality", "pooler_")
# Every config.json of transformers has one of these keys.
_OF_HUGGING_FACE = {"model_type", "architectures", "transformers_version"}
# Settings of Hugging Face that must have BERT's value.
_HUGGING_FACE_FIXED = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "layer_norm_eps": LAYER_NORM_EPSILON,
    "add_cross_attention": False,
}


# The bounds are far above any model; without them, a damaged file would keep
# the machine busy for hours.
_Layers = Annotated[int, msgspec.Meta(ge=1, le=1000)]
_Width = Annotated[int, msgspec.Meta(ge=1, le=10**6)]
# 0 and 0.0 are written as they were read.
_Share = (
    Annotated[int, msgspec.Meta(ge=0, le=0)]
    | Annotated[float, msgspec.Meta(ge=0, lt=1)]
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig:
    """The released hyperparameters, with the released defaults."""

    vocab_size: metadata.Size
    hidden_size: _Width = 768
    num_hidden_layers: _Layers = 12
    num_attention_heads: _Width = 12
    intermediate_size: _Width = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: _Share = 0.1
    attention_probs_dropout_prob: _Share = 0.1
    max_position_embeddings: _Width = 512
    type_vocab_size: _Width = 16
    initializer_range: _Share = 0.02

    def __post_init__(self):
        """Raises InputError for values that exclude each other."""
        if self.hidden_size % self.num_attention_heads:
            raise errors.InputError(
                f"hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {self.num_attention_heads}"
            )
        if self.hidden_act not in _TO_HUGGING_FACE:
            known = ", ".join(_TO_HUGGING_FACE)
            raise errors.InputError(
                f"hidden_act {self.hidden_act!r} is none of: {known}"
            )

    @classmethod
    def from_dict(
        cls, values: metadata.Object, where: str = "the BERT config"
    ) -> "BertConfig":
        """Reads the released form; ignores other keys with a warning.

        Args:
          values: values by the name of the key.
          where: the file, for messages.

        Raises:
          InputError: a value is missing, of another type or out of bounds.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        ignored = [
            key
            for key in values
            if key not in names and not key.startswith(_HARMLESS)
        ]
        if ignored:
            logging.warning("BERT config: ignored %s", ", ".join(ignored))
        return metadata.convert(values, cls, where)

    @classmethod
    def from_hugging_face(
        cls, values: metadata.Object, where: str = "the BERT config"
    ) -> "BertConfig":
        """Reads the form of a Hugging Face config.json; see `from_dict`."""
        for key, expected in _HUGGING_FACE_FIXED.items():
            if values.get(key, expected) not in (expected, None):
                raise errors.InputError(
                    f"{where}: {key} is {values[key]!r}, but BERT has "
                    f"{expected!r}"
                )
        dropout = values.get("hidden_dropout_prob", cls.hidden_dropout_prob)
        of_classifier = values.get("classifier_dropout")
        if of_classifier not in (None, dropout):
            logging.warning(
                "BERT config: ignored classifier_dropout=%s; the dropout of "
                "classifiers is hidden_dropout_prob, %s",
                of_classifier,
                dropout,
            )
        names = [field.name for field in dataclasses.fields(cls)]
        # The defaults of transformers, where they differ from the released.
        known = {"hidden_act": "gelu", "type_vocab_size": 2}
        known |= {k: values[k] for k in names if k in values}
        act = known["hidden_act"]
        if isinstance(act, str):
            if act not in _FROM_HUGGING_FACE:
                supported = ", ".join(_FROM_HUGGING_FACE)
                raise errors.InputError(
                    f"{where}: hidden_act {act!r} is none of: {supported}"
                )
            known["hidden_act"] = _FROM_HUGGING_FACE[act]
        return cls.from_dict(known, where)

    @classmethod
    def from_json_file(
        cls, path: str | os.PathLike, *, of_tensorflow: bool = False
    ) -> "BertConfig":
        """Reads either form; a file named config.json is Hugging Face's.

        Args:
          path: the file.
          of_tensorflow: whether it belongs to a TensorFlow checkpoint. Its
            config.json has the released form, unless it has a key that only
            transformers writes.
        """
        path = os.fspath(path)
        values = metadata.read(path, metadata.Object)
        is_hugging_face = "model_type" in values or (
            os.path.basename(path) == "config.json"
            and not (of_tensorflow and _OF_HUGGING_FACE.isdisjoint(values))
        )
        read = cls.from_hugging_face if is_hugging_face else cls.from_dict
        return read(values, path)

    @classmethod
    def of_small_model(cls, name: str) -> "BertConfig | None":
        """Returns the config of one of google-research/bert's small models.

        Args:
          name: such as "uncased_L-4_H-256_A-4"; None is returned of others.
        """
        found = _SMALL.fullmatch(name)
        if found is None:
            return None
        size = int(found["size"])
        config = cls(
            vocab_size=30522,
            hidden_size=size,
            num_hidden_layers=int(found["layers"]),
            num_attention_heads=size // 64,
            intermediate_size=4 * size,
            type_vocab_size=2,
        )
        return config if name.endswith(f"_A-{size // 64}") else None

    def to_dict(self) -> dict:
        """Returns the released form, the content of bert_config.json."""
        return dataclasses.asdict(self)

    def to_hugging_face(self) -> dict:
        """Returns the form of a Hugging Face config.json."""
        return self.to_dict() | {
            "model_type": "bert",
            "hidden_act": _TO_HUGGING_FACE[self.hidden_act],
            "layer_norm_eps": LAYER_NORM_EPSILON,
        }
