"""Reads and writes CoNLL files, and converts their tags between schemes.

    -DOCSTART- -X- O O

    EU NNP I-NP I-ORG
    rejects VBZ I-VP O

A line is a word with its columns, separated by tabs if the first line of a word
has one, else by spaces. Empty lines end sentences; -DOCSTART- begins a document
and is no word. Comments are, in files with tabs, lines that begin with # and
have no tab, and in all files lines that begin with # and have another number of
columns than the words. The file may end in .gz or .bz2.

Tags in the four schemes:

    words   John  Smith  Paris  Rome   sees
    iob1    I-PER I-PER  I-LOC  B-LOC  O      B- only after the same type
    bio2    B-PER I-PER  B-LOC  B-LOC  O      B- at every first word
    iobes   B-PER E-PER  S-LOC  S-LOC  O      E- at the last, S- for one word
    plain   NNP   NNP    NNP    NNP    VBZ    no spans: a tag for each word

BILOU's L- and U- are read as E- and S-, BMES's M- as I-. A tag that the scheme
does not allow, such as an I- after O, begins a span, as in conlleval.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from data import corpus
from foundation import errors, file_system

IOB1, BIO2, IOBES, PLAIN = "iob1", "bio2", "iobes", "plain"
SCHEMES = (IOB1, BIO2, IOBES, PLAIN)
OUTSIDE = "O"
_ALIASES = {"L": "E", "U": "S", "M": "I"}
_PREFIXES = frozenset("BIESLUM")


DOCUMENT = "-DOCSTART-"
# Text may follow that is not in columns: "-DOCSTART- (1 EU)".
_OPENING = re.compile(f"[ \t]*{DOCUMENT}(?:[ \t]|$)")


class Span(NamedTuple):
    """Words [start, end) of one type."""

    start: int
    end: int
    type: str


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
      separator: between the columns.
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

    def where(self, word: int) -> str:
        """Returns the file and the line of a word for a message."""
        return f"{self.path}:{self.lines[word]}"

    def split(self, values: Sequence) -> Iterator[Sequence]:
        """Yields the values of each sentence."""
        ends = self.row_splits.tolist()
        for start, end in zip(ends, ends[1:], strict=False):
            yield values[start:end]


class _Line(NamedTuple):
    """A line that is not empty."""

    number: int
    cells: list[str]
    begins_document: bool
    begins_sentence: bool


def read(
    path: str, *, word_column: int = 0, tag_column: int | None = -1
) -> Sentences:
    """Reads a file.

    Args:
      path: a UTF-8 file, which may be compressed.
      word_column: the column of words, from 0, or from the end with -1.
      tag_column: the column of tags; None if there is none.

    Raises:
      InputError: names the line of the file.
    """
    path = file_system.find(path)
    data = b"".join(block.data for block in corpus.read_blocks([path]))
    texts = file_system.decode(data, path).split("\n")
    # The first line with a word; one that begins with # may be a comment.
    words = [x for x in texts if x.strip() and not x.startswith(DOCUMENT)]
    first = next((x for x in words if not x.startswith("#")), "")
    separator = "\t" if "\t" in (first or "".join(words[:1])) else None
    width = len(_cells(first.rstrip("\r"), separator)) if first else 0
    lines = list(_lines(texts, separator, width))
    rows = [line for line in lines if not line.begins_document]
    if not rows:
        raise errors.InputError(f"{path}: holds no words")
    word, tag = _columns(path, rows[0], word_column, tag_column)
    for line in rows:
        if len(line.cells) != len(rows[0].cells):
            raise errors.InputError(
                f"{path}:{line.number}: {len(line.cells)} column(s), but line "
                f"{rows[0].number} has {len(rows[0].cells)}"
            )
        if tag is not None and not line.cells[tag].strip():
            raise errors.InputError(
                f"{path}:{line.number}: column --tag_column={tag} is empty"
            )
    sentences, documents = _bounds(lines)
    return Sentences(
        path=path,
        words=[line.cells[word] for line in rows],
        lines=np.array([line.number for line in rows]),
        tags=None if tag is None else [line.cells[tag] for line in rows],
        row_splits=sentences,
        documents=documents,
        has_documents=len(rows) < len(lines),
        separator=separator or " ",
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
    opening = separator.join([DOCUMENT] + [OUTSIDE] * len(columns))
    begins = set(sentences.documents[:-1].tolist())
    rows = list(zip(sentences.words, *columns, strict=True))
    for i, part in enumerate(sentences.split(rows)):
        if sentences.has_documents and i in begins:
            yield f"{opening}\n\n"
        yield "".join(f"{separator.join(row)}\n" for row in part) + "\n"


def count_boundaries(sentences: Sentences) -> int:
    """Returns the number of -DOCSTART- lines that `write` yields."""
    return len(sentences.documents) - 1 if sentences.has_documents else 0


def scheme(sentences: Sentences) -> str:
    """Returns the scheme of the tags."""
    return recognize(sentences.split(_tags(sentences)))


def types(sentences: Sentences, scheme: str) -> list[str]:
    """Returns the sorted types of the tags.

    Raises:
      InputError: a tag is not of the scheme; names its line.
    """
    found: dict[str, int] = {}
    for i, tag in enumerate(_tags(sentences)):
        found.setdefault(tag, i)
    result = set()
    for tag, i in found.items():
        try:
            kind = type_of(tag, scheme)
        except errors.InputError as error:
            raise errors.InputError(f"{sentences.where(i)}: {error}") from error
        if kind is not None:
            result.add(kind)
    return sorted(result)


def convert(
    sentences: Sentences, tags: Sequence[str], scheme: str
) -> list[str]:
    """Returns W tags of sentences in another scheme."""
    return [
        tag
        for part in sentences.split(tags)
        for tag in convert_tags(part, scheme)
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
    ours = PLAIN if scheme == PLAIN else scheme_of(labels)
    types(sentences, scheme)  # Checks the tags.
    converted = convert(sentences, _tags(sentences), ours)
    for i, tag in enumerate(converted):
        if tag not in numbers:
            raise errors.InputError(
                f"{sentences.where(i)}: tag {_tags(sentences)[i]!r} "
                + _unknown(tag, labels, ours)
            )
    return np.array([numbers[tag] for tag in converted])


def _unknown(tag, labels, scheme) -> str:
    """Explains why a model has no label for a tag."""
    kinds = {type_of(label, scheme) for label in labels}
    kind = type_of(tag, scheme)
    if kind is None or kind in kinds:
        return f"needs label {tag!r}, but the model has {', '.join(labels)}"
    known = ", ".join(sorted(kind for kind in kinds if kind))
    name = "tags" if scheme == PLAIN else "types"
    return f"is none of the model's {name}: {known}"


def _tags(sentences: Sentences) -> Sequence[str]:
    if sentences.tags is None:
        raise errors.InputError(f"{sentences.path}: has no column of tags")
    return sentences.tags


def _lines(
    texts: Iterable[str], separator: str | None, width: int
) -> Iterator[_Line]:
    """Yields the lines that are neither empty nor comments."""
    begins = True
    for number, line in enumerate(texts, 1):
        line = line.rstrip("\r")
        if not line.strip(" \t"):
            begins = True
            continue
        cells = _cells(line, separator)
        if separator and line.startswith("#") and len(cells) == 1:
            continue
        if line.startswith(("# ", "#\t")) and width not in (0, len(cells)):
            continue
        opens = _OPENING.match(line) is not None
        yield _Line(number, cells, opens, begins or opens)
        begins = opens


def _cells(line: str, separator: str | None) -> list[str]:
    if separator:
        return line.split(separator)
    # Not str.split(): words may consist of other spaces of Unicode.
    return [cell for cell in line.split(" ") if cell]


def _bounds(lines: Sequence[_Line]) -> tuple[np.ndarray, np.ndarray]:
    """Returns row_splits and documents; empty ones are left out."""
    words, sentences, documents = 0, [0], [0]
    for line in [*lines, _Line(0, [], True, True)]:
        if line.begins_sentence and sentences[-1] != words:
            sentences.append(words)
        if line.begins_document and documents[-1] != len(sentences) - 1:
            documents.append(len(sentences) - 1)
        words += not line.begins_document
    return np.array(sentences), np.array(documents)


def _columns(path, line, word, tag) -> tuple[int, int | None]:
    """Returns the columns after checking them on the first line of a word."""
    count = len(line.cells)
    if count == 1 and tag == -1:
        tag = None
    for flag, column in (("word_column", word), ("tag_column", tag)):
        if column is not None and not -count <= column < count:
            raise errors.InputError(
                f"{path}:{line.number}: has {count} column(s), but "
                f"--{flag}={column}"
            )
    if tag is not None and word % count == tag % count:
        raise errors.InputError(
            f"{path}:{line.number}: --word_column={word} and "
            f"--tag_column={tag} are the same"
        )
    return word, tag


def split_tag(tag: str) -> tuple[str, str]:
    """Returns prefix and type: ("B", "PER"), ("O", ""), or ("", tag)."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    prefix, hyphen, kind = tag.partition("-")
    if hyphen and kind and prefix in _PREFIXES:
        return _ALIASES.get(prefix, prefix), kind
    return "", tag


