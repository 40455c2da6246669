"""Reads a checkpoint of any kind, changes it, and writes one of two forms.

    model_directory   config.json, bert_config.json, model.safetensors,
                      vocab.txt, tokenizer_config.json: transformers loads it
    tf1               bert_model.ckpt and the same JSON files and vocabulary:
                      google-research/bert loads it

A conversion keeps every bit of the weights, and copies those of heads that are
not BERT's. The files with the settings of a
task, and those of sentence-transformers, are copied in both forms. Two changes
are possible. New words get rows in the embeddings and the masked-LM bias, each
the mean of the rows of the tokens that the word was split into:

    [unused7]  ->  dexamethasone  =  mean(dex, ##ame, ##thas, ##one)

More positions get embeddings by linear interpolation.
"""

import dataclasses
import os
import re

import numpy as np
from absl import logging

from data.tokenization import plain_wordpiece, vocabulary, wordpiece
from foundation import atomic, errors, file_system, tensor_files
from modeling.config import BertConfig
from weights import (
    checkpoint_sources,
    kinds,
    model_directory,
    sentence_modules,
    stored_weights,
    task_files,
    tensorflow_checkpoints,
    tokenizer_files,
)
from weights.checkpoint_sources import Source
from weights.model_directory import Settings
from weights.stored_weights import StoredTensor

MODEL_DIRECTORY, TF1 = "model_directory", "tf1"
UNUSED, END = "unused", "end"
# Files of tasks. Without them a model works, but its predictions change.
TASK_FILES = (
    task_files.CRF,
    task_files.SQUAD_SETTINGS,
    task_files.JOURNAL,
)
_HEADS = {
    "masked_lm": stored_weights.MASKED_LM,
    "next_sentence": stored_weights.NEXT_SENTENCE,
    "classifier": stored_weights.CLASSIFIER,
    "span": stored_weights.SPAN,
}
# Class of transformers -> its heads; the default class of some heads first.
_ARCHITECTURES = {
    "BertForPreTraining": {"masked_lm", "next_sentence"},
    "BertForMaskedLM": {"masked_lm"},
    "BertLMHeadModel": {"masked_lm"},
    "BertForNextSentencePrediction": {"next_sentence"},
    "BertForSequenceClassification": {"classifier"},
    "BertForTokenClassification": {"classifier"},
    "BertForMultipleChoice": {"classifier"},
    "BertForQuestionAnswering": {"span"},
    "BertModel": set(),
}
_STEP = "global_step"
_UNUSED = re.compile(r"\[unused\d+\]")
_WORDS = "bert/embeddings/word_embeddings"
_BIAS = "cls/predictions/output_bias"
_POSITIONS = "bert/embeddings/position_embeddings"


@dataclasses.dataclass(kw_only=True)
class Checkpoint:
    """A model in memory, between reading and writing.

    Attributes:
      config: the hyperparameters.
      values: our path -> float32 values.
      settings: what config.json contains besides.
      tokenizer: None if the source has no vocabulary.
      others: name -> tensor of a head that is not BERT's.
      training_state: optimizer slots and the step, if they are kept.
      task_files: name -> content of the TASK_FILES beside the weights, and of
        those of sentence-transformers.
      left_out: names of those that are there and are not copied.
    """

    config: BertConfig
    values: dict[str, np.ndarray]
    settings: Settings
    tokenizer: wordpiece.Tokenizer | None
    others: dict[str, StoredTensor]
    training_state: dict[str, np.ndarray]
    task_files: dict[str, bytes]
    left_out: list[str]


