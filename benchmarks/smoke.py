"""The smallest size of every benchmark: seconds, on data that is made here.

    python benchmarks/finetuning_speed.py --smoke
    python benchmarks/finetuning_speed.py --smoke --peer_python=/path/to/python

A benchmark gives the flags of its smallest size to `flags`, which puts them in
the place of --smoke:

    with smoke.flags({"data_dir": "DATA/glue/MRPC", "steps": 1}):
        config_flags.run(Config, main)

Without --peer_python only our side runs. Flags beside --smoke replace those of
the smallest size.
"""

import contextlib
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
_FLAG = "--smoke"
_DATA = "DATA"
is_smallest = False  # Whether a benchmark runs at its smallest size.


def encoder(folder: pathlib.Path) -> None:
    """Saves a tiny encoder with random weights as DATA/model."""
    from tests import tiny_runs

    tiny_runs.save_encoder(
        folder / "model", _words(folder), max_position_embeddings=512
    )


def classifier(folder: pathlib.Path) -> None:
    """Saves a tiny classifier of single texts as DATA/model."""
    from modeling import models
    from tests import tiny_runs
    from weights import model_directory, tokenizer_files

    tokenizer = tokenizer_files.with_vocabulary(str(folder / "vocab.txt"))
    model = models.ClassificationModel(
        tiny_runs.config(_words(folder)), num_classes=2, seed=tiny_runs.SEED
    )
    model_directory.save(
        model, str(folder / "model"), tokenizer, labels=["0", "1"]
    )


def records(folder: pathlib.Path) -> None:
    """Writes DATA/records.tfrecord and DATA/bert_config.json."""
    from foundation import atomic
    from tests import tiny_runs

    command = [sys.executable, str(ROOT / "create_pretraining_data.py")]
    command += [f"--input_file={folder / 'corpus.txt'}"]
    command += [f"--vocab_file={folder / 'vocab.txt'}"]
    command += [f"--output_file={folder / 'records.tfrecord'}"]
    command += ["--max_seq_length=32", "--max_predictions_per_seq=5"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    config = tiny_runs.config(_words(folder))
    atomic.write_json(str(folder / "bert_config.json"), config.to_dict())


def _nothing(folder: pathlib.Path) -> None:
    """Makes no more than the data sets."""


@contextlib.contextmanager
def flags(
    values: Mapping[str, object],
    make: Callable[[pathlib.Path], None] = _nothing,
) -> Iterator[None]:
    """Replaces --smoke on the command line, if it is there, by other flags.

    Args:
      values: the flags of the smallest size. DATA in a value is the
        directory of what was made: corpus.txt, vocab.txt, glue, squad,
        swag, conll2003, and what `make` makes. A tuple is several arguments.
      make: encoder, classifier or records.
    """
    if _FLAG not in sys.argv[1:]:
        yield
        return
    global is_smallest
    is_smallest = True
    given = [x for x in sys.argv[1:] if x != _FLAG]
    names = {x.lstrip("-").partition("=")[0] for x in given}
    with tempfile.TemporaryDirectory(prefix="smoke-") as name:
        folder = pathlib.Path(name)
        write_data_sets(folder)
        make(folder)
        sys.argv[1:] = given
        for flag, value in values.items():
            if flag not in names:
                sys.argv += _arguments(flag, value, name)
        yield


def _arguments(flag: str, value: object, folder: str) -> list[str]:
    """Returns the command-line arguments of one flag."""
    if isinstance(value, tuple):
        return [f"--{flag}", *map(str, value)]
    text = str(value).replace(f"{_DATA}/", f"{folder}/")
    return [f"--{flag}={folder if text == _DATA else text}"]


def write_data_sets(folder: pathlib.Path) -> None:
    """Writes the data sets of the tests, and a vocabulary of their words."""
    from tests.paper import toy_data

    toy_data.Maker(folder).make()
    (folder / "conll2003").symlink_to(folder / "conll")
    (folder / "vocab.txt").write_text("\n".join(_words(folder)) + "\n")
    lines = (folder / "corpus.txt").read_text().splitlines()
    texts = [line for line in lines if line]
    (folder / "texts.txt").write_text("\n".join(texts) + "\n")


def _words(folder: pathlib.Path) -> list[str]:
    """Returns the vocabulary of the corpus."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return [*special, *sorted({*(folder / "corpus.txt").read_text().split()})]
