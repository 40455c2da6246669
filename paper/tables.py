"""The tables of the BERT paper: its numbers, and our commands for ours.

    Lab(SCALES["small"], Inputs(...), "out")    makes the commands of one scale
    TABLES["5"].rows(lab)                       yields rows

A row has the paper's numbers, and the commands whose output directories have
ours. Making it adds these and the commands before them to `Lab.commands`:

    create_vocabulary -> create_pretraining_data -> run_pretraining
        -> run_classifier (with several learning rates), one for each seed

Commands of the same name are the same: tables have commands in common. Where
the versions of arXiv 1810.04805 differ, the numbers are those of version 2.
"""

import dataclasses
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
    """

    name: str
    program: str
    flags: Flags

    @property
    def arguments(self) -> list[str]:
        """The command line after "python"."""
        is_file = self.program.endswith(".py")
        program = [self.program] if is_file else ["-m", self.program]
        return program + [f"--{k}={v}" for k, v in self.flags.items()]


class Row(NamedTuple):
    """A row of a table.

    Attributes:
      label: its name.
      paper: the paper's numbers in the order of the columns, None without one.
      ours: column -> commands, one for each seed, and the name of the metric
        in their eval_results.txt, with or without "eval_".
    """

    label: str
    paper: Sequence[float | None]
    ours: Mapping[str, tuple[Sequence[Command], str]]


class Table(NamedTuple):
    """A table or figure of the paper; `rows` adds its commands to a Lab."""

    title: str
    note: str
    rows: Callable[["Lab"], Iterator[Row]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """All numbers in which the paper's experiments and small ones differ.

    Attributes:
      base, large: sizes of the paper's models as it writes them, L/H/A; None
        leaves rows out.
      sizes: sizes of the models of Table 6.
      vocab_size: of a vocabulary that is learned.
      dropout: of pre-training and fine-tuning.
      initializer: the initializer range times the square root of H. The
        released range, 0.02 at 768 units, is too small for small models.
      phases: length, masked positions and steps of each phase of pre-training.
      weight: of the next-sentence loss, where no table compares objectives.
      dupe_factor: passes over the corpus with different masks.
      pretraining: further flags of run_pretraining.py.
      finetuning: flags that replace the paper's where BERT is fine-tuned.
      lengths: program -> flags of the lengths of its sequences.
      seeds: number of fine-tunings where the paper has several or compares.
      lstm_size: units of each direction of the BiLSTMs.
      ensemble: number of systems of an ensemble.
      checkpoints: steps of pre-training in Figure 5, the last one included.
      maskings: rows of Table 8.
    """

    base: str
    large: str | None
    sizes: Sequence[str]
    vocab_size: int
    dropout: float
    initializer: float
    phases: Sequence[tuple[int, int, int]]
    weight: float
    dupe_factor: int
    pretraining: Flags
    finetuning: Flags
    lengths: Mapping[str, Flags]
    seeds: int
    lstm_size: int
    ensemble: int
    checkpoints: Sequence[int]
    maskings: Sequence[str]


_PAPER = Scale(
    base="12/768/12",
    large="24/1024/16",
    sizes=(
        *("3/768/12", "6/768/3", "6/768/12"),
        *("12/768/12", "12/1024/16", "24/1024/16"),
    ),
    vocab_size=30522,
    dropout=0.1,
    initializer=0.02 * 768**0.5,
    phases=((128, 20, 900_000), (512, 77, 100_000)),
    weight=1.0,
    dupe_factor=10,
    finetuning={},
    pretraining={
        "train_batch_size": 256,
        "learning_rate": 1e-4,
        "num_warmup_steps": 10_000,
    },
    lengths={
        "run_classifier.py": {"max_seq_length": 128},
        "run_squad.py": {
            "max_seq_length": 384,
            "doc_stride": 128,
            "max_query_length": 64,
        },
        "run_ner.py": {"max_seq_length": 512},
    },
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
    vocab_size=8192,
    dropout=0.0,
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
    pretraining={
        "train_batch_size": 64,
        "learning_rate": 1e-3,
        "num_warmup_steps": 1_000,
    },
    lengths={
        "run_classifier.py": {"max_seq_length": 64},
        "run_squad.py": {
            "max_seq_length": 64,
            "doc_stride": 21,
            "max_query_length": 16,
        },
        "run_ner.py": {"max_seq_length": 64},
    },
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
    vocab_size=180,
    phases=((32, 5, 6), (64, 10, 2)),
    finetuning={
        **_SMALL.finetuning,
        "train_batch_size": 8,
        "num_train_epochs": 1,
    },
    pretraining={
        **_SMALL.pretraining,
        "train_batch_size": 8,
        "num_warmup_steps": 2,
    },
    lengths={**_SMALL.lengths, "run_ner.py": {"max_seq_length": 32}},
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
      flags: flags of every fine-tuning.
    """

    name: str
    checkpoint: str
    flags: Flags = {}


