"""Proves that the paper's tables are declared completely, with its settings.

python -m pytest tests/paper/paper_tables_test.py
"""

import collections
import re
import subprocess
import sys

import pytest

from paper import tables


def make(name, scale="paper", **inputs):
    """Returns the rows of a table and its commands."""
    lab = tables.Lab(tables.SCALES[scale], tables.Inputs(**inputs), "out")
    return [*tables.TABLES[name].rows(lab)], [*lab.commands.values()]


def flags_of(name, program, *arguments, **inputs):
    _, commands = make(name, *arguments, **inputs)
    return [c.flags for c in commands if c.program == program]


@pytest.mark.parametrize("scale", tables.SCALES)
def test_commands_of_a_name_are_equal_and_read_what_others_wrote(scale):
    lines, outputs = {}, {}
    for name in tables.TABLES:
        written = {"out/configs"}
        rows, commands = make(name, scale)
        for command in commands:
            arguments = lines.setdefault(command.name, command.arguments)
            assert arguments == command.arguments
            flags = dict(command.flags)
            (output,) = (
                flags.pop(x)
                for x in ("output_dir", "output_prefix", "output_file")
                if x in flags
            )
            for path in ",".join(map(str, flags.values())).split(","):
                if path.startswith("out/"):
                    assert any(path.startswith(x) for x in written), path
            written.add(output)
            outputs[output] = command.name
        scored = [c for row in rows for cs, _ in row.ours.values() for c in cs]
        assert {c.name for c in scored} <= {c.name for c in commands}
    assert len(outputs) == len(lines)


@pytest.mark.parametrize(
    "name, rows, cells, total",
    [
        ("1", 2, 18, 1455.1),
        ("2", 5, 10, 875.6),
        ("3", 1, 2, 160.6),
        ("4", 2, 2, 168.2),
        ("5", 4, 20, 1708.7),
        ("6", 6, 24, 1582.12),
        ("7", 8, 10, 947.2),
        ("8", 6, 18, 1642.1),
        ("figure5", 2, 12, 0.0),
    ],
)
def test_the_papers_cells_are_complete(name, rows, cells, total):
    """The totals were added apart from this code."""
    made, _ = make(name)
    assert len({row.label for row in made}) == len(made) == rows
    numbers = [number for row in made for number in row.paper]
    assert len(numbers) == cells == sum(len(row.ours) for row in made)
    numbers = [number or 0.0 for number in numbers]
    assert sum(numbers) == pytest.approx(total, abs=0.01)


def test_training_has_the_papers_settings():
    inputs = dict(base_checkpoint="base", large_checkpoint="large")
    glue = flags_of("1", "run_classifier.py", **inputs)
    assert {x["learning_rate"] for x in glue} == {"5e-5,4e-5,3e-5,2e-5"}
    assert {x["train_batch_size"] for x in glue} == {32}
    assert [x.get("num_seeds", 1) for x in glue] == [1] * 8 + [5] * 8
    (squad,) = flags_of("3", "run_squad.py", **inputs)
    assert squad["version_2_with_negative"]
    assert (squad["train_batch_size"], squad["num_train_epochs"]) == (48, 2)
    swag = flags_of("4", "run_classifier.py", **inputs)[0]
    assert (swag["train_batch_size"], swag["learning_rate"]) == (16, "2e-5")
    ner = flags_of("7", "run_ner.py")
    assert [x["random_seed"] for x in ner[:5]] == [1, 2, 3, 4, 5]
    assert ner[0]["document_context"] == "maximal"
    (flags,) = flags_of("4", "run_pretraining.py", large_checkpoint="x")
    assert flags["phases"] == "128:900000,512:100000"
    assert flags["train_batch_size"] == 256
    assert (flags["learning_rate"], flags["num_warmup_steps"]) == (1e-4, 10_000)


def test_the_ablations_differ_only_in_what_they_name():
    trained = flags_of("5", "run_pretraining.py")
    assert len(trained) == 3  # The BiLSTM is added in fine-tuning.
    assert len({x["objective"] for x in trained}) == 3
    assert len({x["input_file"] for x in trained}) == 1
    weights = {x.get("next_sentence_loss_weight") for x in trained}
    assert weights == {1.0, None}
    small = flags_of("6", "run_pretraining.py", "small")
    assert {x["next_sentence_loss_weight"] for x in small} == {0.1}
    assert flags_of("5", "run_squad.py")[-1]["bilstm_size"] == 768
    # Figure 5 starts from checkpoints; masked LM alone is not plotted.
    assert [x["keep_checkpoint_max"] for x in trained] == [21, 2, 21]
    halfway = flags_of("figure5", "run_classifier.py")[2 * 5]
    assert halfway["init_checkpoint"].endswith("_weight1/model.ckpt-500000")
    records = flags_of("8", "create_pretraining_data.py")
    shares = [
        (x["mask_token_prob"], x["random_token_prob"])
        for x in records
        if x["max_seq_length"] == 512 and "heldout" not in x["output_prefix"]
    ]
    copies = {
        x["dupe_factor"]: "heldout" in x["output_prefix"] for x in records
    }
    assert copies == {1: True, 10: False}
    assert shares == [
        *((0.8, 0.1), (1.0, 0.0), (0.8, 0.2), (0.8, 0.0), (0.0, 0.8)),
        (0.0, 1.0),
    ]


def test_every_command_has_the_flags_that_it_is_given(repository):
    used = collections.defaultdict(set)
    for name in tables.TABLES:
        for command in make(name, "tiny")[1]:
            used[command.program] |= command.flags.keys()
    assert len(used) == 7
    for program, names in used.items():
        is_file = program.endswith(".py")
        start = [program] if is_file else ["-m", program]
        shown = subprocess.run(
            [sys.executable, *start, "--help"],
            cwd=repository,
            capture_output=True,
            text=True,
        )
        known = re.findall(r"--(?:\[no\])?(\w+)", shown.stdout)
        assert names <= {*known}, program
