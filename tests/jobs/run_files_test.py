"""Proves what is shown of results, and that those of other sets are kept.

python -m pytest tests/jobs/run_files_test.py
"""

import pytest

from foundation import file_system
from jobs import run_files


@pytest.mark.parametrize(
    ("paths", "name"),
    [
        (["/data/dev-v1.1.json"], "dev-v1.1"),
        (["gs://x/eng.testb.gz"], "eng.testb"),
        (["a.json", "b.json.bz2"], "a+b"),
        (["/data/test/"], "test"),
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


def test_a_command_ends_with_the_files_to_open(tmp_path, caplog):
    caplog.set_level("INFO")
    folder = f"{tmp_path}/"
    names = "scores_test.txt", "model.safetensors", "x.bin", "scores_dev.txt"
    for name in names:
        file_system.write_text(f"{folder}{name}", "")
    file_system.write_text(f"{tmp_path}/other", "")
    run_files.announce(folder)
    run_files.announce(folder)  # Nothing new.
    run_files.announce(str(tmp_path), {"o*": "unknown by now"})
    assert caplog.messages == [
        f"wrote into {folder}:\n"
        "  scores_dev.txt, scores_test.txt  metrics of each set\n"
        "  model.safetensors                the model; its other files are "
        "beside it"
    ]


def test_the_console_shows_results_in_words(tmp_path, caplog):
    caplog.set_level("INFO")
    values = {"accuracy": 0.75, "loss": 0.5, "score": 0.75}
    values = run_files.eval_results(values, 7)
    run_files.write_eval_results(str(tmp_path), values)
    assert caplog.messages == ["results: loss 0.5, accuracy 0.75"]
    assert "eval_score = 0.75\n" in (tmp_path / "eval_results.txt").read_text()
