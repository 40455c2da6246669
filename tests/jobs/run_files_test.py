"""Proves that output files of other sets are kept under their names.

python -m pytest tests/jobs/run_files_test.py
"""

import pytest

from jobs import run_files


@pytest.mark.parametrize(
    ("paths", "name"),
    [
        (["/data/dev-v1.1.json"], "dev-v1.1"),
        (["gs://x/eng.testb.gz"], "eng.testb"),
        (["a.json", "b.json.bz2"], "a+b"),
    ],
)
def test_a_set_has_the_name_of_its_files(paths, name):
    assert run_files.set_name(paths) == name


def test_each_name_is_of_one_set(tmp_path):
    def predict(name, digest):
        run_files.keep_other_sets(
            str(tmp_path), ["p.json"], name=name, digest=digest
        )
        (tmp_path / "p.json").write_text(digest)

    for name, digest in (
        ("dev", "1"),
        ("dev", "1"),
        ("test", "22222222x"),
        ("test", "333333333"),
        ("dev", "1"),
        ("test", "22222222x"),
    ):
        predict(name, digest)
        assert (tmp_path / "p.json").read_text() == digest
    found = {path.name: path.read_text() for path in tmp_path.glob("p*_*.json")}
    del found["predicted_sets.json"]
    assert found == {
        "p_dev.json": "1",
        "p_test.json": "22222222x",
        "p_test-33333333.json": "333333333",
    }
