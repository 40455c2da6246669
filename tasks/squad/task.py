"""Question answering for the runner: its sets, files, card and prompt.

question sets -> windows -> model -> logits -> answers -> Evaluation
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from absl import logging

from data import features as features_lib
from data.features import Features
from data.tokenization import wordpiece
from foundation import errors, file_system
from jobs import streaming
from jobs.outputs import Card, Description, Outputs, Scores
from jobs.source import ModelSource
from jobs.task_model import TaskModel
from tasks.squad import answering, blocks, dataset, outputs, windowing
from tasks.squad import prompt as prompt_lib
from tasks.squad.settings import AnswerSettings, SquadConfig
from weights import kinds, model_directory, task_files, tokenizer_files


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class QuestionSets:
    """The question sets of a command, and how they are answered.

    Attributes:
      train: the training set, if the command trains.
      predict: the set to predict, if there is one.
      with_negative: whether questions may have no answer (SQuAD 2.0).
      threshold: null odds above which there is no answer, if given or stored.
      stored_threshold: threshold of the model, if the command does not train
        it.
    """

    train: dataset.QuestionSet | None
    predict: dataset.QuestionSet | None
    with_negative: bool
    threshold: float | None
    stored_threshold: float | None = None

    @property
    def to_train(self) -> dataset.QuestionSet:
        """The training set of a command that trains."""
        assert self.train is not None
        return self.train

    @property
    def to_predict(self) -> dataset.QuestionSet:
        """The set of a command that predicts or evaluates."""
        assert self.predict is not None
        return self.predict


class SquadTask:
    """The sets of questions; see jobs.task.Task.

    Attributes:
      sets: the sets, and how they are answered.
      last_threshold: null odds of the last evaluation, which a prompt applies.
    """

    dev_splits = ()
    # The metrics of --predict_file are those of its predictions.
    evaluates_at_end = False

    def __init__(self, config: SquadConfig, source: ModelSource):
        """Reads and checks the files.

        Raises:
          InputError: a flag or a file does not fit.
        """
        start = source.start
        try:  # A given flag may not fit a remembered one.
            config.windows.check()
        except ValueError as error:
            raise errors.InputError(str(error)) from error
        self.sets = open_sets(
            config, stored_settings(source, config.output_dir)
        )
        for question_set in filter(None, (self.sets.train, self.sets.predict)):
            features_lib.warn_of_unknown(
                question_set.path, start.tokenizer, question_set.contexts
            )
            windowing.warn_of_long_questions(
                question_set, start.tokenizer, config.windows
            )
        source.warn_of_other_flags(dataclasses.asdict(config.windows))
        self._config = config
        self._tokenizer = start.tokenizer
        self.rules = dataclasses.replace(
            config.rules, version_2_with_negative=self.sets.with_negative
        )
        self.last_threshold: float | None = None
        self.objective = answering.SpanObjective(
            config=start.config, with_negative=self.sets.with_negative
        )
        self.max_seq_length = config.windows.max_seq_length

    @property
    def num_examples(self) -> int | None:
        """The number of questions: as released, an epoch counts no windows."""
        return len(self.sets.train) if self.sets.train else None

    @property
    def data_settings(self) -> dict[str, Any]:
        """See jobs.task.Task."""
        if self.sets.train is None:
            return {}
        return {"train_file": self.sets.train.digests}

    @property
    def evaluation_settings(self) -> dict[str, Any]:
        """See jobs.task.Task."""
        return {
            "predict_file": self.sets.to_predict.digests,
            "null_score_diff_threshold": self.sets.threshold,
            **dataclasses.asdict(self.rules),
        }

    def features(self, split: str, records_dir: str | None) -> Features:
        """Returns the windows of the training set; see jobs.task.Task.

        There are no other features: dev_splits is empty.
        """
        del split
        return windowing.training_features(
            self.sets.to_train,
            self._tokenizer,
            self._config.windows,
            records_dir=records_dir,
            list_all=self._config.verbose_logging,
        )

    def stream(
        self, task_model: TaskModel, *, has_files: bool
    ) -> blocks.QuestionStream:
        """Returns the questions of --predict_file, to be answered."""
        return blocks.QuestionStream(
            self.sets.to_predict,
            self._tokenizer,
            self._config.windows,
            self.rules,
            answering.model_logits(task_model, pads=True),
            has_files=has_files,
        )

    def evaluate(
        self, task_model: TaskModel, features: Mapping[str, Features]
    ) -> outputs.Evaluation:
        """Answers the questions of --predict_file; see jobs.task.Task."""
        del features
        store = blocks.InMemory()
        streaming.run(self.stream(task_model, has_files=False), store)
        return self.evaluate_answers(store)

    def evaluate_answers(
        self, store: blocks.ReadableStore
    ) -> outputs.Evaluation:
        """Scores the answers in a store."""
        sets = self.sets
        return outputs.evaluate(
            sets.to_predict,
            blocks.read_answers(store),
            with_negative=sets.with_negative,
            threshold=sets.threshold,
            default_threshold=self._default_threshold(),
        )

    def _default_threshold(self) -> float:
        """Returns the threshold for sets that determine none, in 2.0.

        The threshold of the model in output_dir is read at each call, because
        training changes it.
        """
        if self.sets.threshold is not None:
            return self.sets.threshold
        stored = task_files.settings_of_model(self._config.output_dir)
        stored = stored or task_files.SquadSettings()
        return stored.null_score_diff_threshold or 0.0

    def save(
        self,
        model: Any,
        directory: str,
        tokenizer: wordpiece.Tokenizer | None,
        *,
        is_same: bool = False,
    ) -> None:
        """Writes a model directory; see jobs.task.Task.

        If the directory has the same weights already, its stored threshold does
        not change.
        """
        if is_same and task_files.read_settings(directory) is not None:
            logging.info("%s: the threshold is unchanged", directory)
        else:
            file_system.make_folder(directory)
            self._store(None, directory)
        model_directory.save(model, directory, tokenizer)

    def _store(self, threshold: float | None, directory: str) -> None:
        task_files.write_settings(
            directory,
            task_files.SquadSettings(
                version_2_with_negative=self.sets.with_negative,
                null_score_diff_threshold=threshold,
            ),
        )

    def card(self, flags: Mapping[str, Any]) -> Card:
        """See jobs.task.Task."""
        del flags
        train = self.sets.to_train
        version, name = "1.1", "squad"
        if self.sets.with_negative:
            version, name = "2.0", "squad_v2"
        files = map(file_system.uncompressed, train.paths)
        names = [path.rpartition("/")[2] for path in files]
        is_squad = f"train-v{version}.json" in names
        return Card(
            title=f"BERT for question answering: {outputs.names_of(train)}",
            data={"train": train.description},
            pipeline_tag=kinds.KINDS[kinds.QUESTION_ANSWERING].pipeline_tag,
            datasets=[f"rajpurkar/{name}"] if is_squad else (),
        )

    def scores(self, values: Mapping[str, float], step: int) -> Scores:
        """See jobs.task.Task."""
        metrics = outputs.named(values) | {"global_step": step}
        return Scores(name="dev", set_name=None, data={}, values=metrics)

    def describe(
        self,
        evaluation: outputs.Evaluation,
        step: int,
        flags: Mapping[str, Any],
    ) -> Description:
        """See jobs.task.Task; not called, as evaluates_at_end is False.

        PredictFile.write describes the scores of --predict_file.
        """
        del flags
        return outputs.describe(evaluation, step)

    def complete_training(self, task_model: TaskModel, output: Outputs) -> None:
        """Stores the best threshold on --predict_file, if there is one."""
        sets = self.sets
        if (
            self._config.do_predict  # Its evaluation finds the threshold.
            or not sets.with_negative
            or sets.threshold is not None
            or sets.predict is None
            or not outputs.has_both_kinds(sets.predict)
        ):
            return
        evaluation = self.evaluate(task_model, {})
        if output.is_chief:
            self.store_threshold(evaluation)

    def store_threshold(self, evaluation: outputs.Evaluation) -> None:
        """Stores a threshold with the model, if the evaluation found one.

        The settings of a model that was trained on SQuAD 1.1 do not change.
        """
        output_dir = self._config.output_dir
        stored = task_files.read_settings(output_dir)
        if (
            evaluation.threshold_found
            and stored is not None
            and stored.version_2_with_negative
        ):
            self._store(evaluation.threshold, output_dir)

    def store_for_ensembles(self, evaluation: outputs.Evaluation) -> None:
        """Writes settings and tokenizer beside predictions without a model."""
        output_dir = self._config.output_dir
        threshold = self.sets.stored_threshold
        if evaluation.threshold_found:
            threshold = evaluation.threshold
        self._store(threshold, output_dir)
        tokenizer_files.save(
            self._tokenizer, output_dir, max_length=self.max_seq_length
        )

    def predicted_sets(
        self, task_model: TaskModel, step: int
    ) -> Iterator["PredictFile"]:
        """See jobs.task.Task."""
        if self._config.do_predict:
            yield PredictFile(self, self._config, task_model, step)

    def prompt(self, task_model: TaskModel) -> None:
        """Answers --question, and questions that are typed."""
        config = self._config
        if not config.prompts:
            return
        threshold = self.last_threshold
        if threshold is None:
            threshold = self._default_threshold()
        prompt = prompt_lib.Prompt(
            tokenizer=self._tokenizer,
            logits=answering.model_logits(task_model, pads=False),
            settings=AnswerSettings(
                windows=config.windows,
                rules=self.rules,
                null_score_diff_threshold=threshold,
            ),
        )
        if config.question:
            assert config.context is not None  # The config requires it.
            prompt.show(config.question, config.context)
        if config.interactive:
            prompt.run(config.context)


class PredictFile:
    """The questions of --predict_file; see jobs.task.PredictedSet."""

    folder = blocks.UNFINISHED

    def __init__(
        self,
        task: SquadTask,
        config: SquadConfig,
        task_model: TaskModel,
        step: int,
    ):
        """Predicts nothing yet; `step` is that of the model's weights."""
        self._task, self._config, self._step = task, config, step
        self.stream = task.stream(task_model, has_files=True)

    @property
    def settings(self) -> dict[str, Any]:
        """See jobs.task.PredictedSet."""
        return {
            "predict_file": self._task.sets.to_predict.digests,
            **dataclasses.asdict(self._config.windows),
            **dataclasses.asdict(self._task.rules),
        }

    def write(self, store: streaming.Blocks, output: Outputs) -> None:
        """Writes the answers, the threshold, and the scores."""
        evaluation = self._task.evaluate_answers(store)
        outputs.write_set(
            evaluation, store, self._config.windows, output, self._step
        )
        if model_directory.has_model(output.output_dir):
            self._task.store_threshold(evaluation)
        else:
            self._task.store_for_ensembles(evaluation)
        self._task.last_threshold = evaluation.threshold


