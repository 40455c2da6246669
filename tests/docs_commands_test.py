"""Runs every command block of the README and of docs/, and the notebook.

    make docs-test

A page's blocks run in order, in a directory with small data under the names
that the pages use, with fewer steps and seeds. The programs `hf`, `make` and
`pip` are replaced: `hf download` copies a tiny model, the others do nothing.
`curl` fails unless it is answered with a status below 400 and JSON without
"error". <!-- not run: REASON --> excludes the block that follows.
"""

import json
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from tests import tiny_runs
from tests.paper import toy_data

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    if page.name != "LOG.md"
]
PROGRAMS = (
    "python",
    "curl",
    "hf",
    "make",
    "pip",
    "head",
    "for",
    ".",
    "zcat",
    "tr",
)
NOTEBOOK = ROOT / "examples" / "bert.ipynb"
NOT_RUN = "<!-- not run:"
_QUICK = "--max_seq_length=64 --do_train --num_train_epochs=1"
_SQUAD = (
    "python run_squad.py --train_file=train-v1.1.json --max_query_length=16 "
    "--predict_file=dev-v1.1.json --do_predict --doc_stride=16 "
    f"--train_batch_size=8 --init_checkpoint=bert-base {_QUICK}"
)
_SENTENCES = f"python run_classifier.py --init_checkpoint=bert-base {_QUICK}"
_STARS = f"""cp -rL tiny_model bert-base
{_SENTENCES} --task_name=csv --train_file=train.csv --text_column=review \
    --label_column=stars --output_dir=stars"""
# What a reader of a page has from other pages.
BEFORE = {
    "checkpoints": """mkdir pretrained && cp -rL tiny_model pretrained/best
python convert_checkpoint.py --input=tiny_model --output_format=tf1 \
    --output=uncased_L-12_H-768_A-12
printf 'aspirin\nibuprofen\n' > drugs.txt""",
    "code": _STARS,
    "data": "printf 'It was\r\nold.\r\n\r\nHe left.\r\n' > book.txt",
    "finetuning": f"""{_STARS}
python run_ner.py --init_checkpoint=bert-base --data_dir=conll2003 {_QUICK} \
    --output_dir=ner
for i in 1 2 3; do {_SQUAD} --output_dir=run$i --random_seed=$i; done
cp train-v1.1.json unanswered.json
{_SQUAD.replace("v1.1", "v2.0")} --version_2_with_negative --output_dir=two
cp two/predictions.json two/null_odds.json .
for i in $(seq 64); do
    echo "what $i,paper $i" >> rows
    echo '{{"question": "what", "answer": "'$i'", "verdict": '$((i % 2))'}}'
done > train.jsonl
head -16 train.jsonl > dev.jsonl
(echo anchor,positive; cat rows) > pairs.csv
printf 'anchor,positive\na,the river\nb,the paper\n' > dev_pairs.csv
(echo text,label; tail -n +2 train.csv) > reports.csv
gzip < news.txt > news.txt.gz
gzip < news.txt > lines.gz
cp -rL tiny_model pretrained
echo 'river [MASK] paper .' > lines.txt""",
    "pretraining": """cp tiny_model/vocab.txt .; cp -rL tiny_model pretrained
cp -rL tiny_model bert-base""",
    "serving": f"""cp -rL tiny_model bert-base
{_SENTENCES} --task_name=MRPC --data_dir=glue/MRPC --output_dir=mrpc
{_SENTENCES} --task_name=SST-2 --data_dir=glue/SST-2 --output_dir=sst2
{_SQUAD} --output_dir=squad
for name in sst2 squad; do
    python export_model.py --model_dir=$name --output_dir=exported/$name
done""",
}
# What replaces the numbers of the pages' commands.
SIZES = {
    "num_train_steps": 4,
    "num_warmup_steps": 1,
    "eval_every_steps": 2,
    "num_seeds": 1,
}
# serve.py runs until the next one, or until the end of the page.
SERVER = """if [ -n "$server" ]; then kill $server; wait $server; fi
{command} > server.log 2>&1 &
server=$!
until {curl} -s -o /dev/null http://127.0.0.1:8501/healthz; do
    kill -0 $server || {{ cat server.log; exit 1; }}
    sleep 0.2
done"""
CURL = shlex.quote(shutil.which("curl") or "curl")
# By itself, curl exits with 0 for any status.
CHECKED_CURL = """set -o pipefail
{curl} --silent --show-error --fail-with-body "$@" | tee /dev/stderr | \\
    {python} -c 'import json, sys; sys.exit("error" in json.load(sys.stdin))'
"""


def blocks(text: str) -> list[str]:
    """Returns the command blocks of a page, without excluded ones."""
    found: list[str] = []
    lines: list[str] = []
    is_excluded = is_python = False
    for line in [*text.splitlines(), "end"]:
        is_python ^= line.startswith("```")
        if line.startswith("    ") and not is_python:
            lines.append(line[4:])
            continue
        if not line.strip():
            lines += [""] if lines else []
            continue
        if lines:
            if not is_excluded and _is_command(lines):
                found.append("\n".join(lines).rstrip())
            lines, is_excluded = [], False
        is_excluded |= line.startswith(NOT_RUN)
    return found


def _is_command(lines: list[str]) -> bool:
    words = [line.split()[0] for line in lines if line.strip()]
    return any(word in PROGRAMS for word in words)


