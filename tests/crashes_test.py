"""Proves that a command that writes survives any failure, and a kill.

Operations on files are counted in an undisturbed run of each command. Then one
fails, the disk is full or the process ends at it: the command ends in one line
that names the file, and the same command started again ends with the files of
the undisturbed run. This is a sample; tests/slow tries more, of more commands.

python -m pytest tests/crashes_test.py
"""

import errno
import os
import pathlib
import random
import shlex
import shutil

import crashes
import full_disk
import pytest
import tiny_runs

# Arguments of commands that write below out/.
WRITERS = """
create_vocabulary --input_file=text.txt --output_file=out/v.txt --vocab_size=140
create_pretraining_data --input_file=text.txt --vocab_file=vocab.txt \
--output_prefix=out/x --num_shards=2 --max_seq_length=32 --num_workers=1
convert_checkpoint --input=pretrained --output=out/model
convert_checkpoint --input=pretrained --output=out/tf1 --output_format=tf1
extract_features --input_file=lines.txt --output_file=out/f.jsonl \
--init_checkpoint=pretrained --layers=-1
fill_mask --model_dir=pretrained --input_file=masks.txt --output_file=out/f
""".strip().splitlines()
SMALL = 2000  # Bytes that all logs have together.


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("crashes")
    words = ["the man went", "to a store", "he bought milk", "it was late"]
    random.Random(1).shuffle(words)
    texts = [f"{a}.\n{b}.\n{c}.\n" for a in words for b in words for c in words]
    (root / "text.txt").write_text("\n".join(texts))
    tokens = " ".join(words).split()
    vocabulary = dict.fromkeys([*tiny_runs.SPECIAL, ".", *tokens])
    (root / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (root / "lines.txt").write_text("the bird\n" * 3)
    (root / "masks.txt").write_text("the [MASK]\n" * 3)
    source = tiny_runs.ROOT / "tests/testdata/tiny_pretrained"
    shutil.copytree(source, root / "pretrained")
    return root


def contents(folder):
    paths = sorted(pathlib.Path(folder).rglob("*"))
    return {str(path): path.read_bytes() for path in paths if path.is_file()}


def start(line):
    """Runs a command with the out/ that there is."""
    pathlib.Path("out").mkdir(exist_ok=True)
    command, *arguments = shlex.split(line)
    tiny_runs.start(command, *arguments, "--verbosity=-1")


def trials(events, files):
    """Yields what disturbs a command, and the error that it then names."""
    draw = random.Random(len(events))
    for error in (errno.ENOSPC, crashes.Killed):
        yield crashes.at("out", draw.randrange(len(events)), error), error
    last = max(i for i, event in enumerate(events) if event == "os.rename")
    yield crashes.at("out", last, crashes.Killed), None
    largest = max(len(content) for content in files.values())
    if largest > 2 * SMALL:
        size = draw.randrange(SMALL, largest)
        yield full_disk.longest_file(size), errno.EFBIG


@pytest.mark.parametrize("line", WRITERS, ids=lambda line: line[:45])
def test_what_is_cut_off_ends_as_if_it_were_not(root, monkeypatch, capfd, line):
    monkeypatch.chdir(root)
    with crashes.at("out") as undisturbed:
        start(line)
    expected = contents("out")
    disturbances = trials(undisturbed.events, expected)
    for number, (crash, error) in enumerate(disturbances):
        shutil.rmtree("out")
        capfd.readouterr()
        ended = None
        with crash:
            try:
                start(line)
            except (SystemExit, crashes.Killed) as ending:
                ended = ending
        if ended is None:  # Something was left behind at most.
            assert expected.items() <= contents("out").items(), number
            continue
        if isinstance(ended, SystemExit):
            *_, last = capfd.readouterr().err.splitlines()
            assert ended.code == 2, (number, last)
            assert os.strerror(error) in last and "out" in last, (number, last)
        start(line)
        assert contents("out") == expected, number
    shutil.rmtree("out")
