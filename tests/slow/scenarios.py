"""Commands that write files, on toy data, and what they write.

`make` writes the data once; a scenario's flags name it {data}, and the output
directory {out}. Sets are predicted in blocks of a few examples.
"""

import hashlib
import json
import pathlib
import re

from tests import tiny_runs
from tests.paper import toy_data
from tests.slow import warm
from training import metric_writer

_SIZES = "--max_seq_length=32 --max_predictions_per_seq=5"
_TRAINING = (
    "--init_checkpoint={data}/model --do_train --train_batch_size=8 "
    "--num_train_epochs=1 --save_checkpoints_steps=2 --output_dir={out} "
    "--learning_rate=1e-3"
)
_CLASSIFIER = (
    "run_classifier.py --task_name=SST-2 --data_dir={data}/glue/SST-2 "
    "--max_seq_length=32"
)
RECORDS = (
    "create_pretraining_data.py --input_file={data}/corpus.txt "
    "--vocab_file={data}/vocab.txt --output_prefix={out}/x --num_shards=2 "
    f"--dupe_factor=2 --num_workers=2 {_SIZES}"
)
_TAGGER = (
    f"run_ner.py --data_dir={{data}}/conll {_TRAINING} --do_eval "
    "--do_predict --max_seq_length=32 --predict_batch_size=2"
)
_LOOP = {"steps": 20, "save_every": 2, "log_every": 7, "eval_every": 5}
SCENARIOS = {
    "vocabulary": (
        "create_vocabulary.py --input_file={data}/corpus.txt --vocab_size=160 "
        "--output_file={out}/vocab.txt"
    ),
    "records": RECORDS,
    "pretraining": (
        "run_pretraining.py --input_file={data}/shards/x-* --do_train "
        "--do_eval --eval_file={data}/shards/x-* --output_dir={out} "
        "--bert_config_file={data}/config.json --num_train_steps=5 "
        "--train_batch_size=4 --eval_batch_size=4 --max_eval_steps=1 "
        "--eval_every_steps=2 "
        f"--save_checkpoints_steps=2 --keep_checkpoint_max=1 {_SIZES}"
    ),
    "grid": f"{_CLASSIFIER} {_TRAINING},1e-4 --do_eval --do_predict",
    "prediction": (
        f"{_CLASSIFIER} --init_checkpoint={{data}}/classifier --do_predict "
        "--output_dir={out} --predict_batch_size=2"
    ),
    "distillation": (
        f"{_CLASSIFIER} {_TRAINING} --teacher_dir={{data}}/classifier"
    ),
    "entities": _TAGGER,
    "activations": f"{_TAGGER} --features=last --lstm_size=4",
    "embeddings": (
        f"run_embeddings.py --train_file={{data}}/pairs.csv {_TRAINING} "
        "--dev_file={data}/pairs.csv --do_eval --max_seq_length=16"
    ),
    "questions": (
        f"run_squad.py --train_file={{data}}/squad/train-v2.0.json {_TRAINING} "
        "--predict_file={data}/squad/dev-v2.0.json --do_predict "
        "--version_2_with_negative --max_seq_length=40 --doc_stride=16 "
        "--max_query_length=16"
    ),
    "export": (
        "export_model.py --model_dir={data}/classifier --output_dir={out}"
    ),
    "conversion": (
        "convert_checkpoint.py --input={data}/classifier --output={out} "
        "--output_format=tf1"
    ),
    "directory": "convert_checkpoint.py --input={data}/model --output={out}",
    "vectors": (
        "extract_features.py --input_file={data}/lines.txt --layers=-1 "
        "--output_file={out}/vectors.jsonl --init_checkpoint={data}/model "
        "--batch_size=2"
    ),
    "masks": (
        "fill_mask.py --model_dir={data}/model --input_file={data}/masks.txt "
        "--output_file={out}/words"
    ),
    "loop": (
        "tests/training/toy_run.py {out} "
        + json.dumps({"run": _LOOP | {"dropout": 0.1}}, separators=(",", ":"))
        .replace("{", "{{")
        .replace("}", "}}")
    ),
}
# Python code that makes blocks small, in the process of the command.
SMALL_BLOCKS = """
from finetuning import prediction
from tasks.features import extraction
from tasks.ner import activations
prediction.BLOCK = activations.BLOCK = 4
extraction._BLOCK_BYTES = 1
"""
# The files that are the same in every run: without times and paths.
_EQUAL = re.compile(
    r"(\.safetensors|\.tsv|\.tfrecord|\.npz|(^|/)(vocab\.txt|config\.json|"
    r"crf\.json|words|vectors\.jsonl|metrics\.jsonl)|"
    r"_results\.txt|predictions(_\w+)?\.(json|txt)|null_odds\.json|"
    r"saved_model\.pb|bert_model\.ckpt\.data-00000-of-00001)$"
)


def arguments(name: str, data: pathlib.Path, out: pathlib.Path) -> list[str]:
    """Returns the command line of a scenario."""
    command = SCENARIOS[name].format(data=data, out=out)
    return command.split()


def make(folder: pathlib.Path) -> pathlib.Path:
    """Writes the data sets and a model."""
    data = folder / "data"
    data.mkdir()
    toy_data.Maker(data).make()
    words = (data / "corpus.txt").read_text().split()
    vocabulary = [*tiny_runs.SPECIAL, *sorted(set(words))]
    (data / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    tiny_runs.save_encoder(data / "model", vocabulary)
    lines = (data / "corpus.txt").read_text().splitlines()[:6]
    (data / "lines.txt").write_text("\n".join(lines) + "\n")
    masked = [f"[MASK] {line}" for line in lines]
    (data / "masks.txt").write_text("\n".join(masked) + "\n")
    pairs = [f"{a},{b}" for a, b in zip(words, words[1:17], strict=False)]
    (data / "pairs.csv").write_text("\n".join(["anchor,positive", *pairs]))
    config = tiny_runs.config(vocabulary).to_dict()
    (data / "config.json").write_text(json.dumps(config))
    return data


def train(data: pathlib.Path, process: warm.Warm) -> None:
    """Adds records and a classifier."""
    for command in (
        RECORDS.format(data=data, out=data / "shards"),
        f"{_CLASSIFIER} {_TRAINING}".format(data=data, out=data / "classifier"),
    ):
        ended = process.run(command.split())
        assert ended.code == 0, ended.text


def contents(folder: pathlib.Path) -> dict[str, str]:
    """Returns name -> digest of all files; of nothing if it has times in it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = re.sub(r"tfevents.*", "tfevents", str(path.relative_to(folder)))
        if path.is_file():
            content = path.read_bytes() if _EQUAL.search(name) else b""
            if path.name == "metrics.jsonl":
                content = _without_times(content)
            found[name] = hashlib.sha256(content).hexdigest()
    return found


def _without_times(lines: bytes) -> bytes:
    rows = [json.loads(line) for line in lines.splitlines()]
    for row in rows:
        for name in metric_writer.TIMINGS:
            row.pop(name, None)
    return json.dumps(rows).encode()
