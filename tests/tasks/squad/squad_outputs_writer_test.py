"""Proves that each output file is of one set, and that none is lost.

python -m pytest tests/tasks/squad/squad_outputs_writer_test.py
"""

import json
import types

import pytest

from jobs import grid, run_directory, streaming
from tasks.squad import blocks, dataset, outputs
from tasks.squad.decoding import Answer, AnswerList
from weights import model_directory, task_files
from weights.task_files import SquadSettings

SCORES = {"eval_results.txt", "eval_results.json", "report.html"}
SETS = ("dev.json", "test.json", "other/test.json")
ANSWERS = {"predictions.json", "nbest_predictions.json"}


def evaluate(root, *, labeled=True, with_negative=True, name="dev.json"):
    """Two questions, one of them without an answer if that may be."""
    made = [
        dataset.Question(
            id=str(number),
            text="?",
            paragraph=0,
            answers=[dataset.Answer("a", 0)] * right * labeled,
            is_impossible=not right,
        )
        for number, right in enumerate([1, int(not with_negative)])
    ]
    found = dataset.QuestionSet(
        path=str(root / name),
        contexts=["a"],
        questions=made,
        has_impossible=with_negative and labeled,
    )
    entries = [Answer("a", 1.0, 0.0, 0.0, (0, 1)), Answer("", 0.0, 0, 0, None)]
    answers = [AnswerList(entries, -1.0), AnswerList(entries, 1.0)]
    return outputs.evaluate(found, answers, with_negative=with_negative)


@pytest.fixture
def record(tmp_path):
    """A writer beside a model, which is not read; sets differ by a byte."""
    for i, name in enumerate(["model.safetensors", *SETS]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes([i]))
    files = run_directory.RunFiles(
        output_dir=str(tmp_path),
        flags={},
        given_flags={},
        results=grid.Results(str(tmp_path)),
    )
    return outputs.OutputWriter(files, with_negative=True, threshold=None)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SquadSettings(version_2_with_negative=True), -1.0),
        (SquadSettings(), None),
        (None, None),
    ],
    ids=["2.0", "1.1", "unknown"],
)
def test_a_threshold_is_stored_with_a_model_of_2_0_only(
    record, tmp_path, before, after
):
    if before is not None:
        task_files.write_settings(str(tmp_path), before)
    made = evaluate(tmp_path)
    assert made.threshold_found
    for call in (
        lambda: record.write_threshold(made),
        lambda: write(record, tmp_path, made),
    ):
        call()
        stored = task_files.read_settings(str(tmp_path))
        if after is None:
            assert stored == before
        else:
            assert stored.null_score_diff_threshold == after
    assert set(made.predictions.values()) == {"a", ""}


def write(record, folder, made):
    """Writes an evaluation whose answers are in two blocks."""
    store = streaming.Blocks(str(folder / blocks.UNFINISHED), {})
    questions = made.question_set.questions
    for number, question in enumerate(questions):
        row = question, made.answers[question.id]
        assert not store.find(number, "")
        store.add(number, "", blocks.answer_parts([row], store))
    record.write_evaluation(made, store, None)


def names(folder):
    return {path.name for path in folder.iterdir() if path.is_file()}


def read(folder, name):
    return json.loads((folder / name).read_text())


def test_older_files_of_the_same_set_are_removed(record, tmp_path):
    kept = names(tmp_path) | {"README.md", "question_answering.json"}
    (tmp_path / "README.md").write_text("card")
    task_files.write_settings(str(tmp_path), SquadSettings())
    write(record, tmp_path, evaluate(tmp_path))
    written = ANSWERS | SCORES | {"predicted_sets.json"}
    assert names(tmp_path) - kept == written | {"null_odds.json"}
    write(record, tmp_path, evaluate(tmp_path, with_negative=False))
    assert names(tmp_path) - kept == written
    assert kept <= names(tmp_path)


