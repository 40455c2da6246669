"""Proves that each output file is of one set, and that none is lost.

python -m pytest tests/tasks/squad/squad_outputs_writer_test.py
"""

import dataclasses
import json
import types

import pytest

from data.tokenization import vocabulary, wordpiece
from foundation import config_flags
from jobs import grid, source, streaming
from jobs import outputs as run_outputs
from tasks.squad import blocks, dataset, outputs, settings, task
from tasks.squad.decoding import Answer, AnswerList
from weights import model_directory, task_files
from weights.task_files import SquadSettings

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "?"]
TOKENIZER = wordpiece.Tokenizer(vocabulary.Vocabulary.from_tokens(WORDS))
SCORES = {"eval_results.txt", "eval_results.json", "report.html"}
SETS = ("dev.json", "test.json", "other/test.json")
ANSWERS = {"predictions.json", "nbest_predictions.json"}


def question_set(root, *, labeled=True, with_negative=True, name="dev.json"):
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
    return dataset.QuestionSet(
        path=str(root / name),
        contexts=["a"],
        questions=made,
        has_impossible=with_negative and labeled,
    )


def answers():
    """The answers to both questions."""
    entries = [Answer("a", 1.0, 0.0, 0.0, (0, 1)), Answer("", 0.0, 0, 0, None)]
    return [AnswerList(entries, -1.0), AnswerList(entries, 1.0)]


def evaluate(found, *, with_negative=True):
    return outputs.evaluate(found, answers(), with_negative=with_negative)


@pytest.fixture
def squad(tmp_path):
    """A task beside a model, which is not read; sets differ by a byte."""
    for i, name in enumerate(["model.safetensors", *SETS]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes([i]))
    return make_task(tmp_path)


def make_task(folder):
    start = types.SimpleNamespace(config=None, tokenizer=TOKENIZER)
    return task.SquadTask(
        make_config(folder),
        source.ModelSource(case="GIVEN", start=start, folder=None),
    )


def make_config(folder):
    return config_flags.build(
        settings.SquadConfig,
        output_dir=str(folder),
        question="?",
        context="a",
        version_2_with_negative=True,
    )


def use(squad, **sets):
    """Replaces the sets of a task."""
    squad.sets = dataclasses.replace(squad.sets, **sets)


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
    squad, tmp_path, before, after
):
    if before is not None:
        task_files.write_settings(str(tmp_path), before)
    made = evaluate(question_set(tmp_path))
    assert made.threshold_found
    for call in (
        lambda: squad.store_threshold(made),
        lambda: write(squad, tmp_path),
    ):
        call()
        stored = task_files.read_settings(str(tmp_path))
        if after is None:
            assert stored == before
        else:
            assert stored.null_score_diff_threshold == after
    assert set(made.predictions.values()) == {"a", ""}


def open_outputs(folder):
    return run_outputs.Outputs(
        output_dir=str(folder),
        flags={},
        given_flags={},
        results=grid.Results(str(folder)),
    )


def answer(folder, found):
    """Returns the answers in two blocks."""
    store = streaming.Blocks(str(folder / blocks.UNFINISHED), {})
    answered = zip(found.questions, answers(), strict=True)
    for number, row in enumerate(answered):
        assert not store.find(number, "")
        store.add(number, "", blocks.answer_parts([row], has_files=True))
    return store


def write(squad, folder, *, with_negative=True, **options):
    """Writes a set as --do_predict does."""
    found = question_set(folder, with_negative=with_negative, **options)
    use(squad, predict=found, with_negative=with_negative)
    config = make_config(folder)
    # A model that computes nothing: the answers are there already.
    builder = types.SimpleNamespace(strategy=None)
    task_model = types.SimpleNamespace(config=config, builder=builder)
    predicted = task.PredictFile(squad, config, task_model, 3)
    store = answer(folder, found)
    predicted.write(store, open_outputs(folder))
    store.remove()


def names(folder):
    return {path.name for path in folder.iterdir() if path.is_file()}


def read(folder, name):
    return json.loads((folder / name).read_text())