class Lab:
    """Makes the commands of tables at one scale.

    Attributes:
      commands: name -> command, each after those whose output it needs.
      sizes: the sizes of "base" and "large", as far as the scale has them.
    """

    def __init__(self, scale: Scale, inputs: Inputs, output_dir: str):
        """Plans below output_dir; nothing is written or started."""
        self.scale = scale
        self.inputs = inputs
        self.commands: dict[str, Command] = {}
        sizes = {"base": scale.base, "large": scale.large}
        self.sizes = {name: size for name, size in sizes.items() if size}
        values = dataclasses.asdict(inputs)
        # A command that lacks an input shows its name: <corpus>.
        self._values = {k: v or f"<{k}>" for k, v in values.items()}
        self._values["output_dir"] = output_dir

    def path(self, *names: str) -> str:
        """Returns a path below the output directory."""
        return os.path.join(self._values["output_dir"], *names)

    def add(self, name: str, program: str, flags: Flags) -> Command:
        """Returns the command of that name, after it was added once."""
        command = Command(name, program, flags)
        return self.commands.setdefault(name, command)

    def write_configs(self) -> None:
        """Writes the JSON files of --bert_config_file."""
        scale, vocab_size = self.scale, self.scale.vocab_size
        if self.inputs.vocab_file:
            data = file_system.read(self.inputs.vocab_file)
            vocab_size = len(data.splitlines())
        file_system.make_folder(self.path("configs"))
        for size in {*self.sizes.values(), *scale.sizes}:
            layers, hidden, heads = map(int, size.split("/"))
            model = {
                "vocab_size": vocab_size,
                "max_position_embeddings": scale.phases[-1][0],
                "type_vocab_size": 2,
                "hidden_act": "gelu",
                "hidden_dropout_prob": scale.dropout,
                "attention_probs_dropout_prob": scale.dropout,
                "hidden_size": hidden,
                "num_hidden_layers": layers,
                "num_attention_heads": heads,
                "intermediate_size": 4 * hidden,
                "initializer_range": scale.initializer / hidden**0.5,
            }
            atomic.write_json(self._config_file(size), model)

    def _config_file(self, size: str) -> str:
        return self.path("configs", f"{size.replace('/', '-')}.json")

    # Pre-training.

    def _records(self, corpus: str, masking: str) -> str:
        """Returns the shards of a corpus, with records of all lengths."""
        of_both = {
            "input_file": self._values[corpus],
            "input_format": self.inputs.input_format,
            "do_lower_case": self.inputs.do_lower_case,
        }
        vocab_file = self.inputs.vocab_file
        if not vocab_file:
            vocab_file = self.path("vocabulary", "vocab.txt")
            flags = {
                **of_both,
                "output_file": vocab_file,
                "vocab_size": self.scale.vocab_size,
            }
            self.add("vocabulary", "create_vocabulary.py", flags)
        mask, _, random = (int(x) / 100 for x in masking.split("-"))
        is_heldout = corpus == "heldout_corpus"
        shards = []
        for length, predictions, _ in self.scale.phases:
            name = f"records/{corpus}/{masking}/{length}"
            flags = {
                **of_both,
                "vocab_file": vocab_file,
                "output_prefix": self.path(name, "part"),
                "max_seq_length": length,
                "max_predictions_per_seq": predictions,
                "mask_token_prob": mask,
                "random_token_prob": random,
                "dupe_factor": 1 if is_heldout else self.scale.dupe_factor,
                "num_shards": 1 if is_heldout else 8,
            }
            self.add(name, "create_pretraining_data.py", flags)
            shards.append(self.path(name, "part-*"))
        return ",".join(shards)

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
            "input_file": self._records("corpus", masking),
            "eval_file": self._records("heldout_corpus", STANDARD),
            "output_dir": directory,
            "do_train": True,
            "do_eval": True,
            "objective": objective,
            "phases": ",".join(f"{n}:{steps}" for n, _, steps in scale.phases),
            **scale.pretraining,
            "save_checkpoints_steps": save_every,
            "keep_checkpoint_max": num_saved if is_plotted else 2,
            "precision": self.inputs.precision,
            **own_flags,
        }
        self.add(f"pretrained/{name}", "run_pretraining.py", flags)
        return Model(name, directory)

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
        self, model: Model, task: str, seeds: Sequence[int] | None = None
    ) -> list[Command]:
        """Returns one command for each seed; None stands for all of the scale.

        Args:
          model: the model to start from.
          task: a key of _TASKS.
          seeds: seeds of the new weights, of dropout and of the order.
        """
        program, flags = _TASKS[task]
        flags = {
            k: v.format_map(self._values) if isinstance(v, str) else v
            for k, v in flags.items()
        }
        only_lstm = {"lstm_size": self.scale.lstm_size}
        flags |= only_lstm if "features" in flags else self.scale.finetuning
        commands = []
        for seed in seeds or range(1, 1 + self.scale.seeds):
            name = f"finetuned/{model.name}/{task}/seed{seed}"
            every_flag = {
                "init_checkpoint": model.checkpoint,
                "output_dir": self.path(name),
                "do_train": True,
                "precision": self.inputs.precision,
                "random_seed": seed,
                **flags,
                **self.scale.lengths[program],
                **model.flags,
            }
            commands.append(self.add(name, program, every_flag))
        return commands

    def scores(
        self,
        model: Model,
        columns: Mapping[str, tuple[str, str]],
        seeds: Sequence[int] | None = None,
    ) -> dict[str, tuple[Sequence[Command], str]]:
        """Fine-tunes for the task of each column: column -> (task, metric)."""
        return {
            column: (self.finetune(model, task, seeds), metric)
            for column, (task, metric) in columns.items()
        }


