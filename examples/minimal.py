r"""The complete path in one file, without the commands: read it first.

    docstrings -> vocabulary -> records ------> pre-trained BERT --> classifier
    of Python     (WordPiece,   (pairs; 15 %    (masked words, next  (one new
    packages      section 3)    masked; 3.1)    sentence; 3.1, A.2)  layer; 3.2)

    python examples/minimal.py    # 213 s of processor time: 2 cores, 2 minutes

Sections are those of the BERT paper, arXiv:1810.04805. Shapes: B of N sequences
of S tokens, P of them masked; V tokens in the vocabulary; C classes. demo.py
shows the commands that do the same for your own text.
"""

import dataclasses
import functools
import json
import os
import pathlib

import numpy as np
from scipy import special

import bert  # noqa: F401  Makes the folders of the checkout importable.
from data import docstrings, features, length_groups, workers
from data.pretraining import generation, recipe, settings
from data.tokenization import normalization, vocabulary, wordpiece
from data.tokenization import wordpiece_learner as learner
from finetuning import task as tasks
from foundation import config_flags
from modeling import config, models
from tasks.classification import heads, label_kinds
from tasks.pretraining import objectives, pretraining_data
from training import inference, loop, optimizers, step, strategy
from weights import model_directory, pretrained

ROOT = pathlib.Path(__file__).resolve().parent.parent
field = config_flags.field
SENTENCES = "The default [MASK] is None.", "The shape of the [MASK] array."
# A.2 trains on short sequences for most steps, because they cost less.
S, P, V, PARAGRAPH, SEED = 32, 5, 2000, 64, 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """What the command line can change."""

    output_dir: str = field("A new folder for all files.", "minimal_output")
    num_train_steps: int = field("Steps of pre-training.", 2000, at_least=1)
    num_characters: int = field("Size of the text.", 3_000_000, at_least=1)


def learn_tokenizer(path: str) -> wordpiece.Tokenizer:
    """Learns tokens: a frequent word is one, a rare one several (section 3)."""
    rule = normalization.Normalization(
        do_lower_case=True, strip_accents=None, tokenize_chinese_chars=True
    )
    words = learner.count_words([path], rule).counts
    reserved = vocabulary.reserved_tokens(V)  # [PAD], [CLS], [MASK], ...
    letters = learner.alphabet(words, coverage=0.9999)
    tokens = learner.learn(words, V, letters, num_reserved=len(reserved))
    learned = vocabulary.Vocabulary.from_tokens(reserved + tokens)
    return wordpiece.Tokenizer(learned)


def write_records(folder, name, tokenizer, passes) -> pretraining_data.ShardSet:
    """Writes [CLS] A [SEP] B [SEP], some tokens masked, as TFRecords.

    Half of the time B follows A in the text, else it is random, which the model
    is to tell (3.1, task 2). Every pass draws other pairs and masks.
    """
    text, shard = f"{folder}/{name}.txt", f"{folder}/{name}.tfrecord"
    made = recipe.Recipe(
        # Of 15 % of the tokens, 80 % become [MASK], 10 % a random token, 10 %
        # stay, because the texts of fine-tuning have no [MASK] (3.1, A.1).
        settings=settings.Settings(
            input_format="paragraphs",
            max_seq_length=S,
            max_predictions_per_seq=P,
            dupe_factor=passes,
            random_seed=SEED,
        ),
        input_files=(text,),
        input_digests=recipe.digest_files([text]),
        output_files=(shard,),
        work_dir=f"{shard}.work",
        vocabulary=tokenizer.vocabulary,
    )
    pool, path = workers.Workers(1, made, preload=""), f"{shard}.manifest.json"
    count = generation.make(made, manifest_path=path, pool=pool).record_count
    return pretraining_data.ShardSet(
        paths=[shard], schema=made.schema, counts=[count]
    )


def train(task, model, batches, devices, steps, rate, folder) -> None:
    """Trains with the released AdamW, a warm-up and a linear decay (A.2)."""
    # The loss is that of the global batch, however devices share the batch.
    with devices.scope():
        schedule = optimizers.WarmupDecay(
            peak=rate, num_train_steps=steps, num_warmup_steps=steps // 10
        )
        optimizer = optimizers.Optimizer(
            optimizers.AdamW(), model.trainable_variables, schedule
        )
    loop.train(
        step.Learner(task, model, optimizer),
        strategy=devices,
        phases=[loop.Phase(steps, batches)],
        options=loop.Options(output_dir=folder, seed=SEED),
    )