def load(
    source: Source,
    *,
    config: BertConfig | None = None,
    do_lower_case: bool | None = None,
    drop_heads: bool = False,
    keep_training_state: bool = False,
) -> Checkpoint:
    """Reads everything that `write` can write.

    Args:
      source: the checkpoint.
      config: replaces the one beside it.
      do_lower_case: replaces the setting beside it.
      drop_heads: reads the encoder and the pooler only, and no TASK_FILES.
      keep_training_state: also reads the step and the optimizer slots of the
        tensors that are read, under google-research/bert's names.

    Raises:
      InputError: the config is missing or another model's, or a weight is.
    """
    config = config or source.needed_config
    checkpoint_sources.check_config(source, config)
    tensors = {
        path: tensor
        for path, tensor in source.tensors.items()
        if path.startswith("bert/") or not drop_heads
    }
    heads = {
        name
        for name, rows in _HEADS.items()
        if any(row.path in tensors for row in rows)
    }
    # Those of a Keras model have the names of its objects, which mean nothing
    # in another form.
    of_objects = (checkpoint_sources.KERAS, checkpoint_sources.TENSORFLOW_2)
    has_names = source.matched.kind not in of_objects and not drop_heads
    others = dict(source.others) if has_names else {}
    _check(source, config, tensors, heads)
    tokenizer = None
    if tokenizer_files.has_vocabulary(source.directory):
        tokenizer = tokenizer_files.load(
            source.directory, do_lower_case=do_lower_case
        )
    else:
        missing = tokenizer_files.no_vocabulary(source.directory)
        logging.warning("%s; the output has none, too", missing)
    settings = _settings(source, heads, tensors, has_others=bool(others))
    if tokenizer is not None:
        pad_id = tokenizer.vocabulary.pad_id
        settings = dataclasses.replace(settings, pad_token_id=pad_id)
    task_files_beside = {
        name: file_system.read(os.path.join(source.folder, name))
        for name in TASK_FILES
        if file_system.exists(os.path.join(source.folder, name))
    }
    state = {
        name: tensor.read()
        for name, tensor in source.matched.training_state.items()
        if keep_training_state
        and (name.rpartition("/")[0] in tensors or name == _STEP)
    }
    encoder_files: dict[str, bytes] = {}
    try:
        encoder_files = sentence_modules.files_of_copy(source.folder)
    except errors.InputError as error:
        logging.warning(
            "the output makes other vectors of texts than sentence-transformers"
            f" with the input, as {sentence_modules.MODULES} is not copied: "
            f"{error}"
        )
    return Checkpoint(
        config=config,
        values={
            path: stored_weights.values(source.path, tensor)
            for path, tensor in tensors.items()
        },
        settings=settings,
        tokenizer=tokenizer,
        others=others,
        training_state=state,
        task_files=({} if drop_heads else task_files_beside) | encoder_files,
        left_out=list(task_files_beside) if drop_heads else [],
    )


def write(checkpoint: Checkpoint, directory: str, output_format: str) -> str:
    """Writes MODEL_DIRECTORY or TF1; returns the path for --init_checkpoint.

    Raises:
      InputError: the directory has files of another checkpoint.
    """
    for name in (
        model_directory.WEIGHTS,
        f"{tensorflow_checkpoints.PREFIX}.index",
        *(
            name
            for name in (*TASK_FILES, sentence_modules.MODULES)
            if name not in checkpoint.task_files
        ),
    ):
        if file_system.exists(os.path.join(directory, name)):
            raise errors.InputError(
                f"--output={directory}: {name} is there already; remove it or "
                "choose another directory"
            )
    os.makedirs(directory, exist_ok=True)
    # Before the weights, so that weights never exist without them.
    for name, data in checkpoint.task_files.items():
        path = os.path.join(directory, name)
        file_system.make_folder(os.path.dirname(path))
        atomic.write_bytes(path, data)
    if checkpoint.tokenizer is not None:
        tokenizer_files.save(
            checkpoint.tokenizer,
            directory,
            max_length=checkpoint.config.max_position_embeddings,
        )
    written = directory
    if output_format == TF1:
        written = os.path.join(directory, tensorflow_checkpoints.PREFIX)
        if checkpoint.config.hidden_act == "gelu_erf":
            logging.warning(
                f'hidden_act is "gelu_erf" in {model_directory.RELEASED_CONFIG}'
                ": google-research/bert has only the tanh form and refuses it; "
                'do not write "gelu" there, the outputs would differ'
            )
        model_directory.write_configs(
            directory, checkpoint.config, checkpoint.settings
        )
        others = {name: x.read() for name, x in checkpoint.others.items()}
        tensor_files.write(
            written, checkpoint.values | others | checkpoint.training_state
        )
    else:
        model_directory.write(
            directory,
            checkpoint.config,
            checkpoint.values,
            checkpoint.settings,
            checkpoint.others,
        )
    return written


def _check(
    source: Source, config: BertConfig, tensors: dict, heads: set[str]
) -> None:
    """Raises InputError unless the weights are those of the config's model."""
    rows = [row for name in sorted(heads) for row in _HEADS[name]]
    where, shapes = source.path, stored_weights.shapes(config, rows)
    stored_weights.check_encoder(where, tensors, shapes, source.others)
    for path in filter(tensors.__contains__, shapes):
        stored_weights.check_shape(where, path, tensors[path], shapes[path])


