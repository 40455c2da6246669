"""Makes earlier_runs.tar.xz: what an earlier version leaves, killed and ended.

    python tests/testdata/make_earlier_runs.py [COMMIT]

Needs the history of git, and the packages of this checkout. The commands of the
commit (by default 518000c) run in a temporary folder on tiny data that is made
here. Each of them is killed once, and then continued to its end by the same
commit:

    commands.json    the commands in order: name, script, flags
    *.txt, *.csv, *.json    their inputs
    killed/NAME      what a command has left when it was killed
    end/NAME         what it has left at its end
    model, squad_model      models of these trainings, for the predictions

tests/earlier_runs_test.py continues killed/ with the commands of this checkout.
All paths are relative, so that nothing names the temporary folder.
"""

import io
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = HERE / "earlier_runs.tar.xz"
COMMIT = "518000c"
WORDS = [f"w{i}" for i in range(12)]
CONFIG = {
    "vocab_size": 5 + 2 + len(WORDS),
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "initializer_range": 0.2,
}
START = ["--bert_config_file=bert_config.json", "--vocab_file=vocab.txt"]
SIZES = ["--max_seq_length=16", "--precision=float32"]
TABLE = ["--task_name=csv", "--text_column=text"]
SQUAD = [*SIZES, "--version_2_with_negative", "--doc_stride=4"]
SQUAD += ["--max_query_length=2", "--max_answer_length=2", "--n_best_size=2"]
# Name, script, flags, and when it is killed: after the n-th file of a name.
COMMANDS = [
    (
        "shards",
        "create_pretraining_data.py",
        ["--input_file=corpus.txt", "--vocab_file=vocab.txt"]
        + ["--output_prefix=shards/x", "--num_shards=3", "--num_workers=1"]
        + ["--max_seq_length=16", "--max_predictions_per_seq=3"]
        + ["--random_seed=1", "--dupe_factor=1"],
        ("x-00001-of-00003.tfrecord", 1),
    ),
    (
        "pretraining",
        "run_pretraining.py",
        [*START, *SIZES, "--input_file=shards/x-*.tfrecord", "--do_train"]
        + ["--eval_file=shards/x-00000-of-00003.tfrecord", "--do_eval"]
        + ["--output_dir=pretraining", "--max_predictions_per_seq=3"]
        + [
            "--train_batch_size=8",
            "--num_train_steps=12",
            "--num_warmup_steps=2",
        ]
        + ["--learning_rate=1e-2", "--save_checkpoints_steps=4"],
        ("checkpoint", 1),
    ),
    (
        "classifier",
        "run_classifier.py",
        [*START, *SIZES, *TABLE, "--label_column=label", "--do_train"]
        + ["--train_file=train.csv", "--dev_file=dev.csv", "--do_eval"]
        + ["--output_dir=classifier", "--learning_rate=2e-2", "--num_seeds=2"]
        + ["--train_batch_size=8", "--num_train_epochs=4"]
        + ["--save_checkpoints_steps=4"],
        ("checkpoint", 10),
    ),
    (
        "prediction",
        "run_classifier.py",
        [*TABLE, *SIZES, "--init_checkpoint=model", "--do_predict"]
        + ["--test_file=test.csv", "--output_dir=prediction"],
        ("block-0000000", 1),
    ),
    (
        "ner",
        "run_ner.py",
        [*START, *SIZES, "--do_train", "--do_eval", "--do_predict", "--crf"]
        + ["--train_file=train.txt", "--dev_file=dev.txt"]
        + ["--test_file=dev.txt", "--output_dir=ner", "--num_seeds=2"]
        + ["--learning_rate=2e-2", "--train_batch_size=8"]
        + ["--num_train_epochs=4", "--save_checkpoints_steps=4"],
        ("checkpoint", 10),
    ),
    (
        "squad",
        "run_squad.py",
        [*START, *SQUAD, "--do_train", "--do_predict"]
        + ["--train_file=train.json", "--predict_file=dev.json"]
        + ["--output_dir=squad", "--learning_rate=2e-2"]
        + ["--train_batch_size=8", "--num_train_epochs=4"]
        + ["--save_checkpoints_steps=8"],
        ("checkpoint", 2),
    ),
    (
        "squad_prediction",
        "run_squad.py",
        [*SQUAD, "--init_checkpoint=squad_model", "--do_predict"]
        + ["--predict_file=test.json", "--output_dir=squad_prediction"],
        ("block-0000000", 1),
    ),
]
# The models that predictions use.
MODELS = {"classifier": "model", "squad": "squad_model"}
# Runs a script that kills itself after the n-th file of a name.
DRIVER = """
import os, runpy, signal, sys

name, left, script = sys.argv[1], int(sys.argv[2]), sys.argv[3]
replace = os.replace

def replace_or_die(source, target):
    global left
    replace(source, target)
    left -= os.path.basename(target) == name
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

os.replace = replace_or_die
sys.argv[:] = sys.argv[3:]
sys.path[0] = os.path.dirname(script)
runpy.run_path(script, run_name="__main__")
"""
# Large, and not read by a command that continues.
UNREAD = ("events.out.*", "report.html", "*.lock", "README.md")


