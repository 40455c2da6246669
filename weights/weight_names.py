"""The table of weight names: ours (TF1), Hugging Face's and Model Garden's.

The paths of our variables are the names in the released TF1 checkpoints, so
three columns are enough. Reading, writing and all reports use this table. `N`
is the number of a layer:

    bert/encoder/layer_N/output/dense/kernel [I, H]        TF1 and ours
    bert.encoder.layer.N.output.dense.weight [H, I]        Hugging Face
    _transformer_layers/N/_output_dense/kernel [I, H]      Model Garden (TF2)

Hugging Face stores kernels transposed, Model Garden the weights of score heads.
Hugging Face's decoder.weight and decoder.bias are copies of tied tensors and
have no row.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from modeling.config import BertConfig


class Row(NamedTuple):
    """One kind of variable.

    path: Our path, which is the TF1 name.
    hugging_face: The name in a transformers checkpoint.
    model_garden: The object's name below the encoder or a head in a TF2
        checkpoint. tensorflow_checkpoints translates the older names.
    shape: Letters, see `shapes`.
    is_transposed: Whether Hugging Face stores the transposed matrix.
    """

    path: str
    hugging_face: str
    model_garden: str
    shape: tuple
    is_transposed: bool = False


def _dense(
    path: str,
    hugging_face: str,
    model_garden: str,
    inputs: str = "H",
    outputs: str = "H",
) -> list[Row]:
    return [
        Row(
            f"{path}/kernel",
            f"{hugging_face}.weight",
            f"{model_garden}/kernel",
            (inputs, outputs),
            True,
        ),
        Row(
            f"{path}/bias",
            f"{hugging_face}.bias",
            f"{model_garden}/bias",
            (outputs,),
        ),
    ]


def _norm(path: str, hugging_face: str, model_garden: str) -> list[Row]:
    return [
        Row(
            f"{path}/{ours}",
            f"{hugging_face}.{theirs}",
            f"{model_garden}/{ours}",
            ("H",),
        )
        for ours, theirs in (("gamma", "weight"), ("beta", "bias"))
    ]


def _scores(
    scope: str, hugging_face: str, model_garden: str, outputs: str
) -> list[Row]:
    return [
        Row(
            f"{scope}output_weights",
            f"{hugging_face}.weight",
            f"{model_garden}/kernel",
            (outputs, "F"),
        ),
        Row(
            f"{scope}output_bias",
            f"{hugging_face}.bias",
            f"{model_garden}/bias",
            (outputs,),
        ),
    ]


_LAYER, _HF_LAYER = "bert/encoder/layer_N", "bert.encoder.layer.N"
_MG_LAYER = "_transformer_layers/N"
_TRANSFORM = "cls/predictions/transform"
_HF_TRANSFORM = "cls.predictions.transform"

EMBEDDINGS = [
    Row(
        f"bert/embeddings/{name}_embeddings",
        f"bert.embeddings.{name}_embeddings.weight",
        f"{model_garden}/embeddings",
        (size, "H"),
    )
    for name, model_garden, size in (
        ("word", "_embedding_layer", "V"),
        ("token_type", "_type_embedding_layer", "TYPES"),
        ("position", "_position_embedding_layer", "POSITIONS"),
    )
] + _norm(
    "bert/embeddings/LayerNorm",
    "bert.embeddings.LayerNorm",
    "_embedding_norm_layer",
)
LAYER = [
    *(
        row
        for name in ("query", "key", "value")
        for row in _dense(
            f"{_LAYER}/attention/self/{name}",
            f"{_HF_LAYER}.attention.self.{name}",
            f"{_MG_LAYER}/_attention_layer/_{name}_dense",
        )
    ),
    *_dense(
        f"{_LAYER}/attention/output/dense",
        f"{_HF_LAYER}.attention.output.dense",
        f"{_MG_LAYER}/_attention_layer/_output_dense",
    ),
    *_norm(
        f"{_LAYER}/attention/output/LayerNorm",
        f"{_HF_LAYER}.attention.output.LayerNorm",
        f"{_MG_LAYER}/_attention_layer_norm",
    ),
    *_dense(
        f"{_LAYER}/intermediate/dense",
        f"{_HF_LAYER}.intermediate.dense",
        f"{_MG_LAYER}/_intermediate_dense",
        outputs="I",
    ),
    *_dense(
        f"{_LAYER}/output/dense",
        f"{_HF_LAYER}.output.dense",
        f"{_MG_LAYER}/_output_dense",
        inputs="I",
    ),
    *_norm(
        f"{_LAYER}/output/LayerNorm",
        f"{_HF_LAYER}.output.LayerNorm",
        f"{_MG_LAYER}/_output_layer_norm",
    ),
]
POOLER = _dense("bert/pooler/dense", "bert.pooler.dense", "_pooler_layer")
MASKED_LM = [
    *_dense(f"{_TRANSFORM}/dense", f"{_HF_TRANSFORM}.dense", "masked_lm/dense"),
    *_norm(
        f"{_TRANSFORM}/LayerNorm",
        f"{_HF_TRANSFORM}.LayerNorm",
        "masked_lm/layer_norm",
    ),
    Row(
        "cls/predictions/output_bias",
        "cls.predictions.bias",
        "masked_lm/bias",
        ("V",),
    ),
]
NEXT_SENTENCE = _scores(
    "cls/seq_relationship/", "cls.seq_relationship", "next_sentence", "2"
)
CLASSIFIER = _scores("", "classifier", "sentence_prediction", "C")
SPAN = _scores("cls/squad/", "qa_outputs", "span_labeling", "2")
# Only this project has a BiLSTM between the encoder and the head.
BILSTM = [
    Row(
        f"bilstm/{direction}/{name}",
        f"bilstm.{direction}.{name}",
        f"bilstm/{direction}/{name}",
        shape,
    )
    for direction in ("forward", "backward")
    for name, shape in (
        ("kernel", ("H", "4U")),
        ("recurrent_kernel", ("U", "4U")),
        ("bias", ("4U",)),
    )
]

TABLE = [
    *EMBEDDINGS,
    *LAYER,
    *POOLER,
    *MASKED_LM,
    *NEXT_SENTENCE,
    *CLASSIFIER,
    *SPAN,
    *BILSTM,
]
_BY_PATH = {row.path: row for row in TABLE}
_BY_HUGGING_FACE = {row.hugging_face: row for row in TABLE}
_BY_MODEL_GARDEN = {row.model_garden: row for row in TABLE}
# A layer's number in any of the three columns.
_NUMBER = re.compile(
    r"(?<=/layer_)\d+(?=/)|(?<=\.layer\.)\d+(?=\.)"
    r"|(?<=^_transformer_layers/)\d+(?=/)"
)
# Copies of tied tensors, and buffers of older transformers.
_DERIVED = re.compile(
    r"cls\.predictions\.decoder\.(weight|bias)|"
    r"(bert\.)?embeddings\.(position_ids|token_type_ids)"
)


def by_path(path: str) -> Row | None:
    """Returns the row of one of our paths, with the layer's number, or None."""
    return _find(_BY_PATH, path)


