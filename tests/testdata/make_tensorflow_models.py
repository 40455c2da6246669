"""Makes tensorflow_models/: tiny models that transformers wrote in TensorFlow.

pip install transformers==4.46.3 tensorflow==2.18.1 tf-keras==2.18.0
TF_USE_LEGACY_KERAS=1 python tests/testdata/make_tensorflow_models.py

A model for pre-training as tf_model.h5, a classifier as model.safetensors, and
outputs.json with what both compute in float32; callback/ has the checkpoint of
the first model as Keras writes it. Weights are random.
"""

import json
import pathlib

import numpy as np
import tensorflow as tf
import transformers

DIRECTORY = pathlib.Path(__file__).parent / "tensorflow_models"
FEATURES = {
    "input_ids": [[2, 7, 9, 3, 11, 3, 0], [2, 5, 6, 8, 9, 3, 0]],
    "attention_mask": [[1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 0]],
    "token_type_ids": [[0, 0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0, 0]],
}
CONFIG = transformers.BertConfig(
    vocab_size=12,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=8,
    num_labels=3,
)


def main() -> None:
    """Writes both models and their outputs."""
    transformers.set_seed(0)
    features = {name: tf.constant(rows) for name, rows in FEATURES.items()}
    golden: dict = {"transformers": transformers.__version__, **FEATURES}
    for name, make, is_safe in (
        ("pretraining", transformers.TFBertForPreTraining, False),
        ("classifier", transformers.TFBertForSequenceClassification, True),
    ):
        model = make(CONFIG)
        model(features)  # Makes the variables.
        rng = np.random.default_rng(0)
        model.set_weights(
            [w + rng.normal(0, 0.2, w.shape) for w in model.get_weights()]
        )
        golden[name] = {
            key: np.float64(value).round(7).tolist()
            for key, value in model(features).items()
        }
        model.save_pretrained(DIRECTORY / name, safe_serialization=is_safe)
        if not is_safe:
            model.save_weights(DIRECTORY / "callback" / "cp.ckpt")
    (DIRECTORY / "outputs.json").write_text(json.dumps(golden))


if __name__ == "__main__":
    main()
