"""Proves that what earlier versions have written is continued and reused.

The dictionaries are as these versions wrote them: a name or the form of a value
that changes here makes users' runs start again, or refuses them.
earlier_runs_test.py continues complete runs of one version.

python -m pytest tests/earlier_versions_test.py
"""

import dataclasses
import json
import types

import pytest

import run_classifier
import run_ner
import run_pretraining
from data import features, schema
from data.pretraining import work_dir
from foundation import atomic, config_flags, errors
from jobs import assembly, finetuning, grid, run_config
from modeling.config import BertConfig
from paper import execution, protocol
from tasks.ner import feature_based, feature_results
from tasks.pretraining import pretraining_job
from tests.data import features_test
from tests.data.pretraining import recipes
from weights import checkpoint_sources

A, B, C, D = (digit * 64 for digit in "abcd")
# Of every command that trains; those in EXECUTION are not compared by grids.
EXECUTION = {
    "use_xla": "auto",
    "strategy": "auto",
    "num_replicas": None,
    "use_tpu": False,
    "tpu_name": None,
    "tpu_zone": None,
    "gcp_project": None,
    "master": None,
    "num_tpu_cores": 8,
    "deterministic": False,
    "recompute": False,
    "recompute_attention": False,
    "save_checkpoints_steps": 1000,
    "keep_checkpoint_max": 5,
    "log_every_steps": None,
    "peak_tflops": None,
}
TRAINING = {
    "precision": "float32",
    "lr_decay": "linear",
    "lr_decay_power": 1.0,
    "optimizer": "adamw",
    "weight_decay_rate": 0.01,
    "adam_beta_1": 0.9,
    "adam_beta_2": 0.999,
    "adam_epsilon": 1e-06,
    "bias_correction": False,
    "lamb_exclude_bias_and_norm": False,
    "clip_norm": 1.0,
    "ema_decay": None,
    "freeze_embeddings": False,
    "freeze_layers": 0,
    "gradient_accumulation_steps": 1,
    "random_seed": 12345,
    "max_train_hours": None,
}
FINETUNING = TRAINING | {
    "do_lower_case": True,
    "max_seq_length": 32,
    "group_by_length": True,
    "train_batch_size": 32,
    "num_train_epochs": 1.0,
    "warmup_proportion": 0.1,
    "eval_every_steps": 0,
    "early_stopping_patience": 0,
    "layer_decay": 1.0,
    "reinit_layers": 0,
    "bilstm_size": None,
}
CLASSIFIER = FINETUNING | {
    "vocab_file": A,
    "init_checkpoint": "/data/encoder",
    "learning_rate": 0.005,
    "eval_every_steps": 5,
    "task_name": "csv",
    "train_file": B,
    "problem_type": "classification",
    "label_names": None,
    "init_checkpoint contents": C,
    "dev_file": D,
}
# Settings that the earlier versions lack; they are not compared with theirs.
NEWER_FINETUNING = dict.fromkeys(
    (
        "teacher_dir",
        "distillation_temperature",
        "distillation_weight",
        "init_layers",
    )
)
NEWER = (
    NEWER_FINETUNING
    | dict.fromkeys(
        (
            "dev_fraction",
            "class_weights",
            "long_texts",
            "doc_stride",
            "max_windows",
            "window_pooling",
        )
    )
    | {"strip_accents": True, "tokenize_chinese_chars": True}
)
NEWER_EXECUTION = {"eval_every_epoch": None}
NEWER_PRETRAINING = {"do_whole_word_mask": None, "mask_schedule": None}
ARCHITECTURE = {
    "bert_config_file's vocab_size": 20,
    "bert_config_file's hidden_size": 16,
    "bert_config_file's num_hidden_layers": 1,
    "bert_config_file's num_attention_heads": 2,
    "bert_config_file's intermediate_size": 32,
    "bert_config_file's hidden_act": "gelu",
    "bert_config_file's max_position_embeddings": 40,
    "bert_config_file's type_vocab_size": 2,
    "bert_config_file's initializer_range": 0.02,
}
PRETRAINING = {
    **TRAINING,
    **EXECUTION,
    **ARCHITECTURE,
    "bert_config_file's hidden_dropout_prob": 0.1,
    "bert_config_file's attention_probs_dropout_prob": 0.1,
    "init_checkpoint": None,
    "learning_rate": 5e-05,
    "bert_config_file": "bert.json",
    "input_file": ["146 records in 2 shard(s) (0054627f)"],
    "vocab_file": None,
    "do_lower_case": None,
    "objective": "masked_lm_and_next_sentence",
    "next_sentence_loss_weight": 1.0,
    "max_seq_length": 128,
    "max_predictions_per_seq": 20,
    "train_batch_size": 8,
    "eval_batch_size": 8,
    "num_train_steps": 100000,
    "phases": "32:4",
    "num_warmup_steps": 1,
    "eval_every_steps": 2,
    "strategy's devices": "CPU",
    "precision in fact": "float32",
    "input_file contents": ["68bcedeb697fc4ba"],
    "eval_file contents": ["68bcedeb697fc4ba"],
    "max_eval_steps in records": [16],
}
RECIPE = {
    "format_version": 2,
    "input_format": "sentences",
    "input_files": [{"file": "text.txt", "blake2b": "e" * 32}],
    "output_files": ["a-0.tfrecord", "a-1.tfrecord"],
    "vocabulary": (
        "767b122e32607b04bcd616066dc81511b8321ea245be224e31e3dd1485c66b0c"
    ),
    "do_lower_case": True,
    "strip_accents": None,
    "tokenize_chinese_chars": True,
    "max_seq_length": 40,
    "short_seq_prob": 0.1,
    "dupe_factor": 4,
    "masked_lm_prob": 0.15,
    "max_predictions_per_seq": 5,
    "mask_token_prob": 0.8,
    "random_token_prob": 0.1,
    "do_whole_word_mask": False,
    "pack_sequences": {
        "max_seq_length": 40,
        "predictions_per_row": 10,
        "instances_per_row": 4,
    },
    "text_column": "body",
    "random_seed": 1,
}
TOKENIZER = {
    "vocabulary": A,
    "do_lower_case": True,
    "strip_accents": None,
    "tokenize_chinese_chars": True,
}
TAGGER = {
    **FINETUNING,
    **ARCHITECTURE,
    "bert_config_file's attention": "bidirectional",
    "vocab_file": TOKENIZER,
    "init_checkpoint": C,
    "train_file": B,
    "model_scheme": "bio2",
    "entity_types": ["B-LOC", "I-LOC", "O"],
    "document_context": False,
    "doc_stride": 0,
    "crf": False,
    "lstm_size": 8,
    "lstm_dropout": 0.1,
    "lstm_learning_rate": 0.001,
}
TAGGED_DEV = {
    "file": D,
    "scheme": "iob1",
    "words": D,
    "context": {
        "max_seq_length": 32,
        "document_context": False,
        "doc_stride": 0,
    },
    "precision": "float32",
}


