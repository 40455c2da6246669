r"""Fine-tunes a classifier with Keras: compile and fit.

    python examples/finetune.py --model_dir=bert-base --table=train.csv \
        --output_dir=stars --frozen_layers=6

The table has the columns `text` and `label`; a tenth of its rows is held out.
Every command reads the output directory, e.g. export_model.py. For BERT's
optimizer and schedule, devices, resuming and reports, use run_classifier.py.
"""

import argparse
import csv
import pathlib

import bert  # Before Keras, because it hides TensorFlow's notices.

# isort: split
import keras
import numpy as np


def finetune(model_dir, rows, *, epochs=3, frozen_layers=0, rate=3e-5):
    """Returns a model trained on rows of text and label, and its history."""
    labels = sorted({label for _, label in rows})
    model = bert.load(
        model_dir, task="classification", labels=labels, new_head=True
    )
    keras_model = model.keras_model
    if frozen_layers:
        for name in [
            "embeddings",
            *(f"layer_{i}" for i in range(frozen_layers)),
        ]:
            keras_model.get_layer(name).trainable = False
    steps = epochs * -(-len(rows) // 32)
    keras_model.compile(
        keras.optimizers.AdamW(
            keras.optimizers.schedules.PolynomialDecay(rate, steps, 0.0),
            weight_decay=0.01,
            clipnorm=1.0,
        ),
        loss={"logits": keras.losses.SparseCategoricalCrossentropy(True)},
        metrics={"logits": ["accuracy"]},
    )
    # input_ids, input_mask, segment_ids: int32 [N, S]
    inputs = model.encode([text for text, _ in rows])
    targets = np.array([labels.index(label) for _, label in rows])
    history = keras_model.fit(
        inputs,
        {"logits": targets},
        batch_size=32,
        epochs=epochs,
        validation_split=0.1,
    )
    return model, history.history


def main(arguments):
    """Reads the table, trains, and writes the model."""
    with open(arguments.table, newline="", encoding="utf-8") as file:
        rows = [(row["text"], row["label"]) for row in csv.DictReader(file)]
    model, _ = finetune(
        arguments.model_dir,
        rows,
        epochs=arguments.epochs,
        frozen_layers=arguments.frozen_layers,
        rate=arguments.learning_rate,
    )
    # `predict` has the trained weights: keras_model shares them.
    texts = [text for text, _ in rows[:3]]
    for text, found in zip(texts, model.predict(texts), strict=True):
        print(f"{found.label} {found.score:.3f}  {text}")
    model.save(arguments.output_dir)
    path = pathlib.Path(arguments.output_dir) / "model.keras"
    # Keras reads this file after `import bert`; commands read the directory.
    model.keras_model.save(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_dir", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--frozen_layers", type=int, default=0)
    parser.add_argument("--learning_rate", type=float, default=3e-5)
    try:
        main(parser.parse_args())
    except bert.InputError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
