"""The tables of the BERT paper: its numbers, and our commands for ours.

    Lab(SCALES["small"], Inputs(...), "out")    makes the commands of one scale
    TABLES["5"](lab)                            -> Table of cells

A cell has the paper's number, and the commands whose output directories have
ours. A command needs the output of other commands:

    create_vocabulary -> create_pretraining_data -> run_pretraining
        -> run_classifier (with several learning rates), one for each seed

Commands of the same name are the same: tables have commands in common. Where
the versions of arXiv 1810.04805 differ, the numbers are those of version 2.
"""

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from foundation import atomic, config_flags, file_system

field = config_flags.field
Flags = Mapping[str, Any]
BOTH, MASKED_LM = "masked_lm_and_next_sentence", "masked_lm"
LEFT_TO_RIGHT = "left_to_right"
STANDARD = "80-10-10"  # Percent that become [MASK], stay, become random.
_GRID = {
    "train_batch_size": 32,
    "num_train_epochs": 3,
    "learning_rate": "5e-5,4e-5,3e-5,2e-5",
}
_NER = {
    "data_dir": "{conll_dir}",
    "do_eval": True,
    "document_context": "maximal",
}
_SQUAD = {**_GRID, "learning_rate": "5e-5"}
# Task -> program and flags; fields of Inputs in braces.
_TASKS: dict[str, tuple[str, Flags]] = {
    **{
        task: (
            "run_classifier.py",
            {
                "task_name": task,
                "data_dir": f"{{glue_dir}}/{task}",
                "do_eval": True,
                **_GRID,
            },
        )
        for task in (
            *("MNLI", "QQP", "QNLI", "SST-2"),
            *("CoLA", "STS-B", "MRPC", "RTE"),
        )
    },
    "SWAG": (
        "run_classifier.py",
        {
            "task_name": "SWAG",
            "data_dir": "{swag_dir}",
            "do_eval": True,
            **_GRID,
            "train_batch_size": 16,
            "learning_rate": "2e-5",
        },
    ),
    "squad-v1.1": (
        "run_squad.py",
        {
            "train_file": "{squad_dir}/train-v1.1.json",
            "predict_file": "{squad_dir}/dev-v1.1.json",
            "do_predict": True,
            **_SQUAD,
        },
    ),
    "squad-v2.0": (
        "run_squad.py",
        {
            "train_file": "{squad_dir}/train-v2.0.json",
            "predict_file": "{squad_dir}/dev-v2.0.json",
            "version_2_with_negative": True,
            "do_predict": True,
            **_SQUAD,
            "train_batch_size": 48,
            "num_train_epochs": 2,
        },
    ),
    "triviaqa": (
        "run_squad.py",
        {"train_file": "{output_dir}/records/triviaqa/train.json", **_SQUAD},
    ),
    "ner": ("run_ner.py", {"do_predict": True, **_NER, **_GRID}),
    **{
        features: (
            "run_ner.py",
            {"features": features, **_NER, "learning_rate": "1e-3"},
        )
        for features in (
            *("embeddings", "second_to_last", "last", "concat_last_four"),
            *("weighted_sum_last_four", "weighted_sum_all"),
        )
    },
}


class Command(NamedTuple):
    """A command of this project.

    Attributes:
      name: unique; also its output directory, below that of the tables.
      program: path in the checkout, or the module that "python -m" runs.
      flags: name -> value.
      needs: the commands that must have finished before.
    """

    name: str
    program: str
    flags: Flags
    needs: Sequence["Command"] = ()

    @property
    def arguments(self) -> list[str]:
        """The command line after "python"."""
        is_file = self.program.endswith(".py")
        program = [self.program] if is_file else ["-m", self.program]
        return program + [f"--{k}={v}" for k, v in self.flags.items()]

    def chain(self) -> Iterator["Command"]:
        """Yields the needed commands, each after its own, and this one."""
        for command in self.needs:
            yield from command.chain()
        yield self


class Cell(NamedTuple):
    """A number of the paper, and where ours is.

    Attributes:
      row, column: its place.
      paper: the paper's number; None if it has none.
      commands: one for each seed.
      metric: its name in eval_results.txt, with or without "eval_".
    """

    row: str
    column: str
    paper: float | None
    commands: Sequence[Command]
    metric: str


