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

from absl import logging

from foundation import errors, file_system

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig:
    """The released hyperparameters, with the released defaults."""

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 16
    initializer_range: float = 0.02

    def __post_init__(self):
        """Raises InputError for values that are invalid."""
        for field in dataclasses.fields(self):
            _check_value(field, getattr(self, field.name))
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
    def from_dict(cls, values: dict) -> "BertConfig":
        """Reads the released form; ignores other keys with a warning."""
        names = [field.name for field in dataclasses.fields(cls)]
        ignored = [
            key
            for key in values
            if key not in names and not key.startswith(_HARMLESS)
        ]
        if ignored:
            logging.warning("BERT config: ignored %s", ", ".join(ignored))
        if "vocab_size" not in values:
            raise errors.InputError("the BERT config lacks vocab_size")
        return cls(**{k: values[k] for k in names if k in values})

    @classmethod
    def from_hugging_face(cls, values: dict) -> "BertConfig":
        """Reads the form of a Hugging Face config.json."""
        for key, expected in _HUGGING_FACE_FIXED.items():
            if values.get(key, expected) not in (expected, None):
                raise errors.InputError(
                    f"{key} is {values[key]!r}, but BERT has {expected!r}"
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
        if act not in _FROM_HUGGING_FACE:
            names = ", ".join(_FROM_HUGGING_FACE)
            raise errors.InputError(f"hidden_act {act!r} is none of: {names}")
        return cls.from_dict(known | {"hidden_act": _FROM_HUGGING_FACE[act]})

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
        values = file_system.read_json(path)
        if not isinstance(values, dict):
            raise errors.InputError(
                f"{path}: a BERT config must be a JSON object"
            )
        is_hugging_face = "model_type" in values or (
            os.path.basename(path) == "config.json"
            and not (of_tensorflow and _OF_HUGGING_FACE.isdisjoint(values))
        )
        read = cls.from_hugging_face if is_hugging_face else cls.from_dict
        try:
            return read(values)
        except errors.InputError as error:
            raise errors.InputError(f"{path}: {error}") from error

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


def _check_value(field: dataclasses.Field, value: object) -> None:
    """Raises InputError unless a value fits the type of its field."""
    if field.type is int:
        good = type(value) is int and value >= 1
        wanted = "a positive whole number"
    elif field.type is float:
        good = type(value) in (int, float) and 0 <= value < 1
        wanted = "a number from 0 up to, not including, 1"
    else:
        good, wanted = isinstance(value, str), "a word"
    if not good:
        raise errors.InputError(
            f"{field.name} is {value!r}; it must be {wanted}"
        )
