"""Tests that the documentation fits the project: links, commands, Python code.

python -m pytest tests/documentation_test.py
"""

import importlib
import pathlib
import re
from collections.abc import Mapping

import pytest

from foundation import config_flags

ROOT = pathlib.Path(__file__).parent.parent
PRETRAINED = ROOT / "tests/testdata/tiny_pretrained"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Lines of the log name the programs of their day.
CURRENT = [page for page in PAGES if page.name != "LOG.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_linked_files_and_headings_exist(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not target.startswith("http"):
            path, _, heading = target.partition("#")
            linked = page.parent / path if path else page
            assert linked.exists(), target
            assert not heading or heading in _headings(linked), target


def _headings(page: pathlib.Path) -> set[str]:
    """Returns the headings of a page as they are in addresses."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    texts = [re.sub(r"[^\w -]", "", text.lower()) for text in headings]
    return {text.replace(" ", "-") for text in texts}


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.name)
def test_named_scripts_exist(page):
    text = page.read_text().partition("## What went")[0]
    scripts = re.findall(r"(?<![\w/])((?:benchmarks/)?\w+\.py)\b", text)
    # Scripts of google-research/bert and transformers.
    others = {
        "run_classifier_with_tfhub.py",
        "run_qa.py",
        "run_glue.py",
        "run_mlm.py",
        "tokenization.py",
    }
    for script in {*scripts} - others:
        assert (ROOT / script).exists() or (
            ROOT / "benchmarks" / script
        ).exists(), script


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.name)
def test_commands_have_the_flags_that_are_shown(page):
    text = re.sub(r"\\\n\s*", " ", page.read_text())
    commands = re.findall(r"python ((?:benchmarks/)?\w+)\.py ([^\n`]*)", text)
    commands += re.findall(r"`(benchmarks/\w+)\.py ([^`]*)`", text)
    for script, arguments in commands:
        path = ROOT / f"{script}.py"
        if "argparse" in path.read_text():
            known = set(re.findall(r'"--(\w+)"', path.read_text()))
        else:
            known = {*_flags(path)}
        for flag in re.findall(r"(?<!\S)--(\w+)", arguments):
            assert flag in known | {"flagfile"}, (script, flag)


def test_what_a_flag_needs_is_a_flag_of_the_command():
    for path in ROOT.glob("*.py"):
        if "config_flags.run(" in path.read_text():
            flags = _flags(path)
            needed = " ".join(x.needs for x in flags.values()).split()
            assert {x.partition("=")[0] for x in needed} <= {*flags}, path


def _flags(path: pathlib.Path) -> Mapping[str, config_flags.Flag]:
    """Returns the flags of a command, the fields of its configuration."""
    (name,) = re.findall(
        r"    config_flags\.run\((\w+), main", path.read_text()
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(path.parent))
        module = importlib.import_module(path.stem)
    return config_flags.flags_of(getattr(module, name))


def test_the_python_example_of_the_readme_prints_words(capsys):
    (code,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    exec(code.replace('"bert-base"', repr(str(PRETRAINED))), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert all(0 <= float(line.split()[1]) <= 1 for line in lines)
