"""Proves that the paper's tables are declared completely.

python -m pytest tests/paper/tables_test.py
"""

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


@pytest.mark.parametrize("scale", [PAPER, SMALL])
def test_findings_compare_at_least_three_seeds(scale):
    for make in tables.TABLES.values():
        for finding in make(lab(scale)).findings:
            for score in (finding.larger, finding.smaller):
                if not score.metric.startswith("features/"):
                    assert score.command.flags["num_seeds"] >= 3


def test_figure_5_compares_half_of_the_steps_with_all():
    finding = tables.figure_5(lab()).findings[0]
    starts = [
        score.command.flags["init_checkpoint"]
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


def test_a_plan_shows_every_command_and_the_hours():
    table = tables.table_4(lab())
    text = execution.plan([table], PAPER, tflops=100.0)
    for command in table.commands():
        assert command.name in text
    # BERT-Base and BERT-Large, a million steps each.
    hours = float(text.split("hours at 100")[0].split()[-1])
    assert 200 < hours < 500
