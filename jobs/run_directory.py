"""The directory of a run: its lock, flags, metrics and names of sets.

    .training.lock           locked while a process trains there
    run_config.json          flags of its training, else of the last command
    eval_results.txt, .json  metrics
    predicted_sets.json      the set of each output file

`begin` reserves the directory, and `announce` lists the written files at the
end of a command. outputs.Outputs writes model card and report.
"""

import dataclasses
import fcntl
import hashlib
import os
import re
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from typing import Annotated, Any, Literal, TextIO, TypedDict

import keras
import msgspec
from absl import logging

from finetuning import record
from foundation import (
    atomic,
    config_flags,
    errors,
    file_system,
    metadata,
    progress,
)
from training import metric_writer

LOCK = ".training.lock"
RESULTS_TEXT = "eval_results.txt"
RESULTS_JSON = "eval_results.json"
# Names the set of each output file: {"predictions.json": {"set": "dev-v1.1",
# "digest": "..."}, ...}
_SETS = "predicted_sets.json"
# What users open first, by patterns of names.
_CONTENTS: Mapping[str, str] = {
    "report.html": "metrics, learning curves and examples, for a browser",
    RESULTS_TEXT: "metrics",
    "grid_results.txt": "metrics of all runs",
    "feature_results.txt": "metrics of all choices of features",
    "scores_*.txt": "metrics of each set",
    "predictions*": "the predictions",
    "nbest_predictions.json": "the best answers to each question",
    "entities.jsonl": "the entities of each line",
    "embeddings.npz": "the vector of each line",
    "swag_submission.csv": "the predictions as the leaderboard wants them",
    "model.safetensors": "the model; its other files are beside it",
}
# Pattern of names -> what the files are for, and how not to get them.
_DELETABLE: Mapping[str, str] = {
    "model.ckpt-*": "the state of the optimizer, which the model does not need "
    "(--keep_optimizer=false)",
}
_Column = str | metadata.Whole | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Flags:
    """The flags in run_config.json that later commands read."""

    do_train: bool = False
    init_checkpoint: str | None = None
    bert_config_file: str | None = None
    vocab_file: str | None = None
    do_lower_case: bool | None = None
    random_seed: metadata.Whole = 0
    max_seq_length: metadata.Size | None = None
    early_stopping_patience: metadata.Count = 0
    task_name: str | None = None
    train_file: str | None = None
    dev_file: str | None = None
    dev_fraction: metadata.Number | None = None
    data_dir: str | None = None
    language: str = ""
    features: str = "none"
    lstm_size: metadata.Size = 1
    max_score: metadata.Number = 1.0
    document_context: Literal["none", "maximal"] = "none"
    text_column: _Column = None
    text_pair_column: _Column = None
    label_column: _Column = None
    label_columns: _Column = None
    word_column: _Column = None
    tag_column: _Column = None
    tokens_field: _Column = None
    tags_field: _Column = None
    long_texts: Literal["cut", "mean", "max", "attention"] | None = None
    doc_stride: metadata.Count | None = None
    max_query_length: metadata.Count = 0
    max_answer_length: metadata.Size = 1
    n_best_size: metadata.Size = 1
    exact_answers: bool = False


class _Set(TypedDict):
    """A set that was predicted; its name becomes a part of files' names."""

    # Python writes bytes that are not UTF-8 as U+DC80 to U+DCFF.
    set: Annotated[
        str, msgspec.Meta(pattern=r"^[^/\0\ud800-\udc7f\udd00-\udfff]*$")
    ]
    digest: str


_LOCKS: dict[str, TextIO] = {}  # The files that this process has locked.


def flags(output_dir: str) -> dict[str, Any]:
    """Returns the flags in a directory's run_config.json, {} without one.

    Raises:
      InputError: the file is not JSON, or a flag that is read has a value of
        another type.
    """
    path = os.path.join(output_dir, config_flags.RUN_CONFIG)
    return metadata.read_object(path, _Flags) or {}


def training_flags(output_dir: str) -> dict[str, Any]:
    """Returns the flags of the training in a directory, {} without one."""
    if journal := record.RunRecord(output_dir).flags:
        return dict(journal)
    all_flags = flags(output_dir)
    return all_flags if all_flags.get("do_train") else {}


def begin(config: Any, *, is_chief: bool) -> None:
    """Reserves --output_dir for a training; writes the flags of other commands.

    A training writes its flags when all checks have passed. A command that only
    predicts must not replace those of a training. A dry run writes nothing.

    Args:
      config: a RunConfig with do_train.
      is_chief: whether this process writes the files of the run.

    Raises:
      InputError: another process is training there.
    """
    if config.loop.dry_run or not is_chief:
        return
    if config.do_train:
        lock(config.output_dir)
    elif not training_flags(config.output_dir):
        config_flags.write_run_config(config, config.output_dir)


