"""Question answering as a fine-tuning job, and at a prompt.

    question sets -> windows -> model -> logits -> answers -> Evaluation

The model has two logits for each token of a window: the answer starts at the
token with the highest start logit and ends at that with the highest end logit.
Both are trained with the cross entropy over all positions of a window. If the
answer is not in the window, both labels are 0, the position of [CLS].

A prompt answers typed questions with the same model:

    paragraph> The leader was John Smith (1895-1943).
    question> When was he born?
    1895  (probability 0.93, characters 27-31)
      The leader was John Smith ([1895]-1943).
"""

import dataclasses
import functools
import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging
from keras import ops

from data import features as features_lib
from data.features import Features
from foundation import errors, file_system
from jobs import finetuning, run_config, run_directory, typed
from modeling import losses, models
from tasks.squad import blocks, dataset, decoding, outputs, windowing
from tasks.squad.decoding import Answer, AnswerList
from weights import pretrained, task_files

_LOSS = "span_loss"
_PARAGRAPH, _QUESTION = "paragraph> ", "question> "
_CONTEXT = 60  # Characters shown on each side of an answer at the prompt.


class SpanTask:
    """The loss, the metrics and the predictions of question answering."""

    def loss_weights(self, features: dict) -> dict[str, Any]:
        """Returns the number of windows."""
        count = ops.shape(features["input_ids"])[0]
        return {_LOSS: ops.cast(count, "float32")}

    def forward(
        self, model: Any, features: dict, dropout_seed: Any = None
    ) -> tuple[dict, dict]:
        """Returns the loss and the accuracies of both positions."""
        logits = model(features, dropout_seed=dropout_seed)
        start = ops.reshape(features["start_positions"], (-1,))
        end = ops.reshape(features["end_positions"], (-1,))
        loss = losses.span(logits.start_logits, logits.end_logits, start, end)
        accuracy = losses.classification_accuracy
        return {_LOSS: loss}, {
            "start_accuracy": accuracy(logits.start_logits, start),
            "end_accuracy": accuracy(logits.end_logits, end),
        }

    def predict(self, model: Any, features: dict) -> dict[str, Any]:
        """Returns both logits, float32 [B, S]."""
        logits = model(features)
        return {
            "start_logits": logits.start_logits,
            "end_logits": logits.end_logits,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadOptions:
    """The flags of question answering; None if they are not given."""

    train_file: str | None
    predict_file: str | None
    with_negative: bool | None
    threshold: float | None
    sizes: windowing.WindowSizes
    rules: decoding.AnswerRules  # version_2_with_negative is not set.
    compares_runs: bool  # Whether training evaluates on --predict_file.
    verbose_logging: bool  # Whether to log all questions that are left out.
    ensemble_dirs: str | None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SquadData:
    """The question sets of a command, and how they are answered.

    Attributes:
      train: the training set, if the command trains.
      predict: the set to predict, if there is one.
      threshold: null odds above which there is no answer, if given or stored.
      sizes: the sizes of windows.
      rules: how answers are made from logits.
      verbose_logging: whether to log all questions that are left out.
      stored_threshold: that of the model, if the command does not train it.
    """

    train: dataset.QuestionSet | None
    predict: dataset.QuestionSet | None
    threshold: float | None
    sizes: windowing.WindowSizes
    rules: decoding.AnswerRules
    verbose_logging: bool
    stored_threshold: float | None = None

    @property
    def with_negative(self) -> bool:
        """Whether questions may have no answer (SQuAD 2.0)."""
        return self.rules.version_2_with_negative

    @property
    def trains_threshold(self) -> bool:
        """Whether training ends with finding a threshold for the model."""
        return (
            self.with_negative
            and self.threshold is None
            and self.train is not None
            and self.predict is not None
            and outputs.has_both_kinds(self.predict)
        )

    def default_threshold(self, output_dir: str) -> float | None:
        """Returns the threshold if none can be found; None in 1.1.

        It is read from the model in output_dir when needed, because training
        changes it.
        """
        if not self.with_negative or self.threshold is not None:
            return self.threshold
        stored = task_files.settings_of_model(output_dir)
        known = stored.null_score_diff_threshold if stored else None
        return 0.0 if known is None else known


def find_settings(
    output_dir: str,
    init_checkpoint: str | None,
    unfinished: Mapping[str, Any] | None = None,
) -> task_files.SquadSettings | None:
    """Returns the settings that are stored with the model to start from.

    Args:
      output_dir: its model comes before init_checkpoint. A prediction there
        without a model stores its settings, which come last.
      init_checkpoint: a model directory, or a file or checkpoint in one.
      unfinished: what the checkpoint of an unfinished training in output_dir
        stores, if its weights are used. A prediction with them may have found
        their threshold since.
    """
    earlier = _of_last_prediction(output_dir, init_checkpoint)
    if unfinished and "version_2_with_negative" in unfinished:
        found = task_files.SquadSettings(**unfinished)
        if earlier and (
            earlier.version_2_with_negative == found.version_2_with_negative
        ):
            found = earlier
    else:
        found = task_files.settings_of_model(output_dir)
        if found is None and init_checkpoint is not None:
            folder = file_system.folder_of(init_checkpoint)
            found = task_files.read_settings(folder)
        found = found or earlier
    if found and found is earlier:
        logging.info("as in the last prediction with this model: %s", found)
    return found


def _of_last_prediction(
    output_dir: str, init_checkpoint: str | None
) -> task_files.SquadSettings | None:
    """Returns the settings in output_dir if they are of the same model."""
    earlier = run_directory.flags(output_dir).get("init_checkpoint")
    if None in (earlier, init_checkpoint):
        return None
    # The flag may have named the folder of the weights.
    path, before = map(file_system.real, (init_checkpoint, earlier))
    if not f"{path}/".startswith(f"{before}/"):
        return None
    return task_files.read_settings(output_dir)


def check_threshold(threshold: float | None, *, with_negative: bool) -> None:
    """Raises InputError if a threshold is given for SQuAD 1.1."""
    if threshold is not None and not with_negative:
        raise errors.InputError(
            "--null_score_diff_threshold: needs --version_2_with_negative"
        )


def open_data(
    options: SquadOptions, stored: task_files.SquadSettings | None
) -> SquadData:
    """Reads and checks the files.

    Args:
      options: the flags.
      stored: the settings that are stored with the model, if any; they apply
        where a flag is not given.
    """
    stored = stored or task_files.SquadSettings()
    with_negative, threshold = options.with_negative, options.threshold
    if with_negative is None:
        with_negative = stored.version_2_with_negative
    check_threshold(threshold, with_negative=with_negative)
    stored_threshold = None
    if with_negative and options.train_file is None:
        stored_threshold = stored.null_score_diff_threshold
    if threshold is None and stored_threshold is not None:
        threshold = stored_threshold
        logging.info("threshold: %g, stored with the model", threshold)
    train, predict = None, None
    if options.train_file is not None:
        train = dataset.read(options.train_file)
        dataset.check_version(
            train,
            "train_file",
            with_negative=with_negative,
            is_training=True,
            is_given=options.with_negative is not None,
        )
        train = dataset.for_training(train, list_all=options.verbose_logging)
    if options.predict_file:
        predict = dataset.read(options.predict_file)
        dataset.check_version(
            predict, "predict_file", with_negative=with_negative
        )
        dataset.warn_of_other_answers(predict)
        if options.compares_runs and not predict.has_answers:
            raise errors.InputError(
                f"--predict_file={predict.path}: has no answers to compare "
                "runs by"
            )
    rules = dataclasses.replace(
        options.rules, version_2_with_negative=with_negative
    )
    return SquadData(
        train=train,
        predict=predict,
        threshold=threshold,
        sizes=options.sizes,
        rules=rules,
        verbose_logging=options.verbose_logging,
        stored_threshold=stored_threshold,
    )


def open_job(
    config: run_config.FinetuningConfig,
    start: pretrained.Start,
    data: SquadData,
) -> finetuning.Job:
    """Returns the job that trains and evaluates models."""
    for found in filter(None, (data.train, data.predict)):
        features_lib.warn_of_unknown(
            found.path, start.tokenizer, found.contexts
        )
        windowing.warn_of_long_questions(found, start.tokenizer, data.sizes)
    if not config.do_train:
        run_directory.warn_of_other_flags(
            dataclasses.asdict(data.sizes),
            config.output_dir,
            start.init_checkpoint,
        )
    strategy = finetuning.open_strategy(config, start)

    @functools.cache
    def training_features(split: str) -> Features:
        del split  # There is only one.
        return windowing.training_features(
            data.train,
            start.tokenizer,
            data.sizes,
            records_dir=finetuning.records_dir(config, strategy),
            list_all=data.verbose_logging,
        )

    def evaluation_settings() -> dict[str, Any]:
        return {
            "predict_file": data.predict.digests,
            "null_score_diff_threshold": data.threshold,
            **dataclasses.asdict(data.rules),
        }

    data_settings = {}
    if data.train is not None:
        data_settings = {"train_file": data.train.digests}
    return finetuning.Job(
        config=config,
        start=start,
        strategy=strategy,
        task=SpanTask(),
        make_model=functools.partial(
            models.QuestionAnsweringModel, start.config
        ),
        features=training_features,
        evaluate=lambda task_model: predict(
            task_model, data, store=blocks.InMemory()
        ),
        data_settings=data_settings,
        evaluation_settings=evaluation_settings,
        task_settings=dataclasses.asdict(
            task_files.SquadSettings(version_2_with_negative=data.with_negative)
        ),
        # As released, questions and not windows make an epoch.
        num_examples=len(data.train) if data.train else None,
    )


def open_blocks(
    task_model: finetuning.TaskModel, data: SquadData
) -> blocks.ReadableStore:
    """Returns the store of a prediction whose files are to be written."""
    settings = {
        "predict_file": data.predict.digests,
        **dataclasses.asdict(data.sizes),
        **dataclasses.asdict(data.rules),
    }
    found = task_model.open_blocks(blocks.UNFINISHED, settings)
    return found or blocks.InMemory()


def predict(
    task_model: finetuning.TaskModel,
    data: SquadData,
    *,
    store: blocks.ReadableStore,
) -> outputs.Evaluation:
    """Answers the questions of --predict_file block by block."""
    config = task_model.job.config
    answers = blocks.answer(
        data.predict,
        task_model.job.start.tokenizer,
        data.sizes,
        data.rules,
        logits_of=lambda windows: _predict_logits(
            task_model, windows, config.predict_batch_size
        ),
        store=store,
    )
    return outputs.evaluate(
        data.predict,
        answers,
        with_negative=data.with_negative,
        threshold=data.threshold,
        default_threshold=data.default_threshold(config.output_dir) or 0.0,
    )


def _predict_logits(
    task_model: finetuning.TaskModel,
    windows: windowing.Windows,
    batch_size: int,
) -> decoding.SpanLogits:
    """Returns the model's logits of windows."""
    batches = ()
    if len(windows):
        batches = task_model.predictions(windows.features, batch_size)
    logits = decoding.collect_logits(batches, windows.features.row_splits)
    if not np.isfinite(logits).all():
        logging.warning(
            "logits are not finite numbers, so answers are arbitrary: the "
            "weights are damaged, or --precision=%s is not enough",
            task_model.job.config.precision,
        )
    return logits


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Prompt:
    """Answers single questions.

    Attributes:
      task_model: the model.
      data: gives the sizes of windows and the answer rules.
      threshold: null odds above which there is no answer; None in 1.1.
    """

    task_model: finetuning.TaskModel
    data: SquadData
    threshold: float | None

    def answer(self, question: str, context: str) -> Answer:
        """Returns the answer; its text is "" if there is none."""
        ((found, _),) = self.answers([(question, context)])
        return found

    def answers(
        self, questions: Sequence[tuple[str, str]]
    ) -> list[tuple[Answer, AnswerList]]:
        """Returns the answer to each (question, paragraph) and its list."""
        question_set = dataset.QuestionSet(
            path="",
            contexts=[context for _, context in questions],
            questions=[
                dataset.Question(id="", text=text, paragraph=number)
                for number, (text, _) in enumerate(questions)
            ],
        )
        job = self.task_model.job
        tokenizer = job.start.tokenizer
        windows = windowing.make_windows(
            question_set, tokenizer, self.data.sizes
        )
        batch_size = job.strategy.num_replicas_in_sync
        if len(windows) > batch_size:
            batch_size = job.config.predict_batch_size
        decoded = decoding.decode(
            question_set,
            windows,
            _predict_logits(self.task_model, windows, batch_size),
            tokenizer=tokenizer,
            rules=self.data.rules,
        )
        return [(self._chosen(answers), answers) for answers in decoded]

    def _chosen(self, answers: AnswerList) -> Answer:
        text = answers.text(self.threshold)
        nothing = Answer("", 1.0, 0.0, 0.0, None)
        if text == decoding.NOTHING and answers.entries[0].span is None:
            return nothing
        return next((e for e in answers.entries if e.text == text), nothing)

    def show(self, question: str, context: str) -> None:
        """Prints the answer and the text around it."""
        entry = self.answer(question, context)
        sys.stdout.write(f"{describe_answer(entry, context)}\n")

    def run(self, context: str | None) -> None:
        """Answers questions from standard input until it ends.

        An empty line ends the questions about a paragraph.

        Args:
          context: the first paragraph; None reads it.

        Raises:
          InputError: a line is not UTF-8.
        """
        read = typed.reader(sys.stdin, sys.stdout)
        for number in itertools.count(1):
            line = read(_PARAGRAPH if context is None else _QUESTION)
            if not line:
                sys.stdout.write("\n" if sys.stdin.isatty() else "")
                return
            text = file_system.decode(line, "standard input", number).strip()
            if context is None:
                context = text or None
            elif text:
                self.show(text, context)
            else:
                context = None


def describe_answer(entry: Answer, context: str) -> str:
    """Returns an answer in two lines, the second with the text around it."""
    probability = f"probability {entry.probability:.2f}"
    if entry.span is None or not entry.text:
        return f"(no answer)  ({probability})"
    before, answer, after, _ = outputs.excerpt(context, entry.span, _CONTEXT)
    shown = " ".join(f"{before}[{answer}]{after}".split())
    start, end = entry.span
    return f"{entry.text}  ({probability}, characters {start}-{end})\n  {shown}"