def by_hugging_face(name: str) -> Row | None:
    """Returns the row of a Hugging Face name, or None if it is unknown.

    Names may lack "bert." and, as in old files, end in LayerNorm.gamma or
    LayerNorm.beta.
    """
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
    if name.startswith(("embeddings.", "encoder.", "pooler.")):
        name = f"bert.{name}"
    return _find(_BY_HUGGING_FACE, name)


def by_model_garden(name: str) -> Row | None:
    """Returns the row of a Model Garden name of the table, or None."""
    return _find(_BY_MODEL_GARDEN, name)


def is_encoder(path: str) -> bool:
    """Returns whether every BERT has this variable; the pooler is optional."""
    return path.startswith("bert/") and not path.startswith("bert/pooler/")


def is_derived(hugging_face_name: str) -> bool:
    """Returns whether a tensor is a copy of another one, or a constant."""
    return _DERIVED.fullmatch(hugging_face_name) is not None


def shapes(
    config: BertConfig,
    *heads: Sequence[Row],
    num_classes: int = 2,
    bilstm_size: int = 0,
) -> dict[str, tuple]:
    """Returns path -> shape of the encoder, the pooler and the given heads.

    Args:
        config: The sizes.
        *heads: MASKED_LM, NEXT_SENTENCE, CLASSIFIER, SPAN or BILSTM.
        num_classes: C, of a classifier.
        bilstm_size: U, of BILSTM. A score head above it reads F = 2 U
            features, otherwise F = H.
    """
    sizes = {
        "V": config.vocab_size,
        "H": config.hidden_size,
        "I": config.intermediate_size,
        "C": num_classes,
        "2": 2,
        "F": 2 * bilstm_size or config.hidden_size,
        "U": bilstm_size,
        "4U": 4 * bilstm_size,
        "TYPES": config.type_vocab_size,
        "POSITIONS": config.max_position_embeddings,
    }
    rows = list(EMBEDDINGS)
    for i in range(config.num_hidden_layers):
        rows += [_with_number(row, str(i)) for row in LAYER]
    for head in (POOLER, *heads):
        rows += head
    return {row.path: tuple(sizes[x] for x in row.shape) for row in rows}


def _find(column: dict[str, Row], name: str) -> Row | None:
    number = _NUMBER.search(name)
    if number is None:
        return column.get(name)
    row = column.get(f"{name[: number.start()]}N{name[number.end() :]}")
    return row and _with_number(row, number.group())


def _with_number(row: Row, number: str) -> Row:
    return row._replace(
        path=row.path.replace("N", number, 1),
        hugging_face=row.hugging_face.replace("N", number, 1),
        model_garden=row.model_garden.replace("N", number, 1),
    )