def parse(config_class, *switches, **flags):
    arguments = (f"--{name}={value}" for name, value in flags.items())
    argv = ["command", "--output_dir=out", *switches, *arguments]
    return config_flags.parse(config_class, argv)


def make_job(config, **parts):
    """A job whose model and data are known by their digests alone."""
    settings = {k: x for k, x in TOKENIZER.items() if k != "vocabulary"}
    tokenizer = types.SimpleNamespace(
        vocabulary=types.SimpleNamespace(sha256=A),
        settings=settings,
        strips_accents=True,
    )
    start = types.SimpleNamespace(
        init_checkpoint=config.init_checkpoint,
        tokenizer=tokenizer,
        attention="bidirectional",
        config=BertConfig(**named(ARCHITECTURE)),
    )
    return finetuning.Job(
        source=types.SimpleNamespace(start=start),
        builder=types.SimpleNamespace(config=config),
        task=types.SimpleNamespace(**parts),
    )


def axes(learning_rates):
    return run_config.Grid(learning_rate=tuple(learning_rates))


def named(architecture):
    return {name.split("'s ")[1]: x for name, x in architecture.items()}


@pytest.fixture
def job(monkeypatch):
    monkeypatch.setattr(checkpoint_sources, "digest", lambda path: C)
    flags = {"max_seq_length": 32, "learning_rate": "5e-3"}
    flags |= {"num_train_epochs": 1, "eval_every_steps": 5}
    config = parse(
        run_classifier.ClassifierConfig,
        "--do_train",
        "--precision=float32",
        task_name="csv",
        train_file="train.csv",
        dev_file="dev.csv",
        init_checkpoint="/data/encoder",
        **flags,
    )
    return make_job(
        config,
        data_settings={
            "task_name": "csv",
            "train_file": B,
            "problem_type": "classification",
        },
        evaluation_settings={"dev_file": D},
    )


