"""Proves which of several models a command uses, and what is known of it.

python -m pytest tests/jobs/source_test.py
"""

import dataclasses
import json
import os
import pathlib
import shutil

import pytest

from foundation import config_flags, errors
from jobs import run_config, source
from training import checkpoints

TINY = pathlib.Path(__file__).parents[1] / "testdata" / "tiny_pretrained"
FILES = ("config.json", "model.safetensors", "tokenizer_config.json")
KEPT = {"learning_rate": 5e-5, "random_seed": 1, "step": 7}
LABELS = {"labels": ["no", "yes"], "problem_type": "regression"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(run_config.FinetuningConfig):
    """The flags of a task with columns."""

    max_seq_length: int = config_flags.field("In tokens.", 16)
    text_column: str | None = config_flags.field("Of text.", None)
    word_column: int | None = config_flags.field("Of words.", None)

    @property
    def remembered(self):
        """The columns."""
        return "text_column", "word_column", "max_seq_length"


def write_json(path, values):
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps(values))


def copy_model(folder):
    """Makes a model directory, which nothing has trained."""
    folder.mkdir(exist_ok=True, parents=True)
    for name in (*FILES, "vocab.txt"):
        shutil.copy(TINY / name, folder / name)
    return str(folder)


def save_checkpoint(folder, step, task_settings=None, **settings):
    """Leaves what a training leaves that is stopped at a step."""
    folder.mkdir(exist_ok=True, parents=True)
    saver = checkpoints.Checkpoints(str(folder))
    state = {"task_settings": task_settings or {}, "settings": settings}
    saver.save(step, {}, state)
    saver.wait()


@pytest.fixture
def out(tmp_path):
    """--output_dir."""
    return tmp_path / "out"


@pytest.fixture
def start(tmp_path):
    """--init_checkpoint."""
    return copy_model(tmp_path / "start")


def flags(out, **given):
    return config_flags.build(Config, output_dir=str(out), **given)


def resolve(out, **given):
    return source.resolve(flags(out, **given))


def real(path):
    return path and os.path.realpath(path)


def test_the_cases_come_in_their_order(out, start):
    """Each thing that is added to the directory has a case that comes first."""

    def found(**given):
        model = resolve(out, init_checkpoint=start, **given)
        return model.case, real(model.folder), model.step

    ours, given = real(out), real(start)
    assert found() == ("GIVEN", given, 0)
    assert found(do_train=True) == ("TRAINED_NOW", given, 0)
    copy_model(out)
    assert found() == ("STORED", ours, 0)
    save_checkpoint(out, 5)
    assert found() == ("UNFINISHED", ours, 0)
    write_json(out / "kept.json", KEPT)
    assert found() == ("FINISHED", ours, 7)
    # Whatever is there, a training starts elsewhere.
    assert found(do_train=True) == ("TRAINED_NOW", given, 0)
    # kept.json is of the model, not of the checkpoint.
    (out / "model.safetensors").unlink()
    assert found() == ("UNFINISHED", ours, 0)
    for path in out.glob("model.ckpt-*"):
        path.unlink()
    (out / "checkpoint").unlink()
    assert found() == ("GIVEN", given, 0)


def test_a_training_never_starts_from_the_model_in_its_directory(out):
    copy_model(out)
    with pytest.raises(errors.InputError, match="--output_dir=.* contains --i"):
        resolve(out, init_checkpoint=str(out), do_train=True)
    with pytest.raises(errors.InputError, match="neither --init_checkpoint"):
        resolve(out, do_train=True)
    model = resolve(
        out,
        do_train=True,
        bert_config_file=str(TINY / "bert_config.json"),
        vocab_file=str(TINY / "vocab.txt"),
    )
    assert (model.case, model.folder) == ("TRAINED_NOW", None)
    assert model.start.init_checkpoint is None


def test_no_model_at_all_is_an_error_that_names_both_flags(out):
    with pytest.raises(errors.InputError, match=f"--output_dir={out}.*--init_"):
        resolve(out)


def test_the_weights_are_those_of_the_case(out, start):
    def weights(**given):
        return pathlib.Path(resolve(out, **given).start.init_checkpoint)

    assert weights(init_checkpoint=start).is_relative_to(start)
    copy_model(out)
    assert weights(init_checkpoint=start).is_relative_to(out)
    assert weights().is_relative_to(out)
    train = weights(init_checkpoint=start, do_train=True)
    assert train.is_relative_to(start)


