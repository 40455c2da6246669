"""Tagging for the runner: its sets, files, card, report and prompt.

predictions_<split>.txt   CoNLL's columns, as conlleval reads them (with
                          tabs, if the file has them: conlleval -d '\\t')
scores_<split>.txt        the output of conlleval
entities.jsonl            the entities of raw text
"""

import dataclasses
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from data import features as features_lib
from data import text_files
from data.features import Features
from data.tokenization import wordpiece
from finetuning import typed
from foundation import errors, file_system
from jobs import run_directory, streaming
from jobs.outputs import Card, Description, Outputs, Scores
from jobs.source import ModelSource
from jobs.task import PrintedSet
from jobs.task_model import TaskModel
from modeling import crf
from tasks.ner import ner_data, outputs, raw_text, tagging, windowing
from tasks.ner.ner_data import DEV, TEST, TRAIN, TaggedSet
from tasks.ner.settings import NerConfig
from tasks.ner.tagger import Tagger
from weights import kinds, model_directory, task_files

_STDIN = "standard input"


class NerTask:
    """The sets of words with tags; see jobs.task.Task.

    Attributes:
      data: the files and their tags.
    """

    num_examples = None
    dev_splits = (DEV,)

    def __init__(self, config: NerConfig, source: ModelSource):
        """Reads and checks the files that are used.

        The labels of the source apply if nothing is trained.

        Raises:
          InputError: a flag, a file or a tag does not fit.
        """
        start, windows = source.start, config.windows
        self.data = ner_data.open_data(
            config.files,
            tag_scheme=config.tag_scheme,
            model_scheme=config.model_scheme,
            types=config.types,
            text_file=config.text_file,
            known_labels=start.labels,
            num_outputs=start.num_outputs,
            trains=config.do_train,
        )
        _check(config, self.data)
        source.warn_of_other_flags(dataclasses.asdict(windows))
        self._config = config
        self._tokenizer = start.tokenizer
        self.objective = tagging.TaggingObjective(
            config=start.config,
            labels=self.data.labels,
            has_crf=_has_crf(config, source),
            is_plain=self.data.is_plain,
        )
        self.max_seq_length = windows.max_seq_length
        self.evaluates_at_end = config.do_eval

    @property
    def data_settings(self) -> dict[str, Any]:
        """See jobs.task.Task."""
        values: dict[str, Any] = dict(self._config.windows.values)
        if self._config.do_train:
            values["train_file"] = self.data.split(TRAIN).digest
        return values

    @property
    def evaluation_settings(self) -> dict[str, Any]:
        """See jobs.task.Task."""
        return {"dev_file": self.data.split(DEV).digest}

    def features(self, split: str, records_dir: str | None) -> Features:
        """See jobs.task.Task."""
        tagged = self.data.split(split)
        if split == TRAIN and not self.data.is_plain:
            ner_data.note_lost_capitals(tagged.sentences, self._tokenizer)
        features = ner_data.prepare(
            tagged,
            split,
            self._tokenizer,
            self._config.windows,
            records_dir=records_dir,
        )
        if self.objective.has_crf and split == TRAIN:
            features = tagging.with_boundaries(features, tagged.sentences)
        return features

    def evaluate(
        self, task_model: TaskModel, features: Mapping[str, Features]
    ) -> outputs.Evaluation:
        """See jobs.task.Task."""
        tagger = Tagger.of_model(
            self._config.windows, task_model, self._config.eval_batch_size
        )
        logits = tagger.predict(features[DEV])
        tags = tagger.tags(self.data.split(DEV).sentences, logits)
        return outputs.evaluate(self.data, DEV, logits, tags)

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
        labels = list(self.data.labels)
        file_system.make_folder(directory)
        tagging.save_crf(model, labels, directory)
        if isinstance(model, crf.CrfTaggingModel):
            model = model.tagger
        model_directory.save(model, directory, tokenizer, labels=labels)

    def card(self, flags: Mapping[str, Any]) -> Card:
        """See jobs.task.Task."""
        return Card(
            title=f"BERT for {self._title(flags)}",
            data={TRAIN: self._describe(TRAIN)},
            pipeline_tag=kinds.KINDS[kinds.TOKEN_CLASSIFICATION].pipeline_tag,
            labels=self.data.labels,
        )

    def _title(self, flags: Mapping[str, Any]) -> str:
        """Returns the kind of the task and its data."""
        kind = "tags of words" if self.data.is_plain else "named entities"
        path = (
            flags.get("data_dir")
            or flags.get("train_file")
            or self.data.summary(DEV).path
        )
        return f"{kind}: {os.path.basename(path.rstrip('/'))}"

    def _describe(self, split: str) -> str:
        summary = self.data.summary(split)
        return (
            f"{summary.num_sentences} sentences, {summary.num_words} words of "
            f"{os.path.basename(summary.path)}, SHA-256 {summary.digest}"
        )

    def scores(self, values: Mapping[str, float], step: int) -> Scores:
        """See jobs.task.Task."""
        return self._scores(DEV, run_directory.eval_results(values, step))

    def _scores(self, split: str, values: Mapping[str, float]) -> Scores:
        return Scores(
            name=split,
            set_name=run_directory.set_name([self.data.summary(split).path]),
            data={split: self._describe(split)},
            values=values,
        )

    def describe(
        self,
        evaluation: outputs.Evaluation,
        step: int,
        flags: Mapping[str, Any],
    ) -> Description:
        """See jobs.task.Task."""
        scores = self.scores(evaluation.values, step)
        values, is_plain = scores.values, self.data.is_plain
        path = os.path.basename(self.data.summary(DEV).path)
        # The report has a table of the types of entities.
        by_type = ("eval_precision_", "eval_recall_", "eval_f1_")
        tagged = self.data.split(DEV)
        predictions = outputs.columns(tagged, evaluation.predicted)
        return Description(
            scores=scores,
            digest=self.data.summary(DEV).digest,
            files={
                outputs.PREDICTIONS.format(DEV): predictions,
                outputs.SCORES.format(DEV): evaluation.text,
            },
            title=self._title(flags),
            panels=outputs.PANELS,
            sections=outputs.sections(evaluation),
            facts={
                **({} if is_plain else {"F1 of entities": values["eval_f1"]}),
                "accuracy of words": values["eval_accuracy"],
                f"sentences of {path}": len(evaluation.sentences),
                "training steps": step,
            },
            shown={
                name: value
                for name, value in values.items()
                if is_plain or not name.startswith(by_type)
            },
        )

    def write_test(
        self, output: Outputs, text: str, values: Mapping[str, float]
    ) -> None:
        """Writes the scores of the test set; `text` is conlleval's output."""
        named = {f"test_{name}": value for name, value in values.items()}
        output.write_scores(
            self._scores(TEST, named),
            digest=self.data.summary(TEST).digest,
            files={outputs.SCORES.format(TEST): text},
        )

    def complete_training(self, task_model: TaskModel, output: Outputs) -> None:
        """Does nothing: the model is complete."""

    def predicted_sets(
        self, task_model: TaskModel, step: int
    ) -> Iterator["TestSet | RawTextSet | PrintedSet"]:
        """See jobs.task.Task."""
        del step
        config = self._config
        if not config.do_predict:
            return
        tagger = Tagger.of_model(
            config.windows, task_model, config.predict_batch_size
        )
        if self.data.has(TEST):
            yield TestSet(self, tagger)
        if self.data.text is not None:
            lines = RawTextSet(self.data, tagger)
            if lines.total is None:
                yield PrintedSet(lines, outputs.ENTITIES)
            else:
                yield lines

    def prompt(self, task_model: TaskModel) -> None:
        """Prints the entities of each line of standard input."""
        if not self._config.interactive:
            return
        tagger = Tagger.of_model(
            self._config.windows, task_model, self._config.predict_batch_size
        )
        if sys.stdin.isatty():
            sys.stderr.write("Type a text; Ctrl-D ends.\n")
        for number, raw in enumerate(typed.lines(sys.stdin, sys.stdout), 1):
            line = file_system.decode(raw, _STDIN, number).strip()
            text, features = tagger.encode_lines([line], _STDIN)
            (entities,) = tagger.entities(text, tagger.predict(features))
            sys.stdout.write(f"{raw_text.marked(line, entities)}\n")
            sys.stdout.flush()


