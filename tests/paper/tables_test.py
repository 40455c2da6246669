"""Proves that the paper's tables are declared completely.

python -m pytest tests/paper/tables_test.py
"""

import dataclasses

import pytest

from paper import execution, protocol, tables
from paper.experiments import Experiments, Inputs
from paper.protocol import PAPER, SCALES, SMALL, TINY


def lab(scale=PAPER, **inputs):
    return Experiments(scale, Inputs(**inputs), "out")


def flags_of(table, program):
    return [c.flags for c in table.commands() if c.program == program]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", tables.TABLES)
def test_every_command_comes_after_those_that_it_needs(name, scale):
    table = tables.TABLES[name](lab(SCALES[scale]))
    finished = set()
    for command in table.commands():
        assert {needed.name for needed in command.needs} <= finished
        finished.add(command.name)
    assert table.name == name


@pytest.mark.parametrize("name", tables.TABLES)
def test_two_commands_never_write_one_directory(name):
    commands = tables.TABLES[name](lab()).commands()
    outputs = [
        c.flags.get("output_dir")
        or c.flags.get("output_prefix")
        or c.flags["output_file"]
        for c in commands
    ]
    assert len(set(outputs)) == len(outputs)


@pytest.mark.parametrize(
    "name, rows, cells",
    [
        ("1", 2, 18),
        ("2", 5, 10),
        ("3", 1, 2),
        ("4", 2, 2),
        ("5", 4, 20),
        ("6", 6, 24),
        ("7", 8, 10),
        ("8", 6, 18),
        ("figure5", 2, 12),
    ],
)
def test_the_papers_rows_and_cells_are_complete(name, rows, cells):
    table = tables.TABLES[name](lab())
    assert len(table.rows) == rows
    assert sum(len(row.scores) for row in table.rows) == cells
    if name != "figure5":
        for row in table.rows:
            assert set(row.paper) == set(row.scores)


def test_fine_tuning_has_the_papers_settings():
    inputs = dict(base_checkpoint="base", large_checkpoint="large")
    glue = flags_of(tables.table_1(lab(**inputs)), "run_classifier")
    mnli = next(f for f in glue if f["task_name"] == "mnli")
    assert mnli["learning_rate"] == "5e-5,4e-5,3e-5,2e-5"
    assert (mnli["train_batch_size"], mnli["num_train_epochs"]) == (32, 3)
    (squad,) = flags_of(tables.table_3(lab(**inputs)), "run_squad")
    assert squad["version_2_with_negative"]
    assert (squad["train_batch_size"], squad["num_train_epochs"]) == (48, 2)
    swag = flags_of(tables.table_4(lab(**inputs)), "run_classifier")[0]
    assert (swag["train_batch_size"], swag["learning_rate"]) == (16, "2e-5")
    ner = flags_of(tables.table_7(lab(**inputs)), "run_ner")[0]
    assert (ner["num_seeds"], ner["document_context"]) == (5, "maximal")


def test_pretraining_has_the_papers_settings():
    (flags,) = flags_of(
        tables.table_4(lab(large_checkpoint="x")), "run_pretraining"
    )
    assert flags["phases"] == "128:900000,512:100000"
    assert flags["train_batch_size"] == 256
    assert (flags["learning_rate"], flags["num_warmup_steps"]) == (1e-4, 10_000)


def test_a_released_checkpoint_replaces_pretraining():
    inputs = dict(base_checkpoint="base", large_checkpoint="a,b,c")
    table = tables.table_2(lab(**inputs))
    assert not flags_of(table, "run_pretraining")
    starts = [
        f["init_checkpoint"]
        for f in flags_of(table, "run_squad")
        if "random_seed" in f and "triviaqa" not in f["output_dir"]
    ]
    assert starts == ["a", "b", "c", "a", "b", "c", "a"]


def test_the_ablations_differ_only_in_their_objective():
    found = flags_of(tables.table_5(lab()), "run_pretraining")
    assert len(found) == 3  # The BiLSTM is added in fine-tuning.
    for flags in found:
        assert flags["input_file"] == found[0]["input_file"]
    assert {flags["objective"] for flags in found} == {
        "masked_lm_and_next_sentence",
        "masked_lm",
        "left_to_right",
    }
    bilstm = flags_of(tables.table_5(lab()), "run_squad")[-1]
    assert bilstm["bilstm_size"] == 768


