"""Question answering: SQuAD 1.1 and 2.0.

predictions.json         id -> text, "" for no answer
nbest_predictions.json   id -> texts with probability and both logits
null_odds.json           id -> odds of no answer; SQuAD 2.0 only
predict_logits.npz       the logits of all windows, for ensembles
eval_results.txt, report.html       if the set has answers
question_answering.json  version and threshold, beside the model
"""

import dataclasses
import functools
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from data import schema
from data.features import Features
from finetuning import given_model, record
from finetuning import task as tasks
from foundation import errors, file_system
from tasks.squad import answering, dataset, ensemble, metrics, prompt, windowing
from tasks.squad.dataset import Question
from tasks.squad.decoding import Answer, AnswerList
from tasks.squad.settings import AnswerSettings, SquadFlags
from tasks.squad.windowing import Window
from weights import model_directory, task_files

PREDICTIONS = "predictions.json"
N_BEST = "nbest_predictions.json"
NULL_ODDS = "null_odds.json"
_SIZES = ("max_seq_length", "doc_stride", "max_query_length")
_SIZE = 4  # Examples of other tasks that take as long as a question.
_THRESHOLD = "null_score_diff_threshold"
_BEST = "the best on these questions"  # Where a threshold comes from.


class Squad(tasks.Task):
    """The answer to a question: a part of its paragraph, or none.

    Attributes:
      answerer: from texts to windows, from logits to answers.
      threshold: the null odds above which there is no answer; None in SQuAD
        1.1, and if none is known.
    """

    Flags = SquadFlags
    score_note = "The score is F1."
    cuts = False

    def __init__(self, flags: SquadFlags, model: given_model.GivenModel):
        """See Task."""
        try:  # A given flag may not fit a remembered one.
            flags.check_windows()
        except ValueError as error:
            raise errors.InputError(str(error)) from error
        stored = None
        if flags.members:
            stored = ensemble.settings(flags.output_dir, flags.members)
        elif not flags.do_train:
            stored = task_files.read_settings(model.record.directory)
        self._stored = stored or task_files.SQUAD_1
        given = flags.version_2_with_negative
        if given is None:
            given = self._stored.version_2_with_negative
        self.with_negative = given
        check_threshold(
            flags.null_score_diff_threshold, with_negative=self.with_negative
        )
        self.threshold = flags.null_score_diff_threshold
        values = flags.besides_length
        values["version_2_with_negative"] = self.with_negative
        self._settings = AnswerSettings(
            max_seq_length=flags.max_seq_length, **values
        )
        self.answerer = answering.Answerer(model.tokenizer, self._settings)
        self._opened: dict[str, dataset.QuestionSet] = {}
        if flags.members:
            self._check_apart(flags)
        super().__init__(flags, model)

    def _check_apart(self, flags: SquadFlags) -> None:
        """Refuses an ensemble in the directory of a run."""
        real = file_system.real(flags.output_dir)
        if real in map(
            file_system.real, flags.members
        ) or model_directory.has_model(real):
            raise errors.InputError(
                f"--output_dir={flags.output_dir} contains a run: the answers "
                "of --ensemble_dirs need a directory of their own"
            )

    # From files to numbers.

    def names(self, split: str) -> Sequence[str]:
        """See Task; a set without answers is a test set."""
        flags, is_training = self.flags, split == "train"
        flag = "train_file" if is_training else "predict_file"
        found = dataset.read(getattr(flags, flag))
        dataset.check_version(
            found,
            flag,
            with_negative=self.with_negative,
            is_training=is_training,
        )
        if is_training:
            found = dataset.for_training(found, list_all=flags.verbose_logging)
        elif not found.has_answers:
            split = "test"
            if flags.evaluates_while_training or flags.evaluated:
                raise errors.InputError(
                    f"--predict_file={found.path}: has no answers to compare "
                    "runs by"
                )
        self._opened[split] = found
        return [split]

    def open(self, split: str) -> tasks.Examples:
        """See Task."""
        return self._opened[split]

    @property
    def predicted_sets(self) -> list[str]:
        """See Task."""
        return [x for x in self.sets if x != "train" and self.flags.predicts]

    def find_labels(self) -> Sequence[str]:
        """Returns (): the outputs have no names."""
        return ()

    def check(self, example: Question) -> None:
        """Does nothing: the questions are checked when they are read."""

    def encode(self, example: Question) -> list[Window]:
        """See Task; a paragraph without tokens has no window."""
        return self.answerer.encode(example.text, example.context)

    def targets(
        self, example: Question, sequences: Sequence[Window]
    ) -> Sequence[Mapping[str, Any]]:
        """See Task; both positions are 0 in a window without the answer."""
        found = [windowing.answer_positions(x, example.span) for x in sequences]
        return [
            {
                "start_positions": [first],
                "end_positions": [last],
                "is_impossible": [int(bool(example.is_impossible))],
            }
            for first, last in (positions or (0, 0) for positions in found)
        ]

    def features(
        self,
        encoded: Iterable[tuple[Any, Sequence[Any]]],
        *,
        with_targets: bool,
    ) -> Features:
        """See Task; the columns are google-research/bert's."""
        found = super().features(encoded, with_targets=with_targets)
        ids = windowing.FIRST_UNIQUE_ID + np.arange(len(found))[:, None]
        dense = {"unique_ids": ids, **found.dense}
        return dataclasses.replace(found, dense=dense)

    def epoch_size(self, features: Features) -> int:
        """Returns the number of questions: as released, not of windows."""
        if not len(features):
            raise errors.InputError(
                f"--train_file={self.flags.train_file}: no paragraph has a "
                "token"
            )
        return self.sets["train"].summary.count

    def size(self, example: Question) -> int:
        """See Task; a block has 1,024 questions, whose windows are long."""
        return _SIZE

    def records(self, split: str) -> schema.Schema | None:
        """See Task; records lack the characters, which answers need."""
        length = self.flags.max_seq_length
        if split != "train":
            return None
        return schema.question_answering(length, is_training=True)

    @property
    def settings(self) -> dict[str, Any]:
        """See Task."""
        sizes = {name: getattr(self.flags, name) for name in _SIZES}
        return {**sizes, "version_2_with_negative": self.with_negative}

    # What was read.

    def shown(self, example: Question) -> str:
        """See Task."""
        text = super().shown(example)
        return text + "".join(f" {x.text!r}" for x in example.answers[:1])

    @functools.cached_property
    def title(self) -> str:  # type: ignore[override]
        """See Task: the task and the files."""
        found = next(iter(self._opened.values()))
        names = map(os.path.basename, found.path.split(","))
        return f"question answering: {', '.join(names)}"

    @property
    def datasets(self) -> Sequence[str]:  # type: ignore[override]
        """See Task; the released training sets are known by their names."""
        name = os.path.basename(self.flags.train_file or "")
        name = file_system.uncompressed(name)
        known = {"train-v1.1.json": "squad", "train-v2.0.json": "squad_v2"}
        return [f"rajpurkar/{known[name]}"] if name in known else []

    # With TensorFlow.

    def head(self) -> Any:
        """See Task."""
        from tasks.squad import heads

        return heads.SpanHead()

    def teacher_head(self, teacher: given_model.GivenModel) -> Any:
        """See Task.

        Raises:
          InputError: only one of both may leave a question without an answer.
        """
        folder = teacher.record.directory
        stored = task_files.read_settings(folder)
        if stored and stored.version_2_with_negative != self.with_negative:
            raise errors.InputError(
                f"--version_2_with_negative is {self.with_negative}, but "
                f"{stored.version_2_with_negative} of the teacher in {folder}"
            )
        return self.head()

    def load(self, session: Any) -> tuple[Any, int]:
        """See Task: the model, or an ensemble of predicted logits."""
        if not self.flags.members:
            return session.load()
        from finetuning import prediction

        (split,) = self.predicted_sets
        # An ensemble reads all blocks in order.
        prediction.remove_blocks(session, split)
        windows = ensemble.of_windows(self, self.sets[split])
        return ensemble.Ensemble(self.flags.members, windows), 0

    def model_files(self) -> Mapping[str, bytes]:
        """See Task: question_answering.json, without a threshold."""
        return {task_files.SQUAD_SETTINGS: self._settings_file(None)}

    def _settings_file(self, threshold: float | None) -> bytes:
        settings = task_files.SquadSettings(
            version_2_with_negative=self.with_negative,
            null_score_diff_threshold=threshold,
        )
        values = dataclasses.asdict(settings)
        if self.flags.members:
            values[ensemble.MEMBERS] = ensemble.members(self.flags.members)
        return _json(values, indent=2)

    # From outputs to results.

    def files(self, split: str) -> Mapping[str, tasks.Layout]:
        """See Task; `finish` returns the files of a line for each question."""
        return {N_BEST: tasks.Layout("n_best", b"{", b",", b"\n}\n")}

    def decode(
        self, encoded: tasks.Encoded, outputs: Mapping[str, np.ndarray]
    ) -> dict[str, bytes]:
        """See Task."""
        members, lines = [], []
        answers = self.answerer.decode(encoded.sequences, outputs)
        for question, found in zip(encoded.examples, answers, strict=True):
            names = Answer._fields[:-1]
            rows = [dict(zip(names, x, strict=False)) for x in found.entries]
            # JSON escapes line feeds in strings, so all of them are layout.
            text = json.dumps(rows, indent=4).replace("\n", "\n    ")
            members.append(f"\n    {json.dumps(question.id)}: {text}")
            lines.append(json.dumps([found.null_odds, *found.candidates]))
        parts = {
            "n_best": ",".join(members).encode(),
            "answers": "".join(f"{line}\n" for line in lines).encode(),
        }
        return parts | {
            name: outputs[f"{name}_logits"].astype(np.float32).tobytes()
            for name in ("start", "end")
            if f"{name}_logits" in outputs
        }

    def evaluate(
        self,
        examples: tasks.Examples,
        encoded: tasks.Encoded,
        outputs: Mapping[str, np.ndarray],
    ) -> tasks.Evaluation:
        """See Task: scores and threshold, without the files of answers."""
        answers = self.answerer.decode(encoded.sequences, outputs)
        return self._evaluation(examples, answers)[0]

    def finish(
        self, examples: tasks.Examples, part: Callable[[str], bytes]
    ) -> tasks.Evaluation:
        """See Task."""
        answers = []
        for line in part("answers").splitlines():
            null_odds, *rows = json.loads(line)
            answers.append(AnswerList([Answer(*x) for x in rows], null_odds))
        found, predictions = self._evaluation(examples, answers)
        files = {
            **found.files,
            PREDICTIONS: _json(predictions),
            ensemble.LOGITS: ensemble.stored(
                ensemble.of_windows(self, examples), part("start"), part("end")
            ),
        }
        if self.with_negative:
            odds = [x.null_odds for x in answers]
            files[NULL_ODDS] = _json(dict(zip(predictions, odds, strict=True)))
        else:  # That of another command.
            path = os.path.join(self.flags.output_dir, NULL_ODDS)
            file_system.discard(path)
        return dataclasses.replace(found, files=files)

    def _evaluation(
        self, questions: Any, answers: Sequence[AnswerList]
    ) -> tuple[tasks.Evaluation, dict[str, str]]:
        """Returns what answers tell, and the predicted texts by question."""
        flags = self.flags
        by_id = dict(zip((x.id for x in questions), answers, strict=True))
        values: dict[str, float] = {}
        files: dict[str, bytes] = {}
        if self.with_negative:
            stored, best = self._stored.null_score_diff_threshold, {}
            if questions.has_impossible:
                best = metrics.best_thresholds(
                    questions,
                    {name: x.best for name, x in by_id.items()},
                    {name: x.null_odds for name, x in by_id.items()},
                )
            threshold, origin = self._choose_threshold(questions, stored)
            if origin == _BEST:
                threshold = _applied(best["f1"], questions, answers)
                stored = threshold
            logging.info(
                "%s: threshold of the null odds: %g, %s",
                questions.path,
                threshold,
                origin,
            )
            self.threshold = threshold
            values = metrics.threshold_values(best) | {_THRESHOLD: threshold}
            # Beside a model, it is that of a training, or the first found.
            trained = flags.do_train or self._stored.version_2_with_negative
            if not model_directory.has_model(flags.output_dir) or (
                origin == _BEST and trained
            ):
                files[task_files.SQUAD_SETTINGS] = self._settings_file(stored)
        predictions = {i: x.text(self.threshold) for i, x in by_id.items()}
        if questions.has_answers:
            scores = metrics.evaluate(questions, predictions)
            values |= {**scores, record.SCORE: scores["f1"]}
        return tasks.Evaluation(
            values=values if questions.has_answers else {},
            files=files,
            sections=lambda: self._sections(questions, by_id),
        ), predictions

    # The threshold of SQuAD 2.0.

    def _choose_threshold(
        self, questions: dataset.QuestionSet, stored: float | None
    ) -> tuple[float, str]:
        """Returns the threshold to apply, and where it comes from.

        It is the given one, else that of the model, which a training and an
        ensemble find again, else the best, else 0. Before an ensemble has found
        one, it is the mean of the runs'.
        """
        flags, given = self.flags, self.flags.null_score_diff_threshold
        if given is not None:
            return given, "as given"
        finds = flags.do_train or flags.members or stored is None
        if finds and questions.has_both_kinds:
            return 0.0, _BEST
        if stored is not None:
            return stored, "stored with the model"
        return 0.0, (
            "as none is stored, and the questions do not find one: some must "
            "have an answer, and some none"
        )

    # Answers for a person.

    def _sections(
        self, questions: dataset.QuestionSet, answers: Mapping[str, AnswerList]
    ) -> Sequence[Any]:
        from tasks.squad import sections

        return sections.make(questions, answers, self.threshold)

    def end(self, network: Any) -> None:
        """Answers --question, and questions that are typed."""
        flags, threshold = self.flags, self.threshold
        if threshold is None:
            threshold = self._stored.null_score_diff_threshold
        settings = dataclasses.replace(
            self._settings, null_score_diff_threshold=threshold
        )
        answerer = answering.Answerer(self.tokenizer, settings)

        def answer(question: str, context: str) -> Answer:
            predict = functools.partial(
                network.predict,
                batch_size=flags.predict_batch_size,
                pads=False,
            )
            ((found, _),) = answerer.answers([(question, context)], predict)
            return found

        if flags.question:
            prompt.show(answer(flags.question, flags.context), flags.context)
        if flags.interactive:
            prompt.run(answer, flags.context)


def check_threshold(threshold: float | None, *, with_negative: bool) -> None:
    """Raises InputError if a threshold is given for SQuAD 1.1."""
    if threshold is not None and not with_negative:
        raise errors.InputError(
            "--null_score_diff_threshold: needs --version_2_with_negative"
        )


def _applied(
    best: metrics.Threshold,
    questions: dataset.QuestionSet,
    answers: Sequence[AnswerList],
) -> float:
    """Returns the threshold to apply for the score of the best one.

    Where never answering is best, the official script returns 0, with which
    some questions may be answered nevertheless.
    """
    unanswerable = sum(not question.answers for question in questions)
    if best.score > 100.0 * unanswerable / len(questions):
        return best.threshold
    least = min(x.null_odds for x in answers)
    return min(0.0, math.nextafter(least, -math.inf))


def _json(value: Any, *, indent: int = 4) -> bytes:
    return f"{json.dumps(value, indent=indent)}\n".encode()
