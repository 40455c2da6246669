"""Where pieces stand in the original text.

    "  I\u0308nai\u0308ve"   pieces "ina", "##ive"   characters 2-6 and 6-10

The word-piece engine reports bytes of the text that was rewritten for it;
tasks that answer with words of the original (SQuAD, NER) need its characters.
"""

import numpy as np

from data import graph_normalization, unicode_14


def source_characters(
    normalized: graph_normalization.Normalized,
    row_splits: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    *,
    strips_accents: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Turns bytes of the rewritten texts into characters of the originals."""
    codes = normalized.codes
    sizes = 1 + sum((codes >= first) for first in (0x80, 0x800, 0x10000))
    bytes_before = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    rows = np.repeat(np.arange(len(row_splits) - 1), np.diff(row_splits))
    row_byte = bytes_before[normalized.row_splits[:-1]][rows]
    first = np.searchsorted(bytes_before, starts + row_byte)
    after = np.searchsorted(bytes_before, ends + row_byte)
    if not len(first):
        return starts, ends
    # Pieces are never empty, so [first, after) are ranges; every other range
    # that reduceat makes lies between pieces and is thrown away.
    bounds = np.stack([first, after], 1).reshape(-1)
    source = np.append(normalized.source, normalized.source[-1])
    starts = np.minimum.reduceat(source, bounds)[::2]
    ends = np.maximum.reduceat(source, bounds)[::2] + 1
    if strips_accents:
        decoded = normalized.decoded
        places = np.arange(len(decoded) + 1)
        is_mark = unicode_14.properties().nonspacing_mark[decoded]
        places[:-1][is_mark] = len(decoded)
        places[normalized.decoded_splits] = normalized.decoded_splits
        next_base = np.minimum.accumulate(places[::-1])[::-1]
        ends = next_base[ends]
    row_start = normalized.decoded_splits[:-1][rows]
    return starts - row_start, ends - row_start
