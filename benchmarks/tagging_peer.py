r"""Fine-tunes a tagger with transformers, with the settings of run_ner.py.

    python benchmarks/tagging_peer.py --data_dir=conll2003 --model=DIRECTORY \
        --output_dir=peer --epochs=1

Batches of 32, peak learning rate 5e-5, warm-up over 10 % of the steps, labels
at the first token of each word. Reads, tokenizes and encodes without this
project. Writes predictions_dev.txt and predictions_test.txt for conlleval and
prints the seconds of training and of prediction. Needs torch and transformers,
and no module of this project except torch_peer.
"""

import argparse
import os
import time

import torch
import torch_peer
import transformers


def read(path: str) -> list[tuple[list[str], list[str]]]:
    """Returns sentences as words and BIO2 tags, without -DOCSTART-."""
    sentences: list[tuple[list[str], list[str]]] = []
    words: list[str] = []
    tags: list[str] = []
    with open(path, encoding="utf-8") as file:
        for line in [*file, "\n"]:
            cells = line.split()
            if not cells or cells[0] == "-DOCSTART-":
                if words:
                    sentences.append((words, to_bio2(tags)))
                words, tags = [], []
                continue
            words.append(cells[0])
            tags.append(cells[-1])
    return sentences


def to_bio2(tags: list[str]) -> list[str]:
    """Converts IOB1 tags to BIO2: every span begins with B-."""
    result = []
    for before, tag in zip(["O", *tags], tags, strict=False):
        begins = tag.startswith("I-") and before[2:] != tag[2:]
        result.append(f"B-{tag[2:]}" if begins else tag)
    return result


def encode(tokenizer, sentences, labels, max_seq_length):
    """Returns ids, labels and word positions of every sentence.

    Positions map the number of each word that was not truncated to the position
    of its first token.
    """
    encoded = tokenizer(
        [words for words, _ in sentences],
        is_split_into_words=True,
        truncation=True,
        max_length=max_seq_length,
        padding=False,
    )
    rows = []
    for i, (_, tags) in enumerate(sentences):
        row, positions, before = [], {}, None
        for position, word in enumerate(encoded.word_ids(i)):
            is_first = word is not None and word != before
            row.append(labels.index(tags[word]) if is_first else -100)
            if is_first:
                positions[word] = position
            before = word
        rows.append((encoded["input_ids"][i], row, positions))
    return rows


def pad(rows):
    """Returns input_ids, attention_mask and labels of a batch, padded."""
    longest = max(len(ids) for ids, *_ in rows)

    def fill(values, value):
        return torch.tensor([x + [value] * (longest - len(x)) for x in values])

    return {
        "input_ids": fill([ids for ids, *_ in rows], 0),
        "attention_mask": fill([[1] * len(ids) for ids, *_ in rows], 0),
        "labels": fill([row for _, row, _ in rows], -100),
    }


def predict(model, rows, sentences, labels, path, options) -> float:
    """Writes words, true and predicted tags; returns the seconds."""
    model.eval()
    started = time.monotonic()
    order = sorted(range(len(rows)), key=lambda i: len(rows[i][0]))
    best: dict[int, list[int]] = {}
    for start in range(0, len(rows), options.batch_size):
        numbers = order[start : start + options.batch_size]
        with torch.inference_mode(), torch_peer.autocast(options.precision):
            logits = model(**pad([rows[i] for i in numbers])).logits
        best |= dict(zip(numbers, logits.argmax(-1).tolist(), strict=True))
    with open(path, "w", encoding="utf-8") as file:
        for i, (words, tags) in enumerate(sentences):
            positions = rows[i][2]
            for j, (word, tag) in enumerate(zip(words, tags, strict=True)):
                # Truncated words and words without a token have no prediction.
                found = labels[best[i][positions[j]]] if j in positions else "O"
                file.write(f"{word} {tag} {found}\n")
            file.write("\n")
    return time.monotonic() - started


def main() -> None:
    """Trains, predicts and prints the time of both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=12345)
    parser.add_argument("--schedule", default="transformers")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--predict", nargs="+", default=["dev", "test"])
    options = parser.parse_args()
    transformers.set_seed(options.seed)
    names = {"train": "eng.train", "dev": "eng.testa", "test": "eng.testb"}
    sets = {
        split: read(os.path.join(options.data_dir, name))
        for split, name in names.items()
    }
    types = {
        tag[2:]
        for sentences in sets.values()
        for _, tags in sentences
        for tag in tags
        if tag != "O"
    }
    labels = sorted({"O", *(f"{x}-{name}" for name in types for x in "BI")})
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    model = transformers.AutoModelForTokenClassification.from_pretrained(
        options.model, num_labels=len(labels)
    ).float()
    rows = {
        split: encode(tokenizer, found, labels, options.max_seq_length)
        for split, found in sets.items()
    }
    started = time.monotonic()
    torch_peer.fit(
        model,
        lambda numbers: pad([rows["train"][i] for i in numbers]),
        [len(ids) for ids, *_ in rows["train"]],
        batch_size=options.batch_size,
        epochs=options.epochs,
        learning_rate=options.learning_rate,
        seed=options.seed,
        schedule_name=options.schedule,
        precision=options.precision,
    )
    print(f"trained in {time.monotonic() - started:.1f} seconds")
    os.makedirs(options.output_dir, exist_ok=True)
    for split in options.predict:
        path = os.path.join(options.output_dir, f"predictions_{split}.txt")
        seconds = predict(
            model, rows[split], sets[split], labels, path, options
        )
        print(f"{path}: predicted in {seconds:.1f} seconds")


if __name__ == "__main__":
    main()