_ONE_MODEL = (
    "Each row is one pre-trained model: the deviation is that of restarts of "
    "fine-tuning and omits the noise between pre-trainings, so a difference "
    "between two rows decides nothing by itself."
)


def _table_1(lab: Lab) -> Iterator[Row]:
    paper = {
        "base": (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4),
        "large": (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1),
    }
    columns = {
        "MNLI-m": ("MNLI", "accuracy"),
        "MNLI-mm": ("MNLI", "mismatched_accuracy"),
        "QQP": ("QQP", "f1"),
        "QNLI": ("QNLI", "accuracy"),
        "SST-2": ("SST-2", "accuracy"),
        "CoLA": ("CoLA", "matthews_correlation"),
        "STS-B": ("STS-B", "spearman"),
        "MRPC": ("MRPC", "f1"),
        "RTE": ("RTE", "accuracy"),
    }
    for size in lab.sizes:
        model = lab.start(size)
        if size == "large":
            name, restarts = f"{model.name}_restarted", lab.scale.seeds
            model = model._replace(name=name, flags={"num_seeds": restarts})
        ours = lab.scores(model, columns, [1])
        yield Row(f"BERT-{size.title()}", paper[size], ours)


def _table_2(lab: Lab) -> Iterator[Row]:
    task = "squad-v1.1"
    columns = {"EM": (task, "exact_match"), "F1": (task, "f1")}
    base = lab.scores(lab.start("base"), columns, [1])
    yield Row("BERT-Base (single)", (80.8, 88.5), base)
    if not lab.scale.large:
        return
    models = [lab.start("large", i) for i in range(lab.scale.ensemble)]
    for label, single, together in (
        ("BERT-Large", (84.1, 90.9), (85.8, 91.8)),
        ("BERT-Large + TriviaQA", (84.2, 91.1), (86.2, 92.2)),
    ):
        if "TriviaQA" in label:
            models = [_after_triviaqa(lab, model) for model in models]
        systems = [
            lab.finetune(model, task, [seed])[0]
            for seed, model in enumerate(models, 1)
        ]
        name = f"{systems[0].name}_ensemble{len(systems)}"
        flags = {
            "predict_file": systems[0].flags["predict_file"],
            "ensemble_dirs": ",".join(c.flags["output_dir"] for c in systems),
            "output_dir": lab.path(name),
        }
        for kind, numbers, command in (
            ("single", single, systems[0]),
            ("ensemble", together, lab.add(name, "run_squad.py", flags)),
        ):
            ours = {
                k: ([command], metric) for k, (_, metric) in columns.items()
            }
            yield Row(f"{label} ({kind})", numbers, ours)


