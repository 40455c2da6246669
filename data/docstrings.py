"""Collects English prose that is on every machine: Python docstrings.

The packages that this project needs contain about ten megabytes of technical
English. `make demo` pre-trains on it, without a download:

    site-packages/scipy/stats/_stats_py.py     one module = one document
        '''Compute the z score.  ...'''   ->   one paragraph = one line

Some paragraphs are also labeled with their package, for a classifier.
"""

import ast
import importlib.util
import inspect
import itertools
import json
import pathlib
import re
from collections.abc import Iterable, Iterator

# Packages with much prose in one style, so that phrases repeat often enough for
# a small model to learn them.
PACKAGES = ("keras", "matplotlib", "numpy", "scipy", "sklearn")
_HELD_OUT_EVERY = 20
# A paragraph is kept when it starts like a sentence, ends like one and is
# mostly words: this drops signatures, tables, doctests and directives.
_PROSE = re.compile(r"[A-Z][a-z' -].*[.!?:]$", re.DOTALL)
_MARKUP = re.compile(r"``?|:[a-z:]+:(?=`)|\*\*?(?=\w)|(?<=\w)\*\*?")
_NOT_WORDS = re.compile(r"[^A-Za-z ,.'-]")
_RULE = re.compile(r"[-=~^]{3,}")
_CODE = re.compile(r">>>|::|://|\.\. ")
_MAX_SYMBOL_FRACTION = 0.1
_MIN_WORDS = 6
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# How many paragraphs of a module are labeled, the first ones.
_LABELED_TRAIN, _LABELED_HELD_OUT = 4, 10


def paragraphs(docstring: str) -> Iterator[str]:
    """Yields the paragraphs of running prose in one documentation string."""
    for block in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        if _CODE.search(block):
            continue
        text = " ".join(_RULE.sub(" ", _MARKUP.sub("", block)).split())
        symbols = len(_NOT_WORDS.findall(text))
        if (
            _PROSE.match(text)
            and len(text.split()) >= _MIN_WORDS
            and symbols <= _MAX_SYMBOL_FRACTION * len(text)
        ):
            yield text


def documents(files: Iterable[pathlib.Path]) -> Iterator[list[str]]:
    """Yields, for each module that has prose, its paragraphs in order.

    Files that do not parse (templates, Python 2) are skipped, and so are
    paragraphs that occurred before, such as a licence.
    """
    seen: set[str] = set()
    for file in files:
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError, ValueError):
            continue
        document = []
        for node in ast.walk(tree):
            if isinstance(node, _DOCUMENTED):
                for text in paragraphs(ast.get_docstring(node) or ""):
                    if text not in seen:
                        seen.add(text)
                        document.append(text)
        if len(document) > 1:
            yield document


def collect(folder: str, *, num_characters: int) -> tuple[int, int]:
    """Writes two corpora, one paragraph a line, a blank line between modules.

    Every twentieth module is held out. Labeled paragraphs are JSON lines with
    "text" and "package".

    Args:
      folder: gets train.txt, heldout.txt, train.jsonl and heldout.jsonl.
      num_characters: about how much to collect, equally from each package.

    Returns:
      The number of documents to train on, and of those held out.
    """
    lines: dict[str, list[str]] = {
        f"{name}.{ending}": []
        for name in ("train", "heldout")
        for ending in ("txt", "jsonl")
    }
    number = 0
    for package in PACKAGES:
        left = num_characters // len(PACKAGES)
        for document in documents(_files(package)):
            number += 1
            name, num_labeled = "train", _LABELED_TRAIN
            if number % _HELD_OUT_EVERY == 0:
                name, num_labeled = "heldout", _LABELED_HELD_OUT
            lines[f"{name}.txt"].append("\n".join(document) + "\n\n")
            lines[f"{name}.jsonl"] += (
                json.dumps({"text": text, "package": package}) + "\n"
                for text in document[:num_labeled]
            )
            left -= len(lines[f"{name}.txt"][-1])
            if left <= 0:
                break
    for name, texts in lines.items():
        pathlib.Path(folder, name).write_text("".join(texts), encoding="utf-8")
    return len(lines["train.txt"]), len(lines["heldout.txt"])


def _files(package: str) -> list[pathlib.Path]:
    """Returns a package's source files without importing it."""
    spec = importlib.util.find_spec(package)
    roots = spec.submodule_search_locations if spec else []
    files = (pathlib.Path(root).rglob("*.py") for root in roots or [])
    return sorted(itertools.chain(*files))
