"""Reads sentences of tagged words from files, and writes CoNLL files.

A line of a CoNLL file is a word with its columns, separated by tabs if the
first line of a word has one, else by spaces:

    -DOCSTART- -X- O O

    EU NNP I-NP I-ORG
    rejects VBZ I-VP O

Empty lines end sentences; -DOCSTART- begins a document and is not a word. Lines
that begin with # and have another number of columns than the words are
comments. The ranges and empty nodes of CoNLL-U, 3-4 and 5.1 in the first of ten
columns, are not words.

A row of a table, JSON lines or Parquet, is a sentence:

    {"tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"]}
    {"tokens": ["EU", "rejects"], "ner_tags": [3, 0]}

Tags may be integers, also in quotes: positions in a list of names. A flag gives
this list, or the metadata that Hugging Face's datasets write into Parquet.

A row of the single token -DOCSTART- begins a document. If there are such rows,
the first row must be one. CoNLL files and JSON lines may be compressed.
"""

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from data import text_files
from foundation import errors, file_system
from tasks.ner import column_checks, tag_spans

# Ending of a table's name -> text_files' form.
TABLE_FORMS = {".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
DOCUMENT = "-DOCSTART-"
# Text may follow that is not in columns: "-DOCSTART- (1 EU)".
_OPENING = re.compile(f"[ \t]*{DOCUMENT}(?:[ \t]|$)")
# Almost certain mistakes: another form of -DOCSTART-, the names of columns, and
# columns with another separator.
_OTHER_OPENING = re.compile(r"[\W_]*doc[-_]?start", re.I)
_HEADER = re.compile("(words?|tokens?)[ \t](.*[ \t])?(tags?|labels?|ner)$")
_OTHER_SEPARATOR = re.compile(
    r"[^\W\d](?:[,;|\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]|\\t)\w"
)
# Lines of CoNLL-U that are not words, by the first of their columns.
_UNIVERSAL_COLUMNS = 10
_RANGE_OR_EMPTY = re.compile(r"\d+[-.]\d+")
_CHECKED_WORDS = 10_000
_LONGEST_SENTENCE = 1000
_PART = re.compile(r"##\w")  # Of a word: ##ing.
_FEW_PARTS = 0.01
_BYTE_ORDER_MARK = "\ufeff"  # Joined files have it in the middle.
# Characters that would break the lines and columns of the output.
_BREAKS = frozenset("\t\n\r")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Sentences:
    """W words in N sentences in D documents.

    Attributes:
      path: the file, for messages.
      words: W words.
      lines: int64 [W], the line of each word, counted from 1.
      tags: W tags, or None.
      row_splits: int64 [N + 1]; sentence i has the words [row_splits[i],
        row_splits[i + 1]).
      documents: int64 [D + 1]; document i has the sentences [documents[i],
        documents[i + 1]).
      has_documents: whether the file has -DOCSTART- lines.
      separator: the text between the columns.
    """

    path: str
    words: Sequence[str]
    lines: np.ndarray
    tags: Sequence[str] | None
    row_splits: np.ndarray
    documents: np.ndarray
    has_documents: bool = True
    separator: str = " "

    def __len__(self) -> int:
        """Returns N."""
        return len(self.row_splits) - 1

    @property
    def num_boundaries(self) -> int:
        """The number of -DOCSTART- lines that `write` yields."""
        return len(self.documents) - 1 if self.has_documents else 0

    def where(self, word: int) -> str:
        """Returns the file and the line of a word for a message."""
        return f"{self.path}:{self.lines[word]}"

    def split(self, values: Sequence) -> Iterator[Sequence]:
        """Yields the values of each sentence."""
        for start, end in itertools.pairwise(self.row_splits.tolist()):
            yield values[start:end]


class _Line(NamedTuple):
    """A word, or the beginning of a document.

    number: number of the line in the file, counted from 1.
    word: the word; without meaning if the line begins a document.
    tag: its tag, or None.
    begins_document: whether the line has no word but begins a document.
    begins_sentence: whether the line begins a sentence or a document.
    """

    number: int
    word: str
    tag: str | None
    begins_document: bool
    begins_sentence: bool


# CoNLL files.


class _Layout(NamedTuple):
    """The form of a file's lines; a separator of None is spaces."""

    separator: str | None
    width: int  # 0 if all lines begin with #.
    has_documents: bool

    def has_width_of(self, cells: Sequence[str]) -> bool:
        """Returns whether cells may be those of a word."""
        if self.width:
            return len(cells) == self.width
        return self.separator is None or len(cells) > 1


def read_columns(path: str, **options: Any) -> Sentences:
    """Reads a CoNLL file; see `read_column_blocks`."""
    (sentences,) = read_column_blocks(path, **options)
    return sentences


def read_column_blocks(
    path: str,
    *,
    word_column: int = 0,
    tag_column: int | None = -1,
    tag_names: Sequence[str] | None = None,
    block_sentences: int | None = None,
) -> Iterator[Sentences]:
    """Yields the sentences of a CoNLL file in blocks of complete documents.

    Args:
      path: a UTF-8 file, which may be compressed.
      word_column: the column of words, from 0, or from the end with -1.
      tag_column: the column of tags; None if there is none.
      tag_names: names of integer tags; None if tags are not integers.
      block_sentences: the least number of sentences of a block, which ends with
        a document, or with any sentence if the file has no documents; None for
        a single block.

    Raises:
      InputError: names the line of the file.
    """
    path = text_files.find(path)
    layout = _layout(path)
    all_rows = _rows(path, layout, word_column)
    rows = list(itertools.islice(all_rows, _CHECKED_WORDS))
    column_checks.check(path, rows, word_column, tag_column)
    return _blocks(
        path,
        _lines(path, layout, word_column, tag_column, tag_names),
        has_documents=layout.has_documents,
        separator=layout.separator or " ",
        block_sentences=block_sentences,
    )


def _layout(path: str) -> _Layout:
    """Finds the layout by the first line of a word; looks for documents."""
    first = comment = ""  # A line that begins with # may be a comment.
    has_documents = False
    for _, line in text_files.lines(path):
        line = line.removeprefix(_BYTE_ORDER_MARK)
        if _OPENING.match(line):
            has_documents = True
        elif line.startswith("#"):
            comment = comment or line
        elif line.strip(" \t\r"):
            first = first or line.rstrip("\r")
        if has_documents and first:
            break
    separator = "\t" if "\t" in (first or comment) else None
    width = len(_cells(first, separator)) if first else 0
    return _Layout(separator, width, has_documents)


def _is_between_words(cells: Sequence[str], word: int) -> bool:
    """Returns whether a line of CoNLL-U is a range or an empty node."""
    return (
        len(cells) == _UNIVERSAL_COLUMNS
        and word % _UNIVERSAL_COLUMNS != 0
        and _RANGE_OR_EMPTY.fullmatch(cells[0]) is not None
    )


def _rows(path: str, layout: _Layout, word: int) -> Iterator[column_checks.Row]:
    """Yields the lines that have the columns of a word."""
    begins = True
    for number, line in text_files.lines(path):
        line = line.rstrip("\r").removeprefix(_BYTE_ORDER_MARK)
        if not line.strip(" \t") or _OPENING.match(line):
            begins = True
            continue
        cells = _cells(line, layout.separator)
        if len(cells) == layout.width and not _is_between_words(cells, word):
            yield column_checks.Row(number, cells, begins)
            begins = False


def _lines(
    path: str,
    layout: _Layout,
    word: int,
    tag: int | None,
    names: Sequence[str] | None,
) -> Iterator[_Line]:
    """Yields the lines that are neither empty nor comments."""
    begins, first, width, other = True, 0, 0, ""
    between: list[int] = []
    for number, line in text_files.lines(path):
        line = line.rstrip("\r").removeprefix(_BYTE_ORDER_MARK)
        if not line.strip(" \t"):
            begins = True
            continue
        if "\r" in line:
            raise errors.InputError(
                f"{path}:{number}: a carriage return within the line; lines "
                "must end in a line feed"
            )
        cells = _cells(line, layout.separator)
        if line.startswith("#") and not layout.has_width_of(cells):
            continue
        if _OPENING.match(line):
            yield _Line(number, "", None, True, True)
            begins = True
            continue
        if layout.separator is None and "\t" in line:
            raise errors.InputError(
                f"{path}:{number}: a tab within the line, but none in the "
                "first line of a word; give all lines the same columns"
            )
        if not first:
            first, width = number, len(cells)
            tag = _tag_column(f"{path}:{number}", width, word, tag)
            _warn_of_first(f"{path}:{number}", line, width)
        if len(cells) != width:
            raise errors.InputError(
                f"{path}:{number}: {len(cells)} column(s), but line {first} "
                f"has {width}; each line is one word with its columns, and "
                "raw text is for --text_file"
            )
        if _is_between_words(cells, word):
            between.append(number)
            continue
        for flag, column in (("word_column", word), ("tag_column", tag)):
            if column is not None and not cells[column].strip(" "):
                raise errors.InputError(
                    f"{path}:{number}: column --{flag}={column} is empty"
                )
        if _OTHER_OPENING.match(cells[word]) and not other:
            other = f"{number}: {cells[word]!r}"
        name = None if tag is None else cells[tag].strip(" ")
        if name is not None and names is not None:
            name = _name_of(name, names, f"{path}:{number}: the column")
        yield _Line(number, cells[word], name, False, begins)
        begins = False
    if between:
        errors.warn_once(
            f"{path}:{between[0]}: {len(between)} line(s) of ranges, as 3-4, "
            "or empty nodes, as 5.1, are no words and left out"
        )
    if other:
        errors.warn_once(
            f"{path}:{other} is read as a word; documents begin with {DOCUMENT}"
        )


def _cells(line: str, separator: str | None) -> list[str]:
    if separator:
        return line.split(separator)
    # Not str.split(): words may consist of other spaces of Unicode.
    return [cell for cell in line.split(" ") if cell]


def _warn_of_first(where: str, line: str, width: int) -> None:
    """Warns if the first line of a word seems to be something else."""
    if _HEADER.match(line.lower()):
        errors.warn_once(f"{where}: a header? It is read as a word")
    if width == 1 and _OTHER_SEPARATOR.search(line):
        errors.warn_once(
            f"{where}: one column, {line[:40]!r}; columns are separated by "
            "tabs or spaces"
        )


def _tag_column(
    where: str, count: int, word: int, tag: int | None
) -> int | None:
    """Returns the column of tags after checking both on the first word."""
    if count == 1 and tag == -1:
        tag = None
    for flag, column in (("word_column", word), ("tag_column", tag)):
        if column is not None and not -count <= column < count:
            raise errors.InputError(
                f"{where}: has {count} column(s), but --{flag}={column}"
            )
    if tag is not None and word % count == tag % count:
        raise errors.InputError(
            f"{where}: --word_column={word} and --tag_column={tag} are the same"
        )
    return tag


# Tables.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields:
    """The fields of a row.

    Attributes:
      tokens: name of the field of the words.
      tags: name of the field of the tags; None to read none.
      is_optional: whether a file may lack the tags.
      tag_names: names of integer tags.
    """

    tokens: str
    tags: str | None
    is_optional: bool = False
    tag_names: Sequence[str] | None = None


def table_form(path: str) -> str | None:
    """Returns the form of a file by its name; None for CoNLL's columns."""
    return TABLE_FORMS.get(file_system.ending(file_system.uncompressed(path)))


def read_table_blocks(
    path: str, fields: Fields, *, block_sentences: int | None = None
) -> Iterator[Sentences]:
    """Yields the sentences of a table in blocks, as read_column_blocks does.

    Raises:
      InputError: names the file and the row.
    """
    path = text_files.find(path)
    form = table_form(path)
    assert form is not None, path
    first = next(text_files.read_named([path], form), None)
    if first is None:
        raise errors.InputError(f"{path}: has no rows")
    names = None if fields.tags is None else _stored_names(path, fields.tags)
    if fields.tag_names is None:
        fields = dataclasses.replace(fields, tag_names=names)
    elif names is not None and names != list(fields.tag_names):
        errors.warn_once(
            f"{path}: its metadata names the tags {errors.listed(names)}, but "
            f"--tag_names {errors.listed(fields.tag_names)}"
        )
    reads_tags = fields.tags is not None
    if reads_tags and fields.is_optional and fields.tags not in first.cells:
        errors.warn_once(
            f"{path}: no field {fields.tags!r}, so no tags, only "
            + errors.listed(map(repr, first.cells))
        )
        fields = dataclasses.replace(fields, tags=None)
    return _blocks(
        path,
        _table_lines(path, form, fields),
        has_documents=first.cells.get(fields.tokens) == [DOCUMENT],
        separator="\t",  # Tokens may contain spaces.
        block_sentences=block_sentences,
    )


def _stored_names(path: str, field: str) -> list[str] | None:
    """Returns the names of integers in the metadata of datasets, if any."""
    if table_form(path) != "parquet":
        return None
    from pyarrow import parquet

    with file_system.open_binary(path) as raw:
        metadata = parquet.read_schema(raw).metadata or {}
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        feature = features[field]
        # Older files have a list of the one kind of items.
        items = feature[0] if isinstance(feature, list) else feature["feature"]
        return list(items["names"])
    except (IndexError, KeyError, TypeError, ValueError):
        return None


def _table_lines(path: str, form: str, fields: Fields) -> Iterator[_Line]:
    num_empty = num_documents = 0
    for number, row in enumerate(text_files.read_named([path], form)):
        words = text_files.require(row, fields.tokens, form, "--tokens_field")
        _check_list(row, fields.tokens, words)
        if list(words) == [DOCUMENT]:
            if num_documents == 0 and number > 0:
                raise errors.InputError(
                    f"{row.where}: begins a document, but the first row does "
                    "not"
                )
            num_documents += 1
            yield _Line(row.line, "", None, True, True)
            continue
        num_empty += not len(words)
        tags: Sequence[str | None] = [None] * len(words)
        if fields.tags is not None:
            tags = _row_tags(row, fields.tags, fields.tag_names, form)
        if len(tags) != len(words):
            raise errors.InputError(
                f"{row.where}: {len(words)} tokens, but {len(tags)} tags"
            )
        for i, (word, tag) in enumerate(zip(words, tags, strict=True)):
            _check_cell(row, fields.tokens, word)
            yield _Line(row.line, word, tag, False, i == 0)
    if num_empty:
        errors.warn_once(
            f"{path}: {num_empty} row(s) without tokens are left out"
        )


def _row_tags(
    row: text_files.Row, field: str, names: Sequence[str] | None, form: str
) -> list[str]:
    """Returns the tags of a row; `names` are the names of integer tags."""
    values = text_files.require(row, field, form, "--tags_field")
    _check_list(row, field, values)
    tags = []
    for value in values:
        if names is not None:
            value = _name_of(value, names, f"{row.where}: {field!r}")
        elif isinstance(value, int) and not isinstance(value, bool):
            raise errors.InputError(
                f"{row.where}: {field!r} has the integer {value}; "
                "--tag_names=NAME,NAME,... or a file says what integers mean"
            )
        _check_cell(row, field, value)
        tags.append(value.strip(" "))
    return tags


def _check_list(row: text_files.Row, name: str, value: Any) -> None:
    if not isinstance(value, list):
        raise errors.InputError(
            f"{row.where}: {name!r} is no list but {value!r:.40}"
        )


def _check_cell(row: text_files.Row, name: str, value: Any) -> None:
    """Raises InputError for a value that cannot be written into a column."""
    is_text = isinstance(value, str) and value.strip(" ")
    if not is_text or not _BREAKS.isdisjoint(value):
        raise errors.InputError(
            f"{row.where}: {name!r} has {value!r:.40}, which is empty, no text "
            "or has a tab or a line end"
        )


# Both forms.


def _blocks(
    path: str,
    lines: Iterable[_Line],
    *,
    has_documents: bool,
    separator: str,
    block_sentences: int | None,
) -> Iterator[Sentences]:
    """Yields the sentences of a file in blocks of complete documents.

    Args:
      path: the file.
      lines: the file's words and beginnings of documents.
      has_documents: whether the file has beginnings of documents.
      separator: see Sentences.
      block_sentences: see read_column_blocks.

    Raises:
      InputError: there are no words.
    """
    most = block_sentences or math.inf
    block: list[_Line] = []
    sentences, has_words = 0, False
    for line in lines:
        ends = line.begins_document or (
            line.begins_sentence and not has_documents
        )
        if ends and sentences >= most:
            yield _sentences(path, block, has_documents, separator)
            block, sentences = [], 0
        block.append(line)
        sentences += line.begins_sentence and not line.begins_document
        has_words = has_words or sentences > 0
    if not has_words:
        raise errors.InputError(f"{path}: holds no words")
    if sentences:
        yield _sentences(path, block, has_documents, separator)


def _sentences(
    path: str, lines: Sequence[_Line], has_documents: bool, separator: str
) -> Sentences:
    """Returns the words of lines; leaves out empty sentences and documents."""
    words, row_splits, documents = 0, [0], [0]
    for line in [*lines, _Line(0, "", None, True, True)]:
        if line.begins_sentence and row_splits[-1] != words:
            row_splits.append(words)
        if line.begins_document and documents[-1] != len(row_splits) - 1:
            documents.append(len(row_splits) - 1)
        words += not line.begins_document
    rows = [line for line in lines if not line.begins_document]
    tags = [line.tag for line in rows if line.tag is not None]
    parts = [line for line in rows if _PART.match(line.word)]
    if len(parts) > max(1, len(rows) * _FEW_PARTS):
        errors.warn_once(
            f"{path}:{parts[0].number}: {parts[0].word!r} is read as a word, "
            f"like {len(parts) - 1} more that begin with ##: are these the "
            "tokens of another tokenizer? Give complete words"
        )
    longest = max(np.diff(row_splits))
    if longest > _LONGEST_SENTENCE:
        errors.warn_once(
            f"{path}: a sentence has {longest} words: are the empty lines "
            "between sentences missing?"
        )
    return Sentences(
        path=path,
        words=[line.word for line in rows],
        lines=np.array([line.number for line in rows]),
        tags=None if rows[0].tag is None else tags,
        row_splits=np.array(row_splits),
        documents=np.array(documents),
        has_documents=has_documents,
        separator=separator,
    )


def write(
    sentences: Sentences, columns: Sequence[Sequence[str]]
) -> Iterator[str]:
    """Yields the lines of a file: each word and its tags.

    conlleval expects the true and the predicted tag in the last two columns;
    a file with tabs needs `conlleval -d '\\t'`.

    Args:
      sentences: W words.
      columns: W tags each.
    """
    separator = sentences.separator
    opening = separator.join([DOCUMENT] + [tag_spans.OUTSIDE] * len(columns))
    begins = set(sentences.documents[:-1].tolist())
    rows = list(zip(sentences.words, *columns, strict=True))
    for i, part in enumerate(sentences.split(rows)):
        if sentences.has_documents and i in begins:
            yield f"{opening}\n\n"
        yield "".join(f"{separator.join(row)}\n" for row in part) + "\n"


# Tags.


def read_tag_names(flag: str) -> list[str]:
    """Returns the names in a file, one per line, or in a list with commas.

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


def _name_of(tag: Any, names: Sequence[str], where: str) -> str:
    """Returns the name of a tag that is an integer, or the digits of one.

    Args:
      tag: a tag of a file.
      names: names of the tags, in the order of their numbers from 0.
      where: the file, the line and the column, for messages.

    Raises:
      InputError: the tag is not an integer, or has no name.
    """
    is_integer = isinstance(tag, int) and not isinstance(tag, bool)
    if not (is_integer or isinstance(tag, str) and tag.strip(" ").isdecimal()):
        raise errors.InputError(
            f"{where} has {tag!r:.40}, no integer, so --tag_names has no "
            "effect on it"
        )
    if not 0 <= int(tag) < len(names):
        raise errors.InputError(
            f"{where} has the integer {tag}, but there are {len(names)} names"
        )
    return names[int(tag)]


def scheme(sentences: Sentences) -> str:
    """Returns the scheme of the tags."""
    return tag_spans.recognize(sentences.split(_tags(sentences)))


def types(sentences: Sentences, scheme: str) -> list[str]:
    """Returns the sorted types of the tags.

    Raises:
      InputError: a tag is not of the scheme; names its line.
    """
    first_words: dict[str, int] = {}
    for i, tag in enumerate(_tags(sentences)):
        first_words.setdefault(tag, i)
    result: set[str] = set()
    for tag, i in first_words.items():
        try:
            if (kind := tag_spans.type_of(tag, scheme)) is not None:
                result.add(kind)
        except errors.InputError as error:
            raise errors.InputError(f"{sentences.where(i)}: {error}") from error
    is_mixed = tag_spans.UNTYPED in result and len(result) > 1
    if scheme != tag_spans.PLAIN and is_mixed:
        tag = next(
            tag
            for tag in first_words
            if tag_spans.split_tag(tag)[1] == tag_spans.UNTYPED
        )
        raise errors.InputError(
            f"{sentences.where(first_words[tag])}: tag {tag!r} has no type, "
            "but others have"
        )
    return sorted(result)


def convert(
    sentences: Sentences, tags: Sequence[str], scheme: str
) -> list[str]:
    """Returns W tags of sentences in another scheme."""
    parts = sentences.split(tags)
    return [
        tag for part in parts for tag in tag_spans.convert_tags(part, scheme)
    ]


def encode_tags(
    sentences: Sentences, scheme: str, labels: Sequence[str]
) -> np.ndarray:
    """Returns int64 [W], the index of each tag in a model's labels.

    Args:
      sentences: words with tags.
      scheme: the scheme of the tags.
      labels: the model's labels, in any scheme.

    Raises:
      InputError: the model has no label for a tag; names its line.
    """
    numbers = {label: i for i, label in enumerate(labels)}
    ours = tag_spans.scheme_of(labels)
    if scheme == tag_spans.PLAIN:
        ours = scheme
    types(sentences, scheme)  # Checks the tags.
    converted = convert(sentences, _tags(sentences), ours)
    for i, tag in enumerate(converted):
        if tag in numbers:
            continue
        kinds = {tag_spans.type_of(x, ours) for x in labels}
        kind = tag_spans.type_of(tag, ours)
        problem = f"needs label {tag!r}, but the model has {', '.join(labels)}"
        if kind is not None and kind not in kinds:
            known_kinds = ", ".join(sorted(kind for kind in kinds if kind))
            name = "tags" if ours == tag_spans.PLAIN else "types"
            problem = f"is none of the model's {name}: {known_kinds}"
        raise errors.InputError(
            f"{sentences.where(i)}: tag {_tags(sentences)[i]!r} {problem}"
        )
    return np.array([numbers[tag] for tag in converted])


def _tags(sentences: Sentences) -> Sequence[str]:
    if sentences.tags is None:
        raise errors.InputError(f"{sentences.path}: has no column of tags")
    return sentences.tags
