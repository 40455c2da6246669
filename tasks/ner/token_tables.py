"""Reads sentences from JSON lines and Parquet tables.

    {"tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"]}
    {"tokens": ["EU", "rejects"], "ner_tags": [3, 0]}

A row is a sentence. Integers, also in quotes, are positions in a list of names,
which a flag gives, or in Parquet the metadata that Hugging Face's datasets
write. A row of the single token -DOCSTART- begins a document; if there are any,
the first row must be one.
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

from data import text_files
from foundation import errors, file_system
from tasks.ner import conll

# Ending of a file's name -> text_files' form.
FORMS = {".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
# What would break the lines and columns of the output.
_BREAKS = frozenset("\t\n\r")


def form_of(path: str) -> str | None:
    """Returns the form of a file by its name; None for CoNLL's columns."""
    return FORMS.get(file_system.ending(file_system.uncompressed(path)))


def read_names(flag: str) -> list[str]:
    """Returns the names of a file with one per line, or of a list with commas.

    Raises:
      InputError: a name is empty or occurs twice.
    """
    names = flag.split(",")
    if file_system.is_file(flag):
        names = [line for _, line in text_files.lines(flag)]
    names = [name.strip() for name in names]
    if not all(names) or len(set(names)) < len(names):
        raise errors.InputError(
            f"--tag_names={flag}: a name is empty or occurs twice"
        )
    return names


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields:
    """The fields of a row.

    Attributes:
      tokens: contains the words.
      tags: contains the tags; None to read none.
      is_optional: whether a file may lack the tags.
      tag_names: names of integer tags.
    """

    tokens: str
    tags: str | None
    is_optional: bool = False
    tag_names: Sequence[str] | None = None


def read_blocks(
    path: str, fields: Fields, *, block_sentences: int | None = None
) -> Iterator[conll.Sentences]:
    """Yields the sentences of a file; see conll.blocks.

    Raises:
      InputError: names the file and the row.
    """
    path = file_system.find(path)
    first = next(text_files.read_named([path], form_of(path)), None)
    if first is None:
        raise errors.InputError(f"{path}: has no rows")
    if fields.tags is not None and fields.tag_names is None:
        names = _stored_names(path, fields.tags)
        fields = dataclasses.replace(fields, tag_names=names)
    if fields.is_optional and fields.tags not in first.cells:
        errors.warn_once(
            f"{path}: no field {fields.tags!r}, so no tags, only "
            + ", ".join(map(repr, first.cells))
        )
        fields = dataclasses.replace(fields, tags=None)
    return conll.blocks(
        path,
        _lines(path, fields),
        has_documents=first.cells.get(fields.tokens) == [conll.DOCUMENT],
        separator="\t",  # Tokens may contain spaces.
        block_sentences=block_sentences,
    )


def _lines(path: str, fields: Fields) -> Iterator[conll.Line]:
    form, num_empty, num_documents = form_of(path), 0, 0
    for number, row in enumerate(text_files.read_named([path], form)):
        words = text_files.require(row, fields.tokens, form, "--tokens_field")
        _check_list(row, fields.tokens, words)
        if list(words) == [conll.DOCUMENT]:
            if num_documents == 0 and number > 0:
                raise errors.InputError(
                    f"{row.where}: begins a document, but the first row does "
                    "not"
                )
            num_documents += 1
            yield conll.Line(row.line, "", None, True, True)
            continue
        num_empty += not len(words)
        tags: Sequence[str | None] = [None] * len(words)
        if fields.tags is not None:
            tags = _tags(row, fields, form)
        if len(tags) != len(words):
            raise errors.InputError(
                f"{row.where}: {len(words)} tokens, but {len(tags)} tags"
            )
        for i, (word, tag) in enumerate(zip(words, tags, strict=True)):
            _check_cell(row, fields.tokens, word)
            yield conll.Line(row.line, word, tag, False, i == 0)
    if num_empty:
        errors.warn_once(
            f"{path}: {num_empty} row(s) without tokens are left out"
        )


def _tags(row: text_files.Row, fields: Fields, form: str) -> list[str]:
    """Returns the names of a row's tags."""
    values = text_files.require(row, fields.tags, form, "--tags_field")
    _check_list(row, fields.tags, values)
    tags = []
    for value in values:
        if fields.tag_names is not None:
            where = f"{row.where}: {fields.tags!r}"
            value = conll.name_of(value, fields.tag_names, where)
        elif isinstance(value, int) and not isinstance(value, bool):
            raise errors.InputError(
                f"{row.where}: {fields.tags!r} has the integer {value}; "
                "--tag_names=NAME,NAME,... or a file says what integers mean"
            )
        _check_cell(row, fields.tags, value)
        tags.append(value.strip(" "))
    return tags


def _check_list(row: text_files.Row, name: str, value: Any) -> None:
    if not isinstance(value, list):
        raise errors.InputError(
            f"{row.where}: {name!r} is no list but {value!r:.40}"
        )


def _check_cell(row: text_files.Row, name: str, value: Any) -> None:
    """Raises InputError for what cannot be written into a column."""
    is_text = isinstance(value, str) and value.strip(" ")
    if not is_text or not _BREAKS.isdisjoint(value):
        raise errors.InputError(
            f"{row.where}: {name!r} has {value!r:.40}, which is empty, no text "
            "or has a tab or a line end"
        )


def _stored_names(path: str, field: str) -> list[str] | None:
    """Returns the names of integers in the metadata of datasets, if any."""
    if form_of(path) != "parquet":
        return None
    from pyarrow import parquet

    with file_system.open_binary(path) as raw:
        metadata = parquet.read_schema(raw).metadata or {}
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        return list(features[field]["feature"]["names"])
    except (KeyError, TypeError, ValueError):
        return None
