r"""Reproduces the tables of the BERT paper.

    python reproduce.py --list
    python reproduce.py --table=5 --dry_run

The fine-tuning tables start from released checkpoints:

    python reproduce.py --table=1,2 --output_dir=paper \
        --base_checkpoint=bert-base-uncased --glue_dir=glue \
        --squad_dir=squad --triviaqa_dir=triviaqa-rc \
        --large_checkpoint=bert-large-uncased

The ablations pre-train their models. This is the complete paper at the size of
two CPU cores:

    python reproduce.py --table=all --scale=small --output_dir=small_paper \
        --corpus=books.txt --heldout_corpus=heldout.txt --glue_dir=glue \
        --squad_dir=squad --swag_dir=swag --conll_dir=conll2003

With --pretraining_seeds=2, the rows that a statement of the paper compares are
pre-trained twice: a comparison of single pre-trainings decides nothing.

A run that was killed continues when the same command is started again. With
--part=1/2 and --part=2/2, two processes share the work, on one machine or on
two that share the output directory. It writes results.md, results.json and
results.html, again after each command, and GLUE's submission.zip.
"""

import dataclasses
import re
from typing import Literal

from foundation import config_flags

field = config_flags.field
_NAMES = ("1", "2", "3", "4", "5", "6", "7", "8", "figure5")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReproduceConfig:
    """Everything reproduce.py needs to know."""

    table: str = field(
        "Tables to reproduce, comma-separated: 1 to 8, figure5 or all.", "all"
    )
    list: bool = field(
        "Print each table's title, commands, trainings and hours.", False
    )
    dry_run: bool = field(
        "Print the commands, and an estimate of the hours.", False
    )
    scale: Literal["paper", "small", "tiny"] = field(
        "paper: the paper's models; small: models for two CPU cores, in hours; "
        "tiny: a check of data and flags, in minutes.",
        "paper",
    )
    pretraining_seeds: int | None = field(
        "Pre-trainings of each row that a statement of the paper compares; by "
        "default 2 at scale small, else 1.",
        None,
        at_least=1,
    )
    output_dir: str = field(
        "Directory of all models and results.", "reproduced"
    )
    part: str = field(
        "The part k/n of the commands that this process runs; the parts share "
        "--output_dir and run at the same time.",
        "1/1",
    )
    tflops: float | None = field(
        "TFLOPS that your device sustains in training, for --dry_run.", None
    )
    precision: Literal["auto", "float32", "bfloat16", "float16"] = field(
        "Number format of all training.", "auto"
    )
    glue_dir: str | None = field(
        "Directory of GLUE: MNLI, QNLI, MRPC ... as released.", None
    )
    squad_dir: str | None = field(
        "Directory of train-v1.1.json, dev-v1.1.json, train-v2.0.json and "
        "dev-v2.0.json; also .gz, .bz2 and .zst.",
        None,
    )
    triviaqa_dir: str | None = field(
        "TriviaQA's directory triviaqa-rc, with qa and evidence.", None
    )
    swag_dir: str | None = field("Directory of train.csv and val.csv.", None)
    conll_dir: str | None = field(
        "Directory of eng.train, eng.testa and eng.testb.", None
    )
    corpus: str | None = field("Text to pre-train on, as files or globs.", None)
    heldout_corpus: str | None = field(
        "Text to evaluate pre-training on.", None
    )
    input_format: Literal["sentences", "paragraphs", "jsonl"] = field(
        "Format of both; see create_pretraining_data.py.", "sentences"
    )
    vocab_file: str | None = field(
        "Vocabulary of pre-training; by default it is learned from --corpus.",
        None,
    )
    do_lower_case: bool = field("False for cased pre-training.", True)
    base_checkpoint: str | None = field(
        "BERT-Base; by default it is pre-trained here.", None
    )
    large_checkpoint: str | None = field(
        "BERT-Large; several, comma-separated, for ensembles.", None
    )
    base_cased_checkpoint: str | None = field(
        "Cased BERT-Base, for named entities.", None
    )
    large_cased_checkpoint: str | None = field(
        "Cased BERT-Large, for named entities.", None
    )

    def __post_init__(self):
        """Refuses unknown tables and parts."""
        for name in self.tables:
            if name not in _NAMES:
                raise ValueError(
                    f"--table={name}: must be one of {', '.join(_NAMES)}, all"
                )
        number, total = self.part_of
        if not 1 <= number <= total:
            raise ValueError(
                f"--part={self.part}: must be k/n with 1 <= k <= n, as in 2/4"
            )

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return _NAMES if self.table == "all" else tuple(self.table.split(","))

    @property
    def part_of(self) -> tuple[int, int]:
        """The number of the part and of all parts; (0, 0) if it is no part."""
        match = re.fullmatch(r"(\d+)/(\d+)", self.part, re.ASCII)
        return (int(match[1]), int(match[2])) if match else (0, 0)


config_flags.parse_early(ReproduceConfig, __name__)

import foundation.tensorflow_setup  # noqa: F401
from foundation import errors, file_system
from paper import execution, experiments, protocol, results, tables


def main(config: ReproduceConfig) -> None:
    """Runs the commands of the tables and writes their results."""
    scale = protocol.SCALES[config.scale]
    if config.pretraining_seeds is not None:
        scale = dataclasses.replace(
            scale, pretraining_seeds=config.pretraining_seeds
        )
    names = [field.name for field in dataclasses.fields(experiments.Inputs)]
    inputs = experiments.Inputs(**{n: getattr(config, n) for n in names})
    for name in names:
        path = getattr(inputs, name)
        if name.endswith("_dir") and path and not file_system.is_folder(path):
            raise errors.InputError(f"--{name}={path}: no such directory")
    file_system.check_output_folder(config.output_dir, "output_dir")
    lab = experiments.Experiments(scale, inputs, config.output_dir)
    chosen = [tables.TABLES[name](lab) for name in config.tables]
    if config.list:
        print(execution.overview(chosen, scale))
        return
    commands = protocol.commands_of(chosen)
    if config.dry_run:
        print(execution.plan(chosen, scale, tflops=config.tflops))
        return
    if lab.missing:
        flags = ", ".join(f"--{name}" for name in sorted(lab.missing))
        raise errors.InputError(f"--table={config.table} needs {flags}")
    lab.write_configs()
    executor = execution.Executor(config.output_dir)

    def write() -> str:
        title = f"BERT, scale {config.scale}"
        return results.write(chosen, executor, config.output_dir, title)

    number, total = config.part_of
    part = execution.divide(commands, total)[number - 1]
    executor.run(commands, part, on_success=write)
    print(write())
    for path in results.submissions(chosen, executor):
        print(path)


if __name__ == "__main__":
    config_flags.run(ReproduceConfig, main)
