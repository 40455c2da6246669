"""Makes the commands of experiments: records, pre-training, fine-tuning.

`Experiments` knows the scale, the user's files and the output directory. Its
methods return models and scores for the declarations in `tables`; the commands
behind them are made once and found again by their names.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from data.tokenization import vocabulary
from foundation import atomic, file_system
from modeling.config import BertConfig
from paper.protocol import Command, Scale, Score, Size
from tasks.classification import sentence_files, sentence_tasks
from training import checkpoints

_BOTH = "masked_lm_and_next_sentence"
_PLOTTED = (_BOTH, "left_to_right")  # In Figure 5.
_FIRST_SEED = 12_345  # The default of all commands.
# Of the seeds of two pre-trainings, and of the first restarts of fine-tuning
# from them: more than there are restarts.
_SEED_DISTANCE = 1_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inputs:
    """The user's files; each is the value of the flag of the same name."""

    glue_dir: str | None = None
    squad_dir: str | None = None
    triviaqa_dir: str | None = None
    swag_dir: str | None = None
    conll_dir: str | None = None
    corpus: str | None = None
    heldout_corpus: str | None = None
    input_format: str = "sentences"
    vocab_file: str | None = None
    do_lower_case: bool = True
    base_checkpoint: str | None = None
    large_checkpoint: str | None = None
    base_cased_checkpoint: str | None = None
    large_cased_checkpoint: str | None = None
    precision: str = "auto"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """A pre-trained model that fine-tuning starts from.

    Attributes:
      name: part of the names of its commands.
      checkpoint: value of --init_checkpoint.
      pretrained: the checkpoint at the end of its pre-training; not that of
        `checkpoint` after training on TriviaQA.
      size: size of the model.
      pretraining: number of its pre-training, from 0.
      needs: the command that trains it, if any.
      bilstm: whether fine-tuning adds a BiLSTM.
    """

    name: str
    checkpoint: str
    pretrained: str
    size: Size
    pretraining: int = 0
    needs: Sequence[Command] = ()
    bilstm: bool = False


@dataclasses.dataclass(frozen=True)
class TrainingSetSize:
    """What the cost of training on a sentence task depends on."""

    rows: int  # of the complete training set
    tokens: int  # mean length of an example


SENTENCE_TASKS = {
    "mnli": TrainingSetSize(392_702, 39),
    "qqp": TrainingSetSize(363_849, 30),
    "qnli": TrainingSetSize(104_743, 50),
    "sst-2": TrainingSetSize(67_349, 13),
    "cola": TrainingSetSize(8_551, 11),
    "sts-b": TrainingSetSize(5_749, 31),
    "mrpc": TrainingSetSize(3_668, 53),
    "rte": TrainingSetSize(2_490, 70),
    "wnli": TrainingSetSize(635, 37),
}
_SQUAD_WINDOWS = {"v1.1": 88_600, "v2.0": 132_000, "triviaqa": 110_000}
_NER_SENTENCES = 14_041
_SWAG_CHOICES = 73_546 * 4


@dataclasses.dataclass(frozen=True)
class Masking:
    """Fractions of the chosen tokens that become [MASK] or a random token."""

    mask: float = 0.8
    random: float = 0.1

    def __str__(self) -> str:
        """Returns the percentages of mask, same and random: "80-10-10"."""
        mask, random = round(100 * self.mask), round(100 * self.random)
        return f"{mask}-{100 - mask - random}-{random}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finetuning:
    """How the paper fine-tunes on a task, and the size of the training set.

    Attributes:
      examples: size of the training set at this scale, for the estimate of
        hours.
      tokens: mean length of an example, for the same estimate.
      rates: learning rates; "" for those of the scale, None for the default of
        the command.
      batch: examples per step.
      epochs: passes over the training set.
    """

    examples: int
    tokens: int
    rates: str | None = ""
    batch: int = 32
    epochs: float = 3

    def at(self, scale: Scale) -> "Finetuning":
        """Returns the values at a scale; a small scale has its own."""
        changes: dict[str, Any] = {}
        if scale.finetuning_batch_size is not None:
            changes = {
                "batch": scale.finetuning_batch_size,
                "epochs": scale.finetuning_epochs,
            }
        if self.rates == "" or (self.rates and changes):
            changes["rates"] = scale.finetuning_learning_rates
        return dataclasses.replace(self, **changes)


