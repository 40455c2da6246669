"""Tagging as a fine-tuning job: words -> windows -> model -> tags of words."""

import dataclasses
import functools
import sys
from typing import Any

import numpy as np
import scipy.special

from data import features as features_lib
from data.features import Features
from foundation import errors, file_system
from jobs import finetuning, run_config, run_directory, streaming, typed
from modeling import crf, models
from tasks.ner import (
    feature_based,
    ner_data,
    outputs,
    raw_text,
    tag_spans,
    tagging,
    windowing,
    word_files,
)
from tasks.ner.ner_data import DEV, TEST, TRAIN
from training import checkpoints
from weights import pretrained, task_files

_STDIN = "standard input"


def open_job(
    config: run_config.FinetuningConfig, options: ner_data.NerOptions
) -> tuple[ner_data.NerData, finetuning.Job]:
    """Reads and checks the files, and returns the job on them."""
    start = finetuning.open_start(config)
    _refuse_true_case(config, options, start)
    data = _open_data(config, options, start)
    has_crf = _has_crf(config, options, start)
    if not config.do_train:
        context = "maximal" if options.windows.document_context else "none"
        run_directory.warn_of_other_flags(
            dataclasses.asdict(options.windows) | {"document_context": context},
            config.output_dir,
            start.init_checkpoint,
        )
    strategy = finetuning.open_strategy(
        config, start, eval_batch_size=options.eval_batch_size
    )

    @functools.cache
    def features(split: str) -> Features:
        made = ner_data.prepare(
            data.split(split),
            split,
            start.tokenizer,
            options.windows,
            records_dir=finetuning.records_dir(config, strategy),
        )
        if has_crf and split == TRAIN:
            sentences = data.split(split).sentences
            made = tagging.with_boundaries(made, sentences)
        return made

    def evaluate(task_model: finetuning.TaskModel) -> outputs.Evaluation:
        batches = task_model.predictions(features(DEV), options.eval_batch_size)
        logits = tagging.word_logits(features(DEV), len(data.labels), batches)
        row_splits = data.split(DEV).sentences.row_splits
        tags = tagging.best_tags(
            task_model.model, logits, row_splits, data.labels
        )
        return outputs.evaluate(data, DEV, logits, tags)

    settings = dataclasses.asdict(options.windows)
    if config.do_train:
        settings["train_file"] = data.split(TRAIN).digest
    job = finetuning.Job(
        config=config,
        start=start,
        strategy=strategy,
        task=tagging.TaggingTask(),
        features=features,
        evaluate=evaluate,
        data_settings=settings,
        evaluation_settings=lambda: {"dev_file": data.split(DEV).digest},
        task_settings={
            "labels": list(data.labels),
            "crf": has_crf,
        },
        **model_parts(start, data, has_crf=has_crf),
    )
    return data, job


def _open_data(
    config: run_config.FinetuningConfig,
    options: ner_data.NerOptions,
    start: pretrained.Start,
) -> ner_data.NerData:
    """Reads the files that are used, and checks their tags."""
    known_labels, num_outputs = start.labels, start.num_outputs
    if options.tagger is not None:
        file_system.refuse_remote(
            config.output_dir,
            "output_dir",
            "--features maps activations into memory",
        )
        known_labels = feature_based.read_labels(config.output_dir)
        num_outputs = None
    data = ner_data.open_data(
        options.files,
        tag_scheme=options.tag_scheme,
        model_scheme=options.model_scheme,
        types=options.types,
        known_labels=known_labels,
        num_outputs=num_outputs,
        trains=config.do_train,
    )
    used = [TRAIN] if config.do_train else []
    if options.do_eval or (config.do_train and config.needs_evaluation):
        used.append(DEV)
    ner_data.check(data, tagged=used, used=used, settings=options.windows)
    if not config.do_predict:
        return data
    if data.has(TEST) and options.tagger is not None:
        ner_data.check(data, tagged=(), used=[TEST], settings=options.windows)
    elif data.has(TEST):
        test = data.test
        if options.windows.document_context:
            windowing.check_documents(test.path, test.has_documents)
    elif data.text is None:
        raise errors.InputError("--do_predict needs --test_file or --text_file")
    return data


def _weights_folder(
    config: run_config.FinetuningConfig,
    options: ner_data.NerOptions,
    start: pretrained.Start,
) -> str | None:
    """Returns the directory of the weights of a model that is not trained."""
    if options.tagger is not None or start.task_settings:
        return config.output_dir
    path = start.init_checkpoint
    return None if path is None else file_system.folder_of(path)


