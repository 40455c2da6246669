"""What a kind of fine-tuning is: Examples, Task, Evaluation.

    file --open--> Examples --encode--> sequences --features--> batches
    labels --find_labels, targets--> targets
    outputs --decode--> lines of files --finish--> Evaluation

A new kind is a subclass of Task that overrides what differs, and a Head; see
tasks/classification and examples/relations.py. No TensorFlow here: flags, files
and labels are checked before it is imported, which takes seconds.
"""

import array
import collections
import dataclasses
import functools
import hashlib
import itertools
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
from absl import logging

from data import schema
from data.features import Features
from data.tokenization import plain_wordpiece, vocabulary, wordpiece
from finetuning import flags as flags_lib
from finetuning import given_model
from foundation import errors

STANDARD_INPUT = "-"
_MUCH_UNKNOWN = 2.0  # Percent of the tokens.
_SAMPLE = 1000  # Sequences whose tokens are counted.
_MOST_LABELS_SHOWN, _MOST_TOKENS_SHOWN = 10, 40


@dataclasses.dataclass(frozen=True)
class Examples:
    """A set in a file: a stream that is read again as often as it is needed.

    An example is a NamedTuple that begins with `where` (file and line) and has
    a `label`: None without one, a tuple if it has several.

    Attributes:
      path: what the user named; STANDARD_INPUT is read once.
      read: returns all examples in order.
      unread: columns of the file that are not read.
    """

    path: str
    read: Callable[[], Iterator[Any]]
    unread: Sequence[str] = ()

    def __iter__(self) -> Iterator[Any]:
        """Reads the examples."""
        return self.read()

    @functools.cached_property
    def summary(self) -> "Summary":
        """What one reading of the complete set tells.

        Raises:
          InputError: an example cannot be read, or there is none.
        """
        digest, labels = hashlib.sha256(), collections.Counter[Any]()
        count, first = 0, None
        for example in self:
            digest.update(content(example))
            first = example if count == 0 else first
            count += 1
            label = example.label
            labels.update(label if isinstance(label, tuple) else [label])
        if not count:
            raise errors.InputError(f"{self.path}: has no examples")
        return Summary(count, digest.hexdigest(), first, labels)


class Summary(NamedTuple):
    """Number of examples, SHA-256 of their content, the first, the labels."""

    count: int  # type: ignore[assignment]
    digest: str
    first: Any
    labels: collections.Counter


def content(example: Any) -> bytes:
    """Returns what an example says, wherever it is written."""
    return json.dumps(example[1:]).encode()


class Tokens(NamedTuple):
    """A sequence for the model; a task may have a class with more fields."""

    ids: Sequence[int]
    segment_ids: Sequence[int]


@dataclasses.dataclass(eq=False)
class Encoded:
    """Some examples in memory, encoded when it is first needed."""

    task: Any
    examples: Sequence[Any]

    @functools.cached_property
    def sequences(self) -> list[Sequence[Any]]:
        """The sequences of each example."""
        return [self.task.encode(example) for example in self.examples]

    @functools.cached_property
    def features(self) -> Features:
        """The features of all sequences."""
        pairs = zip(self.examples, self.sequences, strict=True)
        return self.task.features(pairs, with_targets=False)


class Layout(NamedTuple):
    """How a file is joined from one part of each block of predictions.

    `write`, if there is one, writes another form of file: its second argument
    maps the name of a part to the bytes of each block.
    """

    part: str
    begin: bytes = b""
    between: bytes = b""
    end: bytes = b""
    write: (
        Callable[[BinaryIO, Callable[[str], Iterator[bytes]]], None] | None
    ) = None