class Experiments:
    """Makes and finds the commands of all experiments of a scale.

    Attributes:
      missing: names of the inputs that the commands need and that are not
        given. The plan shows their names instead.
    """

    def __init__(self, scale: Scale, inputs: Inputs, output_dir: str):
        """Plans below output_dir; nothing is written or started."""
        self.scale = scale
        self.inputs = inputs
        self.output_dir = output_dir
        self.missing: set[str] = set()
        self._commands: dict[str, Command] = {}

    # Pre-training.

    def vocabulary(self) -> tuple[str, list[Command]]:
        """Returns the path of the vocabulary and the command that makes it."""
        if self.inputs.vocab_file:
            return self.inputs.vocab_file, []
        path = self._path("vocabulary", "vocab.txt")
        command = self._command(
            "vocabulary",
            "create_vocabulary",
            {
                "input_file": self._input("corpus"),
                "output_file": path,
                "input_format": self.inputs.input_format,
                "vocab_size": self.scale.vocab_size,
                "do_lower_case": self.inputs.do_lower_case,
            },
        )
        return path, [command]

    def _shards(self, masking: Masking, *, held_out: bool) -> list[Command]:
        """Returns one command for each length of the records."""
        vocab_file, needs = self.vocabulary()
        corpus = "heldout_corpus" if held_out else "corpus"
        passes = 1 if held_out else self.scale.dupe_factor
        commands = []
        for length, predictions, _ in self.scale.phases:
            name = f"{'heldout' if held_out else 'train'}/{masking}/{length}"
            commands.append(
                self._command(
                    f"records/{name}",
                    "create_pretraining_data",
                    {
                        "input_file": self._input(corpus),
                        "input_format": self.inputs.input_format,
                        "vocab_file": vocab_file,
                        "output_prefix": self._path("records", name, "part"),
                        "do_lower_case": self.inputs.do_lower_case,
                        "max_seq_length": length,
                        "max_predictions_per_seq": predictions,
                        "mask_token_prob": masking.mask,
                        "random_token_prob": masking.random,
                        "dupe_factor": passes,
                        "num_shards": 1 if held_out else 8,
                    },
                    needs,
                )
            )
        return commands

    def pretrain(
        self,
        size: Size,
        *,
        objective: str = _BOTH,
        masking: Masking = Masking(),
        next_sentence_loss_weight: float | None = None,
        number: int = 0,
    ) -> Model:
        """Returns a model that is pre-trained here.

        Args:
          size: size of the model.
          objective: value of run_pretraining.py's --objective.
          masking: masking of the training records; held-out records have the
            default.
          next_sentence_loss_weight: of an objective with next sentences; by
            default the scale's.
          number: number of the pre-training, from 0. They differ in the seed of
            initial weights, dropout and the order of the records, and have the
            same records.
        """
        scale = self.scale
        own_flags = _seed_flags(number)
        shards = self._shards(masking, held_out=False)
        held_out = self._shards(Masking(), held_out=True)
        name = f"pretrained/{str(size).replace('/', '-')}_{objective}_{masking}"
        is_plotted = (
            size == scale.base
            and masking == Masking()
            and objective in _PLOTTED
        )
        if objective == _BOTH:
            weight = next_sentence_loss_weight
            if weight is None:
                weight = scale.next_sentence_loss_weight
            is_plotted &= weight == scale.next_sentence_loss_weight
            if weight != 1.0:  # The default of the command.
                own_flags["next_sentence_loss_weight"] = weight
                name += f"_weight{weight:g}"
        if number:
            name += f"_seed{number + 1}"
        directory = self._path(name)
        save_every = scale.checkpoints[0] // 4
        config = self.bert_config(size)
        command = self._command(
            name,
            "run_pretraining",
            {
                "bert_config_file": self.config_file(size),
                "input_file": ",".join(map(_shard_glob, shards)),
                "eval_file": ",".join(map(_shard_glob, held_out)),
                "output_dir": directory,
                "do_train": True,
                "do_eval": True,
                "objective": objective,
                "phases": ",".join(
                    f"{phase.length}:{phase.steps}" for phase in scale.phases
                ),
                "train_batch_size": scale.pretraining_batch_size,
                "eval_batch_size": scale.pretraining_batch_size,
                "learning_rate": scale.pretraining_learning_rate,
                "num_warmup_steps": scale.warmup,
                "save_checkpoints_steps": save_every,
                # Figure 5 starts from checkpoints of the run.
                "keep_checkpoint_max": self.num_steps // save_every + 1
                if is_plotted
                else 2,
                "precision": self.inputs.precision,
                **own_flags,
            },
            [*shards, *held_out],
            num_runs=1,
            flops=sum(
                phase.steps
                * scale.pretraining_batch_size
                * _training_flops(
                    config,
                    phase.length,
                    phase.length
                    if objective == "left_to_right"
                    else phase.predictions,
                )
                for phase in scale.phases
            ),
        )
        return Model(
            name=os.path.basename(name),
            checkpoint=directory,
            pretrained=directory,
            size=size,
            pretraining=number,
            needs=[command],
        )

    def pretrainings(
        self, size: Size, *, is_compared: bool = True, **options: Any
    ) -> list[Model]:
        """Returns the pre-trained models of a row.

        Args:
          size: size of the models.
          is_compared: whether a finding compares the row. If none does, it has
            one pre-training.
          **options: objective, masking and weight; see `pretrain`.
        """
        count = self.scale.pretraining_seeds if is_compared else 1
        return [self.pretrain(size, number=n, **options) for n in range(count)]

    @property
    def num_steps(self) -> int:
        """The steps of pre-training."""
        return sum(phase.steps for phase in self.scale.phases)

    def at_step(self, model: Model, step: int) -> Model:
        """Returns a pre-trained model as it was after a number of steps."""
        if step == self.num_steps:
            return model
        checkpoint = checkpoints.path_of(model.checkpoint, step)
        return dataclasses.replace(
            model,
            name=f"{model.name}_step{step}",
            checkpoint=checkpoint,
            pretrained=checkpoint,
        )

    def start(self, name: str, number: int = 0) -> Model:
        """Returns the model of "base", "large", "base_cased" or "large_cased".

        It is the released model of the flag --NAME_checkpoint, else one that is
        pre-trained here.

        Args:
          name: one of the scale's `models`, with or without "_cased".
          number: number of the checkpoint in a flag that names several, as for
            an ensemble.
        """
        size = self.scale.models[name.removesuffix("_cased")]
        paths_in_flag = getattr(self.inputs, f"{name}_checkpoint")
        if paths_in_flag:
            paths = file_system.split_names(paths_in_flag, _is_checkpoint)
            number %= len(paths)
            suffix = f"_{number}" if number else ""
            return Model(
                name=f"{name}{suffix}",
                checkpoint=paths[number],
                pretrained=paths[number],
                size=size,
            )
        return self.pretrain(size)

    def masked_lm_perplexity(self, model: Model) -> Score:
        """Returns the perplexity of masked tokens on the held-out text."""
        (command,) = model.needs
        return _score(model, command, "masked_lm_perplexity", factor=1.0)

    # Fine-tuning.

    def sentence_task(
        self,
        model: Model,
        task: str,
        metric: str = "accuracy",
        *,
        seeds: int | None = None,
        submission: str | None = None,
    ) -> Score:
        """Returns the score of a GLUE task on its development set.

        Args:
          model: the model to start from.
          task: a key of SENTENCE_TASKS.
          metric: name of a metric of the task.
          seeds: number of restarts; by default the scale's `single_seeds`.
          submission: directory below the output directory for GLUE's files.
        """
        spec = SENTENCE_TASKS[task]
        flags = {
            "task_name": task,
            "data_dir": self._glue_folder(task),
            "do_eval": True,
            "max_seq_length": min(128, self._max_length()),
        }
        if submission:
            flags |= {
                "do_predict": True,
                "glue_submission": self._path(submission),
            }
            if task == "wnli":
                flags["wnli_majority"] = True
        command = self._finetune(
            model,
            task + ("_submitted" if submission else ""),
            "run_classifier",
            flags,
            Finetuning(
                examples=min(spec.rows, self.scale.max_rows),
                tokens=spec.tokens,
                # WNLI's submission is its majority class.
                rates="2e-5" if task == "wnli" else "",
            ),
            seeds=seeds,
        )
        return _score(model, command, metric)

    def has_glue(self, task: str, split: str = "train") -> bool:
        """Returns whether --glue_dir has a set of a task.

        Args:
          task: a key of tasks.classification.sentence_tasks.TASKS.
          split: a split of the task; "test" stands for all of its test sets.
        """
        if self.inputs.glue_dir is None:  # A plan for all tasks.
            return True
        files = sentence_tasks.TASKS[task].files
        splits = [x for x in files if x.startswith("test")]
        folder = self._glue_folder(task)
        return all(
            sentence_files.find_released(files[x], folder, ())
            for x in (splits if split == "test" else [split])
        )

    def _glue_folder(self, task: str) -> str:
        (folder,) = sentence_tasks.TASKS[task].folders
        return os.path.join(self._input("glue_dir"), folder)

    def glue_diagnostics(self, mnli: Score, submission: str) -> Command:
        """Predicts GLUE's diagnostic set with the model of MNLI."""
        (finetuned,) = mnli.commands
        name = f"{finetuned.name}_diagnostic"
        return self._command(
            name,
            "run_classifier",
            {
                "task_name": "ax",
                "data_dir": self._glue_folder("ax"),
                "init_checkpoint": finetuned.flags["output_dir"],
                "output_dir": self._path(name),
                "do_predict": True,
                "glue_submission": self._path(submission),
                "max_seq_length": finetuned.flags["max_seq_length"],
            },
            [finetuned],
        )

    def swag(self, model: Model) -> Score:
        """Returns the accuracy on SWAG's development set."""
        command = self._finetune(
            model,
            "swag",
            "run_classifier",
            {
                "task_name": "swag",
                "data_dir": self._input("swag_dir"),
                "do_eval": True,
                "max_seq_length": min(128, self._max_length()),
            },
            Finetuning(
                examples=min(_SWAG_CHOICES, 4 * self.scale.max_rows),
                tokens=40,
                rates="2e-5",
                batch=16,
            ),
        )
        return _score(model, command, "accuracy")

    def triviaqa(self, model: Model) -> Model:
        """Returns the model after fine-tuning on TriviaQA."""
        path = self._path("records", "triviaqa", "train.json")
        folder = self._input("triviaqa_dir")
        convert = self._command(
            "records/triviaqa",
            "tasks.squad.triviaqa",
            {
                "input_file": f"{folder}/qa/wikipedia-train.json",
                "evidence_dir": f"{folder}/evidence/wikipedia",
                "output_file": path,
            },
        )
        command = self._finetune(
            model,
            "triviaqa",
            "run_squad",
            {"train_file": path, **self._squad_windows()},
            Finetuning(
                examples=_SQUAD_WINDOWS["triviaqa"],
                tokens=self.scale.squad_length,
                rates="5e-5",
            ),
            seeds=1,
            needs=[convert],
        )
        return dataclasses.replace(
            model,
            name=f"{model.name}_triviaqa",
            checkpoint=command.flags["output_dir"],
            needs=[command],
        )

    def squad(
        self,
        model: Model,
        metric: str = "f1",
        *,
        version: str = "v1.1",
        seeds: int | None = None,
        seed: int | None = None,
    ) -> Score:
        """Returns a score on SQuAD's development set.

        Args:
          model: the model to start from.
          metric: "exact_match" or "f1"; "exact" or "f1" for version 2.0.
          version: "v1.1" or "v2.0".
          seeds: number of restarts; by default the scale's `single_seeds`.
          seed: seed of a single run, a system of an ensemble.
        """
        is_second = version == "v2.0"
        folder = self._input("squad_dir")
        flags: dict[str, Any] = {
            "train_file": os.path.join(folder, f"train-{version}.json"),
            "predict_file": os.path.join(folder, f"dev-{version}.json"),
            "do_predict": True,
            **self._squad_windows(),
        }
        if is_second:
            flags["version_2_with_negative"] = True
        if seed is not None:
            flags["random_seed"] = seed
        name = f"squad-{version}"
        command = self._finetune(
            model,
            name if seed is None else f"{name}_system{seed}",
            "run_squad",
            flags,
            Finetuning(
                examples=min(_SQUAD_WINDOWS[version], self.scale.max_rows),
                tokens=min(self.scale.squad_length, 170),
                rates="5e-5",
                batch=48 if is_second else 32,
                epochs=2 if is_second else 3,
            ),
            seeds=seeds if seed is None else 1,
        )
        return _score(model, command, metric, factor=1.0)

    def ensemble(self, systems: Sequence[Score], metric: str) -> Score:
        """Returns the score of several SQuAD systems together."""
        trainings = [command for s in systems for command in s.commands]
        first = trainings[0]
        name = f"{first.name.rpartition('_')[0]}_ensemble{len(systems)}"
        directories = [c.flags["output_dir"] for c in trainings]
        command = self._command(
            name,
            "run_squad",
            {
                "predict_file": first.flags["predict_file"],
                "ensemble_dirs": ",".join(directories),
                "output_dir": self._path(name),
            },
            trainings,
        )
        return Score(
            commands=[command],
            pretrained=frozenset().union(*(s.pretrained for s in systems)),
            metric=metric,
            factor=1.0,
        )

    def entities(self, model: Model, split: str = "dev") -> Score:
        """Returns the F1 of entities of a model that is fine-tuned."""
        command = self._finetune(
            model,
            "ner",
            "run_ner",
            {
                "data_dir": self._input("conll_dir"),
                "do_eval": True,
                "do_predict": True,
                "document_context": "maximal",
                "max_seq_length": self.scale.ner_length,
            },
            Finetuning(
                examples=min(_NER_SENTENCES, self.scale.max_rows),
                tokens=self.scale.ner_length,
            ),
            seeds=self.scale.seeds,
        )
        metric = "f1" if split == "dev" else "test_f1"
        return _score(model, command, metric)

    def frozen_entities(self, model: Model, features: str) -> Score:
        """Returns the F1 of a BiLSTM on activations of the frozen encoder.

        Args:
          model: the encoder.
          features: value of run_ner.py's --features.
        """
        is_one = features == "concat_last_four"
        command = self._finetune(
            model,
            "ner_frozen" + ("_concat" if is_one else ""),
            "run_ner",
            {
                "data_dir": self._input("conll_dir"),
                "do_eval": True,
                "document_context": "maximal",
                "max_seq_length": self.scale.ner_length,
                "features": features if is_one else "all",
                "lstm_size": self.scale.lstm_size,
            },
            Finetuning(
                # The encoder only computes activations, and only once for all
                # seeds: a ninth of the work of three epochs of training.
                examples=min(_NER_SENTENCES, self.scale.max_rows)
                // (9 * self.scale.seeds),
                tokens=self.scale.ner_length,
                rates=None,
            ),
            seeds=self.scale.seeds,
        )
        return _score(model, command, f"features/{features}")

    # Helpers.

    def _input(self, name: str) -> str:
        """Returns an input that the commands need."""
        value = getattr(self.inputs, name)
        if value is None:
            self.missing.add(name)
            return name.upper()
        return value

    def bert_config(self, size: Size) -> BertConfig:
        """Returns the hyperparameters of a model of this scale."""
        return BertConfig(
            vocab_size=self._vocab_size(),
            hidden_size=size.hidden,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            intermediate_size=4 * size.hidden,
            max_position_embeddings=self._max_length(),
            type_vocab_size=2,
            initializer_range=self.scale.initializer_range(size.hidden),
            hidden_dropout_prob=self.scale.dropout,
            attention_probs_dropout_prob=self.scale.dropout,
        )

    def config_file(self, size: Size) -> str:
        """Returns the path of the JSON of bert_config; see `write_configs`."""
        return self._path("configs", f"{str(size).replace('/', '-')}.json")

    def write_configs(self) -> None:
        """Writes the JSON files that commands read as --bert_config_file."""
        for size in {self.scale.base, self.scale.large, *self.scale.sizes}:
            if size is not None:
                path = self.config_file(size)
                file_system.make_folder(os.path.dirname(path))
                atomic.write_json(path, self.bert_config(size).to_dict())

    def _finetune(
        self,
        model: Model,
        name: str,
        program: str,
        flags: dict[str, Any],
        finetuning: Finetuning,
        *,
        seeds: int | None = None,
        needs: Sequence[Command] = (),
    ) -> Command:
        """Makes a grid of fine-tuning runs.

        The restarts from another pre-training have other seeds, so that the
        results with several pre-trained models are independent.

        Args:
          model: the model to start from.
          name: name of the task.
          program: the command.
          flags: flags of the task.
          finetuning: the paper's values.
          seeds: number of restarts; None for the scale's `single_seeds`.
          needs: commands that must have finished, besides the model's.
        """
        scale = self.scale
        finetuning = finetuning.at(scale)
        seeds = scale.single_seeds if seeds is None else seeds
        folder = f"{model.name}_bilstm" if model.bilstm else model.name
        name = f"finetuned/{folder}/{name}"
        if seeds > 1:
            name += f"_{seeds}_seeds"
        flags = {
            "init_checkpoint": model.checkpoint,
            "output_dir": self._path(name),
            "do_train": True,
            "train_batch_size": finetuning.batch,
            "num_train_epochs": finetuning.epochs,
            "precision": self.inputs.precision,
            **_seed_flags(model.pretraining),
            **flags,
        }
        if finetuning.rates is not None:
            flags["learning_rate"] = finetuning.rates
        if seeds > 1:
            flags["num_seeds"] = seeds
        if model.bilstm:
            flags["bilstm_size"] = scale.lstm_size
        num_runs = seeds * (finetuning.rates or "").count(",") + seeds
        cost = _training_flops(self.bert_config(model.size), finetuning.tokens)
        return self._command(
            name,
            program,
            flags,
            [*model.needs, *needs],
            num_runs=num_runs,
            flops=cost * finetuning.examples * finetuning.epochs * num_runs,
        )

    def _command(
        self,
        name: str,
        program: str,
        flags: dict[str, Any],
        needs: Sequence[Command] = (),
        **cost: Any,
    ) -> Command:
        command = Command(
            name=name, program=program, flags=flags, needs=needs, **cost
        )
        first_command = self._commands.setdefault(name, command)
        assert first_command.flags == flags, f"two commands {name}"
        return first_command

    def _max_length(self) -> int:
        return max(phase.length for phase in self.scale.phases)

    def _squad_windows(self) -> dict[str, int]:
        """Returns the released proportions: 384, 128 and 64.

        But at least 16 tokens of a question: most have no more.
        """
        length = self.scale.squad_length
        return {
            "max_seq_length": length,
            "doc_stride": length // 3,
            "max_query_length": max(length // 6, 16),
        }

    def _vocab_size(self) -> int:
        path = self.inputs.vocab_file
        if path is None:
            return self.scale.vocab_size
        return len(vocabulary.Vocabulary.from_file(path))

    def _path(self, *names: str) -> str:
        return os.path.join(self.output_dir, *names)


def _is_checkpoint(path: str) -> bool:
    return file_system.exists(path) or file_system.exists(f"{path}.index")


def _shard_glob(command: Command) -> str:
    return command.flags["output_prefix"] + "-*"


def _seed_flags(pretraining: int) -> dict[str, Any]:
    """Returns the flags of the seed with the number of a pre-training.

    The first has none: directories of a single pre-training can be extended.
    """
    if not pretraining:
        return {}
    return {"random_seed": _FIRST_SEED + _SEED_DISTANCE * pretraining}


def _score(
    model: Model, command: Command, metric: str, factor: float = 100.0
) -> Score:
    """Returns a metric of a command that starts from a model."""
    return Score(
        commands=[command],
        pretrained=frozenset([model.pretrained]),
        metric=metric,
        factor=factor,
    )


def _training_flops(
    config: BertConfig, length: int, predictions: int = 0
) -> float:
    """Estimates the operations of training on one sequence, for the plan.

    They are six per token and weight of the encoder, those of its attention,
    and six per prediction and weight of the output layer. Models that run
    count their own: see training.cost.

    Args:
      config: the model.
      length: tokens of the sequence.
      predictions: tokens of the vocabulary that are predicted.
    """
    size, inner = config.hidden_size, config.intermediate_size
    layer = 4 * size * size + 2 * size * inner + 2 * length * size
    encoder = length * config.num_hidden_layers * layer
    return 6.0 * (encoder + predictions * size * (size + config.vocab_size))