def spans(tags: Sequence[str], *, is_plain: bool = False) -> list[Span]:
    """Returns the spans of a sentence in order.

    Args:
      tags: the tags of the sentence.
      is_plain: whether each word is a span whose type is its tag.
    """
    if is_plain:
        return [Span(i, i + 1, tag) for i, tag in enumerate(tags)]
    found: list[Span] = []
    before, kind_before, begin = OUTSIDE, "", 0
    for i, tag in enumerate([*tags, OUTSIDE]):
        prefix, kind = split_tag(tag)
        continues = (
            kind == kind_before and prefix in "IE" and before not in ("E", "S")
        )
        if before != OUTSIDE and not continues:
            found.append(Span(begin, i, kind_before))
        if before == OUTSIDE or not continues:
            begin = i
        before, kind_before = prefix, kind
    return found


def encode(found: Iterable[Span], length: int, scheme: str) -> list[str]:
    """Returns the tags of a sentence with the given spans, in order."""
    tags = [OUTSIDE] * length
    before = None
    for span in found:
        inside = range(span.start, span.end)
        for i in inside:
            tags[i] = f"I-{span.type}"
        is_neighbor = before is not None and (
            before.end == span.start and before.type == span.type
        )
        if scheme != IOB1 or is_neighbor:
            tags[span.start] = f"B-{span.type}"
        if scheme == IOBES:
            prefix = "E" if len(inside) > 1 else "S"
            tags[span.end - 1] = f"{prefix}-{span.type}"
        before = span
    return tags


