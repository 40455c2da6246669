"""InputError, for errors that the user can correct, and warnings.

`config_flags.run` prints the error's message as one line and exits with code 2.
Other exceptions are defects of this project and keep their traceback.
"""

# Before any package that may be missing, and what an old Python cannot run.
import foundation.environment  # noqa: F401

# isort: split
import collections
import errno
import functools
import os
import re
from collections.abc import Iterable

from absl import logging

_LONGEST_REASON = 500  # Characters.
_MOST_NAMES = 20
# What TensorFlow writes around its messages: operations, nodes, iterators.
_TENSORFLOW_NAMES = re.compile(
    r"\{\{function_node .*?\}\}\s*"
    r"|Error in user-defined function passed to \S+ transformation with "
    r"iterator: \S+ "
    r"|Name: <unknown>, "
    r"|\s*\[\[\{\{node .*?\]\]"
    r"|\s*\[Op:\w+\].*$"
)
# What it writes around the text and the number of a failed check, run eagerly
# and in a graph.
_EAGER_CHECK = re.compile(
    r"Expected '.*' to be true\. Summarized data: b(['\"])(.*)\1\n"
)
_GRAPH_CHECK = re.compile(r"assertion failed: \[(.*?)\] \[(.*?)\]")
# Lines of its trace of a graph, which come before the message.
_TRACE = re.compile(
    r"Graph execution error|Detected at|node |<stack traces|File \""
    r"|\d+ root error"
)

# What the system reports for a file or a disk, in the words with which
# libraries repeat it. ENFILE's begin with those of EMFILE.
_OF_FILES = {
    os.strerror(number): number
    for number in (
        *(errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.EFBIG, errno.EIO),
        *(errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENFILE),
        *(errno.EMFILE, errno.ENODEV, errno.ENOENT, errno.ENOMEM, errno.ENOSPC),
        *(errno.ENOTDIR, errno.ENOTEMPTY, errno.ENXIO, errno.EPERM),
        *(errno.EPIPE, errno.EROFS, errno.ESTALE),
    )
}


class InputError(ValueError):
    """Reports bad input in one line that names the flag, file or record.

    The message alone tells what to change, e.g.
    "--vocab_file=vocab.txt: no [MASK] among its 9 lines".
    """


def reason(error: Exception) -> str:
    """Returns what an error of a library says, as part of one short line.

    A message with bytes that are not UTF-8 is raised as a UnicodeDecodeError,
    which holds it; these bytes are shown escaped.
    """
    if isinstance(error, UnicodeDecodeError):
        text = one_line(error.object.decode("utf-8", "backslashreplace"))
    else:
        text = str(getattr(error, "message", None) or error)
        text = _EAGER_CHECK.sub(r"\2 ", text)
        lines = (one_line(line) for line in text.splitlines())
        lines = (line for line in lines if line and not _TRACE.match(line))
        text = next(lines, type(error).__name__)
    text = "".join(
        x if x.isprintable() else x.encode("unicode_escape").decode()
        for x in text
    )
    if len(text) > _LONGEST_REASON:
        text = text[: _LONGEST_REASON - 4] + " ..."
    return text


def one_line(text: str) -> str:
    """Returns text in one line, without the names of TensorFlow's nodes."""
    line = re.sub(r"\s*\n\s*", " ", text.strip())
    line = _TENSORFLOW_NAMES.sub("", line).strip()
    line = re.sub(r"^\[Errno \d+\] |^\(\d+\) [A-Z_]+:\s*", "", line)
    line = _GRAPH_CHECK.sub(r"\1 \2", line).replace("\\'", "'")
    # TensorFlow names its temporary file beside the path.
    return re.sub(r"\.tempstate\d+; ", ": ", line)


def system_number(error: BaseException) -> int | None:
    """Returns the number of a system's error of a file or a disk.

    Args:
      error: an error of any library. TensorFlow and safetensors give only
        words.

    Returns:
      None if the exception does not report one.
    """
    if isinstance(error, InputError):  # Names the file already.
        return None
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno if error.errno in _OF_FILES.values() else None
    text = str(error)
    numbers = (number for words, number in _OF_FILES.items() if words in text)
    return next(numbers, None)


def listed(names: Iterable[str]) -> str:
    """Returns names for a message: the first 20, and how many more."""
    names = list(names)
    shown = ", ".join(names[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def repeated(names: Iterable[str]) -> str | None:
    """Returns the first name that occurs twice, if any."""
    counts = collections.Counter(names)
    return next((name for name, count in counts.items() if count > 1), None)


@functools.cache
def warn_once(message: str) -> None:
    """Logs a warning; the same message is logged only once."""
    logging.warning("%s", message)
