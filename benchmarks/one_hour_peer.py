"""The peer of one_hour.py: transformers from raw text to fine-tuned scores.

Takes the flags of one_hour.py as one JSON argument. Its Python has torch,
transformers, tokenizers and accelerate, but not TensorFlow.
"""

import json
import os
import sys
import time

import numpy as np
import tokenizers
import torch
import transformers

BEGAN = time.monotonic()


class TimedTrainer(transformers.Trainer):
    """A Trainer whose learning rate falls linearly to 0 at a given time.

    Attributes:
      seconds: that training may take.
      warmup_fraction: of these seconds, with a rising learning rate.
    """

    seconds = 0.0
    warmup_fraction = 0.0

    def create_scheduler(self, num_training_steps, optimizer=None):
        """Returns a schedule by time instead of by steps."""
        began = time.monotonic()

        def factor(step: int) -> float:
            done = (time.monotonic() - began) / self.seconds
            if done < self.warmup_fraction:
                return done / self.warmup_fraction
            return max(0.0, 1 - done)

        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer or self.optimizer, factor
        )
        return self.lr_scheduler


class StopAt(transformers.TrainerCallback):
    """Ends training at a time of time.monotonic()."""

    def __init__(self, end: float):
        """Stores the time."""
        self._end = end

    def on_step_end(self, args, state, control, **unused):
        """Ends training at the time."""
        control.should_training_stop = time.monotonic() >= self._end


class Blocks(torch.utils.data.Dataset):
    """The corpus as blocks of equal length, [CLS] ... [SEP]."""

    def __init__(self, ids: np.ndarray, length: int, tokenizer):
        """Cuts the ids into blocks."""
        inner = length - 2
        count = len(ids) // inner
        blocks = ids[: count * inner].reshape(count, inner)
        first = np.full((count, 1), tokenizer.cls_token_id, np.int32)
        last = np.full((count, 1), tokenizer.sep_token_id, np.int32)
        self._blocks = np.concatenate([first, blocks, last], axis=1)

    def __len__(self):
        """Returns the number of blocks."""
        return len(self._blocks)

    def __getitem__(self, i):
        """Returns one block."""
        return {"input_ids": self._blocks[i].tolist()}


def read_corpus(flags) -> tuple[transformers.BertTokenizerFast, np.ndarray]:
    """Learns a vocabulary; returns the tokenizer and all token ids."""
    learner = tokenizers.BertWordPieceTokenizer(lowercase=True)
    learner.train([flags["corpus"]], vocab_size=flags["vocab_size"])
    learner.save_model(flags["folder"])
    tokenizer = transformers.BertTokenizerFast(
        vocab=os.path.join(flags["folder"], "vocab.txt")
    )
    learned = learner.get_vocab_size()
    if len(tokenizer) != learned:  # transformers 5 ignores `vocab_file`.
        sys.exit(f"The tokenizer has {len(tokenizer)} of {learned} tokens.")
    with open(flags["corpus"], encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip()]
    ids = []
    for start in range(0, len(lines), 10_000):
        batch = tokenizer(
            lines[start : start + 10_000], add_special_tokens=False
        )
        ids.append(
            np.concatenate(
                [np.array(x, np.int32) for x in batch["input_ids"] if x]
            )
        )
    return tokenizer, np.concatenate(ids)


def arguments(flags, **others) -> transformers.TrainingArguments:
    """Returns the arguments that pre-training and fine-tuning share."""
    return transformers.TrainingArguments(
        output_dir=os.path.join(flags["folder"], "trainer"),
        seed=flags["seed"],
        bf16=flags["precision"] == "bfloat16",
        torch_compile=flags["peer_compile"],
        use_cpu=not torch.cuda.is_available(),
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        weight_decay=0.01,
        **others,
    )


def pretrain(flags) -> str:
    """Pre-trains for the time that fine-tuning leaves; returns a directory."""
    tokenizer, ids = read_corpus(flags)
    transformers.set_seed(flags["seed"])
    size = flags["hidden_size"]
    model = transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=size,
            num_hidden_layers=flags["num_layers"],
            num_attention_heads=flags["num_heads"],
            intermediate_size=4 * size,
            max_position_embeddings=max(128, flags["max_seq_length"]),
            initializer_range=flags["initializer_range"],
            hidden_dropout_prob=flags["dropout"],
            attention_probs_dropout_prob=flags["dropout"],
        )
    )
    end = BEGAN + 60 * (flags["minutes"] - flags["peer_finetuning_minutes"])
    trainer = TimedTrainer(
        model=model,
        args=arguments(
            flags,
            per_device_train_batch_size=flags["train_batch_size"],
            learning_rate=flags["peer_learning_rate"],
            max_steps=10_000_000,
            logging_steps=500,
        ),
        train_dataset=Blocks(ids, flags["max_seq_length"], tokenizer),
        data_collator=transformers.DataCollatorForLanguageModeling(
            tokenizer, mlm_probability=flags["masked_lm_prob"]
        ),
        callbacks=[StopAt(end)],
    )
    trainer.seconds = end - time.monotonic()
    trainer.warmup_fraction = flags["peer_warmup_fraction"]
    trainer.train()
    with open(os.path.join(flags["folder"], "steps.json"), "w") as file:
        json.dump(trainer.state.global_step, file)
    path = os.path.join(flags["folder"], "pretrained")
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def finetune(flags, pretrained: str, task: str) -> None:
    """Fine-tunes on a task; writes the logits of its development set."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(pretrained)

    def read(split: str) -> list[dict]:
        path = os.path.join(flags["data"], f"{task}.{split}.json")
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)
        encoded = tokenizer(
            rows["text"],
            rows["text_pair"],
            truncation=True,
            max_length=flags["max_seq_length"],
        )
        return [
            {**{k: v[i] for k, v in encoded.items()}, "labels": label}
            for i, label in enumerate(rows["labels"])
        ]

    transformers.set_seed(flags["seed"])
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        pretrained, num_labels=flags["classes"][task]
    )
    trainer = transformers.Trainer(
        model=model,
        args=arguments(
            flags,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=32,
            learning_rate=flags["peer_finetuning_learning_rate"],
            num_train_epochs=flags["epochs"][task],
            warmup_steps=0.1,
            train_sampling_strategy="group_by_length",
            logging_strategy="no",
        ),
        train_dataset=read("train"),
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
    )
    trainer.train()
    # With "group_by_length", the Trainer also changes the order of predictions.
    trainer.args.train_sampling_strategy = "random"
    examples = read(flags["dev"][task])
    predicted = trainer.predict(examples)
    labels = [example["labels"] for example in examples]
    if not np.allclose(np.ravel(predicted.label_ids), labels):
        sys.exit(f"The predictions of {task} are not in the order of the rows.")
    logits = predicted.predictions
    path = os.path.join(flags["folder"], f"{task}.npz")
    np.savez(path, logits=logits, seconds=time.monotonic() - BEGAN)


def main() -> None:
    """Runs all steps."""
    flags = json.loads(sys.argv[1])
    pretrained = pretrain(flags)
    for task in flags["classes"]:
        finetune(flags, pretrained, task)


if __name__ == "__main__":
    main()