def test_another_init_checkpoint_than_the_model_is_warned_about(
    out, start, caplog
):
    copy_model(out)
    write_json(out / "kept.json", KEPT)
    save_checkpoint(out, KEPT["step"])
    for own in ("", "/", "/model.safetensors", "/model.ckpt-7"):
        resolve(out, init_checkpoint=f"{out}{own}")
    resolve(out)
    resolve(out, init_checkpoint=start, do_train=True)
    assert not caplog.messages
    resolve(out, init_checkpoint=start)
    assert caplog.messages == [
        f"using the model in --output_dir={out}, not --init_checkpoint={start}"
    ]


def test_early_stopping_uses_the_best_checkpoint(out, start):
    patient = {"eval_every_steps": 2, "early_stopping_patience": 1}

    def folder(**given):
        config = flags(out, init_checkpoint=start, **given)
        assert (source.resolve(config).case == "UNFINISHED") == out.exists()
        return source.checkpoint_folder(config, str(out))

    assert folder() is None
    save_checkpoint(out, 5)
    assert folder(**patient) == str(out)
    save_checkpoint(out / "best", 3)
    assert folder(**patient) == str(out / "best")
    assert folder() == folder(eval_every_steps=2) == str(out)
    # The flags of the training decide, where they are known.
    write_json(out / "run_config.json", {"do_train": True} | patient)
    assert folder() == str(out / "best")
    impatient = {"do_train": True, "early_stopping_patience": 0}
    write_json(out / "run_config.json", impatient)
    assert folder(**patient) == str(out)


def name_labels(folder):
    """Writes the names of classes into a model directory."""
    path = pathlib.Path(folder) / "config.json"
    config = json.loads(path.read_text())
    write_json(path, config | {"id2label": {"0": "a", "1": "b"}})


def test_a_checkpoint_has_its_own_labels(out, start):
    """They are not those of the model that its training started from."""
    name_labels(start)
    assert resolve(out, init_checkpoint=start).start.labels == ["a", "b"]
    save_checkpoint(out, 5, LABELS)
    unfinished = resolve(out, init_checkpoint=start)
    assert unfinished.stored == LABELS
    assert unfinished.start.labels == LABELS["labels"]
    assert unfinished.start.problem_type == LABELS["problem_type"]
    # No other case reads the checkpoint.
    copy_model(out)
    write_json(out / "kept.json", KEPT)
    for given in ({}, {"do_train": True}):
        model = resolve(out, init_checkpoint=start, **given)
        assert model.stored == {}
        assert model.start.labels != LABELS["labels"]


def test_a_checkpoint_that_stores_nothing_has_the_labels_of_the_start(
    out, start
):
    name_labels(start)
    save_checkpoint(out, 5)
    unfinished = resolve(out, init_checkpoint=start)
    assert (unfinished.case, unfinished.stored) == ("UNFINISHED", {})
    assert unfinished.start.labels == ["a", "b"]


def test_the_flags_of_the_training_are_beside_the_weights(out, start):
    beside_start = {"do_train": True, "max_seq_length": 48}
    write_json(pathlib.Path(start) / "run_config.json", beside_start)
    own = {"do_train": True, "max_seq_length": 32}
    write_json(out / "run_config.json", own)
    for given in (start, f"{start}/model.safetensors"):
        assert resolve(out, init_checkpoint=given).trained == beside_start
    save_checkpoint(out, 5)
    assert resolve(out, init_checkpoint=start).trained == own
    copy_model(out)
    assert resolve(out).trained == own
    # These are the flags of a prediction.
    write_json(out / "run_config.json", own | {"do_train": False})
    assert resolve(out).trained == {}


@pytest.mark.parametrize(
    ("given", "earlier", "is_same"),
    [
        ("start", "start", True),
        ("start", "start/", True),
        ("start/model.safetensors", "start", True),
        ("start", "other", False),
        ("start", "star", False),
        ("start", None, False),
    ],
)
def test_an_earlier_prediction_is_of_the_same_given_model(
    out, start, tmp_path, given, earlier, is_same
):
    flags = {"init_checkpoint": earlier and f"{tmp_path}/{earlier}"}
    write_json(out / "run_config.json", flags)
    given = {"init_checkpoint": f"{tmp_path}/{given}"}
    expected = str(out) if is_same else None
    assert resolve(out, **given).last_prediction_dir == expected
    train = resolve(out, **given, do_train=True)
    assert train.last_prediction_dir == expected
    copy_model(out)  # It has its own files.
    assert resolve(out, **given).last_prediction_dir is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"do_lower_case": False}, "--do_lower_case was False, is True"),
        ({"vocab_file": "a" * 64}, "--vocab_file had other contents"),
        ({"strip_accents": False}, "strip_accents was False, is True"),
        (
            {"tokenize_chinese_chars": False},
            "tokenize_chinese_chars was False, is True",
        ),
        ({"do_lower_case": True, "learning_rate": 1.0}, None),
    ],
)
def test_an_unfinished_training_keeps_its_tokenizer(
    out, start, settings, message
):
    save_checkpoint(out, 5, LABELS, **settings)
    if message is None:
        assert resolve(out, init_checkpoint=start).case == "UNFINISHED"
        return
    with pytest.raises(errors.InputError, match=f"^{message}: the training in"):
        resolve(out, init_checkpoint=start)