def test_a_checkpoint_of_finetuning_is_resumed(job):
    (run,) = grid.plan(axes([5e-3]), 12345, "out")
    found = assembly.settings_of(
        job.config, job.resolved_settings(includes_evaluation=True)
    ).with_values(run.settings)
    in_fact = {"strategy's devices": "CPU", "precision in fact": "float32"}
    stored = CLASSIFIER | EXECUTION | in_fact
    assert not found.difference(stored | {"strategy's devices": "CPU"})
    stored |= NEWER | NEWER_EXECUTION
    assert found.to_json() | {"strategy's devices": "CPU"} == stored
    refused = {
        change.setting.name
        for change in found.difference(dict.fromkeys(stored, "other"))
        if change.forbids_resuming
    }
    assert refused == {
        "dev_fraction",
        "long_texts",
        "doc_stride",
        "max_windows",
        "vocab_file",
        "do_lower_case",
        "strip_accents",
        "tokenize_chinese_chars",
        "max_seq_length",
        "group_by_length",
        "random_seed",
        "train_batch_size",
        "task_name",
        "train_file",
        "problem_type",
        "label_names",
        "dev_file",
    }


def test_a_run_of_a_grid_is_continued(job, tmp_path):
    run, _ = grid.plan(axes([5e-3, 1e-3]), 12345, str(tmp_path))
    folder = tmp_path / "runs" / "lr0.005_seed12345"
    folder.mkdir(parents=True)
    record = json.dumps({"settings": CLASSIFIER})
    (folder / "begun.json").write_text(record)
    run.check(run.begun(), job.settings)
    result = {"settings": CLASSIFIER, "step": 6, "values": {}, "seconds": 1.0}
    (folder / "result.json").write_text(json.dumps(result))
    run.check(run.result(), job.settings)
    run.begin(job.settings)
    written = json.loads((folder / "begun.json").read_text())
    assert written == {"settings": CLASSIFIER | NEWER}
    # Settings that only one version stores.
    run.check({"settings": {"learning_rate": 0.005, "gone": 1}}, job.settings)
    for change in ({"optimizer": "lamb"}, {"dev_file": A}):
        with pytest.raises(errors.InputError, match=f"^--{[*change][0]} "):
            run.check({"settings": CLASSIFIER | change}, job.settings)


def test_a_checkpoint_of_pretraining_is_resumed_also_with_more_phases():
    config = parse(
        run_pretraining.PretrainingConfig,
        "--do_train",
        "--precision=float32",
        bert_config_file="bert.json",
        input_file="*.tfrecord",
        train_batch_size=8,
        phases="32:4",
        num_warmup_steps=1,
        eval_every_steps=2,
        max_eval_steps=2,
    )
    data = types.SimpleNamespace(
        fingerprint="146 records in 2 shard(s) (0054627f)",
        contents="68bcedeb697fc4ba",
        total=146,
    )
    model = types.SimpleNamespace(config=BertConfig(**named(ARCHITECTURE)))
    job = pretraining_job.PretrainingJob(
        config=config,
        strategy=None,
        objective=None,
        model=model,
        tokenizer=None,
        phases=[types.SimpleNamespace(train=data, held_out=data)],
    )
    found = job.settings
    stored = PRETRAINING | NEWER_PRETRAINING
    assert found.to_json() | {"strategy's devices": "CPU"} == stored
    more = dataclasses.replace(
        job,
        config=dataclasses.replace(config, phases="32:4,64:2"),
        phases=job.phases * 2,
    ).settings
    changes = more.difference(PRETRAINING | {"strategy's devices": "TPU"})
    assert not [change for change in changes if change.forbids_resuming]
    assert len(changes) == 6
    others = dict.fromkeys(PRETRAINING, "other")
    refused = [x for x in more.difference(others) if x.forbids_resuming]
    assert {x.setting.name for x in refused} == {
        "random_seed",
        "input_file",
        "train_batch_size",
        "phases",
        "input_file contents",
        "eval_file contents",
        "max_eval_steps in records",
    }