def _after_triviaqa(lab: Lab, model: Model) -> Model:
    name = "records/triviaqa"
    folder = lab.inputs.triviaqa_dir or "<triviaqa_dir>"
    flags = {
        "input_file": f"{folder}/qa/wikipedia-train.json",
        "evidence_dir": f"{folder}/evidence/wikipedia",
        "output_file": lab.path(name, "train.json"),
    }
    lab.add(name, "tasks.squad.triviaqa", flags)
    (command,) = lab.finetune(model, "triviaqa", [1])
    return Model(f"{model.name}_triviaqa", command.flags["output_dir"])


def _table_3(lab: Lab) -> Iterator[Row]:
    *_, size = lab.sizes  # The largest.
    columns = {"EM": ("squad-v2.0", "exact"), "F1": ("squad-v2.0", "f1")}
    ours = lab.scores(lab.start(size), columns, [1])
    yield Row(f"BERT-{size.title()} (single)", (78.7, 81.9), ours)


def _table_4(lab: Lab) -> Iterator[Row]:
    paper = {"base": 81.6, "large": 86.6}
    for size in lab.sizes:
        columns = {"accuracy": ("SWAG", "accuracy")}
        ours = lab.scores(lab.start(size), columns, [1])
        yield Row(f"BERT-{size.title()}", [paper[size]], ours)


def _table_5(lab: Lab) -> Iterator[Row]:
    columns = {
        "MNLI-m": ("MNLI", "accuracy"),
        "QNLI": ("QNLI", "accuracy"),
        "MRPC": ("MRPC", "accuracy"),
        "SST-2": ("SST-2", "accuracy"),
        "SQuAD F1": ("squad-v1.1", "f1"),
    }
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
        yield Row(label, paper, lab.scores(model, columns))


def _table_6(lab: Lab) -> Iterator[Row]:
    paper = {
        "3/768/12": (5.84, 77.9, 79.8, 88.4),
        "6/768/3": (5.24, 80.6, 82.2, 90.7),
        "6/768/12": (4.68, 81.9, 84.8, 91.3),
        "12/768/12": (3.99, 84.4, 86.7, 92.9),
        "12/1024/16": (3.54, 85.7, 86.9, 93.3),
        "24/1024/16": (3.23, 86.6, 87.8, 93.7),
    }
    columns = {
        "MNLI-m": ("MNLI", "accuracy"),
        "MRPC": ("MRPC", "accuracy"),
        "SST-2": ("SST-2", "accuracy"),
    }
    for size in lab.scale.sizes:
        model = lab.pretrain(size)
        pretraining = [lab.commands[f"pretrained/{model.name}"]]
        perplexity = {"perplexity": (pretraining, "masked_lm_perplexity")}
        ours = perplexity | lab.scores(model, columns)
        yield Row(size, paper.get(size, [None] * 4), ours)


def _table_7(lab: Lab) -> Iterator[Row]:
    paper = {"base": (96.4, 92.4), "large": (96.6, 92.8)}
    columns = {"dev F1": ("ner", "f1"), "test F1": ("ner", "test_f1")}
    for size in reversed(lab.sizes):
        ours = lab.scores(lab.start(f"{size}_cased"), columns)
        yield Row(f"fine-tuned {size.title()}", paper[size], ours)
    model = lab.start("base_cased")
    for features, number in (
        ("embeddings", 91.0),
        ("second_to_last", 95.6),
        ("last", 94.9),
        ("weighted_sum_last_four", 95.9),
        ("concat_last_four", 96.1),
        ("weighted_sum_all", 95.5),
    ):
        ours = lab.scores(model, {"dev F1": (features, "f1")})
        label = f"Base, features: {features.replace('_', ' ')}"
        yield Row(label, [number], ours)


