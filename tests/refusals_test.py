r"""Proves that commands refuse what they cannot do, in one line that names it.

refusals.txt has three kinds of lines:

    NAME << TEXT                 a small file, with \n, \t and \xff
    NAME := ARGUMENTS            the beginning of many command lines
    ARGUMENTS => PART & PART     a command line, and what its refusal names

A command runs as its users start it, in a folder with the files of `folder`.

python -m pytest tests/refusals_test.py
"""

import functools
import json
import pathlib
import shlex
import shutil

import classifier_runs
import ner_runs
import pytest
import squad_runs
import tiny_runs

TABLE = pathlib.Path(__file__).with_suffix("").with_name("refusals.txt")


def read(lines):
    """Returns the contents of files, and the rows: arguments and parts."""
    files, beginnings, rows = {}, {}, []
    for line in lines:
        if " << " in line:
            name, _, text = line.partition(" << ")
            text = text.encode("latin-1").decode("unicode_escape")
            files[name] = text.encode("latin-1")
        elif " := " in line:
            name, _, beginning = line.partition(" := ")
            beginnings[name] = beginning
        elif " => " in line:
            given, _, parts = line.partition(" => ")
            first, _, rest = given.partition(" ")
            given = f"{beginnings.get(first, first)} {rest}"
            rows.append(pytest.param(given, parts.split(" & "), id=line))
        else:
            assert not line or line.startswith("#"), line
    return files, rows


FILES, ROWS = read(TABLE.read_text().splitlines())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files of the table, and what pre-training and fine-tuning need."""
    folder = tmp_path_factory.mktemp("refusals")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    shutil.copytree(
        tiny_runs.ROOT / "tests/testdata/tiny_pretrained", folder / "pretrained"
    )
    words = FILES["vocab.txt"].decode().split()
    config = tiny_runs.config(words).to_dict()
    for name, value in (("", 0), ("vocab_size", 12), ("type_vocab_size", 1)):
        path = folder / f"{name or 'config'}.json"
        path.write_text(json.dumps(config | ({name: value} if name else {})))
    make_shards(folder)
    for name, make in (
        ("texts", classifier_runs.make_data),
        ("tags", functools.partial(ner_runs.make_data, num_hidden_layers=2)),
        ("squad", squad_runs.save_data),
    ):
        (folder / name).mkdir()
        make(folder / name)
    words = [*tiny_runs.SPECIAL, *"a b c d ##b .".split()]
    tiny_runs.save_encoder(folder / "encoder", words, num_hidden_layers=2)
    tiny_runs.save_encoder(folder / "single", words, type_vocab_size=1)
    return folder


def make_shards(folder):
    """Makes two shards, and folders in which something is wrong with them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, lower in (("shards", True), ("cased", False)):
            tiny_runs.start(
                "create_pretraining_data",
                "--input_file=text.txt",
                "--vocab_file=vocab.txt",
                f"--output_prefix={name}/x",
                "--num_shards=2",
                "--max_seq_length=32",
                "--max_predictions_per_seq=5",
                "--num_workers=1",
                f"--do_lower_case={lower}",
            )
        for name in ("cut", "half"):
            shutil.copytree("shards", name)
    (folder / "half/x-00001-of-00002.tfrecord").unlink()
    shard = folder / "cut/x-00001-of-00002.tfrecord"
    shard.write_bytes(shard.read_bytes()[:-10])


def tree(folder):
    return sorted(
        (str(path), path.stat().st_size)
        for path in folder.rglob("*")
        if "out" not in path.relative_to(folder).parts
    )


@pytest.mark.parametrize(("given", "parts"), ROWS)
def test_it_is_refused(folder, monkeypatch, capfd, given, parts):
    monkeypatch.chdir(folder)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    before = tree(folder)
    command, *arguments = shlex.split(given)
    with pytest.raises(SystemExit) as ended:
        tiny_runs.start(command, *arguments)
    *_, line = capfd.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert line.startswith(f"{command}.py: ")
    for part in parts:
        assert part in line
    shutil.rmtree("out", ignore_errors=True)
    assert tree(folder) == before
