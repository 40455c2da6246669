"""Proves which settings differ, how that is said, and what it allows.

python -m pytest tests/foundation/stamp_test.py
"""

import json
import os

import pytest

from foundation import errors, stamp


def texts(made, old, **options):
    return [str(change) for change in made.difference(old, **options)]


def test_values_are_compared_as_they_are_read_from_json():
    made = stamp.flags("result", {"sizes": (1, 2), "axes": {"a": (3,)}})
    old = json.loads(json.dumps(made.to_json()))
    assert old == {"sizes": [1, 2], "axes": {"a": [3]}}
    assert made.is_same(old) and not made.difference(old)
    assert texts(made, old | {"sizes": [1]}) == ["--sizes was [1], is [1, 2]"]


def test_a_setting_that_one_side_lacks_counts_only_between_complete_stamps():
    made = stamp.flags("result", {"new": 1, "both": 2})
    old = {"both": 2, "gone": 3}
    assert not made.difference(old)
    found = texts(made, old, is_complete=True)
    assert sorted(found) == ["--new was None, is 1", "gone was 3, is None"]
    assert not made.is_same(old) and not made.is_same(None)
    assert stamp.flags("result", {"none": None}).is_same({})


def test_later_settings_replace_earlier_ones_with_their_effect():
    made = stamp.flags("result", {"file": "a", "rate": 1})
    found = made | stamp.flags("records", {"file": "ab" * 32})
    (change,) = found.difference({"file": "cd" * 32})
    assert change.setting.effect == "records"
    assert found.with_values({"rate": 2}).to_json()["rate"] == 2
    assert made.without("rate").to_json() == {"file": "a"}
    with pytest.raises(KeyError):
        made.with_values({"rote": 2})
    assert made.to_json() == {"file": "a", "rate": 1}


def test_all_spellings_of_a_path_are_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.symlink("bert", "link")
    made = stamp.flags("result", {"start": "bert/"}, is_path=True)
    assert made.to_json() == {"start": str(tmp_path / "bert")}
    assert made.is_same({"start": "bert"}) and made.is_same({"start": "link"})
    assert texts(made, {"start": None}) and texts(made, {"start": "other"})


@pytest.mark.parametrize(
    "old, new",
    [
        ("ab" * 32, None),
        (["ab" * 8], ["cd" * 8]),
        ("ab" * 32 + " " + "cd" * 32, "ab" * 32),
        ([{"file": "a.txt", "blake2b": "ab" * 16}], []),
    ],
    ids=["text", "list", "several_words", "nested"],
)
def test_digests_are_not_shown(old, new):
    made = stamp.flags("result", {"file contents": new})
    assert texts(made, {"file contents": old}) == ["--file had other contents"]


def test_numbers_are_no_digests_and_long_values_are_cut():
    values = {"seed": 1234567890123456, "rate": 2.0000000000000005e-05}
    made = stamp.flags("result", values | {"names": "y"})
    assert texts(made, {"seed": 1, "rate": 1, "names": "x" * 99}) == [
        "--seed was 1, is 1234567890123456",
        "--rate was 1, is 2.0000000000000005e-05",
        f"--names was {'x' * 20}...{'x' * 37}, is y",
    ]


def test_one_line_names_all_changes():
    made = stamp.flags("result", {"rate": 2}, shown="--lr or --rate")
    made |= stamp.facts("execution", {"replicas in fact": 1})
    old = {"rate": 1, "replicas in fact": 4}
    line = "--lr or --rate was 1, is 2, replicas in fact was 4, is 1: stop"
    with pytest.raises(errors.InputError) as caught:
        stamp.refuse(made.difference(old), "stop")
    assert str(caught.value) == line
    stamp.refuse([], "stop")


def forbids(old, new, effect="records", **options):
    made = stamp.flags(effect, {"flag": new}, **options)
    (change,) = made.difference({"flag": old})
    return change.forbids_resuming


def test_effects_decide_what_a_resumed_run_may_change():
    assert forbids(1, 2, "records") and forbids(1, 2, "evaluation")
    assert not forbids(1, 2, "result") and not forbids(1, 2, "execution")


@pytest.mark.parametrize(
    "old, new",
    [("16:3", "16:3,32:5"), (["a"], ("a", "b")), ([], ["a"])],
    ids=["commas", "list", "nothing_yet"],
)
def test_a_list_that_is_read_in_turn_may_grow_at_its_end(old, new):
    assert forbids(old, new)
    assert not forbids(old, new, extendable=True)


@pytest.mark.parametrize(
    "old, new",
    [
        ("16:3", "16:30"),
        ("16:3,32:5", "16:3"),
        ("16:3", "32:5,16:3"),
        (None, "16:3"),
        (["a"], ["b", "a"]),
        (1, 2),
    ],
    ids=["longer", "fewer", "before", "none", "list", "number"],
)
def test_what_was_read_already_may_not_change(old, new):
    assert forbids(old, new, extendable=True)