def test_files_of_another_set_are_kept_with_its_name(record, tmp_path, caplog):
    write(record, tmp_path, evaluate(tmp_path))
    before = {name: (tmp_path / name).read_bytes() for name in SCORES}
    answers = (tmp_path / "predictions.json").read_bytes()
    # A set without answers: report and scores stay as they are.
    write(record, tmp_path, evaluate(tmp_path, labeled=False, name="test.json"))
    assert {name: (tmp_path / name).read_bytes() for name in SCORES} == before
    assert (tmp_path / "predictions_dev.json").read_bytes() == answers
    assert (tmp_path / "null_odds_dev.json").exists()
    assert "predictions.json is of another set and is kept as" in caplog.text
    # A set with answers and the same name, in another directory.
    write(record, tmp_path, evaluate(tmp_path, name="other/test.json"))
    for name, content in before.items():
        stem, _, ending = name.partition(".")
        assert (tmp_path / f"{stem}_dev.{ending}").read_bytes() == content
    assert (tmp_path / "predictions_test.json").exists()
    # The first set again: two sets are called "test".
    write(record, tmp_path, evaluate(tmp_path))
    sets = read(tmp_path, "predicted_sets.json")
    (other,) = tmp_path.glob("predictions_test-*.json")
    assert sets["predictions.json"]["set"] == "dev"
    assert sets[other.name]["set"] == "test"
    assert sets[other.name] != sets["predictions_test.json"]


def test_blocks_become_one_file(record, tmp_path):
    made = evaluate(tmp_path)
    write(record, tmp_path, made)
    names = ("text", "probability", "start_logit", "end_logit")
    lists = {
        number: [dict(zip(names, e, strict=False)) for e in answers.entries]
        for number, answers in made.answers.items()
    }
    path = tmp_path / "nbest_predictions.json"
    assert path.read_text() == json.dumps(lists, indent=4) + "\n"
    assert not (tmp_path / blocks.UNFINISHED).exists()


def test_files_of_an_unknown_set_are_kept_too(record, tmp_path):
    (tmp_path / "predictions.json").write_text("{}")
    write(record, tmp_path, evaluate(tmp_path))
    assert (tmp_path / "predictions_earlier.json").read_text() == "{}"


def test_a_model_anywhere_has_the_settings_of_its_task(
    record, tmp_path, monkeypatch
):
    """As in best/, of which the output directory's threshold is not."""

    def save(model, directory, tokenizer):
        assert task_files.read_settings(directory) is not None

    monkeypatch.setattr(model_directory, "save", save)
    best = tmp_path / "best"
    record.write_model(None, str(best))
    assert task_files.read_settings(str(best)) == SquadSettings(
        version_2_with_negative=True
    )
    assert task_files.read_settings(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("name", "with_negative", "datasets"),
    [
        ("train-v1.1.json", False, ["rajpurkar/squad"]),
        ("train-v2.0.json.gz", True, ["rajpurkar/squad_v2"]),
        ("train-v1.1.json", True, []),
        ("questions_v1.2.json", False, []),
        ("train-v1.1.json.bak", False, []),
    ],
)
def test_a_card_names_a_released_training_set_only(
    tmp_path, monkeypatch, name, with_negative, datasets
):
    cards = []
    files = types.SimpleNamespace(
        is_chief=True,
        output_dir=str(tmp_path),
        tokenizer=None,
        results=types.SimpleNamespace(best={"values": {}}),
        new_weights=lambda model: "digest",
        begin_card=lambda title, **fields: cards.append(fields["datasets"]),
    )
    monkeypatch.setattr(model_directory, "save", lambda *_: None)
    (tmp_path / name).touch()
    outputs.OutputWriter(
        files,
        trained_on=dataset.QuestionSet(
            path=str(tmp_path / name), contexts=[], questions=[]
        ),
        with_negative=with_negative,
        threshold=None,
    ).save_model(None)
    assert list(cards[0]) == datasets


def test_the_report_marks_answers_in_their_paragraphs(tmp_path):
    context = f"{'x ' * 600}It was Bob & Ann. {'y ' * 600}"
    start = context.index("Bob")
    question = dataset.Question(
        id="q1",
        text="Who was it?",
        paragraph=0,
        answers=[dataset.Answer("Bob & Ann", start)],
    )
    found = dataset.QuestionSet(
        path=str(tmp_path / "dev.json"),
        contexts=[context],
        questions=[question],
    )
    wrong = start - 20
    for first, last, kind in (
        (start, start + 9, "good"),
        (wrong, wrong + 1, "bad"),
    ):
        entry = Answer(context[first:last], 0.5, 1.0, 1.0, (first, last))
        made = outputs.evaluate(
            found, [AnswerList([entry], -1.0)], with_negative=False
        )
        shown = dict(outputs.sections(made))
        assert "who" in shown["By type of question"]
        page = shown["Answers"]
        assert f'<mark class="{kind}">' in page and "Bob &amp; Ann" in page
        assert ("<sub>correct</sub>" in page) == (kind == "bad")
        assert ("Who was it?" in shown["Worst mistakes"]) == (kind == "bad")