def test_tokenized_records_are_used(tmp_path):
    tokenizer = features_test.wordpiece.Tokenizer(
        features_test.vocabulary.Vocabulary.from_tokens(
            features_test.SPECIAL + features_test.WORDS
        )
    )
    kind = schema.classification(64)
    path = str(tmp_path / "train.tf_record")
    features.write(path, kind, features_test.features_of(tokenizer, 5))
    job = {
        "task": "csv",
        "texts": B,
        "labels": ["no", "yes"],
        "tokenizer": TOKENIZER | {"vocabulary": tokenizer.vocabulary.sha256},
        "schema": {
            "input_ids": ["int64", 64],
            "input_mask": ["int64", 64],
            "segment_ids": ["int64", 64],
            "label_ids": ["int64", 1],
            "is_real_example": ["int64", 1],
        },
    }
    size = (tmp_path / "train.tf_record").stat().st_size
    sidecar = {"format_version": 1, "records": 5, "bytes": size, "job": job}
    atomic.write_json(f"{path}.json", sidecar)
    made_from = {"task": "csv", "texts": B, "labels": ("no", "yes")}
    cache = features.FeatureCache(
        str(tmp_path), "train", kind, tokenizer, made_from
    )
    found = cache.read()
    assert found is not None and len(found) == 5


@pytest.mark.parametrize("packed", [True, False])
def test_data_creation_is_continued(tmp_path, packed):
    recipe = dataclasses.replace(
        recipes.recipe_for([], tmp_path, packed=packed),
        input_files=("a/text.txt",),
        input_digests=("e" * 32,),
        text_column="body" if packed else None,
    )
    optional = ("pack_sequences", "text_column")
    stored = {k: x for k, x in RECIPE.items() if packed or k not in optional}
    assert recipe.settings.to_json() == stored
    work_dir.refuse_changes("work", stored, recipe)
    (tmp_path / "work").mkdir()
    atomic.write_json(str(tmp_path / "work" / "recipe.json"), stored)
    with work_dir.locked(recipe, recipe.output_files):
        pass
    work_dir.remove(recipe)
    assert not (tmp_path / "work").exists()


def test_taggers_of_features_and_their_scores_are_used(tmp_path):
    config = parse(
        run_ner.NerConfig,
        "--do_train",
        "--precision=float32",
        "--features=last",
        init_checkpoint="model",
        max_seq_length=32,
        num_train_epochs=1,
        lstm_size=8,
    )
    dev = types.SimpleNamespace(digest=D, scheme="iob1")
    job = make_job(
        config,
        data=types.SimpleNamespace(
            labels=["O", "B-LOC", "I-LOC"], split=lambda name: dev
        ),
        data_settings=config.windows.values | {"train_file": B},
    )
    activations = feature_based.ActivationData(
        config=config,
        task=job.task,
        job=job,
        splits=[],
        layers=[1],
    )
    vars(activations)["_weights"] = C
    assert activations.settings.to_json() == TAGGER | NEWER_FINETUNING
    made_from = {"train": TAGGER, "dev": TAGGED_DEV}
    values = {"dev": {"f1": 0.5}}
    record = {"step": 1, "seconds": 1.0, "values": values}
    path = str(tmp_path / "result.json")
    atomic.write_json(path, record | {"made_from": made_from})
    result = feature_results.Result.read(str(tmp_path), activations.settings)
    assert result.has("dev", activations.made_from("dev"))
    dev.digest = A
    assert not result.has("dev", activations.made_from("dev"))
    other = activations.settings.with_values({"lstm_size": 9})
    with pytest.raises(errors.InputError, match="^--lstm_size was 8, is 9: "):
        feature_results.Result.read(str(tmp_path), other)
    refused = {
        change.setting.name
        for change in activations.settings.difference(
            dict.fromkeys(TAGGER, "other")
        )
        if change.forbids_resuming
    }
    assert {"init_checkpoint", "vocab_file", "train_file"} <= refused
    assert not {"lstm_size", "crf", "bert_config_file's hidden_act"} & refused


def test_commands_of_the_paper_are_not_run_again(tmp_path):
    flags = {"learning_rate": 1e-4, "do_train": True, "keep_checkpoint_max": 2}
    command = protocol.Command(name="a", program="run_squad", flags=flags)
    record = {
        "arguments": [
            "run_squad.py",
            "--learning_rate=0.0001",
            "--do_train=True",
            "--keep_checkpoint_max=9",
        ],
        "seconds": 1.0,
        "succeeded": True,
    }
    (tmp_path / "commands").mkdir()
    atomic.write_json(str(tmp_path / "commands" / "a.json"), record)
    executor = execution.Executor(str(tmp_path))
    assert executor.record(command)["seconds"] == 1.0
    for change, text in (
        ({"learning_rate": 2e-4}, "--learning_rate was 0.0001, is 0.0002: a "),
        ({"seed": 1}, "--seed was None, is 1: "),
    ):
        other = dataclasses.replace(command, flags=flags | change)
        with pytest.raises(errors.InputError, match=f"^{text}"):
            executor.record(other)
