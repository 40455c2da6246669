"""Proves that a teacher's outputs stand beside the examples that it read.

python -m pytest tests/jobs/distillation_test.py
"""

import dataclasses

import ner_runs
import numpy as np
import pytest
import squad_runs
import tiny_runs

from data import length_groups
from foundation import config_flags, errors
from jobs import assembly, distillation, runner, source
from modeling import models
from tasks.embeddings.settings import EmbeddingsConfig
from tasks.ner import tagger
from tasks.ner.settings import NerConfig
from tasks.ner.task import NerTask
from tasks.squad import answering, windowing
from tasks.squad.settings import SquadConfig
from tasks.squad.task import SquadTask
from weights import model_directory, task_files, tokenizer_files


def save(folder, encoder, model, **stored):
    """Saves a model with random weights and the encoder's vocabulary."""
    tokenizer = tokenizer_files.load(str(encoder))
    model_directory.save(model, str(folder), tokenizer, **stored)


def open_job(config, make_task):
    """Returns the training of a command, with its teacher."""
    found = source.resolve(config)
    task = make_task(config, found)
    teacher = distillation.open_teacher(config, found.start, task.objective)
    strategy = assembly.make_strategy(config.devices, None)
    return runner.make_job(config, found, task, strategy, teacher)


def teacher_model(job):
    """Returns the teacher as a model that predicts."""
    teacher = job.teacher
    builder = dataclasses.replace(
        job.builder, start=teacher.start, objective=teacher.objective
    )
    model = builder.build(seed=0)
    model.assign(teacher.path)
    return model


def check_batches(job, features, model):
    """A model that is its own teacher has nothing to learn of it."""
    objective = job.teacher.student_objective
    batches = length_groups.train_batches(
        features, batch_size=4, seed=1, lengths=job.builder.lengths
    )
    other = objective.task.make_model(seed=9, attention="bidirectional")
    for batch in batches.take(3):
        found, metrics = objective.forward(model, batch)
        assert metrics.keys() == objective.task.forward(model, batch)[1].keys()
        weights = objective.loss_weights(batch)
        assert weights.keys() == found.keys()
        for name, loss in found.items():
            assert loss.factor == 0.5
            assert float(loss.weight) == float(weights[name]) > 0
        assert float(found["distillation_loss"].sum) < 1e-6
        found, _ = objective.forward(other, batch)
        assert float(found["distillation_loss"].sum) > 1e-4


@pytest.fixture
def squad(tmp_path):
    squad_runs.save_data(tmp_path)

    def save_teacher(seed):
        sizes = tiny_runs.config(squad_runs.WORDS, max_position_embeddings=32)
        model = models.QuestionAnsweringModel(sizes, seed=seed)
        save(tmp_path / "teacher", tmp_path / "encoder", model)

    save_teacher(5)
    config = config_flags.build(
        SquadConfig,
        do_train=True,
        train_file=str(tmp_path / "train1.json"),
        init_checkpoint=str(tmp_path / "encoder"),
        output_dir=str(tmp_path / "out"),
        teacher_dir=str(tmp_path / "teacher"),
        max_seq_length=32,
        doc_stride=8,
        max_query_length=4,
        precision="float32",
    )
    return config, save_teacher


def test_windows_have_the_teachers_logits_until_it_changes(squad, caplog):
    config, save_teacher = squad
    job = open_job(config, SquadTask)
    found = job.features("train")
    windows = windowing.make_windows(
        job.task.sets.train, job.source.start.tokenizer, config.windows
    )
    assert len(windows) == len(found) > 200
    expected = answering.model_logits(teacher_model(job), pads=False)(windows)
    targets = found.ragged["teacher_start_logits"]
    np.testing.assert_allclose(targets[:, 0], expected.start, atol=1e-5)
    check_batches(job, found, teacher_model(job).model)
    caplog.clear()  # Other tests may have made INFO the level.
    with caplog.at_level("INFO", logger="absl"):
        again = open_job(config, SquadTask).features("train")
    assert "teacher predicts" not in caplog.text
    for name, values in found.ragged.items():
        np.testing.assert_array_equal(again.ragged[name], values)
    settings = job.settings
    save_teacher(6)
    with caplog.at_level("INFO", logger="absl"):
        job = open_job(config, SquadTask)
        changed = job.features("train").ragged["teacher_start_logits"]
    assert "teacher predicts" in caplog.text
    assert np.abs(changed - targets).max() > 1e-3
    (change,) = job.settings.difference(settings.to_json())
    assert str(change) == "--teacher_dir had other contents"


