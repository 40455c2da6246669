"""Which tokenizer made the shards that a pre-training run reads."""

import os

import tensorflow as tf

import errors
from data import manifest, tokenization, vocabulary
from tasks import checkpoint_sources, tokenizer_files


def find(
    paths: list[str],
    vocab_file: str | None,
    do_lower_case: bool | None,
    init_checkpoint: str | None,
) -> tokenization.Tokenizer | None:
    """Returns the tokenizer that shards were made with.

    Its settings and its vocabulary come from the manifest beside the shards.

    Args:
      paths: the shards.
      vocab_file: overrules the manifest's vocabulary.
      do_lower_case: how text was read, where no manifest says it.
      init_checkpoint: is asked then, before the vocabulary itself.

    Returns:
      None where no vocabulary is known, as beside google-research/bert's
      shards.

    Raises:
      InputError: the manifest says another do_lower_case.
    """
    found = manifest.find(paths)
    if found:
        return _of_manifest(min(found), found, vocab_file, do_lower_case)
    if vocab_file is not None:
        return tokenizer_files.with_vocabulary(
            vocab_file,
            init_checkpoint=init_checkpoint,
            directory=_directory(init_checkpoint),
            do_lower_case=do_lower_case,
        )
    if do_lower_case is not None:
        raise errors.InputError(
            "--do_lower_case: nothing without a manifest beside the shards or "
            "--vocab_file"
        )
    return None


def _directory(init_checkpoint: str | None) -> str | None:
    """Returns where the settings of a checkpoint's tokenizer may lie."""
    if init_checkpoint is None:
        return None
    try:
        found = checkpoint_sources.read(init_checkpoint, needs_data=False)
    except errors.InputError as error:
        raise errors.InputError(f"--init_checkpoint: {error}") from error
    return found.directory


def _of_manifest(path, found, vocab_file, do_lower_case):
    made_with = found[path]
    made_lower = made_with.tokenizer.get("do_lower_case")
    if do_lower_case not in (None, made_lower):
        raise errors.InputError(
            f"--do_lower_case={do_lower_case}: {path} was made with "
            f"--do_lower_case={made_lower}"
        )
    if vocab_file is None:
        folder = os.path.dirname(path)
        vocab_file = os.path.join(folder, made_with.vocabulary["file"])
        if not tf.io.gfile.exists(vocab_file):
            return None
    return tokenization.Tokenizer(
        vocabulary.Vocabulary.from_file(vocab_file), **made_with.tokenizer
    )