class TestSet:
    """The test set; see jobs.task.PredictedSet. Its items are blocks."""

    __test__ = False  # Not a test class of pytest.
    block_items = 1
    unit = "sentences"
    folder = "predictions_test.incomplete"

    def __init__(self, task: NerTask, tagger: Tagger):
        """Creates the set of a task, which `tagger` predicts."""
        self._task, self._tagger = task, tagger
        self.total = task.data.test.num_sentences
        self._statistics = features_lib.TokenizationStatistics()

    @property
    def stream(self) -> streaming.Stream:
        """The set itself."""
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """See jobs.task.PredictedSet."""
        return {
            "labels": list(self._task.data.labels),
            **self._tagger.windows.values,
            "scheme": self._task.data.test.scheme,
        }

    def read(self) -> Iterator[TaggedSet]:
        """See streaming.Stream."""
        return self._task.data.blocks(streaming.BLOCK_ITEMS)

    def key(self, item: TaggedSet) -> str:
        """Returns the digest of words and tags."""
        return item.digest

    def rows_of(self, item: TaggedSet) -> int:
        """Returns the number of sentences."""
        return len(item.sentences)

    def encode(self, items: Sequence[TaggedSet]) -> Features:
        """Tokenizes words."""
        return self._tagger.encode(items[0].sentences, self._statistics)

    def predict(self, encoded: Features) -> np.ndarray:
        """Returns the logits of the words."""
        return self._tagger.predict(encoded)

    def parts(
        self,
        items: Sequence[TaggedSet],
        encoded: Features,
        predicted: np.ndarray,
    ) -> streaming.Parts:
        """Returns the lines of words, and the counts of the scores."""
        del encoded
        tags = self._tagger.tags(items[0].sentences, predicted)
        return outputs.test_parts(self._task.data, items[0], predicted, tags)

    def end(self) -> None:
        """Warns of tokens that were cut and of unknown characters."""
        self._statistics.warn(self._task.data.test.path)

    def write(self, blocks: streaming.Blocks, output: Outputs) -> None:
        """Writes the predictions, and the scores of a set with tags."""
        test = self._task.data.test
        (path,) = output.keep_other_sets(
            outputs.PREDICTIONS.format(TEST),
            set_name=run_directory.set_name([test.path]),
            digest=test.digest,
        )
        blocks.write(outputs.PREDICTIONS, path)
        if test.has_tags:
            text, values = outputs.test_results(
                self._task.data, blocks.parts(outputs.SCORES)
            )
            self._task.write_test(output, text, values)