def _has_crf(
    config: run_config.FinetuningConfig,
    options: ner_data.NerOptions,
    start: pretrained.Start,
) -> bool:
    """Returns whether the model has a CRF."""
    if config.do_train:
        return options.crf
    folder = _weights_folder(config, options, start)
    # A checkpoint in output_dir contains the CRF, without crf.json.
    if start.task_settings.get("crf", tagging.has_crf(folder)):
        return True
    if options.crf:
        raise errors.InputError(
            f"--crf: no {task_files.CRF} in {folder or config.output_dir}; "
            "the flag applies to training"
        )
    return False


def _refuse_true_case(
    config: run_config.FinetuningConfig,
    options: ner_data.NerOptions,
    start: pretrained.Start,
) -> None:
    """Refuses a trained model that read sentences in capitals in another case.

    A training may start from one. It also continues an unfinished one if it
    reads the same words, which the digest of --train_file tells.
    """
    if config.do_train:
        return
    if start.task_settings.get("true_case"):
        saved = checkpoints.Checkpoints(config.output_dir)
        raise tagging.true_case_error(saved.latest())
    folder = _weights_folder(config, options, start)
    if folder is not None and not start.task_settings:
        tagging.refuse_true_case(folder)


def model_parts(
    start: pretrained.Start, data: ner_data.NerData, *, has_crf: bool
) -> dict[str, Any]:
    """Returns the model as arguments of finetuning.Job."""
    count = len(data.labels)
    if not has_crf:
        make_model = functools.partial(
            models.TaggingModel, start.config, num_classes=count
        )
        return {"make_model": make_model}
    scheme = (
        tag_spans.PLAIN if data.is_plain else tag_spans.scheme_of(data.labels)
    )

    def load(model: crf.CrfTaggingModel, directory: str) -> list[str]:
        return tagging.load_crf(model, data.labels, directory)

    make_model = functools.partial(
        crf.CrfTaggingModel,
        start.config,
        num_classes=count,
        forbidden=tagging.forbidden(data.labels, scheme),
    )
    return {"make_model": make_model, "load_extra_weights": load}


def predict(
    data: ner_data.NerData,
    options: ner_data.NerOptions,
    task_model: finetuning.TaskModel,
    writer: outputs.OutputWriter,
) -> None:
    """Predicts the tags of the test set and the entities of raw text."""
    tagger = Tagger(data, options.windows, task_model)
    finished = []
    if data.has(TEST):
        finished.append(tagger.tag_test(writer))
    if data.text is not None:
        finished.append(tagger.find_entities(writer))
    for blocks in finished:  # A killed command does nothing twice.
        if isinstance(blocks, streaming.Blocks):
            blocks.remove()


def prompt(
    data: ner_data.NerData,
    options: ner_data.NerOptions,
    task_model: finetuning.TaskModel,
) -> None:
    """Prints the entities of each line of standard input."""
    tagger = Tagger(data, options.windows, task_model)
    if sys.stdin.isatty():
        sys.stderr.write("Type a text; Ctrl-D ends.\n")
    for number, raw in enumerate(typed.lines(sys.stdin, sys.stdout), 1):
        line = file_system.decode(raw, _STDIN, number).strip()
        text, features = tagger.encode_lines([line], _STDIN)
        logits = tagger.predict(features)
        (found,) = tagger.entities(text, logits)
        sys.stdout.write(f"{raw_text.marked(line, found)}\n")
        sys.stdout.flush()


