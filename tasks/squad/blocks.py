"""Predicts a question set in blocks, in the memory of one block.

    questions of a block -> windows -> logits -> answers -> parts

See jobs/streaming.py. Only the candidate answers stay in memory. The parts of a
block are:

    answers   the candidate answers, a line of JSON for each question
    n_best    the members of the JSON object of nbest_predictions.json
    lengths   int64, the number of tokens of each window
    ids       int32, the tokens
    start     float32, a logit of each token; so is `end`
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from data.tokenization import wordpiece
from foundation import atomic, copies, errors, file_system
from jobs import streaming
from tasks.squad import dataset, decoding, settings, windowing
from tasks.squad.decoding import Answer, AnswerList, SpanLogits
from tasks.squad.windowing import Windows

# Returns the logits of windows, those of the next block at each call.
Logits = Callable[[Windows], SpanLogits]
LOGITS = "predict_logits.npz"
UNFINISHED = "predict.incomplete"  # Directory of the blocks.
_BLOCK_QUESTIONS = 1024  # About 200 paragraphs of SQuAD.
_READ_BYTES = 1 << 20
# Raised for a file of logits that is damaged or of another format.
_DAMAGED = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    zipfile.BadZipFile,
)


class InMemory:
    """The answers of a prediction that writes no files."""

    def __init__(self):
        """Contains no block yet."""
        self._answers: list[bytes] = []

    def find(self, number: int, digest: str) -> bool:
        """Returns False; see streaming.Store."""
        del number, digest
        return False

    def add(self, number: int, digest: str, parts: streaming.Parts) -> None:
        """Keeps a block's answers."""
        del number, digest
        self._answers.append(parts["answers"])

    def parts(self, name: str) -> Iterable[bytes]:
        """Returns the answers of all blocks in order."""
        assert name == "answers", name
        return self._answers


ReadableStore = streaming.Blocks | InMemory


class QuestionStream:
    """The questions of a set, answered block by block; a streaming.Stream."""

    unit = "questions"

    def __init__(
        self,
        question_set: dataset.QuestionSet,
        tokenizer: wordpiece.Tokenizer,
        sizes: settings.WindowSizes,
        rules: settings.AnswerRules,
        logits: Logits,
        *,
        has_files: bool,
    ):
        """Predicts nothing yet.

        With `has_files`, a block has the parts of files besides the answers.
        """
        self._questions = question_set
        self._tokenizer = tokenizer
        self._sizes, self._rules = sizes, rules
        self._logits = logits
        self._has_files = has_files
        self.block_items = _BLOCK_QUESTIONS
        self.total = len(question_set)

    def read(self) -> Sequence[dataset.Question]:
        """See streaming.Stream."""
        return self._questions.questions

    def key(self, item: dataset.Question) -> Any:
        """Returns all values of a question."""
        return dataclasses.astuple(item)

    def rows_of(self, item: dataset.Question) -> int:
        """Returns 1."""
        del item
        return 1

    def encode(
        self, items: list[dataset.Question]
    ) -> tuple[dataset.QuestionSet, Windows]:
        """Cuts the paragraphs of the questions into windows."""
        part = self._questions.part(items)
        return part, windowing.make_windows(part, self._tokenizer, self._sizes)

    def predict(
        self, encoded: tuple[dataset.QuestionSet, Windows]
    ) -> SpanLogits:
        """Returns the logits of the windows."""
        return self._logits(encoded[1])

    def parts(
        self,
        items: list[dataset.Question],
        encoded: tuple[dataset.QuestionSet, Windows],
        predicted: SpanLogits,
    ) -> streaming.Parts:
        """Returns the answers, and the parts of files."""
        part, windows = encoded
        answers = decoding.decode(
            part,
            windows,
            predicted,
            tokenizer=self._tokenizer,
            rules=self._rules,
        )
        block_parts = answer_parts(
            zip(items, answers, strict=True), has_files=self._has_files
        )
        if self._has_files:
            block_parts |= logit_parts(windows, predicted)
        return block_parts

    def end(self) -> None:
        """Does nothing: the task has checked the questions."""


def read_answers(store: ReadableStore) -> list[AnswerList]:
    """Returns the candidate answers of all blocks in order."""
    lists = []
    for part in store.parts("answers"):
        for line in part.splitlines():
            null_odds, *rows = json.loads(line)
            entries = [
                Answer(text, probability, start, end, span and tuple(span))
                for text, probability, start, end, span in rows
            ]
            lists.append(AnswerList(entries, null_odds))
    return lists


def answer_parts(
    answered: Iterable[tuple[dataset.Question, AnswerList]], *, has_files: bool
) -> dict[str, bytes]:
    """Returns the parts of a block that hold its answers.

    With `has_files`, there is also that of nbest_predictions.json.
    """
    answered = list(answered)
    lines = [json.dumps([a.null_odds, *a.candidates]) for _, a in answered]
    parts = {"answers": "".join(f"{line}\n" for line in lines).encode()}
    if not has_files:
        return parts
    names = Answer._fields[:-1]
    lists = {
        question.id: [
            dict(zip(names, e, strict=False)) for e in answers.entries
        ]
        for question, answers in answered
    }
    members = ",".join(_member(*item) for item in lists.items())
    return parts | {"n_best": members.encode()}


