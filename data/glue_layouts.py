"""The layouts of GLUE's files, and which a file has, as its header tells.

    SST-2, labeled:   sentence  label
    SST-2, test set:  index     sentence

Columns are taken by number, so that a file of another layout would give its
labels for texts. Only the names of the columns that are taken are compared:
files differ in the rest, as MNLI's do in the number of their votes.
"""

import dataclasses
from collections.abc import Collection, Sequence

from absl import logging

import errors

_SHOWN = 12
_LONGEST = 24  # Of a cell in a message, in characters.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """Where the files of one split have what; negative is from the end."""

    names: str  # Of all columns, between commas, whether in a header or not.
    first: int
    second: int | None = None
    label: int | None = None
    guid: int | None = None  # None numbers the examples.
    has_header: bool = True
    # Rows are kept whose column, the first number, holds this text.
    only: tuple[int, str] | None = None

    @property
    def taken(self) -> list[int]:
        """The numbers of the columns that are read."""
        only = self.only[0] if self.only else None
        places = (self.first, self.second, self.label, self.guid, only)
        return [place for place in places if place is not None]

    @property
    def least_width(self) -> int:
        """So many columns a file has at least."""
        return 1 + max(self.taken)

    def fit(self, cells: Sequence[str], labels: Collection[str]) -> bool:
        """Tells whether a file that begins with these cells is laid out so."""
        if len(cells) < self.least_width:
            return False
        if not self.has_header:
            return cells[self.label] in labels
        names = self.names.split(",")
        return all(_same(cells[i], names[i]) for i in self.taken)

    def __str__(self) -> str:
        """Says how such a file begins."""
        names = ", ".join(self.names.split(","))
        return names if self.has_header else f"(no header) {names}"


def sentence_pairs(first: str, second: str) -> tuple[Columns, Columns]:
    """Returns the layouts of a task whose files number their pairs."""
    names = f"index,{first},{second}"
    test = Columns(names=names, first=1, second=2, guid=0)
    labeled = Columns(
        names=f"{names},label", first=1, second=2, label=3, guid=0
    )
    return labeled, test


_PARAPHRASES = "#1 ID,#2 ID,#1 String,#2 String"
_MNLI = (
    "index,promptID,pairID,genre,sentence1_binary_parse,"
    "sentence2_binary_parse,sentence1_parse,sentence2_parse,sentence1,sentence2"
)
_STSB = (
    "index,genre,filename,year,old_index,source1,source2,sentence1,sentence2"
)
# Of a task: labeled, test set.
COLA = (
    Columns(
        names="source,label,mark,sentence", first=3, label=1, has_header=False
    ),
    Columns(names="index,sentence", first=1, guid=0),
)
SST2 = (
    Columns(names="sentence,label", first=0, label=1),
    Columns(names="index,sentence", first=1, guid=0),
)
MRPC = (
    Columns(names=f"Quality,{_PARAPHRASES}", first=3, second=4, label=0),
    Columns(names=f"index,{_PARAPHRASES}", first=3, second=4, guid=0),
)
STSB = (
    Columns(names=f"{_STSB},score", first=7, second=8, label=9, guid=0),
    Columns(names=_STSB, first=7, second=8, guid=0),
)
QQP = (
    Columns(
        names="id,qid1,qid2,question1,question2,is_duplicate",
        first=3,
        second=4,
        label=5,
        guid=0,
    ),
    Columns(names="id,question1,question2", first=1, second=2, guid=0),
)
MNLI = (
    Columns(
        names=f"{_MNLI},label1,gold_label", first=8, second=9, label=-1, guid=0
    ),
    Columns(names=_MNLI, first=8, second=9, guid=0),
)
_, DIAGNOSTIC = sentence_pairs("sentence1", "sentence2")
XNLI_TRAIN = Columns(names="premise,hypo,label", first=0, second=1, label=2)
XNLI = Columns(
    names="language,gold_label,sentence1_binary_parse,sentence2_binary_parse,"
    "sentence1_parse,sentence2_parse,sentence1,sentence2",
    first=6,
    second=7,
    label=1,
    only=(0, "{language}"),
)


def find(
    path: str,
    cells: Sequence[str],
    layouts: Sequence[Columns],
    *,
    labels: Collection[str],
    is_released: bool,
) -> Columns:
    """Returns the layout of a file.

    Args:
      path: for the messages.
      cells: its first row.
      layouts: of the task, that of the wanted split before the others.
      labels: of the task, as its files spell them; by them rows are told
        where there is no header.
      is_released: it has the released name. Such a file is read as released,
        by number, if its header is unknown: people put their own there. That
        is said in the log.

    Raises:
      InputError: labels are wanted, but it is a test set; or it is none of
        the task's files; or it has the released name, but no header or what
        is wanted at other places.
    """
    wanted = layouts[0]
    found = [layout for layout in layouts if layout.fit(cells, labels)]
    begins = f"it begins with: {_shown(cells)}"
    if not found:
        if is_released:
            _check_released(path, cells, wanted, labels, begins)
            return wanted
        known = " or ".join(dict.fromkeys(map(str, layouts)))
        raise errors.InputError(
            f"{path}: none of the task's files, which begin with: {known}; "
            f"{begins} (--task_name=tsv reads any table)"
        )
    layout = found[0]
    if wanted.label is None:
        # What is predicted may be labeled, but nobody looks.
        return dataclasses.replace(layout, label=None)
    if layout.label is None:
        raise errors.InputError(
            f"{path}: a test set, which has no labels; wanted: {wanted}; "
            f"{begins}"
        )
    return layout


def _check_released(
    path: str,
    cells: Sequence[str],
    wanted: Columns,
    labels: Collection[str],
    begins: str,
) -> None:
    """Refuses a first row that cannot be a header of these columns."""
    if not wanted.has_header:
        return  # It is an example, whose label will be looked at.
    if len(cells) < wanted.least_width:
        return  # Its width will be.
    names = wanted.names.split(",")
    said = f"wanted: {wanted}; {begins}"
    has_label = wanted.label is not None and cells[wanted.label] in labels
    has_number = wanted.guid is not None and cells[wanted.guid].isdigit()
    if has_label or has_number:
        raise errors.InputError(
            f"{path}: has no header, but an example in its first line; {said}"
        )
    for i in (wanted.first, wanted.second, wanted.label):
        if i is None or _same(cells[i], names[i]):
            continue
        if any(_same(x, names[i]) for x in cells):
            raise errors.InputError(
                f"{path}: has {names[i]!r} at another place; {said} "
                "(--task_name=tsv takes columns by name)"
            )
    logging.warning(
        "%s: an unknown header; columns are taken by number; %s", path, said
    )


def _same(cell: str, name: str) -> bool:
    return cell.strip("\ufeff ").lower() == name.lower()


def _shown(cells: Sequence[str]) -> str:
    shown = [
        cell if len(cell) <= _LONGEST else f"{cell[:_LONGEST]}..."
        for cell in cells[:_SHOWN]
    ]
    return ", ".join(shown) + (", ..." if len(cells) > _SHOWN else "")
