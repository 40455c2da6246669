"""Checks of flags before TensorFlow is imported, which takes seconds.

    config_flags.check_early(Config, __name__, early_checks.check)

They find frequent mistakes: wrong paths, and a missing model. The code that
reads a file checks its contents later.
"""

import os
from collections.abc import Collection, Mapping
from typing import Any

from foundation import config_flags, errors, file_system, hub
from jobs import run_config
from weights import kinds

_EXAMPLE = "google-bert/bert-base-uncased"
_WEIGHTS = "model.safetensors"
_INDEX = f"{_WEIGHTS}.index.json"


def check_model(config: run_config.FinetuningConfig) -> None:
    """Refuses a command without a model to start from or to use.

    Raises:
      InputError: a flag names no checkpoint, or no model is given.
    """
    output_dir, path = config.output_dir, config.initial_weights
    teacher_dir = config.distillation.teacher_dir
    if teacher_dir is not None:
        _check_checkpoint("teacher_dir", teacher_dir)
    # A model in output_dir is used instead of --init_checkpoint.
    if not config.do_train and (
        file_system.is_remote(output_dir) or has_model(output_dir)
    ):
        return
    if path is not None:
        _check_checkpoint("init_checkpoint", path)
    elif config.pretrained.bert_config_file is not None:
        return
    elif config.do_train:
        command = hub.download_command(_EXAMPLE, "bert-base")
        raise errors.InputError(
            "neither --init_checkpoint nor --bert_config_file is given: a "
            f"training starts from a model, e.g. {command}, then "
            "--init_checkpoint=bert-base"
        )
    else:
        where = f"--output_dir={output_dir}: no such directory"
        if file_system.exists(output_dir):
            where = f"there is no trained model in --output_dir={output_dir}"
        raise errors.InputError(
            f"{where}, and neither --init_checkpoint nor --bert_config_file "
            "is given"
        )


def _check_checkpoint(flag: str, path: str) -> None:
    """Refuses a path of which no file exists; others are read later."""
    if hub.is_name(path):
        hub.local(path)
        return
    folder, name = os.path.split(path.rstrip("/"))
    if file_system.is_remote(path) or file_system.exists(path):
        return
    is_there = file_system.is_folder(folder or ".")
    if is_there and any(
        entry.startswith(f"{name}.")
        for entry in file_system.entries(folder or ".")
    ):
        return  # The prefix of TensorFlow's files.
    raise errors.InputError(
        f"--{flag}={path}: no such checkpoint or directory{hub.hint(path)}"
    )


def with_trained_flags(config: run_config.AnyConfig) -> run_config.AnyConfig:
    """Returns a config whose remembered flags are those of the training.

    ModelSource.with_trained_flags does the same later, and logs the flags. A
    model in a bucket is not read here: its config is returned as it is.
    """
    folder = _model_folder(config)
    if config.has_frozen_encoder:
        folder = config.output_dir
    trained = folder and _object(os.path.join(folder, config_flags.RUN_CONFIG))
    if not trained or not trained.get("do_train"):
        return config
    values = config.remembered_values(trained)
    return config_flags.replace_unchecked(config, **values)


def check_head(
    config: run_config.FinetuningConfig, wanted: Collection[str]
) -> None:
    """Refuses models of other kinds: to use, as a teacher, or to train over.

    `wanted` are the kinds that the command trains, keys of kinds.KINDS.

    Raises:
      InputError: names the directory, what is there, and what is wanted.
    """
    if (teacher_dir := config.distillation.teacher_dir) is not None:
        check_kind(hub.local(teacher_dir), wanted, "name another --teacher_dir")
    folder = config.output_dir if config.do_train else _model_folder(config)
    if folder is None or file_system.is_remote(folder):
        return
    if config.do_train:
        if (found := _other_kind(folder, wanted)) is not None:
            raise errors.InputError(
                f"{found}, but this command trains one for {_titles(wanted)}: "
                "take another --output_dir"
            )
        return
    path = config.initial_weights
    is_given = path is not None and folder != config.output_dir
    check_kind(
        hub.local(path) if path is not None and is_given else folder,
        wanted,
        "name another model, or train one with --do_train",
        # A training in output_dir may have left older files there.
        reads_weights=is_given,
    )


def check_kind(
    path: str, wanted: Collection[str], hint: str, *, reads_weights: bool = True
) -> None:
    """Refuses a model of other kinds than the wanted ones, or without a head.

    Args:
      path: a model directory or a checkpoint. Only config.json and the names of
        the tensors in files of safetensors on a disk are read.
      wanted: keys of kinds.KINDS.
      hint: what to do.
      reads_weights: whether to read the names of the tensors.

    Raises:
      InputError: names the model, what it is, and what is wanted.
    """
    if file_system.is_remote(path):
        return
    found = _other_kind(file_system.folder_of(path), wanted)
    if found is None and reads_weights:
        file = path
        if file_system.is_folder(path):
            files = [os.path.join(path, name) for name in (_WEIGHTS, _INDEX)]
            file = next(filter(file_system.is_file, files), path)
        heads = tuple(kinds.KINDS[x].head for x in wanted)
        names = _tensor_names(file)
        if names and not any(name.startswith(heads) for name in names):
            found = f"{file}: the model there lacks the head of this task"
    if found is not None:
        raise errors.InputError(
            f"{found}, but this command needs one for {_titles(wanted)}: {hint}"
        )


