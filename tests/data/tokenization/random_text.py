"""Random mixtures of everything that makes tokenizing hard."""

import random

import numpy as np

from data.tokenization import normalization

_BLOCKS = [
    (0x20, 0x7E),
    (0x41, 0x5A),
    (0x61, 0x7A),
    (0xA0, 0x24F),
    (0x370, 0x3FF),
    (0x400, 0x52F),
    (0x590, 0x6FF),
    (0x900, 0x97F),
    (0x1E00, 0x206F),
    (0x3000, 0x30FF),
    (0x4E00, 0x4E40),
    (0xAC00, 0xAC80),
    (0xF900, 0xFA40),
    (0x1F600, 0x1F64F),
    (0, 0xD7FF),
    (0xE000, 0x10FFFF),
]
_LONG = ["a", "\u00e9", "\u4e2d", "\u0431", "\uac00", "\U0001f600"]


def texts(count: int, seed: int) -> list[str]:
    """Makes texts; the same ones for the same seed."""
    rng = random.Random(seed)
    properties = normalization.unicode_properties()
    classes = [
        np.flatnonzero(members).tolist()
        for members in (
            properties.removed,
            properties.space,
            properties.punctuation,
            properties.nonspacing_mark,
            properties.nonspacing_mark & (properties.combining_class == 0),
            properties.cased,
            properties.case_ignorable,
        )
    ]
    tables = normalization.Normalization()
    classes += [sorted(tables.reordering), sorted(tables.several), [0x3A3]]
    return [_text(rng, classes) for _ in range(count)]


def _text(rng: random.Random, classes: list[list[int]]) -> str:
    codes = []
    for _ in range(rng.choice([1, 4, 16])):
        kind = rng.random()
        if kind < 0.4:
            first, last = rng.choice(_BLOCKS)
            codes += rng.choices(range(first, last + 1), k=rng.randint(1, 8))
        elif kind < 0.85:
            chosen = rng.choices(classes, k=rng.randint(1, 3))
            codes += [
                rng.choice(rng.choice(chosen)) for _ in range(rng.randint(1, 6))
            ]
        elif kind < 0.88:
            codes += [ord(rng.choice(_LONG))] * rng.choice([67, 199, 200, 201])
        else:
            codes.append(0x20)
    return "".join(chr(c) for c in codes if not 0xD800 <= c <= 0xDFFF)
