"""Whether what is on the disk was made from the same inputs.

    made = stamp.flags("records", {"max_seq_length": 128})
    made |= stamp.facts("execution", {"replicas in fact": 2})
    atomic.write_json(path, made.to_json())

    changes = made.difference(file_system.read_json(path))  # Later.
    stamp.refuse(changes, "out was begun so; take another --output_dir")
    # --max_seq_length was 64, is 128: out was begun so; take another ...

Checkpoints, runs of a grid, tokenized records, activations, unfinished
predictions, data creation and the paper's commands compare themselves so. They
themselves decide what follows: refuse, warn, or make it again.
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from foundation import errors, file_system

# What a setting affects in training. From it derives what happens if it has
# another value when a run is resumed, or its output directory is used again:
#   records     which records a training step reads, or what they hold: refused,
#               as a resumed run would leave records out or read them twice;
#               only an extendable list may grow at its end
#   evaluation  what a run's models are compared by: refused in the same way, as
#               the best one would be chosen by the scores of two sets
#   result      what training ends with: refused by the runs of a grid, named in
#               a warning where a single run is resumed
#   execution   devices, saving, logging: named in a warning
#   nothing     not compared
Effect = Literal["records", "evaluation", "result", "execution", "nothing"]
# Of a file's contents, as a word of a JSON string.
_DIGEST = re.compile(r'(?<=[" ])[0-9a-f]{16,64}(?=[" ])')


@dataclasses.dataclass(frozen=True)
class Setting:
    """A value that affects what is made.

    Attributes:
      name: its key in JSON.
      value: a JSON value, e.g. the digest of a file.
      effect: what it affects.
      shown: how a message names it; by default as a flag.
      extendable: whether a resumed run may add to the end of its value, a list
        or a text with commas, although the effect forbids other changes.
      is_path: whether its value is a path, of which all spellings are the same.
    """

    name: str
    value: Any
    effect: Effect
    shown: str | None = None
    extendable: bool = False
    is_path: bool = False

    def as_json(self, value: Any) -> Any:
        """Returns a value of this setting as it is read again from JSON."""
        if self.is_path and value:
            return file_system.real(value)
        return json.loads(json.dumps(value))


class Change(NamedTuple):
    """A setting that had another value."""

    setting: Setting
    old: Any
    new: Any

    def __str__(self) -> str:
        """Returns "--NAME was OLD, is NEW", without the digests of files."""
        name = self.setting.shown or f"--{self.setting.name}"
        values = [self.old, self.new]
        if _DIGEST.search(json.dumps(values)):
            return f"{name.removesuffix(' contents')} had other contents"
        old, new = (
            text if len(text) <= 60 else f"{text[:20]}...{text[-37:]}"
            for text in map(str, values)
        )
        return f"{name} was {old}, is {new}"

    @property
    def forbids_resuming(self) -> bool:
        """Whether training may not go on; see Effect."""
        extends = self.setting.extendable and _only_adds(self.old, self.new)
        return self.setting.effect in ("records", "evaluation") and not extends


class Stamp:
    """The settings that something is made from; immutable."""

    def __init__(self, settings: Sequence[Setting] = ()):
        """Takes settings with different names."""
        self._settings = {setting.name: setting for setting in settings}

    def __or__(self, other: "Stamp") -> "Stamp":
        """Returns the settings of both; those of `other` replace these."""
        return Stamp([*{**self._settings, **other._settings}.values()])

    def without(self, name: str) -> "Stamp":
        """Returns the other settings than one."""
        return Stamp([x for x in self._settings.values() if x.name != name])

    def with_values(self, values: Mapping[str, Any]) -> "Stamp":
        """Returns the settings, of which some have other values."""
        changed = [
            dataclasses.replace(self._settings[name], value=value)
            for name, value in values.items()
        ]
        return self | Stamp(changed)

    def to_json(self) -> dict[str, Any]:
        """Returns name -> value as they are read again from JSON."""
        return {n: x.as_json(x.value) for n, x in self._settings.items()}

    def difference(
        self, old: Mapping[str, Any], *, is_complete: bool = False
    ) -> list[Change]:
        """Returns the settings that have changed.

        Args:
          old: an earlier `to_json()`.
          is_complete: whether a setting that only one side has is None on the
            other. By default it is ignored: versions of this program differ in
            what they store.
        """
        settings = self._settings
        if is_complete:
            settings = facts("result", dict.fromkeys(old))._settings | settings
        changes = [
            Change(x, x.as_json(old.get(name)), x.as_json(x.value))
            for name, x in settings.items()
            if is_complete or name in old
        ]
        return [change for change in changes if change.old != change.new]

    def is_same(self, old: Mapping[str, Any] | None) -> bool:
        """Returns whether there is an earlier stamp, and it has not changed."""
        return old is not None and not self.difference(old, is_complete=True)


def flags(effect: Effect, values: Mapping[str, Any], **options: Any) -> Stamp:
    """Returns settings by name, the values of flags; see Setting."""
    return Stamp(
        [Setting(name, x, effect, **options) for name, x in values.items()]
    )


def facts(effect: Effect, values: Mapping[str, Any]) -> Stamp:
    """Returns settings by name in words, not the values of flags."""
    return Stamp(
        [Setting(name, x, effect, shown=name) for name, x in values.items()]
    )


def refuse(changes: Sequence[Change], reason: str) -> None:
    """Raises InputError with the changes and the reason, if there are any."""
    if changes:
        # A file can be in two settings: a part of it, and all of it.
        texts = dict.fromkeys(map(str, changes))
        raise errors.InputError(f"{', '.join(texts)}: {reason}")


def _only_adds(old: Any, new: Any) -> bool:
    old, new = (x.split(",") if isinstance(x, str) else x for x in (old, new))
    both = isinstance(old, list) and isinstance(new, list)
    return both and new[: len(old)] == old