def convert_tags(tags: Sequence[str], scheme: str) -> list[str]:
    """Returns the tags of a sentence in another scheme."""
    if scheme == PLAIN:
        return list(tags)
    return encode(spans(tags), len(tags), scheme)


def recognize(sentences: Iterable[Sequence[str]]) -> str:
    """Returns the scheme of the tags of sentences.

    Of IOB1 and BIO2, it is the one that fewer tags violate: a stray I- does not
    make a BIO2 file IOB1. The spans are the same in either case.
    """
    prefixes: set[str] = set()
    not_iob1 = not_bio2 = 0
    for tags in sentences:
        kind_before = ""
        for tag in tags:
            prefix, kind = split_tag(tag)
            prefixes.add(prefix)
            not_bio2 += prefix == "I" and kind != kind_before
            not_iob1 += prefix == "B" and kind != kind_before
            kind_before = kind
    if not prefixes & {"B", "I", "E", "S"}:
        return PLAIN if "" in prefixes else BIO2
    if prefixes & {"E", "S"}:
        return IOBES
    return IOB1 if not_iob1 < not_bio2 else BIO2


def labels(types: Iterable[str], scheme: str) -> list[str]:
    """Returns all tags of a scheme in the order of a model's outputs."""
    if scheme == PLAIN:
        return sorted(set(types))
    prefixes = "BIES" if scheme == IOBES else "BI"
    rest = [f"{p}-{kind}" for kind in sorted(set(types)) for p in prefixes]
    return [OUTSIDE, *rest]


def scheme_of(names: Sequence[str]) -> str:
    """Returns the scheme of a model's labels.

    Labels of IOB1 lack B- for some types, because spans of these types are
    never neighbors in the training set.
    """
    parts = [split_tag(name) for name in names]
    prefixes = {prefix for prefix, _ in parts}
    if "" in prefixes:
        return PLAIN
    if prefixes & {"E", "S"}:
        return IOBES
    begins, inside = (
        {kind for prefix, kind in parts if prefix == p} for p in "BI"
    )
    return BIO2 if inside <= begins else IOB1


def type_of(tag: str, scheme: str) -> str | None:
    """Returns the type of a tag; None for O; a plain tag is its own type.

    Raises:
      InputError: the tag is not of the scheme.
    """
    if scheme == PLAIN:
        return tag
    prefix, kind = split_tag(tag)
    if prefix == "":
        raise errors.InputError(
            f"tag {tag!r} is neither O nor a type after B-, I-, E- or S-"
        )
    return kind or None
