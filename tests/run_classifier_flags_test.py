"""Proves that run_classifier.py refuses flags that it could not obey.

python -m pytest tests/run_classifier_flags_test.py
"""

import json

import pytest
import tiny_runs

import run_classifier
from data import examples, text_files
from foundation import config_flags, errors
from tasks.classification import sentence_tasks, settings
from weights import kinds, task_files

CONFIG = run_classifier.ClassifierConfig
SUBMITTED = "cola, sst-2, mrpc, sts-b, qqp, mnli, qnli, rte, wnli, ax"
RELEASED = f"{SUBMITTED}, xnli, swag, boolq, cb, copa, wic, ax-g"
OWN = "csv, tsv, jsonl, parquet"


def parse(*switches, **flags):
    given = {"output_dir": "nowhere", "task_name": "csv"} | flags
    argv = ["run_classifier.py", *switches]
    return config_flags.parse(
        CONFIG, argv + [f"--{name}={value}" for name, value in given.items()]
    )


def test_training_needs_the_name_of_a_task(capsys):
    line = refusal(capsys, "--do_train", task_name=None)
    assert line.startswith("--task_name is required with --do_train")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"label_column": "a"}, "exclude each other"),
        ({"problem_type": "regression"}, "not --problem_type=regression"),
        ({"label_columns": "a,a"}, "--label_columns=a,a: a name is empty or"),
        ({"task_name": "mrpc"}, "is not for --task_name=mrpc"),
    ],
)
def test_columns_of_labels_are_for_several_labels(capsys, flags, message):
    flags = {"label_columns": "a,b"} | flags
    assert message in refusal(capsys, "--do_eval", **flags)


@pytest.mark.parametrize(
    "flags",
    [
        {"text_column": "label"},
        {"text_pair_column": "text"},
        {"text_column": "a", "label_columns": "b,a"},
    ],
)
def test_a_column_is_read_as_one_thing(tmp_path, flags):
    path = tmp_path / "t.csv"
    path.write_text("text,label,a,b\nx,1,0,1\ny,0,1,0\n")
    config = parse("--do_train", train_file=path, **flags)
    with pytest.raises(errors.InputError, match="is named twice among --text"):
        sentence_tasks.open_task("csv", config.files, config.columns)


def test_columns_of_labels_name_the_labels(tmp_path):
    """Also a label that no row has; in the order of the columns."""
    path = tmp_path / "t.csv"
    path.write_text("text,rude,kind\na,1,0\nb,0,0\n")
    config = parse("--do_train", train_file=path, label_columns="rude,kind")
    task = sentence_tasks.open_task(
        "csv", config.files, config.columns, trains=True
    )
    assert (task.kind, list(task.labels)) == ("multi_label", ["rude", "kind"])
    assert task.label_ids("train").tolist() == [[1, 0], [0, 0]]


@pytest.mark.parametrize(
    ("switch", "value", "message"),
    [
        ("--do_eval", "balanced", "--class_weights needs --do_train"),
        ("--do_train", "1,x", "--class_weights=1,x: must be balanced, or"),
        ("--do_train", "1,0", "--class_weights=1,0: must be balanced, or"),
        ("--do_train", "1,nan", "--class_weights=1,nan: must be balanced"),
    ],
)
def test_weights_of_classes_are_numbers(capsys, switch, value, message):
    assert refusal(capsys, switch, class_weights=value).startswith(message)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, "--dev_fraction needs --train_file"),
        ({"train_file": "a", "dev_file": "b"}, "exclude each other"),
        ({"train_file": "a", "task_name": "mrpc"}, "is not for --task_name="),
    ],
)
def test_one_development_set_is_chosen(capsys, flags, message):
    assert message in refusal(capsys, "--do_eval", dev_fraction=0.1, **flags)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"dev_file": "b"}, True),
        ({"train_file": "a", "dev_fraction": 0.1}, True),
        ({}, False),
        ({"task_name": "mrpc", "dev_file": "b"}, False),
        ({"task_name": "mrpc", "eval_every_epoch": True}, True),
        ({"dev_file": "b", "eval_every_epoch": False}, False),
    ],
)
def test_own_tables_are_evaluated_after_every_epoch(flags, expected):
    config = parse("--do_train", **flags)
    assert config.evaluates_while_training == expected
    assert not config.selects_by_evaluation