@pytest.mark.parametrize("name", tables.TABLES)
def test_no_command_has_longer_sequences_than_the_model(name):
    longest = max(phase.length for phase in TINY.phases)
    for command in tables.TABLES[name](lab(TINY)).commands():
        if "init_checkpoint" in command.flags:
            assert command.flags["max_seq_length"] <= longest


def test_findings_can_be_read_several_times():
    for make in tables.TABLES.values():
        table = make(lab(SMALL))
        assert list(table.findings) == list(table.findings)


def test_tables_have_their_commands_in_common():
    experiments = lab(SMALL)
    both = [tables.table_5(experiments), tables.figure_5(experiments)]
    total = protocol.commands_of(both)
    assert len(total) < sum(len(table.commands()) for table in both)
    assert len({c.name for c in total}) == len(total)


@pytest.mark.parametrize("scale", SCALES)
def test_all_tables_together_have_the_runs_of_each_alone(scale):
    together = lab(SCALES[scale])
    for make in tables.TABLES.values():
        alone = make(lab(SCALES[scale])).commands()
        assert [c.arguments() for c in make(together).commands()] == [
            c.arguments() for c in alone
        ]


def twice(scale=PAPER):
    """Returns experiments with two seeds of pre-training."""
    return lab(dataclasses.replace(scale, pretraining_seeds=2))


@pytest.mark.parametrize("experiments", [lab(), lab(SMALL), twice()])
def test_findings_compare_all_pretrainings_and_at_least_three_seeds(
    experiments,
):
    count = experiments.scale.pretraining_seeds
    for make_table in tables.TABLES.values():
        for finding in make_table(experiments).findings:
            for score in (finding.larger, finding.smaller):
                assert len(score.commands) == len(score.pretrained) == count
                for command in score.commands:
                    assert command.flags["num_seeds"] >= 3


def test_one_finding_is_about_fine_tuning_only():
    shared = [
        finding.statement
        for make in tables.TABLES.values()
        for finding in make(twice()).findings
        if finding.larger.pretrained == finding.smaller.pretrained
    ]
    assert shared == ["A BiLSTM improves the left-to-right model on SQuAD F1"]


@pytest.mark.parametrize(
    "name, rows, commands",
    [
        # A vocabulary, records of two phases for training and held out, the
        # pre-trainings, and one command of fine-tuning for each of them and
        # each task. The row of the BiLSTM starts from the models before it.
        ("5", [2, 2, 2, 2], 5 + 3 * 2 + 4 * 2 * 5),
        ("6", [2, 1, 1, 1, 1, 2], 5 + 8 + 8 * 3),
        # Five more maskings have records of their own.
        ("8", [2, 2, 1, 1, 1, 2], 5 + 5 * 2 + 9 + 9 * 3),
        ("figure5", [2, 2], 5 + 4 + 2 * 2 * 6),
        ("1", [1, 1], None),
    ],
)
def test_rows_that_a_finding_compares_have_all_pretrainings(
    name, rows, commands
):
    table = tables.TABLES[name](twice())
    for row, count in zip(table.rows, rows, strict=True):
        assert {len(x.commands) for x in row.scores.values()} == {count}
    assert commands in (None, len(table.commands()))


def test_another_seed_of_pretraining_changes_all_seeds_and_nothing_else():
    for make in (tables.table_5, tables.table_6, tables.figure_5):
        for row in make(twice()).rows:
            for score in row.scores.values():
                first, *others = score.commands
                for other in others:
                    check_other_seed(first, other)
                    for pair in zip(first.needs, other.needs, strict=True):
                        check_other_seed(*pair)


def check_other_seed(first, second):
    if first.program == "create_pretraining_data":
        assert first is second
        return
    paths = ("output_dir", "init_checkpoint", "random_seed")
    assert "random_seed" not in first.flags
    assert second.flags["random_seed"] == 13345
    assert "_seed2" in second.flags["output_dir"]
    assert "_seed2" in second.flags.get("init_checkpoint", "_seed2")
    for flags in (first.flags, second.flags):
        assert flags.get("num_seeds", 0) < 1000  # Other seeds in each restart.
    assert {k: v for k, v in first.flags.items() if k not in paths} == {
        k: v for k, v in second.flags.items() if k not in paths
    }


