"""The one table of weight names: ours = TF1, Hugging Face, Model Garden.

Our variable paths ARE the TF1 names, so the table has three columns. From it
derive reading, writing and every report. `N` stands for a layer's number:

    bert/encoder/layer_N/output/dense/kernel [I, H]        TF1 and ours
    bert.encoder.layer.N.output.dense.weight [H, I]        Hugging Face
    _transformer_layers/N/_output_dense/kernel [I, H]      Model Garden (TF2)

Hugging Face transposes kernels, Model Garden the tables of scores; nothing else
is transposed. Hugging Face's decoder.weight and decoder.bias are copies of tied
tensors and have no row.
"""

import re
from typing import NamedTuple

from modeling.config import BertConfig


class Row(NamedTuple):
    """One kind of variable.

    path: Our path and the TF1 name.
    hugging_face: The name in a transformers checkpoint.
    model_garden: The object name below the encoder, or a head's, in a TF2
        checkpoint; see weights/model_garden.py for its older spellings.
    shape: Letters of config values; see `_sizes`.
    transpose: Whether Hugging Face stores the transposed matrix.
    """

    path: str
    hugging_face: str
    model_garden: str
    shape: tuple
    transpose: bool = False


def _dense(
    path: str, hugging_face: str, model_garden: str, inputs: str, outputs: str
) -> list:
    """Returns the rows of a dense layer."""
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


def _norm(path: str, hugging_face: str, model_garden: str) -> list:
    """Returns the rows of a LayerNorm."""
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
) -> list:
    """Returns the rows of a score head."""
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
_EMBEDDINGS, _HF_EMBEDDINGS = "bert/embeddings", "bert.embeddings"
_TRANSFORM = "cls/predictions/transform"
_HF_TRANSFORM = "cls.predictions.transform"

EMBEDDINGS = [
    Row(
        f"{_EMBEDDINGS}/{name}_embeddings",
        f"{_HF_EMBEDDINGS}.{name}_embeddings.weight",
        f"{model_garden}/embeddings",
        (size, "H"),
    )
    for name, model_garden, size in (
        ("word", "_embedding_layer", "V"),
        ("token_type", "_type_embedding_layer", "TYPES"),
        ("position", "_position_embedding_layer", "POSITIONS"),
    )
] + _norm(
    f"{_EMBEDDINGS}/LayerNorm",
    f"{_HF_EMBEDDINGS}.LayerNorm",
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
            "H",
            "H",
        )
    ),
    *_dense(
        f"{_LAYER}/attention/output/dense",
        f"{_HF_LAYER}.attention.output.dense",
        f"{_MG_LAYER}/_attention_layer/_output_dense",
        "H",
        "H",
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
        "H",
        "I",
    ),
    *_dense(
        f"{_LAYER}/output/dense",
        f"{_HF_LAYER}.output.dense",
        f"{_MG_LAYER}/_output_dense",
        "I",
        "H",
    ),
    *_norm(
        f"{_LAYER}/output/LayerNorm",
        f"{_HF_LAYER}.output.LayerNorm",
        f"{_MG_LAYER}/_output_layer_norm",
    ),
]
POOLER = _dense(
    "bert/pooler/dense", "bert.pooler.dense", "_pooler_layer", "H", "H"
)
MASKED_LM = [
    *_dense(
        f"{_TRANSFORM}/dense",
        f"{_HF_TRANSFORM}.dense",
        "masked_lm/dense",
        "H",
        "H",
    ),
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
# Of our own: nobody else has an LSTM between the encoder and the head.
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

# Copies of tied tensors and buffers of older transformers: nothing to load.
_DERIVED = re.compile(
    r"cls\.predictions\.decoder\.(weight|bias)|"
    r"(bert\.)?embeddings\.(position_ids|token_type_ids)"
)


def to_hugging_face(path: str) -> tuple[str, bool] | None:
    """Returns the Hugging Face name and whether to transpose, or None."""
    pattern, number = _split(path, r"(?<=/layer_)\d+(?=/)")
    row = _BY_PATH.get(pattern)
    if row is None:
        return None
    return row.hugging_face.replace("N", number, _numbered(row)), row.transpose


def from_hugging_face(name: str) -> tuple[str, bool] | None:
    """Returns our path and whether to transpose, or None if unknown.

    Names may lack "bert." and, as in old files, say LayerNorm.gamma and beta.
    """
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
    if name.startswith(("embeddings.", "encoder.", "pooler.")):
        name = f"bert.{name}"
    pattern, number = _split(name, r"(?<=\.layer\.)\d+(?=\.)")
    row = _BY_HUGGING_FACE.get(pattern)
    if row is None:
        return None
    return row.path.replace("N", number, _numbered(row)), row.transpose


def to_model_garden(path: str) -> str | None:
    """Returns Model Garden's name, or None."""
    pattern, number = _split(path, r"(?<=/layer_)\d+(?=/)")
    row = _BY_PATH.get(pattern)
    if row is None:
        return None
    return row.model_garden.replace("N", number, _numbered(row))


def from_model_garden(name: str) -> str | None:
    """Returns our path of a name as the table spells it, or None."""
    pattern, number = _split(name, r"(?<=^_transformer_layers/)\d+(?=/)")
    row = _BY_MODEL_GARDEN.get(pattern)
    if row is None:
        return None
    return row.path.replace("N", number, _numbered(row))


def is_encoder(path: str) -> bool:
    """Tells whether every BERT has this variable; not all have a pooler."""
    return path.startswith("bert/") and not path.startswith("bert/pooler/")


def is_derived(hugging_face_name: str) -> bool:
    """Tells whether a tensor only repeats what another one says."""
    return _DERIVED.fullmatch(hugging_face_name) is not None


def shapes(
    config: BertConfig,
    *heads: list,
    num_classes: int = 2,
    bilstm_size: int = 0,
) -> dict[str, tuple]:
    """Lists path -> shape of the encoder with pooler and the given heads.

    Args:
        config: The sizes.
        *heads: MASKED_LM, NEXT_SENTENCE, CLASSIFIER, SPAN or BILSTM.
        num_classes: Of a classifier.
        bilstm_size: U, of BILSTM; score heads read 2 U then.

    Returns:
        One entry per variable, in the order of the table.
    """
    sizes = _sizes(config, num_classes, bilstm_size)
    rows = list(EMBEDDINGS)
    for i in range(config.num_hidden_layers):
        rows += [
            row._replace(path=row.path.replace("N", str(i), 1)) for row in LAYER
        ]
    for head in (POOLER, *heads):
        rows += head
    return {row.path: tuple(sizes[x] for x in row.shape) for row in rows}


def _sizes(
    config: BertConfig, num_classes: int, bilstm_size: int
) -> dict[str, int]:
    """Says what the letters of the table's shapes mean."""
    return {
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


def _split(name: str, number: str) -> tuple[str, str]:
    """Replaces the layer number by N; returns it too ("" without)."""
    match = re.search(number, name)
    if match is None:
        return name, ""
    return name[: match.start()] + "N" + name[match.end() :], match.group()


def _numbered(row: Row) -> int:
    """Returns 1 for rows of a layer, 0 for others (they may say LayerNorm)."""
    return 1 if row.path.startswith(_LAYER) else 0