def refusal(capsys, *switches, **flags):
    given = {"output_dir": "nowhere", "task_name": "csv"} | flags
    with pytest.raises(SystemExit) as caught:
        tiny_runs.run(run_classifier, CONFIG, *switches, **given)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line.partition(": ")[2]


@pytest.mark.parametrize(
    ("task", "flag", "value", "takers"),
    [
        ("csv", "glue_submission", "out", SUBMITTED),
        ("tsv", "glue_submission", "out", SUBMITTED),
        ("jsonl", "glue_submission", "out", SUBMITTED),
        ("swag", "glue_submission", "out", SUBMITTED),
        ("XNLI", "glue_submission", "out", SUBMITTED),
        ("mrpc", "wnli_majority", True, "wnli"),
        ("csv", "wnli_majority", True, "wnli"),
        ("MRPC", "problem_type", "regression", OWN),
        ("sst2", "text_column", "review", OWN),
        ("mnli", "text_pair_column", "other", OWN),
        ("swag", "label_column", "stars", OWN),
        ("xnli", "id_column", "id", OWN),
        ("csv", "language", "de", "xnli"),
        ("tsv", "data_dir", "glue", RELEASED),
    ],
)
def test_a_flag_of_other_tasks_is_refused(capsys, task, flag, value, takers):
    line = refusal(capsys, "--do_predict", task_name=task, **{flag: value})
    expected = f"--{flag} is not for --task_name={task}, only for: {takers}"
    assert line == expected


@pytest.mark.parametrize(
    ("task", "flags"),
    [
        ("AX", {"glue_submission": "out"}),
        ("wnli", {"glue_submission": "out", "wnli_majority": True}),
        ("csv", {"problem_type": "multi_label", "text_pair_column": "b"}),
        ("JSONL", {"id_column": "id", "label_column": "c"}),
        ("xnli", {"language": "de"}),
        # As every task has them who says nothing.
        ("mrpc", {"language": "zh"}),
    ],
)
def test_flags_are_taken_where_they_are_of_use(task, flags):
    config = parse("--do_predict", task_name=task, **flags)
    values = config_flags.flat_values(config)
    assert flags.items() <= values.items()


def test_an_unknown_task_is_not_told_of_its_flags():
    config = parse("--do_eval", task_name="nonsense", id_column="id")
    assert config.columns.id_column == "id"


@pytest.mark.parametrize("value", ["inf", "nan", "-inf"])
@pytest.mark.parametrize(
    "flag",
    [
        "num_train_epochs",
        "warmup_proportion",
        "layer_decay",
    ],
)
def test_infinite_numbers_are_refused(capsys, flag, value):
    line = refusal(capsys, "--do_train", **{flag: value})
    assert line.startswith(f"--{flag}={value}: ")


def test_a_folder_without_a_name_is_refused(capsys):
    line = refusal(capsys, "--do_train", output_dir="")
    assert line == "--output_dir is empty"


def task_of_flags(*switches, classes=None, trained_for=None, **flags):
    """Opens the task of some flags with a model of these classes."""
    config = parse(*switches, **({"task_name": "jsonl"} | flags))
    known = task_files.ModelClasses(labels=classes, problem_type=trained_for)
    return sentence_tasks.open_task(
        config.task_name,
        config.files,
        config.columns,
        problem_type=config.problem_type,
        known=known.with_names(config.names_of_labels, trains=config.do_train),
        trains=config.do_train,
    )


def opened(folder, trained_for, *switches, classes=("LABEL_0",), **flags):
    """The task of an own table, begun with a model of some type."""
    path = folder / "train.jsonl"
    labels = ["1", "0", "2.5"]
    rows = [json.dumps({"text": "a", "label": label}) for label in labels]
    path.write_text("\n".join(rows))
    return task_of_flags(
        *switches,
        classes=classes,
        trained_for=trained_for,
        train_file=path,
        **flags,
    )