class Table(NamedTuple):
    """A table or figure of the paper."""

    title: str
    note: str
    cells: Sequence[Cell]

    def commands(self) -> dict[str, Command]:
        """Returns the commands by name, each after those that it needs."""
        tops = [c for cell in self.cells for c in cell.commands]
        return {c.name: c for top in tops for c in top.chain()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """All numbers in which the paper's experiments and small ones differ.

    Attributes:
      base, large: sizes of the paper's models as it writes them, L/H/A; None
        leaves rows out.
      sizes: sizes of the models of Table 6.
      model: keys of bert_config.json.
      initializer: the initializer range times the square root of H. The
        released range, 0.02 at 768 units, is too small for small models.
      phases: length, masked positions and steps of each phase of pre-training.
      weight: of the next-sentence loss, where no table compares objectives.
      dupe_factor: passes over the corpus with different masks.
      finetuning: flags that replace the paper's, of those that a task has.
      flags: program -> further flags.
      seeds: number of fine-tunings where the paper has several or compares.
      lstm_size: units of each direction of the BiLSTMs.
      ensemble: number of systems of an ensemble.
      checkpoints: steps of pre-training in Figure 5, the last one included.
      maskings: rows of Table 8.
    """

    base: str
    large: str | None
    sizes: Sequence[str]
    model: Flags
    initializer: float
    phases: Sequence[tuple[int, int, int]]
    weight: float
    dupe_factor: int
    finetuning: Flags
    flags: Mapping[str, Flags]
    seeds: int
    lstm_size: int
    ensemble: int
    checkpoints: Sequence[int]
    maskings: Sequence[str]


def _model(vocab_size: int, length: int, dropout: float) -> Flags:
    return {
        "vocab_size": vocab_size,
        "max_position_embeddings": length,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
    }


def _flags(
    pretraining: Flags, *, sentence: int, window: int, ner: int
) -> Mapping[str, Flags]:
    """Returns the flags of each program; SQuAD's have the released proportions.

    But at least 16 tokens of a question: most have no more.
    """
    squad = {
        "max_seq_length": window,
        "doc_stride": window // 3,
        "max_query_length": max(window // 6, 16),
    }
    return {
        "run_pretraining.py": pretraining,
        "run_classifier.py": {"max_seq_length": sentence},
        "run_squad.py": squad,
        "run_ner.py": {"max_seq_length": ner},
    }


_PAPER = Scale(
    base="12/768/12",
    large="24/1024/16",
    sizes=(
        *("3/768/12", "6/768/3", "6/768/12"),
        *("12/768/12", "12/1024/16", "24/1024/16"),
    ),
    model=_model(30522, 512, 0.1),
    initializer=0.02 * 768**0.5,
    phases=((128, 20, 900_000), (512, 77, 100_000)),
    weight=1.0,
    dupe_factor=10,
    finetuning={},
    flags=_flags(
        {
            "train_batch_size": 256,
            "learning_rate": 1e-4,
            "num_warmup_steps": 10_000,
        },
        sentence=128,
        window=384,
        ner=512,
    ),
    seeds=5,
    lstm_size=768,
    ensemble=7,
    checkpoints=(200_000, 400_000, 500_000, 600_000, 800_000, 1_000_000),
    maskings=(
        *(STANDARD, "100-0-0", "80-0-20", "80-20-0", "0-20-80", "0-0-100"),
    ),
)
_SMALL = Scale(
    base="4/128/2",
    large=None,
    sizes=("2/128/2", "4/128/2", "8/128/2", "4/256/4"),
    model=_model(8192, 64, 0.0),
    initializer=0.57,
    # One length: a second phase of 1,000 steps, at a low rate, does not teach
    # the positions that only longer records have. 8,000 steps read the records
    # of 118 MB of text once.
    phases=((64, 10, 8_000),),
    # With a shorter warm-up, or the weight 1 of the next-sentence loss, a model
    # knows token frequencies only for longer: see docs/pretraining.md.
    weight=0.1,
    dupe_factor=1,
    finetuning={
        "train_batch_size": 32,
        "num_train_epochs": 3,
        "learning_rate": "3e-4",
    },
    flags=_flags(
        {
            "train_batch_size": 64,
            "learning_rate": 1e-3,
            "num_warmup_steps": 1_000,
        },
        sentence=64,
        window=64,
        ner=64,
    ),
    seeds=3,
    lstm_size=128,
    ensemble=3,
    checkpoints=(1_600, 3_200, 4_000, 4_800, 6_400, 8_000),
    maskings=(STANDARD, "100-0-0", "0-0-100"),
)
# Finishes all tables in minutes; checks data, flags and disk before a long run.
_TINY = dataclasses.replace(
    _SMALL,
    base="4/16/2",
    large="5/16/2",
    sizes=("4/16/2", "5/16/2"),
    model=_model(180, 64, 0.0),
    phases=((32, 5, 6), (64, 10, 2)),
    finetuning={
        "train_batch_size": 8,
        "num_train_epochs": 1,
        "learning_rate": "3e-4",
    },
    flags=_flags(
        {
            "train_batch_size": 8,
            "learning_rate": 1e-3,
            "num_warmup_steps": 2,
        },
        sentence=64,
        window=64,
        ner=32,
    ),
    seeds=2,
    lstm_size=8,
    ensemble=2,
    checkpoints=(4, 8),
)
SCALES = {"paper": _PAPER, "small": _SMALL, "tiny": _TINY}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inputs:
    """The user's files."""

    glue_dir: str | None = field("Folders MNLI, SST-2, ... of GLUE.", None)
    squad_dir: str | None = field("SQuAD 1.1 and 2.0, train and dev.", None)
    triviaqa_dir: str | None = field("The unpacked triviaqa-rc.", None)
    swag_dir: str | None = field("SWAG's train.csv and val.csv.", None)
    conll_dir: str | None = field("CoNLL-2003's eng.train and others.", None)
    corpus: str | None = field("Text to pre-train on; a pattern.", None)
    heldout_corpus: str | None = field("Other text, for perplexity.", None)
    input_format: str = field("Of both: sentences, paragraphs.", "sentences")
    vocab_file: str | None = field(
        "The vocabulary of --corpus; if not given, one is learned.", None
    )
    do_lower_case: bool = field("False for a cased vocabulary.", True)
    base_checkpoint: str | None = field(
        "A released BERT-Base; if not given, one is pre-trained.", None
    )
    large_checkpoint: str | None = field(
        "A released BERT-Large; several, with commas, for an ensemble.", None
    )
    base_cased_checkpoint: str | None = field("The same, for Table 7.", None)
    large_cased_checkpoint: str | None = field("The same, for Table 7.", None)
    precision: str = field("Of all trainings: see run_classifier.py.", "auto")


class Model(NamedTuple):
    """What fine-tuning starts from.

    Attributes:
      name: part of the names of its commands.
      checkpoint: value of --init_checkpoint.
      needs: the commands that train it, if any.
      flags: flags of every fine-tuning.
    """

    name: str
    checkpoint: str
    needs: Sequence[Command] = ()
    flags: Flags = {}


class Lab:
    """Makes the commands of all tables of one scale."""

    def __init__(self, scale: Scale, inputs: Inputs, output_dir: str):
        """Plans below output_dir; nothing is written or started."""
        self.scale = scale
        self.inputs = inputs
        values = dataclasses.asdict(inputs)
        # A command that lacks an input shows its name: <corpus>.
        self._values = {k: v or f"<{k}>" for k, v in values.items()}
        self._values["output_dir"] = output_dir

    def path(self, *names: str) -> str:
        """Returns a path below the output directory."""
        return os.path.join(self._values["output_dir"], *names)

    def write_configs(self) -> None:
        """Writes the JSON files of --bert_config_file."""
        model = dict(self.scale.model)
        if self.inputs.vocab_file:
            data = file_system.read(self.inputs.vocab_file)
            model["vocab_size"] = len(data.splitlines())
        file_system.make_folder(self.path("configs"))
        for size in {*self.sizes.values(), *self.scale.sizes}:
            layers, hidden, heads = map(int, size.split("/"))
            model |= {
                "hidden_size": hidden,
                "num_hidden_layers": layers,
                "num_attention_heads": heads,
                "intermediate_size": 4 * hidden,
                "initializer_range": self.scale.initializer / hidden**0.5,
            }
            atomic.write_json(self._config_file(size), model)

    def _config_file(self, size: str) -> str:
        return self.path("configs", f"{size.replace('/', '-')}.json")

    # Pre-training.

    def _vocabulary(self) -> tuple[str, list[Command]]:
        """Returns the path of the vocabulary and the command that makes it."""
        if self.inputs.vocab_file:
            return self.inputs.vocab_file, []
        path = self.path("vocabulary", "vocab.txt")
        flags = {
            "input_file": self._values["corpus"],
            "output_file": path,
            "input_format": self.inputs.input_format,
            "vocab_size": self.scale.model["vocab_size"],
            "do_lower_case": self.inputs.do_lower_case,
        }
        return path, [Command("vocabulary", "create_vocabulary.py", flags)]

    def _records(self, corpus: str, masking: str) -> list[Command]:
        """Returns one command for each length of the records."""
        vocab_file, needs = self._vocabulary()
        mask, _, random = (int(x) / 100 for x in masking.split("-"))
        is_heldout = corpus == "heldout_corpus"
        commands = []
        for length, predictions, _ in self.scale.phases:
            name = f"records/{corpus}/{masking}/{length}"
            flags = {
                "input_file": self._values[corpus],
                "input_format": self.inputs.input_format,
                "vocab_file": vocab_file,
                "output_prefix": self.path(name, "part"),
                "do_lower_case": self.inputs.do_lower_case,
                "max_seq_length": length,
                "max_predictions_per_seq": predictions,
                "mask_token_prob": mask,
                "random_token_prob": random,
                "dupe_factor": 1 if is_heldout else self.scale.dupe_factor,
                "num_shards": 1 if is_heldout else 8,
            }
            program = "create_pretraining_data.py"
            commands.append(Command(name, program, flags, needs))
        return commands

    def pretrain(
        self,
        size: str,
        *,
        objective: str = BOTH,
        masking: str = STANDARD,
        weight: float | None = None,
    ) -> Model:
        """Returns a model that is pre-trained here.

        Held-out records have the standard masking. The weight of the
        next-sentence loss is by default the scale's.
        """
        scale = self.scale
        sets = [
            self._records("corpus", masking),
            self._records("heldout_corpus", STANDARD),
        ]
        shards = [
            ",".join(f"{x.flags['output_prefix']}-*" for x in commands)
            for commands in sets
        ]
        name = f"{size.replace('/', '-')}_{objective}_{masking}"
        own_flags = {}
        weight = scale.weight if weight is None else weight
        if objective == BOTH:
            own_flags["next_sentence_loss_weight"] = weight
            name += f"_weight{weight:g}"
        directory = self.path("pretrained", name)
        save_every = scale.checkpoints[0] // 4
        # Figure 5 starts from checkpoints of the run.
        is_plotted = (size, masking) == (scale.base, STANDARD) and (
            objective == LEFT_TO_RIGHT
            or (objective, weight) == (BOTH, scale.weight)
        )
        num_saved = scale.checkpoints[-1] // save_every + 1
        flags = {
            "bert_config_file": self._config_file(size),
            "input_file": shards[0],
            "eval_file": shards[1],
            "output_dir": directory,
            "do_train": True,
            "do_eval": True,
            "objective": objective,
            "phases": ",".join(f"{n}:{steps}" for n, _, steps in scale.phases),
            **scale.flags["run_pretraining.py"],
            "save_checkpoints_steps": save_every,
            "keep_checkpoint_max": num_saved if is_plotted else 2,
            "precision": self.inputs.precision,
            **own_flags,
        }
        full_name = f"pretrained/{name}"
        needs = [*itertools.chain(*sets)]
        command = Command(full_name, "run_pretraining.py", flags, needs)
        return Model(name, directory, [command])

    def at_step(self, model: Model, step: int) -> Model:
        """Returns a pre-trained model as it was after a number of steps."""
        if step == self.scale.checkpoints[-1]:
            return model
        checkpoint = os.path.join(model.checkpoint, f"model.ckpt-{step}")
        name = f"{model.name}_step{step}"
        return model._replace(name=name, checkpoint=checkpoint)

    @property
    def sizes(self) -> dict[str, str]:
        """The sizes of "base" and "large", as far as the scale has them."""
        sizes = {"base": self.scale.base, "large": self.scale.large}
        return {name: size for name, size in sizes.items() if size}

    def start(self, name: str, number: int = 0) -> Model:
        """Returns the model of --NAME_checkpoint, else one pre-trained here.

        If the flag names several, `number` chooses one of them, in turn.
        """
        given = getattr(self.inputs, f"{name}_checkpoint")
        if not given:
            return self.pretrain(self.sizes[name.removesuffix("_cased")])
        paths = given.split(",")
        number %= len(paths)
        return Model(f"{name}_{number}" if number else name, paths[number])

    # Fine-tuning.

    def finetune(
        self,
        model: Model,
        task: str,
        *,
        seeds: Sequence[int] | None = None,
        name: str | None = None,
        **more_flags: Any,
    ) -> list[Command]:
        """Returns one command for each seed; None stands for all of the scale.

        Args:
          model: the model to start from.
          task: a key of _TASKS.
          seeds: seeds of the new weights, of dropout and of the order.
          name: name of the task with `more_flags`.
          **more_flags: further flags.
        """
        program, flags = _TASKS[task]
        flags = {
            k: v.format_map(self._values) if isinstance(v, str) else v
            for k, v in flags.items()
        }
        scaled = self.scale.finetuning
        flags |= {k: scaled[k] for k in flags.keys() & scaled.keys()}
        flags |= self.scale.flags[program]
        if "features" in flags:  # Only a BiLSTM is trained.
            lstm = {"lstm_size": self.scale.lstm_size, "learning_rate": "1e-3"}
            flags |= lstm
        commands = []
        for seed in seeds or range(1, 1 + self.scale.seeds):
            full_name = f"finetuned/{model.name}/{name or task}/seed{seed}"
            own_flags = {
                "init_checkpoint": model.checkpoint,
                "output_dir": self.path(full_name),
                "do_train": True,
                "precision": self.inputs.precision,
                "random_seed": seed,
            }
            every_flag = {**own_flags, **flags, **model.flags, **more_flags}
            command = Command(full_name, program, every_flag, model.needs)
            commands.append(command)
        return commands

    def triviaqa(self, model: Model) -> Model:
        """Returns the model after fine-tuning on TriviaQA."""
        name = "records/triviaqa"
        folder = self._values["triviaqa_dir"]
        flags = {
            "input_file": f"{folder}/qa/wikipedia-train.json",
            "evidence_dir": f"{folder}/evidence/wikipedia",
            "output_file": self.path(name, "train.json"),
        }
        convert = Command(name, "tasks.squad.triviaqa", flags)
        before = model._replace(needs=[*model.needs, convert])
        (command,) = self.finetune(before, "triviaqa", seeds=[1])
        directory = command.flags["output_dir"]
        return Model(f"{model.name}_triviaqa", directory, [command])

    def ensemble(self, systems: Sequence[Command]) -> Command:
        """Returns the prediction of several SQuAD systems together."""
        name = f"{systems[0].name}_ensemble{len(systems)}"
        flags = {
            "predict_file": systems[0].flags["predict_file"],
            "ensemble_dirs": ",".join(c.flags["output_dir"] for c in systems),
            "output_dir": self.path(name),
        }
        return Command(name, "run_squad.py", flags, systems)


# Column -> commands, one for each seed, and the metric.
Columns = Mapping[str, tuple[Sequence[Command], str]]
# Its name, the paper's numbers in the order of the columns, and ours.
Row = tuple[str, Sequence[float | None], Columns]
_ONE_MODEL = (
    "Each row is one pre-trained model: the deviation is that of restarts of "
    "fine-tuning and omits the noise between pre-trainings, so a difference "
    "between two rows decides nothing by itself."
)


def _table(
    title: str, note: str, rows: Callable[["Lab"], Iterator[Row]]
) -> Callable[["Lab"], Table]:
    """Returns a function that makes a table of rows."""
    return lambda lab: Table(
        title,
        note,
        [
            Cell(label, column, number, *where)
            for label, paper, columns in rows(lab)
            for number, (column, where) in zip(
                paper, columns.items(), strict=True
            )
        ],
    )


def _table_1(lab: Lab) -> Iterator[Row]:
    paper = {
        "base": (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4),
        "large": (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1),
    }
    suffix, restarts = "", dict[str, int]()
    for size in lab.sizes:
        columns = {}
        for column, metric in (
            ("MNLI-m", "accuracy"),
            ("MNLI-mm", "mismatched_accuracy"),
            ("QQP", "f1"),
            ("QNLI", "accuracy"),
            ("SST-2", "accuracy"),
            ("CoLA", "matthews_correlation"),
            ("STS-B", "spearman"),
            ("MRPC", "f1"),
            ("RTE", "accuracy"),
        ):
            task = "MNLI" if column.startswith("MNLI") else column
            commands = lab.finetune(
                lab.start(size),
                task,
                seeds=[1],
                name=f"{task}{suffix}",
                **restarts,
            )
            columns[column] = commands, metric
        yield f"BERT-{size.title()}", paper[size], columns
        suffix, restarts = "_restarted", {"num_seeds": lab.scale.seeds}


def _squad(commands: Sequence[Command], exact: str = "exact_match") -> Columns:
    return {"EM": (commands, exact), "F1": (commands, "f1")}


def _table_2(lab: Lab) -> Iterator[Row]:
    task = "squad-v1.1"
    base = lab.finetune(lab.start("base"), task, seeds=[1])
    yield "BERT-Base (single)", (80.8, 88.5), _squad(base)
    if not lab.scale.large:
        return
    larges = [lab.start("large", i) for i in range(lab.scale.ensemble)]
    for label, models, single, together in (
        ("BERT-Large", larges, (84.1, 90.9), (85.8, 91.8)),
        (
            "BERT-Large + TriviaQA",
            [lab.triviaqa(model) for model in larges],
            (84.2, 91.1),
            (86.2, 92.2),
        ),
    ):
        systems = [
            lab.finetune(model, task, seeds=[seed])[0]
            for seed, model in enumerate(models, 1)
        ]
        yield f"{label} (single)", single, _squad(systems[:1])
        yield f"{label} (ensemble)", together, _squad([lab.ensemble(systems)])


def _table_3(lab: Lab) -> Iterator[Row]:
    *_, size = lab.sizes  # The largest.
    commands = lab.finetune(lab.start(size), "squad-v2.0", seeds=[1])
    label = f"BERT-{size.title()} (single)"
    yield label, (78.7, 81.9), _squad(commands, "exact")


def _table_4(lab: Lab) -> Iterator[Row]:
    paper = {"base": 81.6, "large": 86.6}
    for size in lab.sizes:
        commands = lab.finetune(lab.start(size), "SWAG", seeds=[1])
        columns = {"accuracy": (commands, "accuracy")}
        yield f"BERT-{size.title()}", [paper[size]], columns


def _table_5(lab: Lab) -> Iterator[Row]:
    bilstm = {"bilstm_size": lab.scale.lstm_size}
    for label, objective, flags, paper in (
        ("masked LM + next sentence", BOTH, {}, (84.4, 88.4, 86.7, 92.7, 88.5)),
        ("no next sentence", MASKED_LM, {}, (83.9, 84.9, 86.5, 92.6, 87.9)),
        ("left to right", LEFT_TO_RIGHT, {}, (82.1, 84.3, 77.5, 92.1, 77.8)),
        ("with BiLSTM", LEFT_TO_RIGHT, bilstm, (82.1, 84.1, 75.7, 91.6, 84.9)),
    ):
        model = lab.pretrain(lab.scale.base, objective=objective, weight=1.0)
        if flags:
            model = model._replace(name=f"{model.name}_bilstm", flags=flags)
        columns = _accuracies(lab, model, "MNLI", "QNLI", "MRPC", "SST-2")
        columns["SQuAD F1"] = lab.finetune(model, "squad-v1.1"), "f1"
        yield label, paper, columns


def _accuracies(lab: Lab, model: Model, *tasks: str) -> dict[str, Any]:
    return {
        f"{task}-m" if task == "MNLI" else task: (
            lab.finetune(model, task),
            "accuracy",
        )
        for task in tasks
    }


def _table_6(lab: Lab) -> Iterator[Row]:
    paper = {
        "3/768/12": (5.84, 77.9, 79.8, 88.4),
        "6/768/3": (5.24, 80.6, 82.2, 90.7),
        "6/768/12": (4.68, 81.9, 84.8, 91.3),
        "12/768/12": (3.99, 84.4, 86.7, 92.9),
        "12/1024/16": (3.54, 85.7, 86.9, 93.3),
        "24/1024/16": (3.23, 86.6, 87.8, 93.7),
    }
    for size in lab.scale.sizes:
        model = lab.pretrain(size)
        columns = {
            "perplexity": (model.needs, "masked_lm_perplexity"),
            **_accuracies(lab, model, "MNLI", "MRPC", "SST-2"),
        }
        yield size, paper.get(size, [None] * 4), columns


def _table_7(lab: Lab) -> Iterator[Row]:
    paper = {"base": (96.4, 92.4), "large": (96.6, 92.8)}
    for size in reversed(lab.sizes):
        commands = lab.finetune(lab.start(f"{size}_cased"), "ner")
        columns = {"dev F1": (commands, "f1"), "test F1": (commands, "test_f1")}
        yield f"fine-tuned {size.title()}", paper[size], columns
    model = lab.start("base_cased")
    for features, number in (
        ("embeddings", 91.0),
        ("second_to_last", 95.6),
        ("last", 94.9),
        ("weighted_sum_last_four", 95.9),
        ("concat_last_four", 96.1),
        ("weighted_sum_all", 95.5),
    ):
        columns = {"dev F1": (lab.finetune(model, features), "f1")}
        label = f"Base, features: {features.replace('_', ' ')}"
        yield label, [number], columns


def _table_8(lab: Lab) -> Iterator[Row]:
    paper = {
        STANDARD: (84.2, 95.4, 94.9),
        "100-0-0": (84.3, 94.9, 94.0),
        "80-0-20": (84.1, 95.2, 94.6),
        "80-20-0": (84.4, 95.2, 94.7),
        "0-20-80": (83.7, 94.8, 94.6),
        "0-0-100": (83.6, 94.9, 94.6),
    }
    for masking in lab.scale.maskings:
        model = lab.pretrain(lab.scale.base, masking=masking)
        columns = {
            **_accuracies(lab, model, "MNLI"),
            "NER fine-tuned": (lab.finetune(model, "ner"), "f1"),
            "NER features": (lab.finetune(model, "concat_last_four"), "f1"),
        }
        yield f"{masking} (mask-same-random)", paper[masking], columns


def _figure_5(lab: Lab) -> Iterator[Row]:
    for objective in (BOTH, LEFT_TO_RIGHT):
        model = lab.pretrain(lab.scale.base, objective=objective)
        columns = {
            f"{step:,} steps": (
                lab.finetune(lab.at_step(model, step), "MNLI"),
                "accuracy",
            )
            for step in lab.scale.checkpoints
        }
        yield objective.replace("_", " "), [None] * len(columns), columns


TABLES: Mapping[str, Callable[[Lab], Table]] = {
    "1": _table(
        "GLUE",
        "The best of four learning rates (Large: and restarts) on the "
        "development set. The paper's numbers are of the test set, ours of the "
        "development set.",
        _table_1,
    ),
    "2": _table(
        "SQuAD 1.1, development set",
        "TriviaQA: the first 400 words of a page, if they contain an answer, "
        "before SQuAD. The systems of an ensemble differ in their seed and, "
        "if --large_checkpoint names several, in their checkpoint.",
        _table_2,
    ),
    "3": _table(
        "SQuAD 2.0, development set",
        "No TriviaQA. The threshold of no answer maximizes F1 on the "
        "development set. The paper's numbers are of BERT-Large.",
        _table_3,
    ),
    "4": _table("SWAG, development set", "One run each.", _table_4),
    "5": _table(
        "Pre-training tasks, development sets",
        "All models have the size of Base and read the same records; the "
        f"next-sentence loss has the weight 1. {_ONE_MODEL}",
        _table_5,
    ),
    "6": _table(
        "Model size (layers/hidden units/heads): perplexity of masked tokens "
        "of held-out text; development sets",
        f"The paper's held-out text is of its own corpus. {_ONE_MODEL}",
        _table_6,
    ),
    "7": _table(
        "CoNLL-2003 named entities",
        "Maximal document context, tags predicted from the first token of a "
        "word, no CRF; means of restarts. The paper's models are cased; "
        "without a cased checkpoint, ours are pre-trained as --do_lower_case "
        "says. Features: a two-layer BiLSTM on the frozen encoder.",
        _table_7,
    ),
    "8": _table(
        "Masking procedures, development sets",
        "All models have the size of Base. Features: the last four layers, "
        f"concatenated. {_ONE_MODEL}",
        _table_8,
    ),
    "figure5": _table(
        "MNLI-m accuracy after fine-tuning from checkpoints of pre-training",
        "The learning rate of pre-training falls over all steps. The paper "
        f"prints a plot without numbers. {_ONE_MODEL}",
        _figure_5,
    ),
}
