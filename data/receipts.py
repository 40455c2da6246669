"""Receipts: what proves that a file is complete, and what it was made from.

    finished("train.tf_record", "train.tf_record.json", write, made_from)
        -> the receipt; `write` makes the file if it is not complete, or was
           made from something else

A receipt is written after its file. A file is used again only if its bytes have
the size and the checksum of its receipt.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Any

import msgspec

from foundation import atomic, errors, file_system, metadata


class Receipt(msgspec.Struct):
    """What proves that a file is complete, and what was counted."""

    bytes: int
    crc32: int
    counts: dict[str, int]
    made_from: Any = None


def read(path: str, receipt_path: str, made_from: Any = None) -> Receipt | None:
    """Returns the receipt of a complete file; None if it must be made.

    Args:
      path: the file.
      receipt_path: its receipt; a damaged one proves nothing.
      made_from: JSON value of what the file depends on.
    """
    with contextlib.suppress(errors.InputError):
        found = metadata.read_if_present(receipt_path, Receipt)
        if found is not None and found.made_from == made_from:
            if file_system.is_whole(path, found.bytes, found.crc32):
                return found
    return None


def finished(
    path: str,
    receipt_path: str,
    write: Callable[[str], dict[str, int]],
    made_from: Any = None,
) -> Receipt:
    """Returns the receipt of a file, which is made if it is not complete.

    Args:
      path: the file.
      receipt_path: its receipt.
      write: writes the file to a temporary path; returns what it counted.
      made_from: see `read`.
    """
    receipt = read(path, receipt_path, made_from)
    if receipt is None:
        with atomic.replacing(path) as temporary:
            counts = write(temporary)
            size, checksum = (
                os.path.getsize(temporary),
                file_system.crc32(temporary),
            )
            receipt = Receipt(size, checksum, counts, made_from)
        atomic.write_bytes(receipt_path, msgspec.json.encode(receipt))
    return receipt
