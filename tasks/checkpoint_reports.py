"""Says in lines of text what a checkpoint holds, or how two of them differ."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from modeling import stored_weights
from modeling.stored_weights import StoredTensor
from tasks import checkpoint_sources
from tasks.checkpoint_sources import Source


class Comparison(NamedTuple):
    """How two checkpoints differ.

    lines: one per variable that differs, and a summary.
    is_equal: whether nothing differs by more than the tolerance.
    """

    lines: list[str]
    is_equal: bool


def contents(source: Source) -> Iterator[str]:
    """Lists names, shapes, types and parameter counts."""
    yield f"{source.path}: {source.kind}"
    if source.config is not None:
        values = source.config.to_dict().items()
        yield "config: " + ", ".join(f"{k}={v}" for k, v in values)
    for path in sorted(source.tensors):
        tensor = source.tensors[path]
        alias = "" if tensor.name == path else f"  <- {tensor.name}"
        yield _line(path, tensor) + alias
    for title, tensors in (
        ("no place in BERT", source.others),
        ("of training", source.training_state),
    ):
        for name in sorted(tensors):
            yield f"{_line(name, tensors[name])}  ({title})"
    total = sum(math.prod(t.shape) for t in source.tensors.values())
    yield f"{len(source.tensors)} variables, {total:,} parameters"


def compare(one: Source, other: Source, tolerance: float) -> Comparison:
    """Compares by value, whatever forms the two have."""
    lines, largest, is_equal = [], 0.0, True
    for path in sorted(one.tensors.keys() | other.tensors.keys()):
        if path not in one.tensors or path not in other.tensors:
            where = one if path in one.tensors else other
            lines.append(f"{path}  only in {where.path}")
            is_equal = False
            continue
        a = stored_weights.values(one.path, one.tensors[path])
        b = stored_weights.values(other.path, other.tensors[path])
        if a.shape != b.shape:
            lines.append(f"{path}  {list(a.shape)} and {list(b.shape)}")
            is_equal = False
            continue
        difference = float(np.max(np.abs(a - b), initial=0.0))
        largest = max(largest, difference)
        if difference > 0:
            lines.append(f"{path}  max |difference| {difference:.3g}")
    if one.config is not None and other.config is not None:
        for key in checkpoint_sources.MUST_AGREE:
            ours, theirs = (getattr(x.config, key) for x in (one, other))
            if ours != theirs:
                lines.append(f"config: {key} is {ours} and {theirs}")
                is_equal = False
    common = len(one.tensors.keys() & other.tensors.keys())
    is_equal = is_equal and largest <= tolerance and common > 0
    if one.others or other.others:
        lines.append(
            f"not compared, as they have no place in BERT: {len(one.others)} "
            f"and {len(other.others)} tensors"
        )
    verdict = "equal" if is_equal else "DIFFERENT"
    lines.append(
        f"{verdict}: {common} variables in both, max |difference| {largest:.3g}"
    )
    return Comparison(lines, is_equal)


def _line(name: str, tensor: StoredTensor) -> str:
    """Describes one tensor."""
    shape = ", ".join(map(str, tensor.shape))
    return f"{name}  {tensor.dtype} [{shape}]  {math.prod(tensor.shape):,}"
