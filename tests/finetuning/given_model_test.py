"""Proves which of several models a command uses, and what is known of it.

python -m pytest tests/finetuning/given_model_test.py
"""

import dataclasses
import json
import os
import pathlib
import shutil

import pytest

from finetuning import flags as flags_lib
from finetuning import given_model, record
from foundation import config_flags, errors

TINY = pathlib.Path(__file__).parents[1] / "testdata" / "tiny_pretrained"
FILES = ("config.json", "model.safetensors", "tokenizer_config.json")
BEST = {"best": {"run": "one", "step": 7}}
RANDOM = {
    "bert_config_file": str(TINY / "bert_config.json"),
    "vocab_file": str(TINY / "vocab.txt"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags(flags_lib.FinetuningFlags):
    """The flags of a task with columns."""

    max_seq_length: int = config_flags.field("Length.", 16, remembered=True)
    text_column: str | None = config_flags.field("T.", None, remembered=True)
    word_column: int | None = config_flags.field("W.", None, remembered=True)


def copy_model(folder):
    """Makes a model directory, which nothing has trained."""
    folder.mkdir(exist_ok=True, parents=True)
    for name in (*FILES, "vocab.txt"):
        shutil.copy(TINY / name, folder / name)
    return str(folder)


def write(folder, **values):
    """Writes the journal of a directory."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / record.NAME).write_text(json.dumps(values))


def stop_at_a_checkpoint(folder, **flags):
    """Leaves what a training leaves that is killed after a checkpoint."""
    flags = {"init_checkpoint": None, "bert_config_file": None} | flags
    write(folder, flags=flags, made_from={"labels": ["no", "yes"]})
    (folder / "checkpoint").touch()


@pytest.fixture
def out(tmp_path):
    """--output_dir."""
    return tmp_path / "out"


@pytest.fixture
def start(tmp_path):
    """--init_checkpoint."""
    return copy_model(tmp_path / "start")


def find(out, **given):
    flags = config_flags.build(Flags, output_dir=str(out), **given)
    return given_model.find(flags)


def test_the_cases_come_in_their_order(out, start):
    """Each thing that is added to the directory has a case that comes first."""

    def found(**given):
        model, _ = find(out, init_checkpoint=start, **given)
        folder = os.path.basename(os.path.dirname(model.weights))
        step = model.record.best.get("step", 0)
        return folder, model.unfinished_dir is not None, step

    assert found() == ("start", False, 0)
    stop_at_a_checkpoint(out, init_checkpoint=start)
    assert found() == ("start", True, 0)
    assert found(do_train=True) == ("start", False, 0)
    copy_model(out)
    write(out, flags={}, **BEST)
    assert found() == ("out", False, 7)
    # Whatever is there, a training starts elsewhere.
    assert found(do_train=True)[:2] == ("start", False)
    (out / "checkpoint").unlink()
    (out / record.NAME).unlink()
    assert found() == ("out", False, 0)


def test_a_training_never_starts_from_the_model_in_its_directory(out):
    copy_model(out)
    model, _ = find(out, do_train=True, **RANDOM)
    assert model.weights is None


def test_another_init_checkpoint_than_the_model_is_warned_about(
    out, start, caplog
):
    copy_model(out)
    write(out, flags={}, **BEST)
    for own in ("", "/", "/model.safetensors"):
        find(out, init_checkpoint=f"{out}{own}")
    find(out)
    find(out, init_checkpoint=start, do_train=True)
    assert not caplog.messages
    find(out, init_checkpoint=start)
    assert caplog.messages == [
        f"using the model in --output_dir={out}, not --init_checkpoint={start}"
    ]


def test_a_checkpoint_has_the_labels_of_its_training(out, start):
    """They are not those of the model that its training started from."""
    path = pathlib.Path(start) / "config.json"
    names = {"id2label": {"0": "a", "1": "b"}}
    path.write_text(json.dumps(json.loads(path.read_text()) | names))
    assert find(out, init_checkpoint=start)[0].labels == ["a", "b"]
    stop_at_a_checkpoint(out, init_checkpoint=start)
    assert find(out)[0].labels == ["no", "yes"]


def test_a_checkpoint_has_the_files_that_its_training_began_with(out, start):
    stop_at_a_checkpoint(out, **RANDOM)
    model, flags = find(out, vocab_file="/nowhere", init_checkpoint=start)
    assert model.weights is None and model.unfinished_dir == str(out)
    assert flags.vocab_file == RANDOM["vocab_file"]


def test_missing_flags_are_those_of_the_training(
    out, start, tmp_path, caplog, monkeypatch
):
    def remembered(**given):
        _, flags = find(out, **given)
        return flags.text_column, flags.word_column

    caplog.set_level("INFO")
    trained = {"text_column": "review", "word_column": 0, "other": 1}
    write(tmp_path / "start", flags=trained)
    weights = f"{start}/model.safetensors"
    assert remembered(init_checkpoint=weights) == ("review", 0)
    told = "as the model was trained: --text_column=review --word_column=0"
    assert told in caplog.messages
    with monkeypatch.context() as in_its_folder:
        in_its_folder.chdir(start)
        weights = "model.safetensors"
        assert remembered(init_checkpoint=weights) == ("review", 0)
    given = {"init_checkpoint": start, "text_column": "other"}
    assert remembered(**given) == ("other", 0)
    assert remembered(**given, do_train=True) == ("other", None)


def test_a_length_is_that_of_the_training_unless_one_is_given(
    out, start, tmp_path
):
    """The model has fewer positions than the default of a longer one."""
    write(tmp_path / "start", flags={"max_seq_length": 12})

    def length(**given):
        return find(out, init_checkpoint=start, **given)[1].max_seq_length

    assert length() == 12
    # The default counts if it is given.
    assert length(max_seq_length=16) == 16
    with pytest.raises(errors.InputError, match="only 48 positions"):
        length(max_seq_length=1000)


def test_new_tokens_have_rows_of_their_own(out, start):
    flags = config_flags.build(
        Flags, output_dir=str(out), init_checkpoint=start, do_train=True
    )
    size = given_model.find(flags)[0].config.vocab_size
    known = given_model.find(flags)[0].tokenizer.vocabulary
    model, _ = given_model.find(flags, ["[E1]", known.tokens[7], "[E2]"])
    words = model.tokenizer.vocabulary
    assert len(words) == len(known) + 2
    assert model.config.vocab_size == max(size, len(words))
    assert words.tokens[: len(known)] == known.tokens