def test_a_model_before_its_training_is_warned_about(out, start, caplog):
    """A grid was killed, or a run before its first checkpoint."""
    write_json(out / "run_config.json", {"do_train": True})
    assert resolve(out, init_checkpoint=start).case == "GIVEN"
    (message,) = caplog.messages
    assert f"--output_dir={out} has not ended" in message and start in message
    caplog.clear()
    flags_of_taggers = {"do_train": True, "features": "last"}
    write_json(out / "run_config.json", flags_of_taggers)
    assert resolve(out, init_checkpoint=start).case == "GIVEN"
    assert not caplog.messages


def test_missing_flags_are_those_of_the_training(
    out, start, tmp_path, caplog, monkeypatch
):
    def remembered(**given):
        config = flags(out, **given)
        config = source.resolve(config).with_trained_flags(config)
        return config.text_column, config.word_column

    caplog.set_level("INFO")
    trained = {"do_train": True, "text_column": "review", "word_column": 0}
    write_json(tmp_path / "start" / "run_config.json", trained)
    weights = f"{start}/model.safetensors"
    assert remembered(init_checkpoint=weights) == ("review", 0)
    assert caplog.messages == [
        "as the model was trained: --text_column=review --word_column=0"
    ]
    with monkeypatch.context() as in_its_folder:
        in_its_folder.chdir(start)
        weights = "model.safetensors"
        assert remembered(init_checkpoint=weights) == ("review", 0)
    given = {"init_checkpoint": start, "text_column": "other"}
    assert remembered(**given) == ("other", 0)
    assert remembered(**given, do_train=True) == ("other", None)
    random = {
        "bert_config_file": str(TINY / "bert_config.json"),
        "vocab_file": str(TINY / "vocab.txt"),
    }
    assert remembered(**random) == (None, None)


def test_a_length_is_that_of_the_training_unless_one_is_given(
    out, start, tmp_path
):
    """The model has fewer positions than the default of a longer one."""
    trained = {"do_train": True, "max_seq_length": 12}
    write_json(tmp_path / "start" / "run_config.json", trained)

    def length(**given):
        config = config_flags.build(
            Config, output_dir=str(out), init_checkpoint=start, **given
        )
        model = source.resolve(config)
        return model.with_trained_flags(config).max_seq_length

    assert length() == 12
    # The default counts if it is given.
    assert length(max_seq_length=16) == 16
    with pytest.raises(errors.InputError, match="only 48 positions"):
        length(max_seq_length=1000)


def test_flags_that_another_kind_of_training_had_not_are_no_warning(
    out, start, tmp_path, caplog
):
    trained = {"do_train": True, "doc_stride": None}
    write_json(tmp_path / "start" / "run_config.json", trained)
    resolve(out, init_checkpoint=start).warn_of_other_flags({"doc_stride": 64})
    assert not caplog.messages


def test_other_values_than_those_of_the_training_are_warned_about(
    out, start, tmp_path, caplog
):
    trained = {"do_train": True, "max_seq_length": 48}
    write_json(tmp_path / "start" / "run_config.json", trained)
    model = resolve(out, init_checkpoint=start)
    model.warn_of_other_flags({"max_seq_length": 48, "unknown": 1})
    assert not caplog.messages
    model.warn_of_other_flags({"max_seq_length": 16})
    (message,) = caplog.messages
    assert "--max_seq_length=48" in message and "16" in message
    train = resolve(out, init_checkpoint=start, do_train=True)
    train.warn_of_other_flags({"max_seq_length": 16})
    assert caplog.messages == [message]


def test_a_name_of_the_hub_is_the_one_of_the_last_command(tmp_path):
    """Its weights are in the cache, wherever that is."""
    flags = json.dumps({"init_checkpoint": "hf://me/bert"})
    (tmp_path / "run_config.json").write_text(flags)
    for name, expected in (("hf://me/bert", True), ("hf://me/other", False)):
        found = source._last_command_used(
            name, weights="/cache/model.safetensors", output_dir=str(tmp_path)
        )
        assert found == expected
