r"""Fine-tunes and predicts SQuAD with transformers, as its run_qa.py does.

    python benchmarks/squad_peer.py --train_file=train-v1.1.json --model=MODEL \
        --predict_file=dev-v1.1.json --output_dir=peer

Windows, labels and the choice of answers are those of run_qa.py. To save time,
batches are padded to their longest window, not to --max_seq_length. Writes
predictions.json. With --version_2_with_negative it contains the best answer to
every question, and null_odds.json contains the score of "no answer" minus that
of the best answer, from which a threshold can be computed. Needs torch and
transformers, and no module of this project except torch_peer.
"""

import argparse
import json
import os

import numpy as np
import torch
import torch_peer
import transformers


def rows(path: str) -> list[dict]:
    """Returns all questions of a file with their paragraphs."""
    with open(path, encoding="utf-8") as file:
        data = json.load(file)["data"]
    return [
        {**qa, "context": paragraph["context"]}
        for article in data
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ]


def tokenize(options, tokenizer, examples: list[dict]):
    """Cuts windows as run_qa.py does; they overlap by --doc_stride tokens."""
    return tokenizer(
        [example["question"].lstrip() for example in examples],
        [example["context"] for example in examples],
        truncation="only_second",
        max_length=options.max_seq_length,
        stride=options.doc_stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )


def positions(encoded, number: int, example: dict) -> tuple[int, int]:
    """Returns first and last token of the answer; (0, 0) if outside."""
    if not example["answers"]:
        return 0, 0
    answer = example["answers"][0]
    start = answer["answer_start"]
    end = start + len(answer["text"])
    offsets = encoded["offset_mapping"][number]
    kinds = encoded.sequence_ids(number)
    context = [i for i, kind in enumerate(kinds) if kind == 1]
    if offsets[context[0]][0] > start or offsets[context[-1]][1] < end:
        return 0, 0
    first = max(i for i in context if offsets[i][0] <= start)
    last = min(i for i in context if offsets[i][1] >= end)
    return first, last


def train(options, tokenizer, model) -> None:
    """Fine-tunes the model."""
    examples = rows(options.train_file)
    encoded = tokenize(options, tokenizer, examples)
    owners = encoded["overflow_to_sample_mapping"]
    spans = [positions(encoded, i, examples[j]) for i, j in enumerate(owners)]

    def batch(chosen) -> dict:
        picked = torch.tensor([spans[i] for i in chosen])
        return {
            **pad(tokenizer, encoded, chosen),
            "start_positions": picked[:, 0],
            "end_positions": picked[:, 1],
        }

    torch_peer.fit(
        model,
        batch,
        [len(ids) for ids in encoded["input_ids"]],
        batch_size=options.batch_size,
        epochs=options.epochs * len(examples) / len(owners),
        learning_rate=options.learning_rate,
        seed=options.seed,
        schedule_name=options.schedule,
        precision=options.precision,
    )


def pad(tokenizer, encoded, chosen: list[int]) -> dict:
    """Returns a batch padded to its longest window."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    return tokenizer.pad(
        {name: [encoded[name][i] for i in chosen] for name in names},
        return_tensors="pt",
    )


def predict(
    options, tokenizer, model
) -> tuple[dict[str, str], dict[str, float]]:
    """Predicts as transformers' postprocess_qa_predictions does.

    Returns:
      The best answer to every question, and its null odds: the lowest score of
      "no answer" of all windows minus the score of the best answer.
    """
    examples = rows(options.predict_file)
    encoded = tokenize(options, tokenizer, examples)
    owners = encoded["overflow_to_sample_mapping"]
    order = sorted(range(len(owners)), key=lambda i: -len(encoded[i].ids))
    found: list[list] = [[] for _ in examples]
    nulls = [float("inf")] * len(examples)
    model.eval()
    for first in range(0, len(order), 16):
        chosen = order[first : first + 16]
        with torch.inference_mode(), torch_peer.autocast(options.precision):
            outputs = model(**pad(tokenizer, encoded, chosen))
        for row, window in enumerate(chosen):
            start = outputs.start_logits[row].float().numpy()
            end = outputs.end_logits[row].float().numpy()
            owner = owners[window]
            nulls[owner] = min(nulls[owner], float(start[0] + end[0]))
            kinds = encoded.sequence_ids(window)
            offsets = encoded["offset_mapping"][window]
            for i in np.argsort(start)[-20:]:
                for j in np.argsort(end)[-20:]:
                    if not i <= j < i + 30 or j >= len(kinds):
                        continue
                    if kinds[i] != 1 or kinds[j] != 1:
                        continue
                    span = offsets[i][0], offsets[j][1]
                    found[owner].append((float(start[i] + end[j]), span))
    answers, odds = {}, {}
    for example, spans, null in zip(examples, found, nulls, strict=True):
        best = max(spans, default=(-1e9, (0, 0)))
        answers[example["id"]] = example["context"][slice(*best[1])]
        odds[example["id"]] = null - best[0]
    return answers, odds


def main() -> None:
    """Trains, predicts and writes the answers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--predict_file", required=True)
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--learning_rate", type=float, default=3e-5)
    parser.add_argument("--max_seq_length", type=int, default=384)
    parser.add_argument("--doc_stride", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schedule", default="transformers")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--version_2_with_negative", action="store_true")
    options = parser.parse_args()
    transformers.set_seed(options.seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(
        options.model
    ).float()
    train(options, tokenizer, model)
    answers, odds = predict(options, tokenizer, model)
    os.makedirs(options.output_dir, exist_ok=True)
    files = {"null_odds": odds} if options.version_2_with_negative else {}
    # predictions.json is last, because its existence marks a finished run.
    for name, values in {**files, "predictions": answers}.items():
        path = os.path.join(options.output_dir, f"{name}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(values, file)


if __name__ == "__main__":
    main()