def lock(output_dir: str) -> None:
    """Reserves a directory for the training of this process, until it ends.

    The system releases the lock when the process ends, however it ends. A
    bucket, and a disk without locks, are not reserved.

    Raises:
      InputError: another process is training there.
    """
    path = os.path.join(output_dir, LOCK)
    if file_system.is_remote(path) or os.path.realpath(path) in _LOCKS:
        return
    file_system.make_folder(output_dir)
    # Not flock: a worker process would keep the lock of its killed parent.
    file = open(path, "a+", encoding="utf-8")  # noqa: SIM115
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        file.seek(0)
        owner = file.read().strip() or "another process"
        file.close()
        raise errors.InputError(
            f"--output_dir={output_dir}: {owner} is training there; wait for "
            "its end, stop it, or choose another --output_dir"
        ) from None
    except OSError as error:
        logging.info("%s: not reserved for this run: %s", output_dir, error)
    _LOCKS[os.path.realpath(path)] = file
    program = os.path.basename(sys.argv[0])
    begun = time.strftime("%Y-%m-%d %H:%M:%S")
    with file_system.naming(path):
        file.truncate(0)
        file.write(
            f"{program} (process {os.getpid()} on {socket.gethostname()}, "
            f"since {begun})\n"
        )
        file.flush()


def announce(output_dir: str, contents: Mapping[str, str] = _CONTENTS) -> None:
    """Logs, as the last lines of a command, the files to open.

    Args:
      output_dir: directory in which this process has written files.
      contents: pattern of names -> what the files hold.
    """
    written = atomic.take_written(output_dir.rstrip("/"))
    purposes = {}
    for pattern, text in contents.items():
        names = [x for x in written if x == pattern or fnmatch(x, pattern)]
        if names:
            purposes[", ".join(sorted(names))] = text
    if purposes:
        width = max(map(len, purposes))
        lines = [f"  {names:{width}}  {x}" for names, x in purposes.items()]
        folder = output_dir or "."
        logging.info("wrote into %s:\n%s", folder, "\n".join(lines))


def announce_deletable(output_dir: str) -> None:
    """Logs which files of a finished training may be deleted, with sizes.

    Args:
      output_dir: directory of the training; nothing is logged for a bucket.
    """
    if file_system.is_remote(output_dir):
        return
    sizes = {
        name: file_system.size(os.path.join(output_dir, name))
        for name in sorted(file_system.entries(output_dir))
    }
    for pattern, purpose in _DELETABLE.items():
        names = [name for name in sizes if fnmatch(name, pattern)]
        if names:
            logging.info(
                "%s (%s) may be deleted: %s",
                os.path.join(output_dir, pattern),
                progress.size(sum(sizes[name] for name in names)),
                purpose,
            )


def eval_results(values: Mapping[str, float], step: int) -> dict[str, float]:
    """Returns metrics under google-research/bert's names.

    Its "loss", a mean over batches, is not among them: it is "eval_loss" where
    all examples have the same weight.
    """
    results = {f"eval_{name}": value for name, value in values.items()}
    return results | {"global_step": step}


def write_eval_results(output_dir: str, values: Mapping[str, float]) -> None:
    """Writes metrics as sorted `name = value` lines, and as JSON."""
    file_system.make_folder(output_dir)
    shown = {name.removeprefix("eval_"): x for name, x in values.items()}
    logging.info("results: %s", metric_writer.in_words(shown))
    write_values(os.path.join(output_dir, RESULTS_TEXT), values)
    path = os.path.join(output_dir, RESULTS_JSON)
    atomic.write_json(path, dict(sorted(values.items())))


def write_values(path: str, values: Mapping[str, float]) -> None:
    """Writes metrics as sorted `name = value` lines."""
    lines = [f"{name} = {values[name]}\n" for name in sorted(values)]
    atomic.write_text(path, "".join(lines))


def set_name(paths: Sequence[str]) -> str:
    """Returns a short name of a set's files or folder: "dev-v1.1", "a+b"."""
    ending = r"(\.(json|jsonl|txt|tsv|csv|conll|parquet))?(\.(gz|bz2|zst))?$"
    names = [os.path.basename(path.rstrip("/")) for path in paths]
    names = [re.sub(ending, "", name) for name in names]
    return re.sub(r"[*?\[\]]+", "", "+".join(names)) or "set"


def keep_other_sets(
    output_dir: str, names: Sequence[str], *, name: str, digest: str
) -> None:
    """Renames the output files of other sets before they are overwritten.

    predictions.json of the set "dev" becomes predictions_dev.json. Files whose
    set is unknown get the name "earlier".

    Args:
      output_dir: the directory of the files.
      names: the released names of the files that are about to be written.
      name: a short name of the set that they are written for.
      digest: identifies the content of this set.
    """
    path = os.path.join(output_dir, _SETS)
    sets = metadata.read_if_present(path, dict[str, _Set]) or {}
    renamed = []
    for file in names:
        before = sets.get(file, {"set": "earlier", "digest": ""})
        old = os.path.join(output_dir, file)
        if before["digest"] != digest and file_system.exists(old):
            stem, ending = os.path.splitext(file)
            new_name = f"{stem}_{before['set']}{ending}"
            if sets.get(new_name, before)["digest"] != before["digest"]:
                new_name = (
                    f"{stem}_{before['set']}-{before['digest'][:8]}{ending}"
                )
            atomic.replace(old, os.path.join(output_dir, new_name))
            renamed.append(f"{file} as {new_name}")
            sets[new_name] = before
        sets[file] = {"set": name, "digest": digest}
    if renamed:
        text = "files of another set are kept in %s: %s"
        logging.info(text, output_dir, ", ".join(renamed))
    file_system.make_folder(output_dir)
    atomic.write_json(path, sets)


def weights_digest(model: Any) -> str:
    """Returns the SHA-256 of a model's weights."""
    sha = hashlib.sha256()
    for variable in model.weights:
        sha.update(keras.ops.convert_to_numpy(variable).tobytes())
    return sha.hexdigest()
