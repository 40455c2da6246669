"""Sentence tasks for the runner: their sets, files, card and report.

Sets to predict are read as streams. Standard input is predicted to standard
output, in the form of predictions.tsv.
"""

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from data import examples, text_files
from data import features as features_lib
from data.examples import Example
from data.features import Features
from data.tokenization import wordpiece
from foundation import config_flags, errors, stamp
from jobs import report, run_directory, streaming
from jobs.outputs import Card, Description, Outputs, Scores
from jobs.source import ModelSource
from jobs.task import PrintedSet
from jobs.task_model import TaskModel
from tasks.classification import objective, sentence_outputs, sentence_tasks
from tasks.classification.sentence_files import DEV, TRAIN
from tasks.classification.sentence_outputs import Evaluation
from tasks.classification.settings import ClassifierConfig, LongTexts
from training import metric_writer
from weights import kinds, model_directory, task_files


class ClassificationTask:
    """The sets of a sentence task; see jobs.task.Task.

    Attributes:
      sets: the task's files, labels and metrics.
      windows: how long texts are divided; None if they are cut.
    """

    num_examples = None

    def __init__(self, config: ClassifierConfig, source: ModelSource):
        """Opens the task, and reads and checks the sets that are used.

        Raises:
          InputError: a flag, a file or a label does not fit.
        """
        start = source.start
        if config.task_name is None:
            raise errors.InputError(
                f"--task_name is required: {config.output_dir} does not say "
                "with which one a model was trained"
            )
        # Again, because the task may be that of the model's training.
        sentence_tasks.check_flags(config.task_name, config_flags.given(config))
        seed = config.random_seed
        if not config.do_train:  # Evaluate what its training held out.
            seed = source.trained.get("random_seed", seed)
        self.sets = sentence_tasks.open_task(
            config.task_name,
            config.files,
            config.columns,
            problem_type=config.problem_type,
            known=task_files.ModelClasses(
                labels=start.labels,
                problem_type=start.problem_type,
                num_outputs=start.num_outputs,
            ).with_names(config.names_of_labels, trains=config.do_train),
            trains=config.do_train,
            seed=seed,
        )
        if not config.do_train and source.folder is not None:
            sentence_tasks.check_pairs(
                self.sets.name,
                config.columns.text_pair_column,
                source.folder,
                source.trained,
            )
        if DEV in config.used_splits and not config.do_train:
            self._refuse_other_division(config, source)
        sentence_tasks.check(self.sets, config.used_splits)
        source.warn_of_other_flags({"max_seq_length": config.max_seq_length})
        self._config = config
        self._tokenizer = start.tokenizer
        self.objective = objective.ClassificationObjective(
            config=start.config,
            kind=self.sets.kind,
            labels=self.sets.labels,
            class_weights=_class_weights(config, self.sets),
            window_pooling=config.long.pooling,
        )
        self.max_seq_length = config.max_seq_length
        self.windows = windows_of(config.long, config.max_seq_length)
        if self.windows and self.sets.kind == examples.MULTIPLE_CHOICE:
            raise errors.InputError(
                "--long_texts=windows: not for multiple choice"
            )
        self.dev_splits = self.sets.dev_splits
        self.evaluates_at_end = config.do_eval

    def _refuse_other_division(
        self, config: ClassifierConfig, source: ModelSource
    ) -> None:
        """Raises InputError if training divided --train_file differently.

        The model could have been trained on examples that are held out now.
        Versions that stored no digest of the table stored that of its part.
        """
        if not self.sets.division:
            return
        now = {
            "dev_fraction": config.files.dev_fraction,
            "train_file": self.sets.read(TRAIN).digest,
            **self.sets.divided,
        }
        stamp.refuse(
            stamp.flags("records", now).difference(source.settings),
            f"the model in {source.folder} may have been trained on examples "
            "that are held out now; restore what was divided, or give "
            "--dev_file",
        )

    @property
    def data_settings(self) -> dict[str, Any]:
        """See jobs.task.Task."""
        if not self._config.do_train:
            return {}
        return {
            "task_name": self.sets.name,
            "train_file": self.sets.read(TRAIN).digest,
            "problem_type": self.sets.kind,
            **self.sets.divided,
        }

    @property
    def evaluation_settings(self) -> dict[str, Any]:
        """See jobs.task.Task."""
        digests = [self.sets.read(x).digest for x in self.dev_splits]
        return {"dev_file": " ".join(digests)}

    def features(self, split: str, records_dir: str | None) -> Features:
        """See jobs.task.Task."""
        return sentence_tasks.tokenize(
            self.sets,
            split,
            self._tokenizer,
            max_seq_length=self.max_seq_length,
            windows=self.windows,
            records_dir=None if self.windows else records_dir,
        )

    def evaluate(
        self, task_model: TaskModel, features: Mapping[str, Features]
    ) -> Evaluation:
        """See jobs.task.Task."""
        size = self._config.eval_batch_size
        logits = {
            split: task_model.predict(features[split], size)["logits"]
            for split in self.dev_splits
        }
        lengths = features[self.dev_splits[0]].lengths
        return sentence_outputs.evaluate(self.sets, logits, lengths)

    def save(
        self,
        model: Any,
        directory: str,
        tokenizer: wordpiece.Tokenizer | None,
        *,
        is_same: bool = False,
    ) -> None:
        """See jobs.task.Task."""
        del is_same
        model_directory.save(
            model, directory, tokenizer, **self.objective.stored
        )

    def card(self, flags: Mapping[str, Any]) -> Card:
        """See jobs.task.Task."""
        return Card(
            title=f"BERT for {self._title(flags)}",
            data={TRAIN: self.sets.describe(TRAIN)},
            pipeline_tag=kinds.KINDS[self.sets.kind].pipeline_tag,
            datasets=sentence_outputs.on_the_hub(
                self.sets.name, flags.get("train_file")
            ),
            labels=self.objective.names,
        )

    def _title(self, flags: Mapping[str, Any]) -> str:
        """Returns the kind of the task and its data."""
        sets = self.sets
        spec = sentence_tasks.TASKS[sets.name]
        data = spec.folders[0] if spec.folders else sets.name.upper()
        path = flags.get("train_file")
        if not path and not spec.files:
            path = sets.read(self.dev_splits[0]).path
        if path:  # A user's own table.
            data = os.path.basename(path)
        return f"{kinds.KINDS[sets.kind].title}: {data}"

    def scores(self, values: Mapping[str, float], step: int) -> Scores:
        """See jobs.task.Task."""
        return Scores(
            name=DEV,
            set_name=self.sets.set_name(self.dev_splits[0]),
            data={
                split: self.sets.describe(split) for split in self.dev_splits
            },
            values=run_directory.eval_results(values, step),
        )

    def describe(
        self, evaluation: Evaluation, step: int, flags: Mapping[str, Any]
    ) -> Description:
        """See jobs.task.Task."""
        sets = [self.sets.read(split) for split in self.dev_splits]
        name = os.path.basename(sets[0].path.rstrip("/"))
        sentence_outputs.warn_of_one_label(
            evaluation, name, has_windows=self.windows is not None
        )
        metrics = self.sets.metrics
        baseline_fact, baseline_note = sentence_outputs.baseline(evaluation)
        return Description(
            scores=self.scores(evaluation.values, step)._replace(
                by_label=sentence_outputs.by_label(evaluation),
                note=baseline_note,
            ),
            digest=" ".join(texts.digest for texts in sets),
            title=self._title(flags),
            panels=[
                report.Panel("Loss", ("train/loss", "eval/loss")),
                *(
                    report.Panel(
                        report.capitalized(metric_writer.name_in_words(x)),
                        (f"train/{x}", f"eval/{x}"),
                    )
                    for x in dict.fromkeys([*metrics, "accuracy"])
                ),
                report.Panel("Learning rate", ("train/learning_rate",)),
            ],
            sections=sentence_outputs.sections(evaluation),
            facts={
                **{
                    metric_writer.name_in_words(x): evaluation.values[x]
                    for x in metrics
                },
                f"examples of {name}": len(evaluation.label_ids),
                **baseline_fact,
                "training steps": step,
            },
        )

    def complete_training(self, task_model: TaskModel, output: Outputs) -> None:
        """Does nothing: the model is complete."""

    def predicted_sets(
        self, task_model: TaskModel, step: int
    ) -> "list[SentenceSet | PrintedSet]":
        """See jobs.task.Task."""
        del step
        config = self._config
        splits: list[str] = []
        if config.do_predict:
            splits += self.sets.test_splits
        if config.predict_dev:
            splits += self.sets.dev_splits
        sets = [
            SentenceSet(self, split, config, task_model) for split in splits
        ]
        return [x.printed() if x.is_typed else x for x in sets]

    def prompt(self, task_model: TaskModel) -> None:
        """Does nothing: --test_file=- reads typed lines."""


