r"""The other programs of the comparisons, each a command of its own.

    python benchmarks/peer.py classify --model=MODEL --train_file=train.tsv \
        --predict_file=dev.tsv --text_column=sentence --output_dir=peer
    python benchmarks/peer.py answer --model=MODEL \
        --train_file=train-v1.1.json --predict_file=dev-v1.1.json ...
    python benchmarks/peer.py tag --model=MODEL --train_file=eng.train \
        --predict_file=eng.testb --output_dir=peer
    python benchmarks/peer.py pretrain --size=base --batch_size=16 --steps=20
    python benchmarks/peer.py serve --model=MODEL --engine=onnx
    python benchmarks/peer.py records --reference=CHECKOUT -- --input_file=...

The first five are transformers with PyTorch, as its example scripts use them,
and need torch and transformers. They group rows of similar length, unless
--random_batches, and use AdamW with google-research/bert's weight decay and a
linear warm-up over 10 % of the steps; the rate then falls from the end of the
warm-up (transformers' schedule). The last is google-research/bert's script for
pre-training data, which needs TensorFlow. No module of this project is used.
"""

import argparse
import asyncio
import csv
import json
import os
import pathlib
import runpy
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
VOCABULARY = 30522
Batch = Callable[[Sequence[int]], dict[str, Any]]


def autocast(options, device: str = "cpu"):
    """Returns a context that multiplies matrices in --precision."""
    import torch

    is_half = options.precision == "bfloat16"
    return torch.autocast(device, dtype=torch.bfloat16, enabled=is_half)


def adamw(model, learning_rate: float):
    """Returns AdamW; biases and LayerNorm have no weight decay."""
    import torch

    decayed, others = [], []
    for name, weight in model.named_parameters():
        is_exempt = "LayerNorm" in name or name.endswith("bias")
        (others if is_exempt else decayed).append(weight)
    groups = [
        {"params": decayed, "weight_decay": 0.01},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, eps=1e-6, fused=True)