def _settings(
    source: Source, heads: set[str], tensors: dict, *, has_others: bool
) -> Settings:
    """Returns the source's settings as far as they apply to these weights."""
    settings = dataclasses.replace(
        source.settings,
        architecture=_architecture(source.settings, heads),
        bilstm_size=source.settings.bilstm_size if has_others else 0,
    )
    labels, problem_type = settings.labels, settings.problem_type
    if "classifier" not in heads and not has_others:
        labels = problem_type = None
    elif settings.architecture == "BertForMultipleChoice":
        labels = None
    elif "classifier" in heads:
        count = tensors["output_weights"].shape[0]
        if count == 1 and source.settings.architecture is None:
            # transformers applies a sigmoid to the output of other models.
            problem_type = problem_type or "regression"
        if labels is None or len(labels) != count:
            labels = kinds.unnamed(count)
    return dataclasses.replace(
        settings, labels=labels, problem_type=problem_type
    )


def _architecture(settings: Settings, heads: set[str]) -> str:
    """Chooses the class of transformers: the declared one, if it fits."""
    declared = settings.architecture
    fitting = [name for name, has in _ARCHITECTURES.items() if has == heads]
    if declared in fitting:
        return declared
    if settings.bilstm_size and heads:  # Several heads can be above it.
        return "BertModel"
    if fitting:
        return fitting[0]
    if declared in _ARCHITECTURES and _ARCHITECTURES[declared] <= heads:
        return declared
    return "BertForPreTraining"


def add_words(
    checkpoint: Checkpoint, words: list[str], where: str, position: str = UNUSED
) -> Checkpoint:
    """Returns the model with these words in its vocabulary.

    Args:
      checkpoint: a checkpoint with a vocabulary.
      words: one word each, normalized as the tokenizer does it: in lower case
        and without accents for an uncased model.
      where: the words' file, for messages.
      position: UNUSED replaces [unusedN], and appends words when these are used
        up; END always appends.

    Raises:
      InputError: the tokenizer would never find one of the words.
    """
    old = checkpoint.tokenizer
    if old is None:
        raise errors.InputError(f"{where}: the model has no vocabulary")
    distinct = dict.fromkeys(filter(None, map(str.strip, words)))
    words = [word for word in distinct if word not in old.vocabulary.ids]
    if not words:
        return checkpoint
    tokens = list(old.vocabulary.tokens)
    ids = [i for i, token in enumerate(tokens) if _UNUSED.fullmatch(token)]
    ids = [] if position == END else ids[: len(words)]
    ids += range(len(tokens), len(tokens) + len(words) - len(ids))
    tokens += words  # As many as are needed, or more.
    for index, word in zip(ids, words, strict=True):
        tokens[index] = word
    tokens = tokens[: max(len(old.vocabulary.tokens), ids[-1] + 1)]
    new = plain_wordpiece.PlainTokenizer(
        vocabulary.Vocabulary.from_tokens(tokens), **old.settings
    )
    for word, split in zip(words, new.tokenize(words), strict=True):
        if split != [word]:
            raise errors.InputError(
                f"{where}: {word!r} would never be found, as the tokenizer "
                f"reads it as {' '.join(split) or 'nothing'}"
            )
    encoding = old.encode(words)
    values = dict(checkpoint.values)
    pieces = np.split(encoding.ids, encoding.row_splits[1:-1])
    for path in {_WORDS, _BIAS} & values.keys():
        table = values[path]
        rows = np.zeros((ids[-1] + 1, *table.shape[1:]), np.float32)
        values[path] = np.concatenate([table, rows[len(table) :]])
        for index, row in zip(ids, pieces, strict=True):
            values[path][index] = table[row].mean(0, dtype=np.float64)
    config = dataclasses.replace(
        checkpoint.config, vocab_size=len(values[_WORDS])
    )
    return dataclasses.replace(
        checkpoint, config=config, values=values, tokenizer=new
    )


def extend_positions(checkpoint: Checkpoint, count: int) -> Checkpoint:
    """Returns the model with embeddings for `count` positions.

    The first and the last position keep their embeddings; those between are
    interpolated linearly.

    Raises:
      InputError: the model has more positions already.
    """
    table = checkpoint.values[_POSITIONS]
    if count < len(table):
        raise errors.InputError(
            f"--max_position_embeddings={count}: the model has {len(table)} "
            "positions; they can only become more"
        )
    at = np.linspace(0, len(table) - 1, count)
    low = np.minimum(at.astype(int), len(table) - 2)
    fraction = (at - low)[:, None]
    stretched = table[low] * (1 - fraction) + table[low + 1] * fraction
    return dataclasses.replace(
        checkpoint,
        config=dataclasses.replace(
            checkpoint.config, max_position_embeddings=count
        ),
        values=checkpoint.values | {_POSITIONS: stretched.astype(np.float32)},
    )