def test_training_goes_on_with_what_the_model_was_trained_for(tmp_path):
    for kind in (examples.REGRESSION, examples.MULTI_LABEL, None):
        stored = kinds.KINDS[kind].problem_type if kind else None
        task = opened(tmp_path, stored, "--do_train")
        assert task.kind == (kind or examples.CLASSIFICATION)
    assert task.labels == ["0", "1", "2.5"]


def test_training_keeps_the_places_of_the_same_classes(tmp_path):
    classes = ["2.5", "0", "1"]
    task = opened(tmp_path, None, "--do_train", classes=classes)
    assert task.labels == classes
    task = opened(tmp_path, None, "--do_train", classes=["0", "1", "2"])
    assert task.labels == ["0", "1", "2.5"]


def test_a_trained_model_without_labels_is_no_classifier(tmp_path):
    with pytest.raises(errors.InputError, match="so it is not a classifier"):
        task_of_flags("--do_predict", classes=None, test_file="new.jsonl")


def test_label_names_are_the_order_of_a_model_without_names(caplog):
    """Hugging Face's order of MNLI is not google-research/bert's."""
    classes = ["LABEL_0", "LABEL_1", "LABEL_2"]
    task = task_of_flags("--do_eval", classes=classes, task_name="mnli")
    assert task.labels == ("contradiction", "entailment", "neutral")
    assert "or use --label_names" in caplog.text
    caplog.clear()
    names = "entailment,neutral,contradiction"
    task = task_of_flags(
        "--do_eval", classes=classes, task_name="mnli", label_names=names
    )
    assert list(task.labels) == names.split(",")
    assert "--label_names" not in caplog.text


def test_label_names_may_contain_more_than_the_training_set(tmp_path):
    flags = {"problem_type": "classification", "label_names": "0,2.5,other,1"}
    task = opened(tmp_path, None, "--do_train", classes=None, **flags)
    assert task.labels == ["0", "2.5", "other", "1"]
    assert task.label_ids("train")[:, 0].tolist() == [3, 0, 1]
    for classes in (["a", "b"], ["1", "2.5", "0", "other"]):
        task = opened(tmp_path, None, "--do_train", classes=classes, **flags)
        assert task.labels == ["0", "2.5", "other", "1"]
    with pytest.raises(errors.InputError, match="the model has 2 classes"):
        opened(tmp_path, None, "--do_eval", classes=["a", "b"], **flags)
    flags["problem_type"] = "regression"
    task = opened(tmp_path, None, "--do_train", classes=None, **flags)
    assert task.labels == ()


@pytest.mark.parametrize("flag", ["id_column", "text_column"])
def test_standard_input_has_no_columns(capsys, flag):
    line = refusal(capsys, "--do_predict", test_file="-", **{flag: "x"})
    assert line == f"--{flag}: --test_file=- reads lines without columns"


@pytest.mark.parametrize(
    ("trained", "column", "message"),
    [
        ({"task_name": "csv", "text_pair_column": "b"}, None, "pairs of texts"),
        ({"task_name": "mnli"}, None, "pairs of texts"),
        ({"task_name": "csv"}, "b", "single texts"),
        ({"task_name": "SST2"}, "b", "single texts"),
        ({"task_name": "csv", "text_pair_column": "c"}, "b", None),
        ({"task_name": "sst-2"}, None, None),
        (None, "b", None),
    ],
)
def test_a_model_of_pairs_predicts_no_single_texts(
    tmp_path, trained, column, message
):
    model = str(tmp_path), trained or {}
    sentence_tasks.check_pairs("mrpc", None, *model)
    if message is None:
        sentence_tasks.check_pairs("tsv", column, *model)
        return
    with pytest.raises(errors.InputError) as caught:
        sentence_tasks.check_pairs("tsv", column, *model)
    given = f"={column}" if column else " is not given"
    assert str(caught.value) == (
        f"--text_pair_column{given}: the model in {tmp_path} was trained on "
        f"{message}"
    )


def test_training_is_for_what_it_is_told_to_be(tmp_path):
    flags = {"problem_type": "classification"}
    task = opened(tmp_path, "regression", "--do_train", **flags)
    assert task.kind == examples.CLASSIFICATION


def test_the_formats_of_own_tables_are_those_that_can_be_read():
    assert set(settings.OWN_TABLES) == set(text_files.FORMATS)
