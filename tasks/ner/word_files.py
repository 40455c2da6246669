"""Reads sentences of tagged words from files, and writes CoNLL files.

A line of a CoNLL file is a word with its columns, separated by tabs if the
first line of a word has one, else by spaces:

    -DOCSTART- -X- O O

    EU NNP I-NP I-ORG
    rejects VBZ I-VP O

Empty lines end sentences; -DOCSTART- begins a document and is not a word. Lines
that begin with # and have another number of columns than the words are
comments. A row of a table, JSON lines or Parquet, is a sentence:

    {"tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"]}
    {"tokens": ["EU", "rejects"], "ner_tags": [3, 0]}

Tags may be integers: positions in a list of names. A flag gives this list, or
the metadata that Hugging Face's datasets write into Parquet. A row of the
single token -DOCSTART- begins a document.
"""

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from data import text_files
from foundation import errors, file_system
from tasks.ner import tag_spans

TABLES = (".jsonl", ".json", ".parquet")  # The endings of tables' names.
DOCUMENT = "-DOCSTART-"
NO_TAGS = "none"  # A value of --tag_column.
# Text may follow that is not in columns: "-DOCSTART- (1 EU)".
_OPENING = re.compile(f"[ \t]*{DOCUMENT}(?:[ \t]|$)")
_BYTE_ORDER_MARK = "\ufeff"  # Joined files have it in the middle.
_BREAKS = frozenset("\t\n\r")  # They would break lines and columns.


class Columns(NamedTuple):
    """The columns that are read, None for the default of a file's form.

    word: number or name of the column of words.
    tag: that of the tags; NO_TAGS to read none.
    names: names of integer tags; None if tags are not integers.
    """

    word: str | None = None
    tag: str | None = None
    names: Sequence[str] | None = None


DEFAULT = Columns()


Places = Sequence[Sequence[tuple[int, int]]]
Tags = Sequence[Sequence[str]]  # Of the words of each sentence; or the words.


class Text(NamedTuple):
    """A sentence, the sentences of a document, or a line of raw text.

    Attributes:
      where: file and line of the first word.
      sentences: the words of each sentence.
      tags: their tags; None if the file has none.
      opens: whether the file has a -DOCSTART- line before it.
      scheme: the scheme of the file's tags.
      separator: the text between the file's columns.
      line: the line of raw text; None of a file of words.
      places: the characters [start, stop) of its words in the line.
    """

    where: str
    sentences: Tags
    tags: Tags | None = None
    opens: bool = False
    scheme: str = tag_spans.BIO2
    separator: str = " "
    line: str | None = None
    places: Places = ()

    @property
    def label(self) -> tuple[str, ...] | None:
        """The tags of all words."""
        if self.tags is None:
            return None
        return tuple(itertools.chain.from_iterable(self.tags))


def read(path: str, columns: Columns = DEFAULT) -> Iterator[Text]:
    """Yields the sentences of a file.

    Raises:
      InputError: names the line of the file.
    """
    if _ending(path) in TABLES:
        return _read_table(path, columns)
    return _read_lines(path, columns)


def _ending(path: str) -> str:
    return file_system.ending(file_system.uncompressed(path))


def _read_lines(path: str, columns: Columns) -> Iterator[Text]:
    separator, width = _layout(path)
    word = _number(path, "word_column", columns.word or "0", width)
    tag, chosen = None, columns.tag or ("-1" if width > 1 else NO_TAGS)
    if chosen != NO_TAGS:
        tag = _number(path, "tag_column", chosen, width)
    words: list[str] = []
    tags: list[str] = []
    begin, opens = 0, False
    blank = [(0, "")]  # Ends the last sentence.
    for number, line in itertools.chain(text_files.lines(path), blank):
        line = line.removeprefix(_BYTE_ORDER_MARK)
        is_opening = _OPENING.match(line) is not None
        if is_opening or not line.strip(" \t\r"):
            if words:
                yield Text(
                    f"{path}:{begin}",
                    (tuple(words),),
                    None if tag is None else (tuple(tags),),
                    opens,
                    separator=separator,
                )
                words, tags, opens = [], [], False
            opens = opens or is_opening
            continue
        cells = _cells(line, separator)
        if len(cells) != width:
            if line.startswith("#"):
                continue
            raise errors.InputError(
                f"{path}:{number}: {len(cells)} column(s), but the first word "
                f"has {width}; each line is one word with its columns, and a "
                "tag cannot contain a space; raw text is for --text_file"
            )
        begin = begin if words else number
        words.append(_checked(cells[word], f"{path}:{number}: a word"))
        if tag is not None:
            where = f"{path}:{number}: a tag"
            tags.append(_tag(cells[tag], columns.names, where))


