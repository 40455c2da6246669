"""The vocabulary of the paper's tables: commands, scores, rows, scales.

A table is a declaration. Its cells are scores, a score is read from the output
directories of commands, and a command needs the output of other commands:

    create_vocabulary -> create_pretraining_data -> run_pretraining
        -> run_classifier (a grid of learning rates and seeds) -> Score

A row may be pre-trained several times, with other seeds. Its score then has one
command of each pre-trained model, and each command has restarts of fine-tuning.

Commands with the same name are the same: tables have commands in common.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Command:
    """One command of this project, with its flags.

    Attributes:
      name: unique; also its output directory, below that of the tables.
      program: the command without its ending, as in "run_squad".
      flags: name -> value.
      needs: the commands that must have finished before.
      num_runs: the trainings in it.
      flops: floating-point operations of all its trainings.
    """

    name: str
    program: str
    flags: Mapping[str, Any]
    needs: Sequence["Command"] = ()
    num_runs: int = 0
    flops: float = 0.0

    def arguments(self) -> list[str]:
        """Returns the command line after "python"."""
        return [
            f"{self.program.replace('.', '/')}.py",
            *(f"--{name}={value}" for name, value in self.flags.items()),
        ]

    def with_needs(self) -> Iterator["Command"]:
        """Yields what the command needs, directly or not, and then itself."""
        for command in self.needs:
            yield from command.with_needs()
        yield self


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Score:
    """One metric, measured with one or several pre-trained models.

    Attributes:
      commands: write the metric; one for each pre-training.
      pretrained: the checkpoints of the pre-trained models behind it.
      metric: its name in the results of the commands.
      factor: 100 for metrics that are fractions.
    """

    commands: Sequence[Command]
    pretrained: frozenset[str]
    metric: str
    factor: float = 100.0


def over_pretrainings(scores: Iterable[Score]) -> Score:
    """Joins the scores of one metric with several pre-trained models.

    Args:
      scores: one for each pre-trained model, in the order of their seeds.
    """
    first, *others = scores
    return dataclasses.replace(
        first,
        commands=[c for s in (first, *others) for c in s.commands],
        pretrained=first.pretrained.union(*(s.pretrained for s in others)),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a table.

    Attributes:
      label: the label of the row in the paper.
      paper: column -> the paper's value.
      scores: column -> our score; columns whose data is missing have none.
    """

    label: str
    paper: Mapping[str, float]
    scores: Mapping[str, Score]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """A statement of the paper, one sentence: it found one score larger."""

    statement: str
    larger: Score
    smaller: Score


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """One table (or figure) of the paper.

    Attributes:
      name: "1" to "8" or "figure5".
      title: what it shows.
      protocol: how the paper made it, and in what this project differs.
      statistic: "best" if the paper reports the best run on the development
        set, "mean" if it reports the mean of several runs.
      rows: the rows in the paper's order.
      findings: statements that the rows can confirm.
      other_commands: those without a score, e.g. predictions of a test set.
      notes: sentences on what is left out because its data is missing.
    """

    name: str
    title: str
    protocol: str
    statistic: str
    rows: Sequence[Row]
    findings: Sequence[Finding] = ()
    other_commands: Sequence[Command] = ()
    notes: Sequence[str] = ()

    @property
    def heading(self) -> str:
        """The name and the title, as the paper numbers it."""
        is_figure = self.name == "figure5"
        name = "Figure 5" if is_figure else f"Table {self.name}"
        return f"{name}: {self.title}"

    def commands(self) -> list[Command]:
        """Returns all commands once, each after those that it needs."""
        scores = [s for row in self.rows for s in row.scores.values()]
        tops = [command for score in scores for command in score.commands]
        by_name: dict[str, Command] = {}
        for top in (*tops, *self.other_commands):
            for command in top.with_needs():
                by_name.setdefault(command.name, command)
        return list(by_name.values())


def commands_of(tables: Sequence[Table]) -> list[Command]:
    """Returns the commands of several tables, each once, in order."""
    by_name = {c.name: c for table in tables for c in table.commands()}
    return list(by_name.values())


@dataclasses.dataclass(frozen=True)
class Size:
    """The size of a model as the paper writes it, L/H/A."""

    layers: int
    hidden: int
    heads: int

    def __str__(self) -> str:
        """Returns "12/768/12"."""
        return f"{self.layers}/{self.hidden}/{self.heads}"