def write_npz(
    file: BinaryIO,
    arrays: Mapping[str, tuple[str, Sequence[int], Iterable[bytes]]],
) -> None:
    """Writes the file that np.savez would, in the memory of one part.

    Args:
      file: the file.
      arrays: name -> dtype, shape and the parts of the data.
    """
    with zipfile.ZipFile(file, "w") as archive:
        for name, (dtype, shape, parts) in arrays.items():
            header = {"descr": dtype, "fortran_order": False}
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array_header_1_0(
                    entry, header | {"shape": tuple(shape)}
                )
                entry.writelines(parts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a complete set of predictions tells.

    Attributes:
      values: metrics by name, {} of a set without labels. Runs are compared by
        "score", of which more is better.
      files: further files, by name.
      found: flags that later commands with this model take over, such as a
        threshold.
      note: a sentence for log, report and card, such as the score of a
        constant answer.
      by_label: a row for each label: label, examples, predictions, precision,
        recall, F1.
      sections: makes the task's report.Sections.
    """

    values: Mapping[str, float] = dataclasses.field(default_factory=dict)
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    found: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    note: str = ""
    by_label: Sequence[Sequence[Any]] = ()
    sections: Callable[[], Sequence[Any]] = tuple


class Task:
    """A kind of fine-tuning. Subclasses override what differs.

    Attributes:
      Flags: the class of the command's flags.
      title: what the model does, for report and card.
      score_note: a sentence on "eval_score", by which runs are compared.
      datasets: the Hub's names of the training set, if it is there.
      added_tokens: tokens that are added to vocabulary and embeddings.
      sequences: what several sequences of an example are: rows of their own,
        windows whose outputs the model pools, or choices.
      cuts: whether what is longer than a sequence is cut.
      token_inputs: further values of each token, attributes of the sequences.
      token_targets: targets that have a value for each token.
    """

    Flags: type[flags_lib.FinetuningFlags] = flags_lib.EvaluatedFlags
    title = "a task"
    score_note = ""
    datasets: Sequence[str] = ()
    added_tokens: Sequence[str] = ()
    sequences: Literal["rows", "windows", "choices"] = "rows"
    cuts = True
    token_inputs: Sequence[str] = ()
    token_targets: Sequence[str] = ()

    def __init__(self, flags: Any, model: given_model.GivenModel):
        """Reads, checks and shows all sets that the command uses.

        Raises:
          InputError: a flag, a file or a label does not fit.
        """
        self.flags, self.model = flags, model
        self.tokenizer: plain_wordpiece.PlainTokenizer = model.tokenizer
        self.sets = {
            name: self.open(name)
            for split in flags.splits
            for name in self.names(split)
        }
        self.labels = list(self.find_labels())
        for split, examples in self.sets.items():
            if not split.startswith("test"):
                for example in examples:
                    self.check(example)
            if examples.path != STANDARD_INPUT:
                self.show(split)

    @property
    def dev_sets(self) -> list[str]:
        """The development sets; runs are compared by the first."""
        return [x for x in self.sets if x.startswith("dev")]

    @property
    def predicted_sets(self) -> list[str]:
        """The sets that are predicted in blocks."""
        return [x for x in self.sets if x.startswith("test")]

    # From files to numbers.

    def names(self, split: str) -> Sequence[str]:
        """Returns the sets of a split, e.g. dev and dev_mismatched."""
        return [split]

    def open(self, split: str) -> Examples:
        """Finds the file of a set and opens it; reads little or nothing."""
        raise NotImplementedError

    def find_labels(self) -> Sequence[str]:
        """Returns the names of the outputs, () if they have none.

        They are those of the training set, or of the trained model.
        """
        return ()

    def encode(self, example: Any) -> Sequence[Any]:
        """Returns the sequences of an example: the only way from text to ids.

        Usually this is one of Tokens; other classes have `ids` and
        `segment_ids`, too.
        """
        raise NotImplementedError

    def check(self, example: Any) -> None:
        """Raises InputError for an example that cannot be learned."""

    def targets(
        self, example: Any, sequences: Sequence[Any]
    ) -> Sequence[Mapping[str, Any]]:
        """Returns the targets of each row of an example, by feature."""
        return ()

    def epoch_size(self, features: Features) -> int:
        """Returns how many examples an epoch counts."""
        return len(features)

    def size(self, example: Any) -> int:
        """Returns how many of the examples of a block an example counts."""
        return 1

    def records(self, split: str) -> schema.Schema | None:
        """Returns the schema of train.tf_record, in which features are kept.

        None: they are made again by each command.
        """
        return None

    @property
    def settings(self) -> dict[str, Any]:
        """What sequences and targets depend on, besides texts and tokenizer."""
        return {
            "max_seq_length": self.flags.max_seq_length,
            "labels": self.labels,
        }

    def features(
        self,
        encoded: Iterable[tuple[Any, Sequence[Any]]],
        *,
        with_targets: bool,
    ) -> Features:
        """Returns the features of examples, without padding.

        Args:
          encoded: the examples, each with its sequences.
          with_targets: whether to add the targets.
        """
        ids, segments = array.array("i"), array.array("i")
        lengths, counts = array.array("q"), array.array("q")
        columns: dict[str, list] = collections.defaultdict(list)
        for example, sequences in encoded:
            counts.append(len(sequences))
            for one in sequences:
                ids.extend(one.ids)
                segments.extend(one.segment_ids)
                lengths.append(len(one.ids))
                for name in self.token_inputs:
                    columns[name].append(getattr(one, name))
            for row in self.targets(example, sequences) if with_targets else ():
                for name, values in row.items():
                    columns[name].append(values)
        ragged = {"input_ids": np.array(ids), "segment_ids": np.array(segments)}
        dense = {}
        for name, rows in columns.items():
            if name in (*self.token_inputs, *self.token_targets):
                ragged[name] = (
                    np.concatenate(rows) if rows else np.zeros(0, int)
                )
            else:
                dense[name] = np.array(rows)
        splits = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        windows = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        num_choices = counts[0] if self.sequences == "choices" and counts else 0
        features = Features(
            row_splits=splits,
            ragged=ragged,
            dense=dense,
            num_choices=num_choices if num_choices > 1 else 0,
            window_splits=windows if self.sequences == "windows" else None,
        )
        self.model.start.check_segments(features)
        return features

    # What was read, as it was understood.

    def show(self, split: str) -> None:
        """Logs a set: how many examples, the first one, the labels."""
        examples = self.sets[split]
        summary = examples.summary
        unread = ""
        if examples.unread:
            unread = f"; columns not read: {errors.listed(examples.unread)}"
        logging.info(
            "%s: %s examples of %s%s",
            split,
            f"{summary.count:,}",
            examples.path,
            unread,
        )
        logging.info("  the first: %s", self.shown(summary.first))
        if set(summary.labels) != {None}:
            logging.info("  labels: %s", self.shares(summary))
        for remark in self.remarks(examples):
            errors.warn_once(f"{examples.path}: {remark}")

    def shown(self, example: Any) -> str:
        """Returns the tokens of an example and its label, for a person."""
        sequences = self.encode(example)
        if not sequences:
            return "no tokens"
        names, more = self.tokenizer.vocabulary.tokens, len(sequences) - 1
        shown = sequences if self.sequences == "choices" else sequences[:1]
        ids = [i for one in shown for i in one.ids]
        text = " ".join(names[i] for i in ids[:_MOST_TOKENS_SHOWN])
        if (rest := len(ids) - _MOST_TOKENS_SHOWN) > 0:
            text += f" ... ({rest} more)"
        if more and len(shown) == 1:
            text += f"; {more} more windows"
        label = example.label
        if isinstance(label, tuple):
            label = ", ".join(label) or "none"
        elif isinstance(label, float):
            label = f"{label:.4g}"
        return text if label is None else f"{text}; label {label}"

    def shares(self, summary: Summary) -> str:
        """Returns the most frequent labels with their shares, or the values."""
        if isinstance(summary.first.label, float):
            return spread(summary.labels)
        common = summary.labels.most_common(_MOST_LABELS_SHOWN)
        total = summary.labels.total()
        texts = [
            f"{'none' if label is None else label} {100 * count / total:.1f} %"
            for label, count in common
        ]
        more = len(summary.labels) - len(common)
        return ", ".join(texts) + (f", {more} more" if more else "")

    def remarks(self, examples: Examples) -> Iterator[str]:
        """Yields what seems wrong with a set."""
        longest = self.flags.max_seq_length
        sequences = (
            list(one.ids)
            for example in examples
            for one in self.encode(example)
        )
        sample = list(itertools.islice(sequences, _SAMPLE))
        unknown = sum(x.count(self.tokenizer.vocabulary.unk_id) for x in sample)
        percent = 100 * unknown / max(sum(map(len, sample)), 1)
        if percent > _MUCH_UNKNOWN:
            yield (
                f"{percent:.1f} % of its tokens are [UNK]: is the vocabulary "
                "of another language, or --do_lower_case wrong?"
            )
        full = sum(len(x) == longest for x in sample)
        if full and self.cuts:
            yield (
                f"{100 * full / len(sample):.1f} % of its texts reach "
                f"--max_seq_length={longest} tokens; what is longer is cut"
            )

    # With TensorFlow.

    def head(self) -> Any:
        """Returns a head.Head; import it here, not at the top of a file."""
        raise NotImplementedError

    def teacher_head(self, teacher: given_model.GivenModel) -> Any:
        """Returns the head of a teacher, which has its own training's flags."""
        return self.head()

    def model_files(self) -> Mapping[str, bytes]:
        """Returns further files of the model that is trained, by name."""
        return {}

    def load(self, session: Any) -> tuple[Any, int]:
        """Returns what predicts in a command that does not train, its step."""
        return session.load()

    # From outputs to results.

    def decode(
        self, encoded: Encoded, outputs: Mapping[str, np.ndarray]
    ) -> dict[str, bytes]:
        """Returns the parts of one block, for `files` and for `finish`.

        Args:
          encoded: the examples of the block.
          outputs: those of the head, by name, with a row for each row of the
            features, or for each token if the head is `per_token`; and the
            head's constants.
        """
        raise NotImplementedError

    def files(self, split: str) -> Mapping[str, Layout]:
        """Returns the files of a predicted set, joined from its blocks."""
        return {}

    def finish(
        self, examples: Examples, part: Callable[[str], bytes]
    ) -> Evaluation:
        """Returns what the predictions of a complete set tell.

        Args:
          examples: the set, with labels or without.
          part: joins a part of all blocks.
        """
        return Evaluation()

    def evaluate(
        self,
        examples: Examples,
        encoded: Encoded,
        outputs: Mapping[str, np.ndarray],
    ) -> Evaluation:
        """Evaluates a development set, whose examples are in memory.

        Override it if `decode` does more than metrics need.
        """
        return self.finish(examples, self.decode(encoded, outputs).__getitem__)

    def end(self, network: Any) -> None:
        """Does what else the command is to do with the network at its end."""


def spread(counts: Mapping[Any, int]) -> str:
    """Returns the range and the mean of numbers, or their texts, by counts."""
    values, weights = [float(x) for x in counts], list(counts.values())
    mean = np.average(values, weights=weights)
    return f"{min(values):.4g} to {max(values):.4g}, mean {mean:.4g}"


def token_ids(
    tokenizer: plain_wordpiece.PlainTokenizer, text: str
) -> list[int]:
    """Returns the ids of a text's tokens, without special ones."""
    return tokenizer.encode([text]).ids.tolist()


def sequence(
    tokenizer: wordpiece.Tokenizer,
    first: Sequence[int],
    second: Sequence[int],
    max_seq_length: int,
) -> Tokens:
    """Returns [CLS] first [SEP] second [SEP].

    Of a pair that is too long, the longer text loses its end, one token at a
    time; the second one if both are equally long. A second text without tokens
    gets no [SEP], as released.

    Args:
      tokenizer: tokenizer of the model.
      first: ids of the tokens of a text.
      second: those of the second text of a pair, or ().
      max_seq_length: number of tokens of the result, at most.
    """
    ids = tokenizer.vocabulary.ids
    room = max_seq_length - 2 - bool(second)
    a, b = len(first), len(second)
    if a + b > room:
        surplus = a + b - room
        # The longer text first loses what it is longer by.
        lost = min(surplus, abs(a - b))
        a, b = (a - lost, b) if a > b else (a, b - lost)
        both = surplus - lost
        a, b = a - both // 2, b - (both + 1) // 2
    begin = [ids[vocabulary.CLS], *first[:a], ids[vocabulary.SEP]]
    end = [*second[:b], ids[vocabulary.SEP]] if b else []
    return Tokens(begin + end, [0] * len(begin) + [1] * len(end))


def windows(
    tokenizer: wordpiece.Tokenizer,
    first: Sequence[int],
    second: Sequence[int],
    max_seq_length: int,
    *,
    stride: int,
    most: int,
) -> list[Tokens]:
    """Divides a text, of a pair the second one, into windows that overlap.

    Args:
      tokenizer: tokenizer of the model.
      first: ids of the tokens of a text. That of a pair is in each window; it
        is cut to half of the room if the second text needs the other half.
      second: those of the second text of a pair, or ().
      max_seq_length: number of tokens of a window, at most.
      stride: the number of tokens from the start of a window to that of the
        next; smaller where a window has fewer.
      most: the largest number of windows.
    """
    room = max_seq_length - 2 - bool(second)
    kept = first[: max(room - len(second), (room + 1) // 2)] if second else ()
    text, room = second or first, room - len(kept)
    stride = max(min(stride, room), 1)
    starts = range(0, max(len(text) - room, 0) + stride, stride)[:most]
    parts = [text[start : start + room] for start in starts]
    pairs = [(kept, part) if second else (part, ()) for part in parts]
    return [sequence(tokenizer, *pair, max_seq_length) for pair in pairs]