def _class_weights(
    config: ClassifierConfig, sets: sentence_tasks.SentenceTask
) -> Sequence[float]:
    """Returns the weights that --class_weights gives to the labels, or ()."""
    if config.class_weights is None:
        return ()
    flag = f"--class_weights={config.class_weights}"
    if sets.kind != examples.CLASSIFICATION:
        raise errors.InputError(
            f"{flag}: only for tasks with one of several labels, not for "
            f"{sets.kind}"
        )
    weights = config.given_class_weights
    if weights is None:
        weights = objective.balanced_weights(
            sets.label_ids(TRAIN), len(sets.labels)
        )
    if len(weights) != len(sets.labels):
        raise errors.InputError(
            f"{flag}: {len(weights)} weights, but the labels are "
            f"{', '.join(sets.labels)}"
        )
    pairs = zip(sets.labels, weights, strict=True)
    texts = ", ".join(f"{label} {weight:.4g}" for label, weight in pairs)
    logging.info("weights of the classes: %s", texts)
    return tuple(weights)


class SentenceSet:
    """A set of texts to predict; see jobs.task.PredictedSet.

    Attributes:
      is_typed: whether standard input has the texts; then they are `printed`.
    """

    unit = "rows"

    def __init__(
        self,
        task: ClassificationTask,
        split: str,
        config: ClassifierConfig,
        task_model: TaskModel,
    ):
        """Reads the labels of a test set, if it has any.

        Args:
          task: the task of the set.
          split: a test set, or a development set.
          config: the flags.
          task_model: the model.
        """
        self._sets, self._split = task.sets, split
        self._config, self._task_model = config, task_model
        self._windows = task.windows
        self._texts = task.sets.read(split)
        self.is_typed = self._texts.path == text_files.STANDARD_INPUT
        self._name = "standard input" if self.is_typed else self._texts.path
        self.folder = f"predict_{split}.incomplete"
        self.total = None if self.is_typed else self._texts.count
        # A multiple of the batch size, so that no batch is padded.
        size = config.predict_batch_size
        self.block_items = -(-streaming.BLOCK_ITEMS // size) * size
        self._is_dev = split.startswith(DEV)
        self._label_ids = None
        if not (self.is_typed or self._is_dev):
            self._label_ids = label_ids(task.sets, split)
        self._majority = None
        if config.wnli_majority:
            train = task.sets.read(TRAIN)
            self._majority = sentence_outputs.majority_label(train)
        self._statistics = features_lib.TokenizationStatistics()
        self._encoded_blocks = 0

    @property
    def stream(self) -> streaming.Stream:
        """The set itself."""
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """See jobs.task.PredictedSet."""
        return {
            "max_seq_length": self._config.max_seq_length,
            "task_name": self._sets.name,
            "labels": list(self._sets.labels),
            "wnli_majority": self._majority,
            **({"keep_columns": self._sets.kept} if self._sets.kept else {}),
            "windows": self._windows and list(self._windows),
        }

    def printed(self) -> PrintedSet:
        """Returns the set for standard output."""
        return PrintedSet(
            self,
            sentence_outputs.PREDICTIONS,
            sentence_outputs.predictions_head(self._sets),
        )

    def read(self) -> Iterable[Example]:
        """See streaming.Stream."""
        return self._texts

    def key(self, item: Example) -> Any:
        """Returns the content of an example, without its position."""
        return item.key

    def rows_of(self, item: Example) -> int:
        """Returns 1."""
        del item
        return 1

    def encode(self, items: Sequence[Example]) -> Features:
        """Tokenizes examples."""
        length = self._config.max_seq_length
        encoded = sentence_tasks.encode(
            items,
            self._task_model.start.tokenizer,
            max_seq_length=length,
            windows=self._windows,
            statistics=self._statistics,
        )
        self._encoded_blocks += 1
        if self._encoded_blocks == 1:  # Warns early of a wrong vocabulary.
            self._statistics.warn(self._name, length)
        return encoded

    def predict(self, encoded: Features) -> np.ndarray:
        """Returns logits [N, C]."""
        size = self._config.predict_batch_size
        return self._task_model.predict(encoded, size)["logits"]

    def parts(
        self, items: Sequence[Example], encoded: Features, predicted: np.ndarray
    ) -> streaming.Parts:
        """Returns the lines of each file."""
        del encoded
        return sentence_outputs.prediction_parts(
            self._sets, items, predicted, majority=self._majority
        )

    def end(self) -> None:
        """Warns of text that truncation lost after the first block."""
        if self._encoded_blocks > 1:
            self._statistics.warn(self._name, self._config.max_seq_length)

    def write(self, blocks: streaming.Blocks, output: Outputs) -> None:
        """Writes the predictions, and the metrics of a set with labels."""
        submission = None if self._is_dev else self._config.glue_submission
        written = sentence_outputs.write_predictions(
            blocks,
            self._sets,
            self._split,
            output.output_dir,
            submission,
            have_scores=self._label_ids is not None,
        )
        if self._label_ids is None:
            return
        data = b"".join(blocks.parts(sentence_outputs.LOGITS))
        logits = np.frombuffer(data, np.float32)
        logits = logits.reshape(len(self._label_ids), -1)
        metrics = self._sets.metrics_of(logits, self._label_ids)
        logging.info(
            "results on %s: %s", self._split, metric_writer.in_words(metrics)
        )
        values = {f"{self._split}_{name}": x for name, x in metrics.items()}
        run_directory.write_values(written["scores"], values)
        output.add_scores(
            Scores(
                name=self._split,
                set_name=None,
                data={self._split: self._sets.describe(self._split)},
                values=values,
            )
        )


def windows_of(
    long_texts: LongTexts, max_seq_length: int
) -> features_lib.Windows | None:
    """Returns the windows of long texts, None if such texts are cut."""
    sizes = long_texts.sizes(max_seq_length)
    return sizes and features_lib.Windows(*sizes)


def label_ids(
    sets: sentence_tasks.SentenceTask, split: str
) -> np.ndarray | None:
    """Returns the labels of a test set, None unless all examples have one.

    Logs why there are no labels; warns if only some examples have a label.
    """
    texts = sets.read(split, is_labeled=True)
    try:
        return examples.encode_labels(texts, sets.kind, sets.labels)
    except errors.InputError as error:
        if _has_label(texts, sets):
            logging.warning("no metrics of the test set: %s", error)
        else:
            logging.info("the test set has no labels: no metrics")
        return None


def _has_label(
    texts: examples.Examples, sets: sentence_tasks.SentenceTask
) -> bool:
    """Returns whether an example has a label, even one of another task.

    An unknown label that all examples share, such as -1, is a placeholder.
    """
    unknown: set[str] = set()
    with contextlib.suppress(errors.InputError):  # A row lacks the column.
        for example in texts:
            with contextlib.suppress(errors.InputError):
                examples.encode_labels([example], sets.kind, sets.labels)
                return True
            unknown.add(str(example.label or "").strip())
            if len(unknown - {""}) > 1:
                return True
    return False