def pretrain(bert_config, folder, train_set, held_out, devices, steps):
    """Predicts masked tokens, and whether B follows A; adds both losses."""
    task = objectives.PretrainingObjective()
    with devices.scope():
        model = models.PretrainingModel(bert_config, seed=SEED)
    # input_ids, input_mask, segment_ids [B, S]; masked_lm_... [B, P]
    batches = train_set.train_batches(64, SEED)
    train(task, model, batches, devices, steps, 1e-3, f"{folder}/pretraining")
    evaluate = inference.Evaluator(task, model, strategy=devices)
    reached = evaluate(held_out.eval_batches(64))
    most_frequent = pretraining_data.baseline(held_out)
    for name in ("masked_lm_accuracy", "next_sentence_accuracy"):
        print(f"{name} {reached[name]:.3f}, baseline {most_frequent[name]:.3f}")
    return model


def fill_mask(model, tokenizer: wordpiece.Tokenizer, sentence: str) -> str:
    """Ranks the vocabulary at the position of [MASK]."""
    words = tokenizer.vocabulary
    encoded = tokenizer.encode(sentence.split(vocabulary.MASK))
    before, after = np.split(encoded.ids, encoded.row_splits[1:-1])
    ids = [words.cls_id, *before, words.mask_id, *after, words.sep_id]
    inputs = {
        "input_ids": np.array([ids]),  # [1, S]
        "input_mask": np.ones([1, len(ids)], int),
        "segment_ids": np.zeros([1, len(ids)], int),
        "masked_lm_positions": np.array([[1 + len(before)]]),  # [1, 1]
    }
    logits = model(inputs).masked_lm_logits  # [1, 1, V]
    scores = special.softmax(np.asarray(logits)[0, 0])  # [V]
    best = np.argsort(-scores)[:4]
    return "  ".join(f"{words.tokens[i]} {scores[i]:.3f}" for i in best)


def read_labeled(folder, name, tokenizer) -> features.Features:
    """Reads [CLS] paragraph [SEP] and, as its class, the package it is from."""
    with open(f"{folder}/{name}.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    tokens = tokenizer.encode([row["text"] for row in rows])
    encoded = features.from_sequences(
        [
            [tasks.sequence(tokenizer, ids.tolist(), (), PARAGRAPH)]
            for ids in np.split(tokens.ids, tokens.row_splits[1:-1])
        ]
    )
    labels = np.array([docstrings.PACKAGES.index(x["package"]) for x in rows])
    return dataclasses.replace(encoded, dense={"label_ids": labels[:, None]})


def classify(bert_config, folder, train_set, held_out, devices, steps) -> None:
    """Fine-tunes all weights, and a layer on the output of [CLS] (3.2, 4.1)."""
    task = heads.head_of(label_kinds.OneLabel(docstrings.PACKAGES))
    with devices.scope():
        model = task.build(bert_config, seed=SEED)
    pretrained.assign(model, f"{folder}/pretrained")  # All but the new layer.
    # The texts of a batch have similar lengths, so there is little padding.
    lengths = length_groups.permitted_lengths(PARAGRAPH)
    sizes = {"batch_size": 32, "lengths": lengths}
    batches = functools.partial(
        length_groups.train_batches, train_set, seed=SEED, **sizes
    )
    train(task, model, batches, devices, steps, 5e-4, f"{folder}/classifier")
    predict = inference.Predictor(task, model, strategy=devices)
    batches = length_groups.OrderedBatches(held_out, **sizes)
    logits = predict(batches, len(held_out))["logits"]  # [N, C]
    answers = held_out.dense["label_ids"][:, 0]  # [N]
    accuracy = (logits.argmax(axis=1) == answers).mean()
    majority = np.bincount(answers).max() / len(answers)
    print(f"package_accuracy {accuracy:.3f}, baseline {majority:.3f}")


def main(flags: Flags) -> None:
    """Runs all steps; the folder gets their files."""
    folder, steps = flags.output_dir, flags.num_train_steps
    os.mkdir(folder)
    devices = strategy.create(one_machine=True)  # Before any tensor.
    docstrings.collect(folder, num_characters=flags.num_characters)
    tokenizer = learn_tokenizer(f"{folder}/train.txt")
    train_set = write_records(folder, "train", tokenizer, passes=5)
    held_out = write_records(folder, "heldout", tokenizer, passes=1)
    # Small (H = 128), so rates exceed those of A.2; few steps: no dropout.
    tiny = config.BertConfig.from_json_file(f"{ROOT}/configs/small_cpu.json")
    bert_config = dataclasses.replace(tiny, vocab_size=V, num_hidden_layers=2)
    model = pretrain(bert_config, folder, train_set, held_out, devices, steps)
    for sentence in SENTENCES:
        print(f"{sentence}  {fill_mask(model, tokenizer, sentence)}")
    model_directory.save(model, f"{folder}/pretrained", tokenizer)
    train_set = read_labeled(folder, "train", tokenizer)
    held_out = read_labeled(folder, "heldout", tokenizer)
    steps = min(steps, 3 * len(train_set) // 32)  # 3 epochs (A.3).
    classify(bert_config, folder, train_set, held_out, devices, steps)


if __name__ == "__main__":
    config_flags.run(Flags, main)
