"""Proves run_ner.py in small: train, evaluate, predict, talk, bad input.

python -m pytest tests/run_ner_test.py
"""

import io
import json
import random

import pytest
import tiny_runs

import run_ner
from data import conll
from modeling import model_directory, models
from tasks import entities, feature_based

FIRST, LAST = ["jim", "ann", "bob"], ["smith", "jones", "li"]
PLACES = ["rome", "paris", "lima"]
FILLING = [f"w{i}" for i in range(20)] + ["."]
WORDS = tiny_runs.SPECIAL + FIRST + LAST + PLACES + FILLING


def sentence(rng):
    """Words and IOB1 tags: a first name alone or with a last, places."""
    words, tags = [], []
    for _ in range(rng.choice([1, 2, 3, 9, 40])):
        kind = rng.random()
        if kind < 0.2:
            is_neighbor = tags and tags[-1].endswith("PER")
            words.append(rng.choice(FIRST))
            tags.append("B-PER" if is_neighbor else "I-PER")
            if rng.random() < 0.5:
                words.append(rng.choice(LAST))
                tags.append("I-PER")
        elif kind < 0.3 and not (tags and tags[-1] == "I-LOC"):
            words.append(rng.choice(PLACES))
            tags.append("I-LOC")
        else:
            words.append(rng.choice(FILLING))
            tags.append("O")
    return words, tags


