"""Makes tiny_pretrained/, a model that run_pretraining.py really trained.

Two steps, as torch and TensorFlow need not live in one environment:

    PYTHONPATH=. python tests/testdata/make_tiny_pretrained.py train
    pip install torch==2.13.0 transformers==5.23.0
    python tests/testdata/make_tiny_pretrained.py score

The first writes the model directory and records.json, masked records that it
was not trained on; the second lets transformers load the directory and writes
its losses on these records to golden.json.
"""

import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent / "tiny_pretrained"
SUBJECTS = "the cat|the dog|a bird|my friend|the old man|a child".split("|")
VERBS = "sees|likes|follows|remembers|forgets|wakes".split("|")
OBJECTS = "the sun|a river|the red house|an apple|some snow|him".split("|")
ENDINGS = "in spring|at night|every day|again|in the garden|slowly".split("|")
SPECIAL = "[PAD] [UNK] [CLS] [SEP] [MASK]".split()
TOKENS = ". ##s ##ly see like follow remember forget wake slow".split()
CONFIG = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "hidden_act": "gelu",
    "max_position_embeddings": 48,
    "type_vocab_size": 2,
}
FILES = (
    "config.json",
    "bert_config.json",
    "model.safetensors",
    "vocab.txt",
    "tokenizer_config.json",
)
LENGTHS = ["--max_seq_length=48", "--max_predictions_per_seq=6"]


def text(rng: random.Random, documents: int) -> str:
    """Makes documents that keep to one subject, so that pairs have a sense."""
    made = []
    for _ in range(documents):
        subject = rng.choice(SUBJECTS)
        made.append(
            "\n".join(
                " ".join(
                    [subject, *(rng.choice(x) for x in (VERBS, OBJECTS))]
                    + [rng.choice(ENDINGS), "."]
                )
                for _ in range(rng.randint(3, 6))
            )
        )
    return "\n\n".join(made) + "\n"


def run(*command: str) -> None:
    """Runs one of the project's programs."""
    subprocess.run([sys.executable, *command], check=True)


def train() -> None:
    """Makes text, vocabulary and records; trains; keeps the result."""
    words = " ".join([*SUBJECTS, *OBJECTS, *ENDINGS]).split()
    tokens = [*SPECIAL, *TOKENS, *sorted({*words} - {"slowly"})]
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        (work / "vocab.txt").write_text("\n".join(tokens) + "\n")
        config = CONFIG | {"vocab_size": len(tokens)}
        (work / "bert_config.json").write_text(json.dumps(config))
        for part, documents in (("train", 300), ("test", 8)):
            (work / f"{part}.txt").write_text(text(rng, documents))
            run(
                "create_pretraining_data.py",
                f"--input_file={work}/{part}.txt",
                f"--output_file={work}/{part}.tfrecord",
                f"--vocab_file={work}/vocab.txt",
                f"--dupe_factor={8 if part == 'train' else 1}",
                *LENGTHS,
            )
        run(
            "run_pretraining.py",
            f"--bert_config_file={work}/bert_config.json",
            f"--input_file={work}/train.tfrecord",
            f"--output_dir={work}/model",
            "--do_train",
            "--num_train_steps=400",
            "--num_warmup_steps=40",
            "--learning_rate=5e-3",
            *LENGTHS,
        )
        for name in FILES:
            shutil.copy(work / "model" / name, HERE / name)
        keep_records(f"{work}/test.tfrecord")


def keep_records(path: str) -> None:
    """Writes the records of a shard as plain lists."""
    import tensorflow as tf

    from data import records, schema

    serialized = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
    parsed = records.parse(tf.constant(serialized), schema.pretraining(48, 6))
    columns = {name: value.numpy().tolist() for name, value in parsed.items()}
    (HERE / "records.json").write_text(json.dumps(columns) + "\n")


def score() -> None:
    """Lets transformers load the directory and score the records."""
    import torch
    import transformers

    records = {
        name: torch.tensor(value)
        for name, value in json.loads(
            (HERE / "records.json").read_text()
        ).items()
    }
    labels = torch.full_like(records["input_ids"], -100)
    for row, positions in enumerate(records["masked_lm_positions"]):
        for index, position in enumerate(positions):
            if records["masked_lm_weights"][row, index] > 0:
                labels[row, position] = records["masked_lm_ids"][row, index]
    model = transformers.AutoModelForPreTraining.from_pretrained(HERE).eval()
    assert type(model) is transformers.BertForPreTraining
    inputs = {
        "input_ids": records["input_ids"],
        "attention_mask": records["input_mask"],
        "token_type_ids": records["segment_ids"],
    }
    with torch.no_grad():
        both = model(
            **inputs,
            labels=labels,
            next_sentence_label=records["next_sentence_labels"],
        )
    cross_entropy = torch.nn.functional.cross_entropy
    masked_lm = cross_entropy(
        both.prediction_logits.flatten(0, 1), labels.flatten()
    ).item()
    next_sentence = cross_entropy(
        both.seq_relationship_logits, records["next_sentence_labels"].flatten()
    ).item()
    assert abs(both.loss.item() - masked_lm - next_sentence) < 1e-6
    golden = {
        "transformers": transformers.__version__,
        "masked_lm_loss": masked_lm,
        "next_sentence_loss": next_sentence,
        "next_sentence_logits": both.seq_relationship_logits.tolist(),
    }
    (HERE / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
    print(masked_lm, next_sentence)


if __name__ == "__main__":
    {"train": train, "score": score}[sys.argv[1]]()