def _table_8(lab: Lab) -> Iterator[Row]:
    paper = {
        STANDARD: (84.2, 95.4, 94.9),
        "100-0-0": (84.3, 94.9, 94.0),
        "80-0-20": (84.1, 95.2, 94.6),
        "80-20-0": (84.4, 95.2, 94.7),
        "0-20-80": (83.7, 94.8, 94.6),
        "0-0-100": (83.6, 94.9, 94.6),
    }
    columns = {
        "MNLI-m": ("MNLI", "accuracy"),
        "NER fine-tuned": ("ner", "f1"),
        "NER features": ("concat_last_four", "f1"),
    }
    for masking in lab.scale.maskings:
        ours = lab.scores(
            lab.pretrain(lab.scale.base, masking=masking), columns
        )
        yield Row(f"{masking} (mask-same-random)", paper[masking], ours)


def _figure_5(lab: Lab) -> Iterator[Row]:
    for objective in (BOTH, LEFT_TO_RIGHT):
        model = lab.pretrain(lab.scale.base, objective=objective)
        ours: dict[str, tuple[Sequence[Command], str]] = {}
        for step in lab.scale.checkpoints:
            at_step = Model(
                f"{model.name}_step{step}",
                os.path.join(model.checkpoint, f"model.ckpt-{step}"),
            )
            # The last one is the model that other tables fine-tune.
            if step == lab.scale.checkpoints[-1]:
                at_step = model
            columns = {f"{step:,} steps": ("MNLI", "accuracy")}
            ours |= lab.scores(at_step, columns)
        yield Row(objective.replace("_", " "), [None] * len(ours), ours)


TABLES: Mapping[str, Table] = {
    "1": Table(
        "GLUE",
        "The best of four learning rates (Large: and restarts) on the "
        "development set. The paper's numbers are of the test set, ours of the "
        "development set.",
        _table_1,
    ),
    "2": Table(
        "SQuAD 1.1, development set",
        "TriviaQA: the first 400 words of a page, if they contain an answer, "
        "before SQuAD. The systems of an ensemble differ in their seed and, "
        "if --large_checkpoint names several, in their checkpoint.",
        _table_2,
    ),
    "3": Table(
        "SQuAD 2.0, development set",
        "No TriviaQA. The threshold of no answer maximizes F1 on the "
        "development set. The paper's numbers are of BERT-Large.",
        _table_3,
    ),
    "4": Table("SWAG, development set", "One run each.", _table_4),
    "5": Table(
        "Pre-training tasks, development sets",
        "All models have the size of Base and read the same records; the "
        f"next-sentence loss has the weight 1. {_ONE_MODEL}",
        _table_5,
    ),
    "6": Table(
        "Model size (layers/hidden units/heads): perplexity of masked tokens "
        "of held-out text; development sets",
        f"The paper's held-out text is of its own corpus. {_ONE_MODEL}",
        _table_6,
    ),
    "7": Table(
        "CoNLL-2003 named entities",
        "Maximal document context, tags predicted from the first token of a "
        "word, no CRF; means of restarts. The paper's models are cased; "
        "without a cased checkpoint, ours are pre-trained as --do_lower_case "
        "says. Features: a two-layer BiLSTM on the frozen encoder.",
        _table_7,
    ),
    "8": Table(
        "Masking procedures, development sets",
        "All models have the size of Base. Features: the last four layers, "
        f"concatenated. {_ONE_MODEL}",
        _table_8,
    ),
    "figure5": Table(
        "MNLI-m accuracy after fine-tuning from checkpoints of pre-training",
        "The learning rate of pre-training falls over all steps. The paper "
        f"prints a plot without numbers. {_ONE_MODEL}",
        _figure_5,
    ),
}