def write_file(path, seed, count, *, tags=True):
    rng = random.Random(seed)
    lines = []
    for i in range(count):
        if i % 8 == 0:
            lines += ["-DOCSTART- -X- O\n", "\n"]
        words, found = sentence(rng)
        rows = zip(words, found, strict=True)
        lines += [f"{w} x {t}\n" if tags else f"{w}\n" for w, t in rows]
        lines.append("\n")
    path.write_text("".join(lines))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A tiny encoder with its vocabulary, and data."""
    place = tmp_path_factory.mktemp("data")
    tiny_runs.save_encoder(place / "encoder", WORDS)
    write_file(place / "eng.train", 1, 300)
    write_file(place / "eng.testa", 2, 60)
    write_file(place / "eng.testb", 3, 50)
    write_file(place / "words.txt", 3, 50, tags=False)
    return place


def run(place, name, *switches, **flags):
    """Calls the runner as a command line would."""
    flags = {
        "data_dir": place,
        "init_checkpoint": place / "encoder",
        "output_dir": place / name,
        "max_seq_length": 32,
        "learning_rate": 5e-3,
        "save_checkpoints_steps": 1000,
        "precision": "float32",
        "num_train_epochs": 8,
    } | flags
    tiny_runs.run(run_ner, run_ner.NerConfig, *switches, **flags)
    return place / name


def columns(path):
    """Words, true tags and predicted tags of a file for conlleval."""
    rows = [line.split() for line in path.read_text().splitlines()]
    return zip(*(row for row in rows if row), strict=True)


@pytest.fixture(scope="module")
def trained(place):
    """A run from start to end."""
    return run(
        place, "ner", "--do_train", "--do_eval", "--do_predict", "--verbosity=0"
    )


def test_it_learns_and_writes_the_released_keys(trained):
    values = tiny_runs.eval_results(trained)
    assert values["eval_f1"] > 0.9
    assert values["eval_f1_PER"] > 0.8
    # Sentences of more than 30 pieces are several sequences.
    assert values["global_step"] >= int(300 / 32 * 8)
    assert {"eval_precision", "eval_recall", "eval_accuracy"} <= set(values)


@pytest.mark.parametrize("split", ["dev", "test"])
def test_the_predictions_are_what_was_scored(trained, place, split):
    path = trained / f"predictions_{split}.txt"
    source = conll.read(
        str(place / {"dev": "eng.testa", "test": "eng.testb"}[split])
    )
    again = conll.read(str(path))
    assert list(again.words) == list(source.words)
    assert list(again.row_splits) == list(source.row_splits)
    true = conll.read(str(path), tag_column=1)
    assert true.tags == source.tags
    scores = entities.score(
        true.split(true.tags),
        again.split(again.tags),
        boundaries=conll.count_boundaries(source),
    )
    assert (trained / f"scores_{split}.txt").read_text() == scores.text()
    if split == "dev":
        assert tiny_runs.eval_results(trained)["eval_f1"] == scores.total.f1


def test_a_model_directory_with_card_and_report_is_left(trained):
    labels = "O B-LOC I-LOC B-PER I-PER".split()
    assert model_directory.read_labels(str(trained)) == labels
    card = (trained / "README.md").read_text()
    for text in ("words of eng.train, SHA-256", "eval_f1", "test_f1_PER"):
        assert text in card
    page = (trained / "report.html").read_text()
    for heading in ("By type", "Confusions", "By length", "Worst sentences"):
        assert heading in page
    for name in ("train", "eval", "predict"):
        assert (trained / f"{name}.tf_record").exists()


def test_a_trained_model_predicts_the_same_of_words_alone(trained, place):
    before = (trained / "metrics.jsonl").read_bytes()
    other = run(
        place,
        "other",
        "--do_predict",
        init_checkpoint=trained,
        data_dir=None,
        test_file=place / "words.txt",
        predict_batch_size=3,
    )
    again = conll.read(str(other / "predictions_test.txt"))
    first = conll.read(str(trained / "predictions_test.txt"))
    assert list(again.words) == list(first.words)
    # A file without tags gets those that begin every span by B-.
    theirs = [list(entities.phrases(t)) for t in again.split(again.tags)]
    ours = [list(entities.phrases(t)) for t in first.split(first.tags)]
    assert list(map(sorted, theirs)) == list(map(sorted, ours))
    assert (trained / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("scheme", ["bio2", "iobes"])
def test_document_context_and_every_scheme(place, scheme):
    folder = run(
        place,
        f"context_{scheme}",
        "--do_train",
        "--do_eval",
        document_context="maximal",
        doc_stride=12,
        model_scheme=scheme,
        num_train_epochs=6,
    )
    assert tiny_runs.eval_results(folder)["eval_f1"] > 0.85
    labels = model_directory.read_labels(str(folder))
    assert ("S-PER" in labels) == (scheme == "iobes")


def test_raw_text_gives_entities_by_character(
    trained, place, monkeypatch, capsys
):
    line = "w1 Jim Smith, w2 Rome."
    (place / "text.txt").write_text(f"{line}\n\nw3\n")
    folder = run(
        place,
        "ner",
        "--do_predict",
        data_dir=None,
        init_checkpoint=None,
        text_file=place / "text.txt",
    )
    lines = (folder / "entities.jsonl").read_text().splitlines()
    records = [json.loads(text) for text in lines]
    assert [record["text"] for record in records] == [line, "", "w3"]
    found = {(e["type"], e["start"], e["end"]) for e in records[0]["entities"]}
    assert found == {("PER", 3, 12), ("LOC", 17, 21)}
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{line}\n\n"))
    capsys.readouterr()
    run(place, "ner", "--interactive", data_dir=None, init_checkpoint=None)
    shown = capsys.readouterr().out.splitlines()
    assert shown == ["w1 [Jim Smith PER], w2 [Rome LOC].", ""]


def test_tags_without_spans_are_learned_as_they_are(place):
    rng = random.Random(4)
    rows = [rng.choice(WORDS[5:]) for _ in range(2000)]
    text = "".join(
        f"{word}\t{'NNP' if word in FIRST + LAST + PLACES else 'NN'}\n"
        + ("\n" if rng.random() < 0.1 else "")
        for word in rows
    )
    (place / "pos.txt").write_text(text)
    folder = run(
        place,
        "pos",
        "--do_train",
        "--do_eval",
        data_dir=None,
        train_file=place / "pos.txt",
        dev_file=place / "pos.txt",
        num_train_epochs=3,
    )
    assert tiny_runs.eval_results(folder)["eval_accuracy"] > 0.95
    assert model_directory.read_labels(str(folder)) == ["NN", "NNP"]


TRAIN = {"do_train": True}
EVAL = {"do_eval": True, "init_checkpoint": "trained"}
PREDICT = {"do_predict": True, "init_checkpoint": "trained"}
BAD = {
    "no_mode": ({}, "at least one of --do_train"),
    "no_train": (TRAIN | {"data_dir": None}, "--train_file is required"),
    "unknown_label": (
        TRAIN | {"do_eval": True, "dev_file": "odd.txt"},
        "odd.txt:2: tag 'I-ORG' is none of",
    ),
    "missing_column": (
        TRAIN | {"train_file": "short.txt"},
        "short.txt:3: 1 column",
    ),
    "types": (TRAIN | {"entity_types": "PER"}, "eng.train also has LOC"),
    "no_tags": (TRAIN | {"train_file": "words.txt"}, "no column of tags"),
    "nothing": (PREDICT | {"data_dir": None}, "--test_file or --text_file"),
    "no_documents": (
        TRAIN | {"document_context": "maximal", "train_file": "nodoc.txt"},
        "nodoc.txt: --document_context needs",
    ),
    "stride": (TRAIN | {"doc_stride": 5}, "--doc_stride needs"),
    "uncased": (TRAIN | {"true_case": True}, "--true_case: the model is"),
    "stored_labels": (EVAL | {"dev_file": "odd.txt"}, "odd.txt:2: tag 'I-ORG'"),
}


@pytest.mark.parametrize("flags, message", BAD.values(), ids=BAD)
def test_bad_input_is_one_line_and_exit_code_2(
    place, trained, capsys, flags, message
):
    (place / "odd.txt").write_text("a x O\nb x I-ORG\n")
    (place / "short.txt").write_text("a x I-LOC\nb x O\nc\n")
    (place / "nodoc.txt").write_text("a x I-LOC\nb x O\n\n")
    files = ("train_file", "dev_file", "test_file")
    flags = {k: place / v if k in files else v for k, v in flags.items()}
    if flags.get("init_checkpoint") == "trained":
        flags["init_checkpoint"] = trained
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit:
        run(place, "bad", **flags)
    assert exit.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert message in line


@pytest.fixture(scope="module")
def deep(place):
    """An encoder of four layers."""
    return tiny_runs.save_encoder(place / "deep", WORDS, num_hidden_layers=4)


def test_all_choices_of_features_in_one_command(
    place, deep, capsys, monkeypatch
):
    names = ("last", "weighted_sum_last_four")  # Six would take minutes.
    monkeypatch.setattr(feature_based, "CHOICES", names)
    flags = {"features": "all", "lstm_size": 8, "num_train_epochs": 0.5}
    flags |= {"init_checkpoint": deep, "train_batch_size": 64}
    modes = "--do_train", "--do_eval", "--do_predict"
    folder = run(place, "features", *modes, **flags)
    results = json.loads((folder / "feature_results.json").read_text())
    assert list(results) == list(names)
    for name, done in results.items():
        assert set(done["values"]) == {"dev", "test"}
        assert (folder / "features" / name / "report.html").exists()
        scores = folder / "features" / name / "scores_test.txt"
        assert scores.read_text().startswith("processed")
    table = (folder / "feature_results.txt").read_text()
    assert capsys.readouterr().out.endswith(table)
    assert len(table.splitlines()) == 3
    # Activations and finished choices are there: nothing is done again.
    paths = [*(folder / "activations").iterdir(), *folder.glob("features/*/*")]
    times = {path: path.stat().st_mtime_ns for path in paths}
    (folder / "features/last/result.json").unlink()
    run(place, "features", *modes, **flags)
    for path in paths:
        if path.parent.name != "last" and path.name != "labels.json":
            assert path.stat().st_mtime_ns == times[path], path
    again = json.loads((folder / "feature_results.json").read_text())
    for done in (results["last"], again["last"]):
        done.pop("seconds")
    assert again == results


def test_a_tagger_learns_from_activations(place, deep):
    folder = run(
        place,
        "frozen",
        "--do_train",
        "--do_eval",
        init_checkpoint=deep,
        features="concat_last_four",
        lstm_size=24,
        lstm_learning_rate=1e-2,
        num_train_epochs=12,
    )
    values = tiny_runs.eval_results(folder / "features/concat_last_four")
    assert values["eval_f1"] > 0.8
    before = (folder / "feature_results.json").read_text()
    (folder / "features/concat_last_four/result.json").unlink()
    run(
        place,
        "frozen",
        "--do_eval",
        data_dir=None,
        dev_file=place / "eng.testa",
        init_checkpoint=deep,
        features="concat_last_four",
        lstm_size=24,
    )
    assert (
        tiny_runs.eval_results(folder / "features/concat_last_four") == values
    )
    results = [before, (folder / "feature_results.json").read_text()]
    first, again = (json.loads(r)["concat_last_four"] for r in results)
    assert first["values"] == again["values"]


def test_features_of_a_shallow_encoder_are_refused(place, capsys):
    flags = {"features": "concat_last_four", "do_train": True}
    with pytest.raises(SystemExit):
        run(place, "shallow", **flags)
    error = capsys.readouterr().err.splitlines()[-1]
    assert "--features=concat_last_four: the model has only 2 layer" in error


def test_a_crf_is_trained_kept_and_used(place):
    flags = {"num_train_epochs": 6}
    folder = run(place, "crf", "--do_train", "--do_eval", "--crf", **flags)
    values = tiny_runs.eval_results(folder)
    assert values["eval_f1"] > 0.85
    assert (folder / "crf.json").exists()
    # The model beside it is a plain one, which others can load as well.
    report = model_directory.load_weights(
        models.TaggingModel(tiny_runs.config(WORDS), num_classes=5), str(folder)
    )
    assert not report.initialized and not report.left_over
    other = run(
        place,
        "crf_other",
        "--do_eval",
        data_dir=None,
        dev_file=place / "eng.testa",
        init_checkpoint=folder,
    )
    found = tiny_runs.eval_results(other)
    assert found["eval_f1"] == values["eval_f1"]
    predictions = [f / "predictions_dev.txt" for f in (folder, other)]
    assert predictions[0].read_text() == predictions[1].read_text()


def test_lines_in_capitals_are_read_as_elsewhere(place):
    """A cased model knows no word in capitals, but for this flag."""
    path = place / "cased.train"
    path.write_text((place / "eng.train").read_text() * 2)
    capitals = place / "capitals.txt"
    source = conll.read(str(place / "eng.testa"))
    rows = zip(source.words, source.tags, strict=True)
    lines = [f"{word.upper()} {tag}\n" for word, tag in rows]
    parts = [part for part in source.split(lines) if len(part) > 1]
    capitals.write_text("\n".join(map("".join, parts)))
    flags = {"do_lower_case": False, "num_train_epochs": 4, "data_dir": None}
    f1 = {}
    for name in ("plain", "true"):
        folder = run(
            place,
            f"case_{name}",
            "--do_train",
            train_file=path,
            true_case=name == "true",
            **flags,
        )
        run(
            place,
            f"case_{name}",
            "--do_predict",
            test_file=capitals,
            init_checkpoint=None,
            data_dir=None,
        )
        path_of = folder / "predictions_test.txt"
        tagged = conll.read(str(path_of))
        true = conll.read(str(path_of), tag_column=1)
        assert all(word == word.upper() for word in tagged.words)
        sides = (side.split(side.tags) for side in (true, tagged))
        f1[name] = entities.score(*sides).total.f1
    assert f1["true"] > 0.8
    assert f1["plain"] < 0.4