def stored_settings(
    source: ModelSource, output_dir: str
) -> task_files.SquadSettings | None:
    """Returns the settings that are stored with the model of a command.

    An unfinished training has them in its checkpoint; a later prediction with
    this checkpoint may have found a threshold and stored it in output_dir. A
    prediction with --init_checkpoint stores its settings in output_dir. A
    training that is repeated has the settings of the model that it has written.
    """
    predicted_with = None
    if source.last_prediction_dir is not None:
        predicted_with = task_files.read_settings(source.last_prediction_dir)
    if source.case == "UNFINISHED":
        settings = None
        if "version_2_with_negative" in source.stored:
            settings = task_files.SquadSettings(**source.stored)
    else:
        settings = task_files.settings_of_model(output_dir)
        if not settings and source.folder is not None:
            settings = task_files.read_settings(source.folder)
    if predicted_with and (
        not settings
        or (
            source.case == "UNFINISHED"
            and predicted_with.version_2_with_negative
            == settings.version_2_with_negative
        )
    ):
        logging.info(
            "as in the last prediction with this model: %s", predicted_with
        )
        return predicted_with
    return settings or None


def check_threshold(threshold: float | None, *, with_negative: bool) -> None:
    """Raises InputError if a threshold is given for SQuAD 1.1."""
    if threshold is not None and not with_negative:
        raise errors.InputError(
            "--null_score_diff_threshold: needs --version_2_with_negative"
        )