def test_damaged_records_are_named(squad, tmp_path):
    config, _ = squad
    open_job(config, SquadTask).features("train")
    path = tmp_path / "out" / "train_teacher.tf_record"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(errors.InputError, match="train_teacher.tf_record: "):
        open_job(config, SquadTask).features("train")


def test_a_teacher_of_another_squad_is_refused(squad, tmp_path):
    config, _ = squad
    task_files.write_settings(
        str(tmp_path / "teacher"),
        task_files.SquadSettings(version_2_with_negative=True),
    )
    with pytest.raises(errors.InputError, match="--version_2_with_negative"):
        open_job(config, SquadTask)


@pytest.fixture
def ner(tmp_path):
    ner_runs.make_data(tmp_path, (40, 20, 5))
    labels = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    model = models.TaggingModel(
        tiny_runs.config(ner_runs.WORDS), num_classes=5, seed=5
    )
    save(tmp_path / "teacher", tmp_path / "encoder", model, labels=labels)
    flags = {
        "do_train": True,
        "data_dir": str(tmp_path),
        "init_checkpoint": str(tmp_path / "encoder"),
        "output_dir": str(tmp_path / "out"),
        "teacher_dir": str(tmp_path / "teacher"),
        "max_seq_length": 32,
        "precision": "float32",
    }
    return flags, model


def test_words_have_the_teachers_logits(ner):
    flags, _ = ner
    config = config_flags.build(NerConfig, **flags)
    job = open_job(config, NerTask)
    found = job.features("train")
    teacher = teacher_model(job)
    expected = tagger.Tagger.of_model(config.windows, teacher, 8)
    np.testing.assert_allclose(
        found.ragged["teacher_logits"][found.ragged["label_ids"] >= 0],
        expected.predict(job.task.features("train", None)),
        atol=1e-5,
    )
    check_batches(job, found, teacher.model)


def test_a_crf_is_refused_on_both_sides(ner, tmp_path):
    flags, model = ner
    with pytest.raises(errors.InputError, match="^--teacher_dir=.*--crf"):
        open_job(config_flags.build(NerConfig, **flags, crf=True), NerTask)
    (tmp_path / "teacher" / task_files.CRF).write_text("{}")
    with pytest.raises(errors.InputError, match="^--teacher_dir=.* has a CRF"):
        open_job(config_flags.build(NerConfig, **flags), NerTask)


def test_sentence_embeddings_have_no_teacher():
    flags = {"do_train": True, "teacher_dir": "x", "output_dir": "out"}
    with pytest.raises(ValueError, match="^--teacher_dir: "):
        config_flags.build(EmbeddingsConfig, **flags)


@pytest.mark.all
@pytest.mark.parametrize("runs", [squad_runs, ner_runs])
def test_commands_train_students_of_windows(tmp_path, runs):
    """Questions and words; the student is a model of one layer."""
    make = {squad_runs: squad_runs.save_data, ner_runs: ner_runs.make_data}
    make[runs](tmp_path, num_hidden_layers=2)
    flags = {"num_train_epochs": 2}
    teacher = runs.run(tmp_path, "teacher", "--do_train", **flags)
    flags |= {"teacher_dir": teacher, "init_checkpoint": None}
    out = runs.run(
        tmp_path, "out", "--do_train", "--do_predict", init_layers=1, **flags
    )
    lines = (out / "metrics.jsonl").read_text().splitlines()
    assert any("distillation_loss" in line for line in lines)
    config = model_directory.read_config(str(out))
    assert config.num_hidden_layers == 1