def has_bilstm(path: str) -> bool:
    """Returns whether config.json says that a model on a disk has a BiLSTM."""
    if file_system.is_remote(path):
        return False
    return bool(_config(file_system.folder_of(path)).get("bilstm_size"))


def _config(folder: str) -> dict[str, Any]:
    return _object(os.path.join(folder, "config.json"))


def _titles(wanted: Collection[str]) -> str:
    return " or ".join(kinds.KINDS[x].title for x in wanted)


def _other_kind(folder: str, wanted: Collection[str]) -> str | None:
    """Returns what the model in a folder is, None if wanted or unknown."""
    config = _config(folder)
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    name = config.get("bilstm_head") or name
    kind = kinds.by_architecture(name) if isinstance(name, str) else None
    if kind is None or kind.name in wanted:
        return None
    return f"{folder}: the model there is for {kind.title} ({name})"


def check_positions(
    config: run_config.FinetuningConfig, hint: str = ""
) -> None:
    """Refuses a --max_seq_length for which the model has no positions.

    `hint` says what else reads longer texts.

    Raises:
      InputError: names the flag.
    """
    path, folder = config.pretrained.bert_config_file, _model_folder(config)
    if path is not None:
        values = {} if file_system.is_remote(path) else _object(path)
    else:
        names = ("bert_config.json", "config.json")
        configs = (_object(os.path.join(folder, x)) for x in names if folder)
        values = next(filter(None, configs), {})
    length = config.max_seq_length
    positions = values.get("max_position_embeddings", 512 if values else None)
    if isinstance(positions, int) and length > positions:
        raise errors.InputError(
            f"--max_seq_length={length}: the model has only {positions} "
            f"positions{hint}"
        )


def _model_folder(config: run_config.FinetuningConfig) -> str | None:
    """Returns the folder of the model that is used, if it is on this disk."""
    output_dir, path = config.output_dir, config.initial_weights
    if not config.do_train and not file_system.is_remote(output_dir):
        if has_model(output_dir):
            return output_dir
    if path is None or file_system.is_remote(hub.local(path)):
        return None
    return file_system.folder_of(hub.local(path))


def has_model(folder: str) -> bool:
    """Returns whether a training has left weights in a folder on a disk."""
    names = ("model.", "best")  # model.safetensors, model.ckpt-100.index
    is_there = file_system.is_folder(folder)
    entries = file_system.entries(folder) if is_there else []
    return any(name.startswith(names) for name in entries)


def _tensor_names(path: str) -> list[str]:
    """Returns the names in safetensors or its index; [] if they are damaged.

    The code that reads the weights says why.
    """
    if path.endswith(_INDEX):
        names = _object(path).get("weight_map")
        return [*names] if isinstance(names, dict) else []
    is_such = file_system.ending(path) == ".safetensors"
    if not is_such or not file_system.is_file(path):
        return []
    import safetensors  # Not at the top: it imports NumPy.

    try:
        with safetensors.safe_open(path, framework="np") as file:
            return [*file.keys()]
    except (OSError, safetensors.SafetensorError):
        return []


def _object(path: str) -> dict[str, Any]:
    """Returns the object in a JSON file, {} without one; others are refused."""
    values = file_system.read_json(path) if file_system.is_file(path) else {}
    if not isinstance(values, dict):
        raise errors.InputError(f"{path}: not a JSON object")
    return values


def check_paths(
    config: run_config.FinetuningConfig,
    paths: Mapping[str, str | None],
    *,
    allows_folders: bool = True,
) -> None:
    """Refuses names of files or folders where nothing is.

    Warns if training and evaluation read the same file.

    Args:
      config: the flags; a path that is not among those given is that of the
        model's training.
      paths: flag -> name of a file, possibly without the ending of its
        compressed form, a folder, or a pattern; - is standard input. A flag
        whose name ends in _dir names a folder.
      allows_folders: whether the other flags may name folders.

    Raises:
      InputError: names the flag.
    """
    chosen = config_flags.chosen(config)
    for flag, path in paths.items():
        if path in (None, "-") or file_system.is_remote(path):
            continue
        try:
            _check_path(path, flag, allows_folders=allows_folders)
        except errors.InputError as error:
            if flag in chosen:
                raise
            raise errors.InputError(
                f"{error} (the path in the flags of the model's training; "
                f"--{flag} names another)"
            ) from None
    train, dev = (paths.get(flag) or "-" for flag in ("train_file", "dev_file"))
    if dev != "-" and file_system.real(train) == file_system.real(dev):
        errors.warn_once(
            f"--dev_file={dev} is --train_file: its scores are those of texts "
            "that the model was trained on, not of new ones"
        )


def _check_path(path: str, flag: str, *, allows_folders: bool) -> None:
    is_folder = file_system.is_folder(path)
    needs_folder = flag.endswith("_dir")
    if needs_folder and not is_folder:
        problem = "is a file, not a" if file_system.exists(path) else "no such"
        raise errors.InputError(f"--{flag}={path}: {problem} directory")
    if is_folder and (needs_folder or allows_folders):
        return
    if file_system.PATTERN.search(path):
        return
    try:
        file_system.find(path)
    except errors.InputError as error:
        raise errors.InputError(f"--{flag}: {error}") from None