class Tagger:
    """Predicts the tags of blocks of sentences, and writes them in order."""

    def __init__(
        self,
        data: ner_data.NerData,
        settings: windowing.WindowSettings,
        task_model: finetuning.TaskModel,
    ):
        """Creates a tagger.

        Args:
          data: names the labels.
          settings: how words are arranged in windows.
          task_model: the model.
        """
        self._data = data
        self._settings = settings
        self._task_model = task_model

    def tag_test(self, writer: outputs.OutputWriter) -> streaming.Store | None:
        """Writes the tags of the test set, and its scores if it has tags.

        Returns:
          What has the blocks, which are not needed any more.
        """
        data, test = self._data, self._data.test
        statistics = features_lib.TokenizationStatistics()

        def encode(blocks: list[ner_data.TaggedSet]) -> Features:
            return self._encode(blocks[0].sentences, statistics)

        def make_parts(
            blocks: list[ner_data.TaggedSet],
            features: Features,
            logits: np.ndarray,
        ) -> streaming.Parts:
            del features
            tags = self._tags(blocks[0].sentences, logits)
            return outputs.test_parts(data, blocks[0], logits, tags)

        blocks = self._open_blocks("predictions_test", scheme=test.scheme)
        streaming.run(
            data.blocks(streaming.BLOCK_ITEMS),
            key=lambda block: block.digest,
            encode=encode,
            predict=self.predict,
            make_parts=make_parts,
            store=blocks,
            block_items=1,
            rows_of=lambda block: len(block.sentences),
            total=test.num_sentences,
            unit="sentences",
        )
        statistics.warn(test.path)
        if blocks is not None:
            writer.write_test_blocks(blocks)
        return blocks

    def find_entities(
        self, writer: outputs.OutputWriter
    ) -> streaming.Store | None:
        """Writes the entities of raw text, or prints them; see tag_test."""
        lines = self._data.text
        statistics = features_lib.TokenizationStatistics()

        def make_parts(
            texts: list[str],
            encoded: tuple[raw_text.Text, Features],
            logits: np.ndarray,
        ) -> streaming.Parts:
            del texts
            found = self.entities(encoded[0], logits)
            return {outputs.ENTITIES: raw_text.json_lines(encoded[0], found)}

        if lines.total is None:
            blocks = streaming.StandardOutput(outputs.ENTITIES)
        else:
            blocks = self._open_blocks("entities")
        streaming.run(
            (line.text for line in lines.read()),
            key=str,
            encode=lambda texts: self.encode_lines(
                texts, lines.name, statistics
            ),
            predict=lambda encoded: self.predict(encoded[1]),
            make_parts=make_parts,
            store=blocks,
            block_items=streaming.BLOCK_ITEMS,
            total=lines.total,
            unit="lines",
        )
        statistics.warn(lines.name)
        if isinstance(blocks, streaming.Blocks):
            writer.write_entities(blocks, lines)
        return blocks

    def _open_blocks(
        self, name: str, **settings: Any
    ) -> streaming.Blocks | None:
        """Opens the blocks of an output; None if this worker writes nothing."""
        return self._task_model.open_blocks(
            f"{name}.incomplete",
            {
                "labels": list(self._data.labels),
                **dataclasses.asdict(self._settings),
                **settings,
            },
        )

    def encode_lines(
        self,
        lines: list[str],
        name: str,
        statistics: features_lib.TokenizationStatistics | None = None,
    ) -> tuple[raw_text.Text, Features | None]:
        """Splits lines into words; without a word there are no features."""
        text = raw_text.split_lines(name, lines)
        sentences = text.sentences
        if not sentences.words:
            return text, None
        return text, self._encode(sentences, statistics)

    def _encode(
        self,
        sentences: word_files.Sentences,
        statistics: features_lib.TokenizationStatistics | None,
    ) -> Features:
        tokenizer = self._task_model.job.start.tokenizer
        return windowing.encode(
            tokenizer, sentences, None, self._settings, statistics
        )

    def predict(self, features: Features | None) -> np.ndarray:
        """Returns the logits float32 [W, C] of the words of a block."""
        num_classes = len(self._data.labels)
        if features is None:
            return np.zeros((0, num_classes), np.float32)
        size = self._task_model.job.config.predict_batch_size
        batches = self._task_model.predictions(features, size)
        return tagging.word_logits(features, num_classes, batches)

    def _tags(
        self, sentences: word_files.Sentences, logits: np.ndarray
    ) -> list[str]:
        model, labels = self._task_model.model, self._data.labels
        return tagging.best_tags(model, logits, sentences.row_splits, labels)

    def entities(
        self, text: raw_text.Text, logits: np.ndarray
    ) -> list[list[dict[str, Any]]]:
        """Returns the entities of each line."""
        tags = self._tags(text.sentences, logits)
        label_ids = [self._data.labels.index(tag) for tag in tags]
        probabilities = scipy.special.softmax(logits.astype(np.float64), axis=1)
        return raw_text.find_entities(
            text,
            tags,
            probabilities[np.arange(len(tags)), label_ids],
            is_plain=self._data.is_plain,
        )
