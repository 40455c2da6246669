"""Proves who writes the records of a sentence task, and which labels count.

python -m pytest tests/tasks/classification/sentence_job_test.py
"""

import types

import pytest
from classifier_runs import WORDS

from data.tokenization import vocabulary, wordpiece
from tasks.classification import sentence_job, sentence_tasks
from training import strategy as strategies


@pytest.mark.parametrize("is_chief", [True, False])
def test_one_worker_writes_the_records(tmp_path, monkeypatch, is_chief):
    """The others would write the same large file over it."""
    monkeypatch.setattr(strategies, "is_chief", lambda strategy: is_chief)
    (tmp_path / "train.tsv").write_text("sentence\tlabel\ngood\t1\nbad w1\t0\n")
    tokens = vocabulary.Vocabulary.from_tokens(WORDS)
    job = sentence_job.make_job(
        types.SimpleNamespace(
            write_records=True,
            output_dir=str(tmp_path),
            max_seq_length=8,
            do_train=False,
        ),
        types.SimpleNamespace(
            tokenizer=wordpiece.Tokenizer(tokens), config=None
        ),
        sentence_tasks.open_task(
            "sst-2", sentence_tasks.DataFlags(data_dir=str(tmp_path))
        ),
        None,
        eval_batch_size=8,
    )
    features = job.features("train")
    assert features.lengths.tolist() == [3, 4]
    assert features.dense["label_ids"].tolist() == [[1], [0]]
    assert (tmp_path / "train.tf_record").exists() == is_chief


@pytest.mark.parametrize(
    ("table", "level", "message"),
    [
        ("sentence\tlabel\na\t1\nb\t2\n", "WARNING", ":3: label '2' is none"),
        ("sentence\tlabel\na\t\nb\t1\n", "WARNING", ":2: the label is empty"),
        ("sentence\tlabel\na\t-1\nb\t-1\n", "INFO", ":2: label '-1' is none"),
        ("index\tsentence\n0\ta\n", "INFO", ": a test set, which has no label"),
    ],
    ids=["bad", "empty", "none", "no_column"],
)
def test_a_bad_label_of_a_labeled_test_set_is_warned_about(
    tmp_path, caplog, table, level, message
):
    path = tmp_path / "test.tsv"
    path.write_text(table)
    task = sentence_tasks.open_task(
        "sst-2", sentence_tasks.DataFlags(files={"test": str(path)})
    )
    with caplog.at_level("INFO", logger="absl"):
        assert sentence_job._label_ids(task, "test") is None
    (record,) = caplog.records
    assert record.levelname == level
    expected = f"no metrics of the test set: {path}{message}"
    assert record.getMessage().startswith(expected)