class Phase(NamedTuple):
    """A phase of pre-training on records of one length."""

    length: int
    predictions: int  # masked positions of a record, at most
    steps: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """All numbers in which the paper's experiments and small ones differ.

    Attributes:
      base: the size of the paper's "Base" experiments.
      large: the size of "Large"; None leaves its rows out.
      sizes: sizes of the models of Table 6.
      initializer_range: hidden units -> standard deviation of new weights.
      dropout: dropout of pre-training and fine-tuning.
      vocab_size: number of tokens, of a vocabulary that is learned.
      phases: phases of pre-training, in their order.
      warmup: steps of rising learning rate in pre-training.
      pretraining_batch_size: sequences of a step.
      pretraining_learning_rate: the highest, after the warm-up.
      next_sentence_loss_weight: weight of the next-sentence loss, where the
        tables do not compare objectives.
      pretraining_seeds: number of pre-trainings of the rows that a finding
        compares; other rows have one.
      dupe_factor: passes over the corpus with different masks.
      finetuning_learning_rates: separated by commas.
      finetuning_batch_size: examples of a step; None takes the paper's.
      finetuning_epochs: None takes the paper's.
      seeds: number of restarts where the paper has several or we compare.
      single_seeds: number of restarts where the paper has one.
      max_rows: training examples of a task, at most, for the estimate of hours.
      squad_length: maximum length of windows of SQuAD.
      ner_length: maximum length of NER's windows.
      lstm_size: units of each direction of the BiLSTMs.
      ensemble: number of systems of an ensemble.
      checkpoints: steps of pre-training in Figure 5, half and all of them
        included.
      maskings: rows of Table 8, as "mask-same-random" in percent; all if empty.
      tflops: what a device sustains in training, to estimate hours.
      device: the device that `tflops` was measured on.
    """

    base: Size
    large: Size | None
    sizes: Sequence[Size]
    initializer_range: Callable[[int], float]
    dropout: float
    vocab_size: int
    phases: Sequence[Phase]
    warmup: int
    pretraining_batch_size: int
    pretraining_learning_rate: float
    next_sentence_loss_weight: float
    pretraining_seeds: int
    dupe_factor: int
    finetuning_learning_rates: str
    finetuning_batch_size: int | None
    finetuning_epochs: float | None
    seeds: int
    single_seeds: int
    max_rows: int
    squad_length: int
    ner_length: int
    lstm_size: int
    ensemble: int
    checkpoints: Sequence[int]
    maskings: Sequence[str]
    tflops: float
    device: str

    @property
    def models(self) -> dict[str, Size]:
        """Name in the paper's tables -> size, of those that the scale has."""
        models = {"base": self.base}
        return models if self.large is None else {**models, "large": self.large}


PAPER = Scale(
    base=Size(12, 768, 12),
    large=Size(24, 1024, 16),
    sizes=(
        Size(3, 768, 12),
        Size(6, 768, 3),
        Size(6, 768, 12),
        Size(12, 768, 12),
        Size(12, 1024, 16),
        Size(24, 1024, 16),
    ),
    initializer_range=lambda hidden: 0.02,
    dropout=0.1,
    vocab_size=30522,
    phases=(Phase(128, 20, 900_000), Phase(512, 77, 100_000)),
    warmup=10_000,
    pretraining_batch_size=256,
    pretraining_learning_rate=1e-4,
    next_sentence_loss_weight=1.0,
    pretraining_seeds=1,
    dupe_factor=10,
    finetuning_learning_rates="5e-5,4e-5,3e-5,2e-5",
    finetuning_batch_size=None,
    finetuning_epochs=None,
    seeds=5,
    single_seeds=1,
    max_rows=1_000_000,
    squad_length=384,
    ner_length=512,
    lstm_size=768,
    ensemble=7,
    checkpoints=(200_000, 400_000, 500_000, 600_000, 800_000, 1_000_000),
    maskings=(),
    tflops=250.0,
    device="one H100, a quarter of its peak in bfloat16",
)

SMALL = Scale(
    base=Size(4, 128, 2),
    large=None,
    sizes=(Size(2, 128, 2), Size(4, 128, 2), Size(8, 128, 2), Size(4, 256, 4)),
    initializer_range=lambda hidden: 0.57 / hidden**0.5,
    dropout=0.0,
    vocab_size=8192,
    # One length: a second phase of 1,000 steps, at a low rate, does not teach
    # the positions that only longer records have. And 64 tokens: after 2,000
    # steps with 128, a model knows token frequencies only.
    # 8,000 steps read the records of 118 MB of text once.
    phases=(Phase(64, 10, 8_000),),
    # With a shorter warm-up, or the weight 1 of the next-sentence loss, a model
    # knows token frequencies only for longer: see docs/pretraining.md.
    warmup=1_000,
    pretraining_batch_size=64,
    pretraining_learning_rate=1e-3,
    next_sentence_loss_weight=0.1,
    pretraining_seeds=2,
    dupe_factor=1,
    finetuning_learning_rates="3e-4",
    finetuning_batch_size=32,
    finetuning_epochs=3,
    seeds=3,
    single_seeds=3,
    max_rows=9_000,
    squad_length=64,
    ner_length=64,
    lstm_size=128,
    ensemble=3,
    checkpoints=(1_600, 3_200, 4_000, 4_800, 6_400, 8_000),
    maskings=("80-10-10", "100-0-0", "0-0-100"),
    tflops=0.2,
    device="one CPU core with bfloat16",
)

# Finishes all tables in minutes; checks data, flags and disk before a long run.
TINY = dataclasses.replace(
    SMALL,
    base=Size(4, 16, 2),
    large=Size(5, 16, 2),
    sizes=(Size(4, 16, 2), Size(5, 16, 2)),
    vocab_size=180,
    phases=(Phase(32, 5, 6), Phase(64, 10, 2)),
    warmup=2,
    pretraining_batch_size=8,
    next_sentence_loss_weight=1.0,
    pretraining_seeds=1,
    finetuning_batch_size=8,
    finetuning_epochs=1,
    seeds=3,
    single_seeds=1,
    max_rows=100,
    squad_length=64,
    ner_length=32,
    lstm_size=8,
    ensemble=2,
    checkpoints=(4, 8),
)
SCALES = {"paper": PAPER, "small": SMALL, "tiny": TINY}