def step(model, loss, optimizer) -> None:
    """Updates the weights."""
    import torch

    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def batches(options, lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yields the rows of training batches in the Trainer's order, endlessly."""
    import torch
    from transformers import trainer_pt_utils

    generator = torch.Generator().manual_seed(options.seed)
    size, order = options.batch_size, []
    while True:
        if len(order) < size:
            if options.random_batches:
                order += torch.randperm(
                    len(lengths), generator=generator
                ).tolist()
            else:
                order += trainer_pt_utils.get_length_grouped_indices(
                    list(lengths), size, generator=generator
                )
        rows, order = order[:size], order[size:]
        yield rows


def fit(options, model, make_batch: Batch, lengths: Sequence[int]) -> None:
    """Fine-tunes; `make_batch` returns the inputs of rows, with labels."""
    import transformers

    steps = int(len(lengths) / options.batch_size * options.epochs)
    optimizer = adamw(model, options.learning_rate)
    rates = transformers.get_linear_schedule_with_warmup(
        optimizer, int(0.1 * steps), steps
    )
    rows = batches(options, lengths)
    model.train()
    for _ in range(steps):
        with autocast(options):
            loss = model(**make_batch(next(rows))).loss
        step(model, loss, optimizer)
        rates.step()


def predict(
    options, model, make_batch: Batch, lengths: Sequence[int]
) -> Iterator[tuple[list[int], Any]]:
    """Yields the rows of batches, and what the model computes of them."""
    import torch

    order = range(len(lengths))
    if not options.random_batches:
        order = sorted(order, key=lambda i: lengths[i])
    model.eval()
    for first in range(0, len(order), options.batch_size):
        rows = list(order[first : first + options.batch_size])
        with torch.inference_mode(), autocast(options):
            yield rows, model(**make_batch(rows))


def padded(tokenizer, encoded, rows: Sequence[int]) -> dict[str, Any]:
    """Returns a batch padded to its longest row."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    chosen = {n: [encoded[n][i] for i in rows] for n in names if n in encoded}
    return dict(tokenizer.pad(chosen, return_tensors="pt"))


def load(options, kind: str, **settings: Any):
    """Returns the tokenizer, and a model of the class AutoModelFor<kind>."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.set_seed(options.seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    auto = getattr(transformers, f"AutoModelFor{kind}")
    return tokenizer, auto.from_pretrained(options.model, **settings).float()


def write(options, name: str, text: str) -> None:
    """Writes a file of --output_dir."""
    folder = pathlib.Path(options.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


# Classification.


def read_rows(options, path: str) -> list[dict[str, str]]:
    """Returns the rows of a table; its ending says what separates cells."""
    is_tsv = path.endswith(".tsv")
    with open(path, newline="", encoding="utf-8") as file:
        return [
            *csv.DictReader(
                file,
                delimiter="\t" if is_tsv else ",",
                quoting=csv.QUOTE_NONE if is_tsv else csv.QUOTE_MINIMAL,
            )
        ]


def classify(options) -> None:
    """Trains a classifier, writes the labels that it predicts."""
    import torch

    train = read_rows(options, options.train_file)
    labels = sorted({row[options.label_column] for row in train})
    tokenizer, model = load(
        options, "SequenceClassification", num_labels=len(labels)
    )

    def encode(rows):
        texts = [
            [row[column] for row in rows]
            for column in (options.text_column, options.text_pair_column)
            if column
        ]
        return tokenizer(
            *texts, truncation=True, max_length=options.max_seq_length
        )

    encoded = encode(train)
    ids = [labels.index(row[options.label_column]) for row in train]

    def batch(rows):
        targets = torch.tensor([ids[i] for i in rows])
        return {**padded(tokenizer, encoded, rows), "labels": targets}

    fit(options, model, batch, [len(x) for x in encoded["input_ids"]])
    if options.predict_file is None:
        return
    test = encode(read_rows(options, options.predict_file))
    lengths = [len(x) for x in test["input_ids"]]
    found = [""] * len(lengths)
    for rows, outputs in predict(
        options, model, lambda rows: padded(tokenizer, test, rows), lengths
    ):
        best = outputs.logits.argmax(-1).tolist()
        for row, number in zip(rows, best, strict=True):
            found[row] = labels[number]
    write(options, "labels.txt", "\n".join(found) + "\n")


# Questions, as run_qa.py.


def read_questions(path: str) -> list[dict[str, Any]]:
    """Returns all questions of a file with their paragraphs."""
    with open(path, encoding="utf-8") as file:
        data = json.load(file)["data"]
    return [
        {**qa, "context": paragraph["context"]}
        for article in data
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ]


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


def answer(options) -> None:
    """Trains on questions and writes predictions.json."""
    import torch

    tokenizer, model = load(options, "QuestionAnswering")

    def windows(examples):
        encoded = tokenizer(
            [example["question"].lstrip() for example in examples],
            [example["context"] for example in examples],
            truncation="only_second",
            max_length=options.max_seq_length,
            stride=options.doc_stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        return encoded, encoded["overflow_to_sample_mapping"]

    if options.epochs:
        examples = read_questions(options.train_file)
        encoded, owners = windows(examples)
        spans = [
            positions(encoded, i, examples[j]) for i, j in enumerate(owners)
        ]

        def batch(rows):
            picked = torch.tensor([spans[i] for i in rows])
            return {
                **padded(tokenizer, encoded, rows),
                "start_positions": picked[:, 0],
                "end_positions": picked[:, 1],
            }

        fit(options, model, batch, [len(x) for x in encoded["input_ids"]])
    examples = read_questions(options.predict_file)
    encoded, owners = windows(examples)
    best: list[tuple[float, str]] = [(-1e9, "")] * len(examples)
    lengths = [-len(x) for x in encoded["input_ids"]]
    for rows, outputs in predict(
        options, model, lambda rows: padded(tokenizer, encoded, rows), lengths
    ):
        for i, window in enumerate(rows):
            start = outputs.start_logits[i].float().numpy()
            end = outputs.end_logits[i].float().numpy()
            offsets = encoded["offset_mapping"][window]
            kinds = [*encoded.sequence_ids(window), *[None] * len(start)]
            owner = owners[window]
            context = examples[owner]["context"]
            for a in np.argsort(start)[-20:]:
                for b in np.argsort(end)[-20:]:
                    if a <= b < a + 30 and kinds[a] == kinds[b] == 1:
                        text = context[offsets[a][0] : offsets[b][1]]
                        score = float(start[a] + end[b])
                        best[owner] = max(best[owner], (score, text))
    answers = {
        x["id"]: text for x, (_, text) in zip(examples, best, strict=True)
    }
    write(options, "predictions.json", json.dumps(answers))


# Entities.


def read_sentences(path: str) -> list[tuple[list[str], list[str]]]:
    """Returns sentences as words and BIO2 tags, without -DOCSTART-."""
    sentences: list[tuple[list[str], list[str]]] = []
    words: list[str] = []
    tags: list[str] = []
    with open(path, encoding="utf-8") as file:
        for line in [*file, "\n"]:
            cells = line.split()
            if cells and cells[0] != "-DOCSTART-":
                words.append(cells[0])
                tags.append(cells[-1])
            elif words:
                sentences.append((words, bio2(tags)))
                words, tags = [], []
    return sentences


def bio2(tags: Sequence[str]) -> list[str]:
    """Converts IOB1 tags: every span begins with B-."""
    pairs = zip(["O", *tags], tags, strict=False)
    return [
        f"B-{tag[2:]}"
        if tag.startswith("I-") and before[2:] != tag[2:]
        else tag
        for before, tag in pairs
    ]


def tag(options) -> None:
    """Trains a tagger; writes words with true and predicted tags."""
    import torch

    train = read_sentences(options.train_file)
    labels = sorted({"O", *(tag for _, tags in train for tag in tags)})
    tokenizer, model = load(
        options, "TokenClassification", num_labels=len(labels)
    )

    def encode(sentences):
        encoded = tokenizer(
            [words for words, _ in sentences],
            is_split_into_words=True,
            truncation=True,
            max_length=options.max_seq_length,
        )
        firsts = []  # Position of a word's first token -> the word.
        for i in range(len(sentences)):
            numbers = encoded.word_ids(i)
            firsts.append(
                {
                    position: word
                    for position, word in enumerate(numbers)
                    if word is not None and word != numbers[position - 1]
                }
            )
        return encoded, firsts, [len(x) for x in encoded["input_ids"]]

    encoded, firsts, lengths = encode(train)

    def batch(rows):
        inputs = padded(tokenizer, encoded, rows)
        targets = torch.full_like(inputs["input_ids"], -100)
        for i, row in enumerate(rows):
            for position, word in firsts[row].items():
                targets[i, position] = labels.index(train[row][1][word])
        return {**inputs, "labels": targets}

    fit(options, model, batch, lengths)
    if options.predict_file is None:
        return
    test = read_sentences(options.predict_file)
    encoded_test, firsts_test, lengths_test = encode(test)
    found = [["O"] * len(words) for words, _ in test]
    for rows, outputs in predict(
        options,
        model,
        lambda rows: padded(tokenizer, encoded_test, rows),
        lengths_test,
    ):
        best = outputs.logits.argmax(-1).tolist()
        for i, row in enumerate(rows):
            for position, word in firsts_test[row].items():
                found[row][word] = labels[best[i][position]]
    blocks = [
        "".join(f"{a} {b} {c}\n" for a, b, c in zip(*sides, strict=True))
        for sides in ((*x, y) for x, y in zip(test, found, strict=True))
    ]
    write(options, "predictions.txt", "\n".join(blocks) + "\n")


# Pre-training.


def pretrain(options) -> None:
    """Trains on one random batch; prints seconds per step and the memory.

    The batch has no padding, and 15 % of its positions are masked.
    """
    import torch
    import transformers

    draw = np.random.RandomState(0)
    size = options.batch_size, options.max_seq_length
    ids = draw.randint(1000, VOCABULARY, size)
    is_masked = np.argsort(draw.rand(*size)) < round(0.15 * size[1])
    arrays = {
        "input_ids": ids,
        "attention_mask": np.ones(size),
        "token_type_ids": np.indices(size)[1] > size[1] // 2,
        "labels": np.where(is_masked, ids, -100),
        "next_sentence_label": draw.randint(0, 2, size[0]),
    }
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    inputs = {k: torch.tensor(v).long().to(device) for k, v in arrays.items()}
    layers, hidden, heads = SIZES[options.size]
    model = transformers.BertForPreTraining(
        transformers.BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * hidden,
            hidden_act="gelu_new",
            attn_implementation="sdpa",
        )
    ).to(device)
    model.train()
    optimizer = adamw(model, 1e-4)

    def forward():
        with autocast(options, device):
            return model(**inputs).loss

    if not options.eager:
        forward = torch.compile(forward)

    def run(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            loss = forward()
            step(model, loss, optimizer)
        loss.item()  # Waits for the device.
        return time.perf_counter() - began

    run(3)
    result = {"seconds": run(options.steps) / options.steps}
    if device == "cuda":
        result["gib"] = torch.cuda.max_memory_allocated() / 2**30
    print(json.dumps(result))


# Serving.


def serve(options) -> None:
    """Serves a classifier in TensorFlow Serving's form until it is killed."""
    import torch
    from aiohttp import web

    tokenizer, model = load(options, "SequenceClassification")
    names = model.config.id2label
    cut = {"truncation": True, "max_length": options.max_seq_length}
    if options.engine == "pipeline":
        import transformers

        pipeline = transformers.pipeline(
            "text-classification", model=model, tokenizer=tokenizer
        )

        def probabilities(text: str) -> dict[str, float]:
            found = pipeline(text, top_k=None, **cut)
            return {row["label"]: row["score"] for row in found}

    else:
        session = onnx_session(tokenizer, model.eval())

        def probabilities(text: str) -> dict[str, float]:
            inputs = tokenizer([text], return_tensors="np", **cut)
            inputs = {name: x.astype(np.int64) for name, x in inputs.items()}
            (logits,) = session.run(["logits"], inputs)
            values = np.exp(logits[0] - logits[0].max())
            values /= values.sum()
            return {names[i]: float(x) for i, x in enumerate(values)}

    async def predict_rows(request):
        rows = (await request.json())["instances"]
        found = [
            await asyncio.to_thread(probabilities, row["text"]) for row in rows
        ]
        rows = [{"labels": [*x], "probabilities": [*x.values()]} for x in found]
        return web.json_response({"predictions": rows})

    async def main():
        app = web.Application()
        app.add_routes([web.post("/v1/models/{name}:predict", predict_rows)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        print(f"serving at http://{host}:{port}/", file=sys.stderr, flush=True)
        await asyncio.Event().wait()

    with torch.inference_mode():
        probabilities("a text")
    asyncio.run(main())


def onnx_session(tokenizer, model):
    """Exports a model and opens it with onnxruntime."""
    import onnxruntime
    import torch

    # In the order of the model's arguments.
    order = ["input_ids", "attention_mask", "token_type_ids"]
    example = tokenizer(["a text"], return_tensors="pt")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        torch.onnx.export(
            model,
            tuple(example[name] for name in order),
            path,
            input_names=order,
            output_names=["logits"],
            dynamic_axes={name: {0: "batch", 1: "length"} for name in order},
            dynamo=False,
        )
        return onnxruntime.InferenceSession(
            path, providers=["CPUExecutionProvider"]
        )


# Pre-training data.


def records(options) -> None:
    """Runs create_pretraining_data.py of a checkout of google-research/bert."""
    import tensorflow.compat.v1 as tf

    sys.modules["tensorflow"] = tf  # The only change that it needs.
    sys.path.insert(0, options.reference)
    path = os.path.join(options.reference, "create_pretraining_data.py")
    sys.argv = [path, *options.flags]
    runpy.run_path(path, run_name="__main__")


def main() -> None:
    """Runs one of the programs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    works = (classify, answer, tag, pretrain, serve, records)
    parser.add_argument("work", choices=[work.__name__ for work in works])
    for name in ("model", "train_file", "predict_file", "output_dir"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--text_column", default="text")
    parser.add_argument("--text_pair_column")
    parser.add_argument("--label_column", default="label")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--doc_stride", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--random_batches", action="store_true")
    parser.add_argument("--size", choices=SIZES, default="mini")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--engine", choices=["pipeline", "onnx"])
    parser.add_argument("--reference")
    parser.add_argument("flags", nargs="*")
    options = parser.parse_args()
    (work,) = [work for work in works if work.__name__ == options.work]
    work(options)


if __name__ == "__main__":
    main()