def test_older_files_of_the_same_set_are_removed(squad, tmp_path):
    kept = names(tmp_path) | {"README.md", "question_answering.json"}
    (tmp_path / "README.md").write_text("card")
    task_files.write_settings(str(tmp_path), SquadSettings())
    write(squad, tmp_path)
    written = ANSWERS | SCORES | {"predicted_sets.json"}
    logits = {blocks.LOGITS}
    assert names(tmp_path) - kept == written | {"null_odds.json"} | logits
    write(squad, tmp_path, with_negative=False)
    assert names(tmp_path) - kept == written | logits
    # An ensemble of lists has no logits.
    found = squad.sets.predict
    outputs.write_set(
        evaluate(found, with_negative=False),
        answer(tmp_path, found),
        None,
        open_outputs(tmp_path),
    )
    assert names(tmp_path) - kept == written
    assert kept <= names(tmp_path)


def test_files_of_another_set_are_kept_with_its_name(squad, tmp_path, caplog):
    caplog.set_level("INFO")
    write(squad, tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in SCORES}
    answers = (tmp_path / "predictions.json").read_bytes()
    # A set without answers: report and scores stay as they are.
    write(squad, tmp_path, labeled=False, name="test.json")
    assert {name: (tmp_path / name).read_bytes() for name in SCORES} == before
    assert (tmp_path / "predictions_dev.json").read_bytes() == answers
    assert (tmp_path / "null_odds_dev.json").exists()
    assert "predictions.json as predictions_dev.json" in caplog.text
    # A set with answers and the same name, in another directory.
    write(squad, tmp_path, name="other/test.json")
    for name, content in before.items():
        stem, _, ending = name.partition(".")
        assert (tmp_path / f"{stem}_dev.{ending}").read_bytes() == content
    assert (tmp_path / "predictions_test.json").exists()
    # The first set again: two sets are called "test".
    write(squad, tmp_path)
    sets = read(tmp_path, "predicted_sets.json")
    (other,) = tmp_path.glob("predictions_test-*.json")
    assert sets["predictions.json"]["set"] == "dev"
    assert sets[other.name]["set"] == "test"
    assert sets[other.name] != sets["predictions_test.json"]


def test_blocks_become_one_file(squad, tmp_path):
    write(squad, tmp_path)
    names = ("text", "probability", "start_logit", "end_logit")
    lists = {
        question.id: [dict(zip(names, e, strict=False)) for e in found.entries]
        for question, found in zip(
            squad.sets.predict.questions, answers(), strict=True
        )
    }
    path = tmp_path / "nbest_predictions.json"
    assert path.read_text() == json.dumps(lists, indent=4) + "\n"


def test_files_of_an_unknown_set_are_kept_too(squad, tmp_path):
    (tmp_path / "predictions.json").write_text("{}")
    write(squad, tmp_path)
    assert (tmp_path / "predictions_earlier.json").read_text() == "{}"


def test_a_model_anywhere_has_the_settings_of_its_task(
    squad, tmp_path, monkeypatch
):
    """As in best/, of which the output directory's threshold is not."""

    def save(model, directory, tokenizer):
        assert task_files.read_settings(directory) is not None

    monkeypatch.setattr(model_directory, "save", save)
    best = str(tmp_path / "best")
    squad.save(None, best, None)
    own = SquadSettings(version_2_with_negative=True)
    assert task_files.read_settings(best) == own
    assert task_files.read_settings(str(tmp_path)) is None


def test_the_threshold_of_the_same_weights_stays(squad, tmp_path, monkeypatch):
    monkeypatch.setattr(model_directory, "save", lambda *_: None)
    best = str(tmp_path / "best")
    squad.save(None, best, None, is_same=True)  # Whose settings are lost.
    own = SquadSettings(version_2_with_negative=True)
    assert task_files.read_settings(best) == own
    found = dataclasses.replace(own, null_score_diff_threshold=-1.5)
    task_files.write_settings(best, found)
    squad.save(None, best, None, is_same=True)
    assert task_files.read_settings(best) == found
    squad.save(None, best, None)
    assert task_files.read_settings(best) == own


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
    tmp_path, name, with_negative, datasets
):
    (tmp_path / name).touch()
    squad = make_task(tmp_path)
    train = dataset.QuestionSet(
        path=str(tmp_path / name), contexts=[], questions=[]
    )
    use(squad, train=train, with_negative=with_negative)
    assert list(squad.card({}).datasets) == datasets


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