@pytest.mark.parametrize("name", tables.TABLES)
def test_a_directory_with_one_seed_is_extended_by_a_second(name):
    one, two = lab(), twice()
    extended = {
        c.name: c.arguments() for c in tables.TABLES[name](two).commands()
    }
    for command in tables.TABLES[name](one).commands():
        assert extended[command.name] == command.arguments()


def test_only_table_5_has_the_papers_weight_of_the_next_sentence_loss():
    def weights(make):
        return {
            (flags["objective"], flags.get("next_sentence_loss_weight"))
            for flags in flags_of(make(lab(SMALL)), "run_pretraining")
        }

    both = "masked_lm_and_next_sentence"
    assert weights(tables.table_5) == {
        (both, None),
        ("masked_lm", None),
        ("left_to_right", None),
    }
    assert weights(tables.table_6) == weights(tables.table_8) == {(both, 0.1)}
    for flags in flags_of(tables.table_6(lab()), "run_pretraining"):
        assert "next_sentence_loss_weight" not in flags


def test_the_small_scale_has_a_warm_up_that_small_models_need():
    """docs/pretraining.md, "A short run on two CPU cores"."""
    for flags in flags_of(tables.table_6(lab(SMALL)), "run_pretraining"):
        assert flags["num_warmup_steps"] >= 1000
    assert SMALL.initializer_range(128) == pytest.approx(0.0504, abs=1e-4)


def test_figure_5_compares_half_of_the_steps_with_all():
    finding = tables.figure_5(lab()).findings[0]
    starts = [
        score.commands[0].flags["init_checkpoint"]
        for score in (finding.smaller, finding.larger)
    ]
    assert starts[0] == f"{starts[1]}/model.ckpt-500000"
    kept = [
        flags["keep_checkpoint_max"]
        for flags in flags_of(tables.table_5(lab()), "run_pretraining")
    ]
    assert kept == [21, 2, 21]  # Masked LM alone is not plotted.


def test_masking_procedures_have_the_papers_names():
    labels = [row.label for row in tables.table_8(lab()).rows]
    assert [label.split()[0] for label in labels] == [
        "80-10-10",
        "100-0-0",
        "80-0-20",
        "80-20-0",
        "0-20-80",
        "0-0-100",
    ]


def test_missing_data_is_named_and_left_out(tmp_path):
    for path in ("MNLI/train.tsv.gz", "MRPC/msr_paraphrase_train.txt"):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text("")
    table = tables.table_1(lab(SMALL, glue_dir=str(tmp_path)))
    assert set(table.rows[0].scores) == {"MNLI-m", "MRPC"}
    assert "CoLA is not run: --glue_dir has no data." in table.notes
    assert any("No submission" in note for note in table.notes)


def test_the_overview_counts_pretrainings():
    both = [tables.table_5(twice(SMALL)), tables.table_6(twice(SMALL))]
    lines = execution.overview(both, SMALL).splitlines()
    assert lines[0].split()[:3] == ["table", "commands", "pre-trainings"]
    assert lines[1].split()[:4] == ["5", "49", "6", "126"]
    assert lines[2].split()[:4] == ["6", "27", "6", "60"]
    total = len(protocol.commands_of(both))
    assert lines[3].startswith(f"Together {total} commands, ")


def test_a_left_to_right_model_predicts_every_token():
    commands = tables.table_5(lab(SMALL)).commands()
    flops = {
        c.flags["objective"]: c.flops
        for c in commands
        if c.program == "run_pretraining"
    }
    # Encoder 54.5 M and 10 or 64 predictions of 1.07 M multiplications.
    ratio = flops["left_to_right"] / flops["masked_lm"]
    assert ratio == pytest.approx((54.5 + 64 * 1.07) / (54.5 + 10 * 1.07), 0.01)


def test_a_plan_shows_every_command_and_the_hours():
    table = tables.table_4(lab())
    text = execution.plan([table], PAPER, tflops=100.0)
    for command in table.commands():
        assert command.name in text
    # BERT-Base and BERT-Large, a million steps each.
    hours = float(text.split("hours at 100")[0].split()[-1])
    assert 200 < hours < 500
