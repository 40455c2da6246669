"""Proves that the benchmarks run at their smallest size.

The peers need torch and are not run here.

python -m pytest -m all tests/benchmarks_test.py
"""

import json
import pathlib
import re
import subprocess
import sys

import pytest

from tests import tiny_runs
from tests.paper import toy_data

ROOT = pathlib.Path(__file__).parent.parent
BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))
_TABLE = (
    "--train_file={data}/glue/SST-2/train.tsv --text_column=sentence "
    "--predict_file={data}/glue/SST-2/dev.tsv --init_checkpoint={data}/model"
)
_QUESTIONS = (
    "--train_file={data}/squad/train-v1.1.json --max_seq_length=96 "
    "--predict_file={data}/squad/dev-v1.1.json --init_checkpoint={data}/model "
    "--doc_stride=16"
)
_TEXT = "--input_file={data}/corpus.txt --vocab_file={data}/vocab.txt"
_ONCE = "--rounds=1 --batch_size=8"
_ONE_SEED = "--epochs=1 --seeds=1 --batch_size=8 --output_dir={data}/scores"
RUNS = (
    f"speed classify {_TABLE} {_ONCE} --epochs=0.5,2 --predictions=4,12",
    f"speed answer {_QUESTIONS} {_ONCE} --predictions=4,12",
    f"speed tag --data_dir={{data}}/conll --init_checkpoint={{data}}/model "
    f"{_ONCE} --epochs=0.5,2 --max_seq_length=32",
    f"speed pretrain {_TEXT} {_ONCE} --size=tiny --steps=2,6 "
    "--max_seq_length=32",
    f"speed records {_TEXT} --rounds=1 --passes=1,30 --max_seq_length=32",
    f"scores classify {_TABLE} {_ONE_SEED}1",
    f"scores answer {_QUESTIONS} {_ONE_SEED}2 --every=2",
    "scores tag --train_file={data}/conll/eng.train --max_seq_length=32 "
    "--predict_file={data}/conll/eng.testb --init_checkpoint={data}/model "
    f"{_ONE_SEED}3",
    "serving_speed --model_dir={data}/scores1/ours1 --seconds=0.3 --rounds=1 "
    "--text_file={data}/corpus.txt --max_seq_length=32 --clients 1 2",
    f"accelerator {_TEXT} --small --steps=8 --output_dir={{data}}/accelerator",
    "data_statistics --seeds=2 --documents=30",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    toy_data.Maker(folder).make()
    words = (folder / "corpus.txt").read_text().split()
    vocabulary = [*tiny_runs.SPECIAL, *sorted(set(words))]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    tiny_runs.save_encoder(
        folder / "model", vocabulary, max_position_embeddings=128
    )
    return folder


def run(*arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_a_benchmark_explains_itself_without_torch(path):
    done = run(str(path), "--help")
    assert done.returncode == 0, done.stdout
    assert "usage: " in done.stdout


@pytest.mark.all
@pytest.mark.parametrize("command", RUNS, ids=lambda x: " ".join(x.split()[:2]))
def test_a_benchmark_runs_at_its_smallest_size(command, data):
    program, *flags = command.format(data=data).split()
    done = run(f"benchmarks/{program}.py", *flags)
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"\d", done.stdout)
    assert not re.search(r"\b(nan|inf)\b", done.stdout), done.stdout
    print(json.dumps(done.stdout))