def open_sets(
    config: SquadConfig, stored: task_files.SquadSettings | None
) -> QuestionSets:
    """Reads and checks the files.

    Args:
      config: the flags.
      stored: the settings that are stored with the model, if any; they apply
        where a flag is not given.
    """
    stored = stored or task_files.SquadSettings()
    rules, threshold = config.rules, config.null_score_diff_threshold
    with_negative = rules.version_2_with_negative
    if with_negative is None:
        with_negative = stored.version_2_with_negative
    check_threshold(threshold, with_negative=with_negative)
    stored_threshold = None
    if with_negative and not config.do_train:
        stored_threshold = stored.null_score_diff_threshold
    if threshold is None and stored_threshold is not None:
        threshold = stored_threshold
        logging.info("threshold: %g, stored with the model", threshold)
    train = None
    if config.do_train:
        assert config.train_file is not None  # The config requires it.
        train = dataset.read(config.train_file)
        dataset.check_version(
            train,
            "train_file",
            with_negative=with_negative,
            is_training=True,
            is_given=rules.version_2_with_negative is not None,
        )
        train = dataset.for_training(train, list_all=config.verbose_logging)
    return QuestionSets(
        train=train,
        predict=_read_predict_file(config, with_negative=with_negative),
        with_negative=with_negative,
        threshold=threshold,
        stored_threshold=stored_threshold,
    )


def _read_predict_file(
    config: SquadConfig, *, with_negative: bool
) -> dataset.QuestionSet | None:
    if not config.predict_file:
        return None
    predict = dataset.read(config.predict_file)
    dataset.check_version(predict, "predict_file", with_negative=with_negative)
    dataset.warn_of_other_answers(predict)
    if config.needs_evaluation and not predict.has_answers:
        raise errors.InputError(
            f"--predict_file={predict.path}: has no answers to compare runs by"
        )
    return predict