class RawTextSet:
    """Lines of raw text to find entities in; see jobs.task.PredictedSet."""

    unit = "lines"
    folder = "entities.incomplete"

    def __init__(self, data: ner_data.NerData, tagger: Tagger):
        """Creates the set; `tagger` predicts it."""
        assert data.text is not None
        self._lines: text_files.Lines = data.text
        self._labels, self._tagger = data.labels, tagger
        self.block_items = streaming.BLOCK_ITEMS
        self.total = self._lines.total
        self._statistics = features_lib.TokenizationStatistics()

    @property
    def stream(self) -> streaming.Stream:
        """The set itself."""
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """See jobs.task.PredictedSet."""
        windows = self._tagger.windows
        return {"labels": list(self._labels), **windows.values}

    def read(self) -> Iterable[str]:
        """See streaming.Stream."""
        return (line.text for line in self._lines.read())

    def key(self, item: str) -> str:
        """Returns the line."""
        return item

    def rows_of(self, item: str) -> int:
        """Returns 1."""
        del item
        return 1

    def encode(
        self, items: Sequence[str]
    ) -> tuple[raw_text.Text, Features | None]:
        """Splits lines into words, and tokenizes these."""
        return self._tagger.encode_lines(
            items, self._lines.name, self._statistics
        )

    def predict(
        self, encoded: tuple[raw_text.Text, Features | None]
    ) -> np.ndarray:
        """Returns the logits of the words."""
        return self._tagger.predict(encoded[1])

    def parts(
        self,
        items: Sequence[str],
        encoded: tuple[raw_text.Text, Features | None],
        predicted: np.ndarray,
    ) -> streaming.Parts:
        """Returns the lines of entities.jsonl."""
        del items
        text, _ = encoded
        entities = self._tagger.entities(text, predicted)
        return {outputs.ENTITIES: raw_text.json_lines(text, entities)}

    def end(self) -> None:
        """Warns of tokens that were cut and of unknown characters."""
        self._statistics.warn(self._lines.name)

    def write(self, blocks: streaming.Blocks, output: Outputs) -> None:
        """Writes entities.jsonl."""
        (path,) = output.keep_other_sets(
            outputs.ENTITIES,
            set_name=run_directory.set_name([self._lines.name]),
            digest=self._lines.digest,
        )
        blocks.write(outputs.ENTITIES, path)


def _check(config: NerConfig, data: ner_data.NerData) -> None:
    """Reads the sets that are used; checks their tags and documents."""
    used = [TRAIN] if config.do_train else []
    if config.do_eval or config.needs_evaluation:
        used.append(DEV)
    predicts_test = config.do_predict and data.has(TEST)
    if predicts_test and config.bilstm.is_used:
        used.append(TEST)
    ner_data.check(data, used, config.windows)
    if config.do_predict and not predicts_test and data.text is None:
        raise errors.InputError("--do_predict needs --test_file or --text_file")
    if predicts_test and config.windows.has_context:
        windowing.check_documents(data.test.path, data.test.has_documents)


def _has_crf(config: NerConfig, source: ModelSource) -> bool:
    """Returns whether the model has a CRF."""
    if config.do_train:
        return config.crf
    # A checkpoint in output_dir contains the CRF and has no crf.json.
    if source.stored.get("crf", tagging.has_crf(source.folder)):
        return True
    if config.crf:
        raise errors.InputError(
            f"--crf: no {task_files.CRF} in "
            f"{source.folder or config.output_dir}; the flag applies to "
            "training"
        )
    return False
