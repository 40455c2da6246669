"""Answers typed questions, and shows answers in their paragraphs.

paragraph> The leader was John Smith (1895-1943).
question> When was he born?
1895  (probability 0.93, characters 27-31)
  The leader was John Smith ([1895]-1943).
"""

import itertools
import sys
from collections.abc import Callable

from finetuning import typed
from foundation import file_system
from tasks.squad.decoding import Answer

_HELP = (
    "Type a paragraph, then questions about it. An empty line ends the "
    "paragraph, Ctrl-D the program.\n"
)
_CONTEXT = 60  # Characters shown on each side of an answer.


def run(answer: Callable[[str, str], Answer], context: str | None) -> None:
    """Answers questions from standard input until it ends.

    An empty line ends the questions about a paragraph.

    Args:
      answer: returns the answer to a question about a paragraph.
      context: the first paragraph; None reads it.

    Raises:
      InputError: a line is not UTF-8.
    """
    is_typed = sys.stdin.isatty()
    if is_typed:
        sys.stderr.write(_HELP)
    read = typed.reader(sys.stdin, sys.stdout)
    for number in itertools.count(1):
        what = "question> " if context else "paragraph> "
        if not (line := read(what)):
            return
        text = file_system.decode(line, "standard input", number).strip()
        if context is None:
            context = text or None
        elif text:
            # At a terminal, the question is what was typed.
            sys.stdout.write("" if is_typed else f"{what}{text}\n")
            show(answer(text, context), context)
        else:
            context = None


def show(answer: Answer, context: str) -> None:
    """Prints an answer, and the text around it."""
    sys.stdout.write(f"{described(answer, context)}\n")
    sys.stdout.flush()


def described(answer: Answer, context: str) -> str:
    """Returns an answer in two lines, the second with the text around it."""
    probability = f"probability {answer.probability:.2f}"
    if answer.span is None:
        return f"(no answer)  ({probability})"
    before, found, after, _ = excerpt(context, answer.span, _CONTEXT)
    line = " ".join(f"{before}[{found}]{after}".split())
    start, end = answer.span
    return f"{answer.text}  ({probability}, characters {start}-{end})\n  {line}"


def excerpt(
    context: str, span: tuple[int, int] | None, width: int
) -> tuple[str, str, str, int]:
    """Returns an answer and the text around it.

    Args:
      context: the paragraph.
      span: the characters of the answer; without one, the excerpt is the
        beginning of the paragraph.
      width: the number of characters on each side.

    Returns:
      The text before the answer, the answer, the text after it; and a shift:
      character i of the paragraph is character i - shift of the excerpt.
    """
    start, end = span or (width, width)
    low, high = max(0, start - width), end + width
    dots = "..." if low else ""
    return (
        dots + context[low:start],
        context[start:end],
        context[end:high] + ("..." if high < len(context) else ""),
        low - len(dots),
    )
