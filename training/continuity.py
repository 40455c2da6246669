"""Notices that a run is resumed with other settings than it was begun with.

The checkpoint holds the settings of its run. Some say which records a step
reads: with another batch size, seed or input the position in the data is
another, records would be left out or seen twice, and nobody would notice. With
another development set the best step would be told by scores of two sets. Those
are refused. The others are named in a warning and obeyed.
"""

from collections.abc import Collection, Mapping
from typing import Any

from absl import logging

import errors


def check(
    directory: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    *,
    refused: Collection[str],
    extendable: Collection[str] = (),
    is_allowed: bool = False,
) -> None:
    """Compares settings by flag; only what both know is compared.

    Args:
        directory: the output_dir that is resumed.
        old: the settings in its checkpoint.
        new: those of now.
        refused: flags that decide which records a step reads, or what the
            best step is told by.
        extendable: those of them that list what is read in turn, as a list or
            with commas; what is added at the end changes nothing before it.
        is_allowed: whether these may change as well.

    Raises:
        InputError: one of `refused` differs.
    """
    changed = [k for k in new if k in old and old[k] != new[k]]
    texts = {k: f"--{k} was {_short(old[k])}, is {_short(new[k])}" for k in new}
    wrong = [
        k
        for k in changed
        if k in refused and not (k in extendable and _only_adds(old[k], new[k]))
    ]
    if wrong and not is_allowed:
        raise errors.InputError(
            f"{', '.join(texts[k] for k in wrong)}: the run in {directory} "
            "would leave out records, see them twice or compare scores of two "
            "sets; resume it as it was begun, or say --allow_changed_data, or "
            f"begin another --output_dir with --init_checkpoint={directory}"
        )
    if changed:
        logging.warning(
            "resuming with other settings: %s",
            ", ".join(texts[k] for k in changed),
        )


def _only_adds(old: Any, new: Any) -> bool:
    old, new = (x.split(",") if isinstance(x, str) else x for x in (old, new))
    if not (isinstance(old, list) and isinstance(new, list)):
        return False
    return new[: len(old)] == old


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
