"""Proves that a damaged value of a JSON file is named, with its key.

python -m pytest tests/foundation/metadata_test.py
"""

import dataclasses
import json
from typing import Literal

import pytest

from foundation import atomic, errors, file_system, metadata


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a file."""

    name: metadata.Text
    count: metadata.Count = 0


@dataclasses.dataclass(frozen=True)
class Whole:
    """A file."""

    parts: list[Part]
    sizes: dict[str, dict[str, metadata.Size]] = dataclasses.field(
        default_factory=dict
    )
    kind: Literal["a", "b"] = "a"
    score: metadata.Finite = 0

    def __post_init__(self):
        """Refuses what no type can."""
        if len(self.parts) > 2:
            raise errors.InputError("parts: more than two")


def test_what_is_read_has_the_types_and_the_values_of_the_file(tmp_path):
    path = str(tmp_path / "a.json")
    atomic.write_json(path, {"parts": [{"name": "x"}], "score": 1, "other": 3})
    found = metadata.read(path, Whole)
    assert found == Whole([Part("x")], score=1)
    assert json.dumps(found.score) == "1"
    nowhere = str(tmp_path / "b.json")
    assert metadata.read_if_present(nowhere, Whole) is None
    with pytest.raises(OSError):
        metadata.read(nowhere, Whole)


@pytest.mark.parametrize(
    ("change", "key", "expected"),
    [
        ({"parts": None}, "parts", "Expected array"),
        ({"parts": [{}]}, "parts[0]", "name"),
        ({"parts": [{"name": "x"}, {"name": 5}]}, "parts[1].name", "str"),
        ({"parts": [{"name": "\ud800"}]}, "parts[0].name", "Unicode"),
        ({"parts": [{"name": "x", "count": -1}]}, "parts[0].count", ">= 0"),
        ({"parts": [{"name": "x", "count": True}]}, "parts[0].count", "int"),
        ({"parts": [{"name": "x", "count": 1e3}]}, "parts[0].count", "int"),
        ({"parts": [{"name": "x"}] * 3}, "parts", "more than two"),
        ({"sizes": {"a.b": {}, "c": {"d": 1, "e": 0}}}, "sizes", ">= 1"),
        ({"sizes": {"a.b": {"c": 10**9}}}, "sizes", "<= "),
        ({"sizes": {"a": 1}}, "sizes", "object"),
        ({"kind": "c"}, "kind", "'c'"),
        ({"score": "1"}, "score", "float"),
        ({"\ud800": 1}, "", "surrogates"),
    ],
)
def test_the_key_and_what_was_expected_are_named(change, key, expected):
    values = {"parts": [], **change}
    before = json.dumps(values)
    with pytest.raises(errors.InputError, match=expected) as caught:
        metadata.convert(values, Whole, "a.json")
    assert str(caught.value).startswith(f"a.json: {key}")
    assert "\n" not in str(caught.value)
    assert json.dumps(values) == before


def test_a_pointer_of_git_lfs_is_named(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("version https://git-lfs.github.com/spec/v1\nsize 12\n")
    for read in (file_system.read, file_system.refuse_pointer):
        with pytest.raises(errors.InputError, match="config.json: .*Git LFS"):
            read(str(path))
    file_system.refuse_pointer(str(tmp_path / "nowhere"))