def script(page: pathlib.Path) -> str:
    """Returns all blocks of a page as a shell script."""
    text = "\n".join(blocks(page.read_text()))
    for flag, number in SIZES.items():
        text = re.sub(rf"--{flag}=\d+", f"--{flag}={number}", text)
    return re.sub(
        r"^python serve\.py(?:[^\n]*\\\n)*[^\n]*",
        lambda match: SERVER.format(command=match[0], curl=CURL),
        text,
        flags=re.MULTILINE,
    )


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory):
    """A directory with the project's files and small data."""
    root = tmp_path_factory.mktemp("docs")
    for path in ROOT.iterdir():
        if not path.name.startswith(".") and path.name != "Makefile":
            (root / path.name).symlink_to(path)
    toy_data.Maker(root / "toy").make()
    for name, target in (
        ("glue", "toy/glue"),
        ("conll2003", "toy/conll"),
        ("swag", "toy/swag"),
        ("squad_files", "toy/squad"),
        ("triviaqa-rc", "toy/triviaqa"),
    ):
        (root / name).symlink_to(root / target)
    for version in ("1.1", "2.0"):
        for split in ("train", "dev"):
            name = f"{split}-v{version}.json"
            (root / name).symlink_to(root / "toy/squad" / name)
    _tables(root)
    _texts(root)
    words = sorted({*(root / "toy/corpus.txt").read_text().split(), "the", "?"})
    encoder = tiny_runs.save_encoder(
        root / "tiny_model",
        [*tiny_runs.SPECIAL, *words],
        num_hidden_layers=4,
        max_position_embeddings=512,
    )
    for name in ("all-MiniLM-L6-v2", "bert-base-uncased", "bert-base-cased"):
        (root / name).symlink_to(encoder)
    _programs(root / "bin", encoder)
    return root


def _tables(root: pathlib.Path) -> None:
    """Writes train.csv, dev.csv, new.csv and others of the pages."""
    text = (root / "toy/corpus.txt").read_text().splitlines()
    sentences = [line for line in text if line]
    for name, count in (("train", 64), ("dev", 16), ("new", 8)):
        rows = [f"{s},{i % 2}" for i, s in enumerate(sentences[:count])]
        header = "review,stars"
        if name == "new":
            header, rows = "review", [row.rpartition(",")[0] for row in rows]
        (root / f"{name}.csv").write_text("\n".join([header, *rows]) + "\n")
    (root / "news.txt").write_text("\n".join(sentences[:8]) + "\n")
    (root / "input.txt").write_text("\n".join(sentences[:8]) + "\n")


def _texts(root: pathlib.Path) -> None:
    """Writes text with enough different words for a vocabulary of 8,192."""
    generator = random.Random(3)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [
        "".join(generator.choices(letters, k=generator.randrange(3, 9)))
        for _ in range(6000)
    ]
    (root / "text").mkdir()
    for name, count in (("a.train", 240), ("b.heldout", 8)):
        lines = []
        for _ in range(count):
            for _ in range(8):
                lines.append(" ".join(generator.choices(words, k=12)) + " .")
            lines.append("")
        (root / "text" / f"{name}.txt").write_text("\n".join(lines) + "\n")


def _programs(folder: pathlib.Path, model: pathlib.Path) -> None:
    """Writes stand-ins for programs that need a network or take long."""
    folder.mkdir()
    copy = f"""for last; do :; done; rm -rf "$last"
cp -rL {shlex.quote(str(model))} "$last" """
    for name, body in (
        ("hf", copy),
        ("make", "exit 0"),
        ("pip", "exit 0"),
        ("python", f'exec {shlex.quote(sys.executable)} "$@"'),
        ("curl", checked_curl()),
    ):
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)


def checked_curl() -> str:
    """Returns the script of a curl that checks what it is answered."""
    return CHECKED_CURL.format(curl=CURL, python=shlex.quote(sys.executable))


@pytest.mark.docs
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page, sandbox, tmp_path):
    text = script(page)
    if not text:
        pytest.skip("no commands")
    text = f"{BEFORE.get(page.stem, '')}\n{text}"
    work = tmp_path / "work"
    work.mkdir()
    for path in sandbox.iterdir():
        (work / path.name).symlink_to(path.resolve())
    text = text.replace(". .venv/bin/activate", ":")
    environment = os.environ | {
        "PATH": f"{sandbox / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "python"),
    }
    done = subprocess.run(
        [
            "bash",
            "-eo",
            "pipefail",
            "-c",
            f"trap 'jobs -p | xargs -r kill' EXIT\n{text}",
        ],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    log = json.dumps(done.stdout[-3000:])
    assert done.returncode == 0, f"{page.name}: {log}"


def notebook_cells() -> list[dict]:
    """Returns the cells of the notebook."""
    return json.loads(NOTEBOOK.read_text())["cells"]


def test_the_notebook_has_no_outputs():
    for cell in notebook_cells():
        assert cell["cell_type"] in ("code", "markdown")
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            compile("".join(cell["source"]), cell["id"], "exec")


def test_examples_import_bert_before_keras():
    sources = {x.name: x.read_text() for x in NOTEBOOK.parent.glob("*.py")}
    sources[NOTEBOOK.name] = "\n".join(
        "".join(cell["source"])
        for cell in notebook_cells()
        if cell["cell_type"] == "code"
    )
    for name, source in sources.items():
        imported = re.findall(r"^import (bert|keras)\b", source, re.MULTILINE)
        assert imported[:1] in (["bert"], []), name


@pytest.mark.docs
def test_the_cells_of_the_notebook_run(sandbox, tmp_path):
    (tmp_path / "bert-base").symlink_to(sandbox / "tiny_model")
    code = [
        "".join(cell["source"])
        for cell in notebook_cells()
        if cell["cell_type"] == "code"
    ]
    (tmp_path / "cells.py").write_text("\n\n".join(code) + "\n")
    done = subprocess.run(
        [sys.executable, "cells.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, json.dumps(done.stdout[-3000:])
    assert re.search(r"\d mistakes in 6 texts", done.stdout)
    assert list((tmp_path / "exported/hotels").rglob("saved_model.pb"))