def _member(name: str, value: Any) -> str:
    """Returns a member of an object as json.dumps(..., indent=4) writes it."""
    # JSON escapes line feeds in strings, so all line feeds are layout.
    text = json.dumps(value, indent=4).replace("\n", "\n    ")
    return f"\n    {json.dumps(name)}: {text}"


def logit_parts(windows: Windows, logits: SpanLogits) -> dict[str, bytes]:
    """Returns the parts of a block that hold its logits."""
    features = windows.features
    return {
        "lengths": np.diff(features.row_splits).astype("<i8").tobytes(),
        "ids": features.ragged["input_ids"].astype("<i4").tobytes(),
        "start": logits.start.astype("<f4").tobytes(),
        "end": logits.end.astype("<f4").tobytes(),
    }


def write_lists(path: str, store: ReadableStore) -> None:
    """Writes the lists of answers to all questions as one JSON object."""
    with (
        atomic.replacing(path, on_disk=True) as temporary,
        open(temporary, "wb") as file,
    ):
        separator = b"{"
        for part in store.parts("n_best"):
            file.write(separator + part)
            separator = b","
        file.write(b"\n}\n")


def write_logits(
    path: str, store: ReadableStore, sizes: settings.WindowSizes
) -> None:
    """Writes the logits of all windows, as np.savez would."""
    digest = _digest(store.parts("lengths"), store.parts("ids"))
    count = sum(len(part) for part in store.parts("start")) // 4
    arrays = {
        name: streaming.NpzArray("<f4", (count,), store.parts(name))
        for name in SpanLogits._fields
    }
    for name, value in {"windows": digest, **dataclasses.asdict(sizes)}.items():
        scalar = np.array(value)
        arrays[name] = streaming.NpzArray(
            scalar.dtype.str, (), [scalar.tobytes()]
        )
    with atomic.replacing(path, on_disk=True) as temporary:
        streaming.write_npz(temporary, arrays)


def _digest(lengths: Iterable[bytes], ids: Iterable[bytes]) -> str:
    """Returns the SHA-256 of the row splits and the tokens of all windows."""
    sha = hashlib.sha256()
    for part in itertools.chain(streaming.row_splits(lengths), ids):
        sha.update(part)
    return sha.hexdigest()


def digest_of_windows(
    question_set: dataset.QuestionSet,
    tokenizer: wordpiece.Tokenizer,
    sizes: settings.WindowSizes,
) -> str:
    """Returns a digest of the windows of a set; see StoredLogits."""
    lengths, questions = [], question_set.questions
    scratch = tempfile.gettempdir()
    with file_system.naming(scratch), tempfile.TemporaryFile() as ids:
        for i in range(0, len(questions), _BLOCK_QUESTIONS):
            part = question_set.part(questions[i : i + _BLOCK_QUESTIONS])
            block = windowing.make_windows(part, tokenizer, sizes)
            parts = logit_parts(block, SpanLogits(*np.zeros((2, 0))))
            lengths.append(parts["lengths"])
            ids.write(parts["ids"])
        ids.seek(0)
        return _digest(lengths, iter(lambda: ids.read(_READ_BYTES), b""))


class StoredLogits:
    """The logits in a predict_logits.npz, read in the order of the windows.

    Attributes:
      sizes: sizes of the windows; None in files of earlier versions.
      digest: identifies the windows; see `digest_of_windows`.
    """

    def __init__(self, path: str):
        """Opens the file.

        Raises:
          InputError: it is damaged.
        """
        self._path = path
        names = [f.name for f in dataclasses.fields(settings.WindowSizes)]
        with self._reading():
            self._archive = zipfile.ZipFile(copies.local(path))
            scalars = {}
            for name in ("windows", *names):
                if f"{name}.npy" in self._archive.namelist():
                    with self._archive.open(f"{name}.npy") as file:
                        scalars[name] = np.lib.format.read_array(file)
            self.digest = str(scalars.pop("windows", ""))
            self.sizes = None
            if set(scalars) == set(names):
                sizes = {name: int(value) for name, value in scalars.items()}
                self.sizes = settings.WindowSizes(**sizes)
        self._files: list[Any] = []

    def read(self, count: int) -> SpanLogits:
        """Returns the logits of the next `count` tokens."""
        with self._reading():
            if not self._files:
                for name in SpanLogits._fields:
                    file = self._archive.open(f"{name}.npy")
                    np.lib.format.read_magic(file)
                    np.lib.format.read_array_header_1_0(file)
                    self._files.append(file)
            data = [file.read(4 * count) for file in self._files]
            return SpanLogits(*(np.frombuffer(x, "<f4", count) for x in data))

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGED as error:
            raise errors.InputError(
                f"{self._path}: cannot be read: {error}"
            ) from None


def open_logits(directory: str) -> StoredLogits | None:
    """Opens the logits in a directory; None if there are none."""
    path = os.path.join(directory, LOGITS)
    return StoredLogits(path) if file_system.exists(path) else None