def write_inputs(folder: pathlib.Path) -> None:
    """Writes the inputs of all commands."""
    rng = random.Random(1)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*special, "good", "bad", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))

    def row(i: int) -> str:
        label = rng.randrange(2)
        words = [("bad", "good")[label], *rng.choices(WORDS, k=i % 7)]
        return f"{' '.join(words)},{('no', 'yes')[label]}\n"

    for name, count in (("train", 64), ("dev", 24)):
        rows = "".join(map(row, range(count)))
        (folder / f"{name}.csv").write_text(f"text,label\n{rows}")
    # More than one block.
    signs = ("good", "bad")
    texts = [f"{signs[i % 2]} {' '.join(WORDS[:i])}\n" for i in range(10)] * 420
    (folder / "test.csv").write_text(f"text\n{''.join(texts)}")
    documents = (
        "".join(" ".join(rng.choices(WORDS, k=6)) + "\n" for _ in range(5))
        for _ in range(30)
    )
    (folder / "corpus.txt").write_text("\n".join(documents))
    for name, count in (("train", 64), ("dev", 24)):
        sentences = [tagged_sentence(rng) for _ in range(count)]
        (folder / f"{name}.txt").write_text("\n".join(sentences))
    for name, count, copies in (
        ("train", 64, 1),
        ("dev", 24, 1),
        ("test", 10, 130),  # More than one block.
    ):
        paragraphs = [paragraph(rng) for _ in range(count)] * copies
        questions = [
            {**x, "qas": [{**x["qas"][0], "id": f"{name}-{i}"}]}
            for i, x in enumerate(paragraphs)
        ]
        data = {"data": [{"title": "", "paragraphs": questions}]}
        (folder / f"{name}.json").write_text(json.dumps(data))


def tagged_sentence(rng: random.Random) -> str:
    """Returns lines of a word and its tag."""
    words = rng.choices(["good", "bad", *WORDS[:4]], k=rng.randrange(2, 9))
    tags = {"good": "B-GOOD", "bad": "B-BAD"}
    return "".join(f"{word} {tags.get(word, 'O')}\n" for word in words)


def paragraph(rng: random.Random) -> dict:
    """Returns a question and its paragraph, of which a third has no answer."""
    words = rng.choices(WORDS, k=rng.randrange(4, 20))
    qa = {"question": "w0 w1", "answers": [], "is_impossible": True}
    if rng.randrange(3):
        i, answer = rng.randrange(len(words)), rng.choice(["good", "bad"])
        start = len(" ".join([*words[:i], ""]))
        words.insert(i, answer)
        qa["answers"] = [{"text": answer, "answer_start": start}]
        qa["is_impossible"] = False
    return {"context": " ".join(words), "qas": [qa]}


def make(work: pathlib.Path, commit: pathlib.Path) -> None:
    """Runs all commands of a checkout in a folder."""
    write_inputs(work)
    driver = commit / "driver.py"
    driver.write_text(DRIVER)
    for name, script, flags, (file, count) in COMMANDS:
        (work / name).mkdir()
        command = [str(commit / script), *flags]
        killed = subprocess.run(
            [sys.executable, str(driver), file, str(count), *command], cwd=work
        )
        assert killed.returncode < 0, (name, killed)
        ignore = shutil.ignore_patterns(*UNREAD)
        shutil.copytree(work / name, work / "killed" / name, ignore=ignore)
        subprocess.run([sys.executable, *command], cwd=work, check=True)
        if name in MODELS:
            keep_model(work / name, work / MODELS[name])
    for name, *_ in COMMANDS:
        end = work / "end" / name
        ignore = shutil.ignore_patterns(*UNREAD, "model.ckpt-*", "*.tf_record*")
        shutil.move(work / name, work / "all")
        shutil.copytree(work / "all", end, ignore=ignore)
        shutil.rmtree(work / "all")
    commands = [[name, script, flags] for name, script, flags, _ in COMMANDS]
    (work / "commands.json").write_text(json.dumps(commands))


def keep_model(folder: pathlib.Path, to: pathlib.Path) -> None:
    """Copies the files of the model of a run."""
    to.mkdir()
    for path in folder.iterdir():
        is_text = path.suffix in (".json", ".txt")
        if path.is_file() and (is_text or path.suffix == ".safetensors"):
            shutil.copy(path, to)


def refuse_names(work: pathlib.Path, *folders: pathlib.Path) -> None:
    """Raises AssertionError if a file names one of the folders."""
    for path in work.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            for folder in folders:
                assert os.fsencode(folder) not in data, (path, folder)


def main() -> None:
    """Writes the archive, with the same bytes for the same files."""
    name = sys.argv[1] if len(sys.argv) > 1 else COMMIT
    with tempfile.TemporaryDirectory() as scratch:
        commit, work = (
            pathlib.Path(scratch, "commit"),
            pathlib.Path(scratch, "w"),
        )
        work.mkdir()
        archive = subprocess.run(
            ["git", "archive", name], cwd=ROOT, check=True, capture_output=True
        )
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            tar.extractall(commit, filter="data")
        make(work, commit)
        refuse_names(work, pathlib.Path(scratch), ROOT)

        def anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
            info.mtime = info.uid = info.gid = 0
            info.uname = info.gname = ""
            return info

        with tarfile.open(TARGET, "w:xz", preset=9) as tar:
            for path in sorted(work.iterdir()):
                tar.add(path, path.name, filter=anonymous)
    print(f"{TARGET}: {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
