r"""The relation of two entities in a text: a new kind of task in one file.

    {"text": "Ada Lovelace was born in London.", "head": [0, 12],
     "tail": [25, 31], "label": "born_in"}

    python -m examples.relations --train_file=train.jsonl \
        --dev_file=dev.jsonl --test_file=test.jsonl --do_train --do_eval \
        --do_predict --init_checkpoint=bert-base --output_dir=relations

Markers are added to the vocabulary, and the vectors of [E1] and [E2], one after
the other, are scored (Soares et al. 2019, "entity markers, entity start"):

    [CLS] [E1] ada lovelace [/E1] was born in [E2] london [/E2] . [SEP]
"""

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from data import text_files
from finetuning import flags as flags_lib
from finetuning import task as tasks
from finetuning.run import run
from foundation import config_flags, errors
from tasks.classification import labels

MARKERS = ("[E1]", "[/E1]", "[E2]", "[/E2]")
field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class RelationFlags(flags_lib.EvaluatedFlags):
    """The flags of the command."""

    train_file: str | None = field("Training set.", None)
    dev_file: str | None = field("Development set.", None, remembered=True)
    test_file: str | None = field("Set to predict.", None)


class Relation(NamedTuple):
    """Two entities of a text: first characters, and those behind the last."""

    where: str
    text: str
    head: tuple[int, int]
    tail: tuple[int, int]
    label: str | None


class Relations(labels.LabelTask):
    """The relation of two marked entities."""

    Flags, title, added_tokens = RelationFlags, "relations", MARKERS

    def open(self, split: str) -> tasks.Examples:
        """See Task."""
        path = getattr(self.flags, f"{split}_file")
        if path is None:
            raise errors.InputError(f"--{split}_file is required")
        return tasks.Examples(path, functools.partial(read, path))

    def encode(self, example: Relation) -> Sequence[tasks.Tokens]:
        """See Task; a long text loses its ends, not the entities."""
        (a, b), (c, d) = sorted([example.head, example.tail])
        text, length = example.text, self.flags.max_seq_length
        is_marked = any(marker in text for marker in MARKERS)
        if is_marked or not 0 <= a < b <= c < d <= len(text):
            raise errors.InputError(
                f"{example.where}: head and tail must be two different parts "
                f"of the text, which has {len(text)} characters and must not "
                f"contain {', '.join(MARKERS)}"
            )
        e1, e2 = MARKERS[:2], MARKERS[2:]
        first, second = (e1, e2) if (a, b) == example.head else (e2, e1)
        before, middle, after = (
            tasks.token_ids(self.tokenizer, part)
            for part in (
                text[:a],
                f"{first[0]}{text[a:b]}{first[1]}{text[b:c]}"
                f"{second[0]}{text[c:d]}{second[1]}",
                text[d:],
            )
        )
        room = length - 2 - len(middle)
        if room < 0:
            raise errors.InputError(
                f"{example.where}: both entities do not fit into "
                f"--max_seq_length={length}"
            )
        count = max(min(len(before), room // 2), room - len(after))
        ids = before[len(before) - min(count, len(before)) :] + middle + after
        return [tasks.sequence(self.tokenizer, ids, (), length)]

    def head(self) -> Any:
        """See Task."""
        from tasks.classification import heads

        ids = self.tokenizer.vocabulary.ids
        return heads.TokenHead(self.kind, [ids["[E1]"], ids["[E2]"]])

    def files(self, split: str) -> Mapping[str, tasks.Layout]:
        """See Task."""
        return {"predictions.jsonl": tasks.Layout("predictions")}

    def decode(
        self, encoded: tasks.Encoded, outputs: Mapping[str, Any]
    ) -> dict[str, bytes]:
        """See Task."""
        rows = self.kind.probabilities(outputs["logits"])
        lines = [
            json.dumps(
                {"label": self.labels[x.argmax()], "probability": x.max()}
            )
            for x in rows
        ]
        data = "".join(f"{line}\n" for line in lines).encode()
        return super().decode(encoded, outputs) | {"predictions": data}


def read(path: str) -> Iterator[Relation]:
    """Yields the examples of a file of JSON lines."""
    for row in text_files.read_named([text_files.find(path)], "jsonl"):
        try:
            yield msgspec.convert(
                [row.where, *map(row.cells.get, Relation._fields[1:])], Relation
            )
        except msgspec.ValidationError as error:
            names = ", ".join(Relation._fields[1:])
            raise errors.InputError(
                f"{row.where}: needs {names}: {error}"
            ) from None


def main(flags: RelationFlags) -> None:
    """Trains, evaluates and predicts, as the flags say."""
    run(Relations, flags)


if __name__ == "__main__":
    config_flags.run(RelationFlags, main)