def _layout(path: str) -> tuple[str, int]:
    """Returns the separator and the number of columns of the first word."""
    for _, line in text_files.lines(path):
        line = line.removeprefix(_BYTE_ORDER_MARK)
        is_word = line.strip(" \t\r") and not _OPENING.match(line)
        if is_word and not line.startswith("#"):
            separator = "\t" if "\t" in line else " "
            return separator, len(_cells(line, separator))
    raise errors.InputError(f"{path}: has no words")


def _cells(line: str, separator: str) -> list[str]:
    if separator == "\t":
        return line.split(separator)
    # Not str.split(): words may consist of other spaces of Unicode.
    return [cell for cell in line.split(" ") if cell]


def _number(path: str, flag: str, column: str, width: int) -> int:
    """Returns the number of a column."""
    is_number = column.removeprefix("-").isdecimal()
    if not is_number or not -width <= int(column) < width:
        raise errors.InputError(
            f"{path}: --{flag}={column}: its lines have {width} column(s), "
            "counted from 0"
        )
    return int(column)


def _checked(text: str, where: str) -> str:
    """Refuses a text that cannot be written into a column."""
    if not text.strip(" ") or not _BREAKS.isdisjoint(text):
        raise errors.InputError(
            f"{where} is empty or has a tab or a line end: {text!r:.40}"
        )
    return text


def _tag(text: str, names: Sequence[str] | None, where: str) -> str:
    """Returns a tag; `names` are those of integers."""
    text = _checked(text.strip(" "), where)
    if names is None:
        return text
    if not text.isdecimal() or int(text) >= len(names):
        raise errors.InputError(
            f"{where} is {text!r:.40}, but --tag_names has the names of 0 to "
            f"{len(names) - 1}"
        )
    return names[int(text)]


def _read_table(path: str, columns: Columns) -> Iterator[Text]:
    word, tag = columns.word or "tokens", columns.tag or "ner_tags"
    names = columns.names or _stored_names(path, tag)
    opens = False
    for row in text_files.read_named([path]):
        words = row.texts(word, "--word_column")
        if words == [DOCUMENT]:
            opens = True
            continue
        if not words:
            continue
        where, tags = f"{row.where}: {tag!r}", None
        # By default, a table may lack tags.
        if tag != NO_TAGS and (columns.tag or tag in row.cells):
            texts = row.texts(tag, "--tag_column")
            tags = (tuple(_tag(text, names, where) for text in texts),)
            if len(texts) != len(words):
                raise errors.InputError(
                    f"{row.where}: {len(words)} words, but {len(texts)} tags"
                )
        where = f"{row.where}: {word!r}"
        yield Text(
            row.where,
            (tuple(_checked(text, where) for text in words),),
            tags,
            opens,
            separator="\t",  # Words may contain spaces.
        )
        opens = False


def _stored_names(path: str, column: str) -> list[str] | None:
    """Returns the names of integers in the metadata of datasets, if any."""
    if _ending(path) != ".parquet":
        return None
    from pyarrow import parquet

    with file_system.open_binary(path) as raw:
        metadata = parquet.read_schema(raw).metadata or {}
    try:
        feature = json.loads(metadata[b"huggingface"])["info"]["features"]
        feature = feature[column]
        # Older files have a list of the one kind of items.
        items = feature[0] if isinstance(feature, list) else feature["feature"]
        return list(items["names"])
    except (IndexError, KeyError, TypeError, ValueError):
        return None


def lines(
    columns: Sequence[Sequence[str]], separator: str, *, opens: bool
) -> str:
    """Returns the lines of a sentence.

    conlleval expects the true and the predicted tag in the last two columns;
    a file with tabs needs `conlleval -d '\\t'`.

    Args:
      columns: the words and their tags.
      separator: the text between the columns.
      opens: whether the sentence begins a document.
    """
    opening = ""
    if opens:
        cells = [DOCUMENT, *(["O"] * (len(columns) - 1))]
        opening = f"{separator.join(cells)}\n\n"
    rows = zip(*columns, strict=True)
    return opening + "".join(f"{separator.join(x)}\n" for x in rows) + "\n"


def read_tag_names(flag: str) -> list[str]:
    """Returns the names in a file, one per line, or in a list with commas.

    Raises:
      InputError: a name is empty or occurs twice.
    """
    names = flag.split(",")
    if file_system.is_file(flag):
        names = [line for _, line in text_files.lines(flag)]
    names = [name.strip() for name in names]
    if not all(names) or errors.repeated(names):
        raise errors.InputError(
            f"--tag_names={flag}: a name is empty or occurs twice"
        )
    return names
