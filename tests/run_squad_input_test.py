"""Proves that run_squad.py loses no question silently, whatever its files hold.

python -m pytest tests/run_squad_input_test.py
"""

import json

import pytest
import squad_runs
from squad_runs import read, run

from tasks.squad import blocks, decoding


def save(path, *rows):
    """Rows are id, paragraph, and the answer's text and position, if any."""
    paragraphs = [
        {
            "context": context,
            "qas": [
                {
                    "id": number,
                    "question": "Who?",
                    "answers": [
                        {"text": text, "answer_start": start}
                        for text, start in answers
                    ],
                }
            ],
        }
        for number, context, *answers in rows
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return path


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return squad_runs.save_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def learned(root, tmp_path_factory):
    """A run on two files at once, one with answers that no window has."""
    long = " ".join(["W1"] * 60)
    other = save(
        root / "other.json",
        ("fits", "w1 Anna w2", ("Anna", 3)),
        ("long", long, (long, 0)),
        ("unseen", "w1 \u200b w2", ("\u200b", 3)),
        ("empty", "\u200b", ("\u200b", 0)),
        ("elsewhere", "w1 w2", ("Anna", 0)),
    )
    files = f"{root / 'train1.json'},{other}"
    return files, run(
        root,
        "learned",
        "--do_train",
        train_file=files,
        num_train_epochs=2,
    )


def test_two_files_are_learned_at_once(learned):
    files, folder = learned
    card = (folder / "README.md").read_text()
    # Of 205 questions the answer to one is not in the text.
    assert "204 questions of train1.json, SHA-256" in card
    assert "other.json, SHA-256" in card
    note = read(folder, "train.tf_record.json")
    assert note["job"]["questions"] == 204
    assert len(note["job"]["texts"]) == 2


def test_answers_that_no_window_has_are_counted_and_named(
    learned, root, caplog
):
    files, _ = learned
    run(
        root,
        "again",
        "--do_train",
        "--write_records=False",
        train_file=files,
        num_train_epochs=0.3,
    )
    assert "elsewhere: 'Anna' is not at character 0" in caplog.text
    assert "the answers to 3 questions cannot be learned: long: no window" in (
        caplog.text
    )
    assert "unseen: its answer has no token" in caplog.text
    assert "empty: its paragraph has no token" in caplog.text


def test_questions_without_a_window_are_answered_too(learned, root):
    path = save(root / "blank.json", ("x", "\u200b", ("a", 0)), ("y", "  "))
    flags = {"init_checkpoint": learned[1], "predict_file": path}
    folder = run(root, "blank", "--do_predict", **flags)
    assert read(folder, "predictions.json") == {"x": "empty", "y": "empty"}
    folder = run(
        root, "blank2", "--do_predict", "--version_2_with_negative", **flags
    )
    assert read(folder, "predictions.json") == {"x": "", "y": ""}


def test_nothing_to_learn_is_refused(root, capsys):
    path = save(root / "nothing.json", ("x", "\u200b", ("\u200b", 0)))
    with pytest.raises(SystemExit) as caught:
        run(root, "nothing", "--do_train", train_file=path)
    assert caught.value.code == 2
    assert "no paragraph has a token" in capsys.readouterr().err


def test_another_language_and_other_windows_are_noticed(learned, root, caplog):
    path = save(root / "hindi.json", ("x", "\u092d\u093e\u0930 w1", ("w1", 4)))
    flags = {"init_checkpoint": learned[1], "predict_file": path}
    run(root, "hindi", "--do_predict", max_query_length=5, **flags)
    expected = "was trained with --max_query_length=4, but 5 is used now"
    assert expected in caplog.text
    assert "--doc_stride" not in caplog.text
    assert "hindi.json: 50 % of its tokens are [UNK]" in caplog.text
    assert "train1.json: " not in caplog.text


def test_a_killed_prediction_continues(learned, root, monkeypatch, caplog):
    monkeypatch.setattr(blocks, "_BLOCK_QUESTIONS", 8)
    flags = {"init_checkpoint": learned[1], "predict_file": root / "dev1.json"}
    calm = run(root, "calm", "--do_predict", **flags)
    decode, calls = decoding.decode, []

    def dies(*arguments, **options):
        calls.append(0)
        if len(calls) == 4:
            raise RuntimeError("killed")
        return decode(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(decoding, "decode", dies)
        with pytest.raises(RuntimeError, match="killed"):
            run(root, "killed", "--do_predict", **flags)
    assert not (root / "killed" / "predictions.json").exists()
    # Another set must not replace what is unfinished.
    with pytest.raises(SystemExit):
        other = flags | {"predict_file": root / "test1.json"}
        run(root, "killed", "--do_predict", **other)
    with caplog.at_level("INFO", logger="absl"):
        folder = run(root, "killed", "--do_predict", **flags)
    assert "40 questions predicted, 24 of them by an earlier" in caplog.text
    assert not (folder / blocks.UNFINISHED).exists()
    for name in (
        "predictions.json",
        "nbest_predictions.json",
        "predict_logits.npz",
        "eval_results.txt",
    ):
        assert (folder / name).read_bytes() == (calm / name).read_bytes()


def test_blocks_of_an_earlier_model_are_used_by_no_other(learned, root, caplog):
    files, folder = learned
    unfinished = folder / blocks.UNFINISHED
    unfinished.mkdir()
    (unfinished / "settings.json").write_text(
        '{"format_version": 2, "weights": "x"}'
    )
    with pytest.raises(SystemExit):
        run(root, "learned", "--do_predict", train_file=None)
    assert unfinished.exists()
    flags = {"train_file": files, "num_train_epochs": 2}
    run(root, "learned", "--do_train", "--do_predict", **flags)
    assert "removed, its prediction begins again: " in caplog.text
    assert len(read(folder, "predictions.json")) == 40
    assert not unfinished.exists()
