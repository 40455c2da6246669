"""Proves who writes the records of a sentence task, and which labels count.

python -m pytest tests/tasks/classification/classification_task_test.py
"""

import types

import pytest
from classifier_runs import WORDS

from data.tokenization import vocabulary, wordpiece
from foundation import config_flags
from jobs import finetuning, source, task_model
from tasks.classification import sentence_tasks, settings, task
from training import strategy as strategies


@pytest.mark.parametrize("is_chief", [True, False])
def test_one_worker_writes_the_records(tmp_path, monkeypatch, is_chief):
    """The others would write the same large file over it."""
    monkeypatch.setattr(strategies, "is_chief", lambda strategy: is_chief)
    (tmp_path / "train.tsv").write_text("sentence\tlabel\ngood\t1\nbad w1\t0\n")
    config = config_flags.build(
        settings.ClassifierConfig,
        task_name="sst-2",
        data_dir=str(tmp_path),
        output_dir=str(tmp_path),
        max_seq_length=8,
        do_train=True,
    )
    tokens = vocabulary.Vocabulary.from_tokens(WORDS)
    start = types.SimpleNamespace(
        tokenizer=wordpiece.Tokenizer(tokens),
        config=None,
        labels=None,
        problem_type=None,
        num_outputs=None,
    )
    model = source.ModelSource(case="TRAINED_NOW", start=start, folder=None)
    sets = task.ClassificationTask(config, model)
    builder = task_model.Builder(
        config=config,
        start=start,
        strategy=None,
        objective=sets.objective,
        max_seq_length=sets.max_seq_length,
    )
    job = finetuning.Job(source=model, builder=builder, task=sets)
    features = job.features("train")
    assert features.lengths.tolist() == [3, 4]
    assert features.dense["label_ids"].tolist() == [[1], [0]]
    assert (tmp_path / "train.tf_record").exists() == is_chief


NONE = "the test set has no labels: no metrics"
OTHER = "no metrics of the test set: {path}"


@pytest.mark.parametrize(
    ("table", "level", "message"),
    [
        ("sentence\tlabel\na\t1\nb\t2\n", "WARNING", f"{OTHER}:3: label '2'"),
        ("sentence\tlabel\na\t\nb\t1\n", "WARNING", f"{OTHER}:2: the label"),
        ("sentence\tlabel\na\tA\nb\tB\n", "WARNING", f"{OTHER}:2: label 'A'"),
        ("sentence\tlabel\na\t-1\nb\t-1\n", "INFO", NONE),
        ("sentence\tlabel\na\t\nb\t\n", "INFO", NONE),
        ("index\tsentence\n0\ta\n", "INFO", NONE),
    ],
    ids=["bad", "empty", "spelled", "placeholder", "no_label", "no_column"],
)
def test_a_bad_label_of_a_labeled_test_set_is_warned_about(
    tmp_path, caplog, table, level, message
):
    path = tmp_path / "test.tsv"
    path.write_text(table)
    sets = sentence_tasks.open_task(
        "sst-2", settings.Files(test_file=str(path))
    )
    with caplog.at_level("INFO", logger="absl"):
        assert task.label_ids(sets, "test") is None
    (record,) = caplog.records
    assert record.levelname == level
    assert record.getMessage().startswith(message.format(path=path))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"label_column": "kind"}, None),
        (
            {"label_column": "kind", "label_names": "a,b,c"},
            "t.csv: no example has the label 'c', so",
        ),
        ({"label_columns": "x,y"}, "t.csv: no example has the label 'y', so"),
        ({"label_column": "x", "problem_type": "regression"}, None),
    ],
    ids=["all", "named", "several", "regression"],
)
def test_a_label_without_an_example_is_warned_of(
    tmp_path, caplog, flags, message
):
    path = tmp_path / "t.csv"
    path.write_text("text,kind,x,y\ngood,a,1,0\nbad,b,0,0\n")
    names = flags.get("label_names")
    start = types.SimpleNamespace(
        tokenizer=None,
        config=None,
        labels=names and names.split(","),
        problem_type=None,
        num_outputs=None,
    )
    config = config_flags.build(
        settings.ClassifierConfig,
        task_name="csv",
        train_file=str(path),
        output_dir=str(tmp_path),
        do_train=True,
        **flags,
    )
    model = source.ModelSource(case="TRAINED_NOW", start=start, folder=None)
    task.ClassificationTask(config, model)
    warnings = [x for x in caplog.messages if "no example has" in x]
    assert len(warnings) == (message is not None)
    assert message is None or message in warnings[0]


@pytest.mark.parametrize(
    ("dev", "expected"),
    [
        ("text,kind\nGood  film,b\nnew,a\n", "1 of 2 examples have the texts"),
        ("text,kind\nbad,b\ngood film,a\n", "2 of 2 examples have the texts"),
        ("text,kind\nfilm good,b\nnew,a\n", None),
        ("text,kind\nbad,a\n" + "new,a\n" * 20, None),
    ],
    ids=["other_case", "all", "none", "few"],
)
def test_a_development_set_that_was_trained_on_is_warned_of(
    tmp_path, caplog, dev, expected
):
    train = tmp_path / "t.csv"
    train.write_text("text,kind\ngood film,a\nbad,b\n")
    (tmp_path / "dev.csv").write_text(dev)
    sets = sentence_tasks.open_task(
        "csv",
        settings.Files(
            train_file=str(train), dev_file=str(tmp_path / "dev.csv")
        ),
        columns=settings.Columns(label_column="kind"),
        trains=True,
    )
    sentence_tasks.check(sets, ["dev"])
    assert not caplog.messages
    sentence_tasks.check(sets, ["train", "dev"])
    if expected is None:
        assert not caplog.messages
    else:
        (message,) = caplog.messages
        assert expected in message and message.endswith("new texts")
