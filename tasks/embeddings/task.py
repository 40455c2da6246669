"""Sentence embeddings for the runner: their sets, files, card and report."""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.stats
from absl import logging
from markupsafe import Markup

from data import features as features_lib
from data import schema, text_files
from data.examples import Example
from data.features import Features
from data.tokenization import wordpiece
from foundation import atomic, config_flags, errors
from jobs import report, run_directory, streaming
from jobs.outputs import Card, Description, Outputs, Scores
from jobs.source import ModelSource
from jobs.task_model import TaskModel
from tasks.embeddings import objective, text_groups
from tasks.embeddings.settings import EmbeddingsConfig
from training import metric_writer
from weights import kinds, model_directory, sentence_modules

TRAIN, DEV = "train", "dev"
VECTORS = "embeddings.npz"
_KIND = kinds.KINDS[kinds.SENTENCE_EMBEDDING]
_MAX_PAIRS = 20  # In the report.
_MAX_CHARACTERS = 300  # Of each of their texts.


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The metrics of the development set, and its pairs.

    Attributes:
      values: the metrics.
      cosines: [N], of each pair, without hard negatives.
      scores: [N], or None for pairs without scores.
    """

    values: Mapping[str, float]
    cosines: np.ndarray
    scores: np.ndarray | None


class EmbeddingsTask:
    """The sets of embeddings; see jobs.task.Task."""

    dev_splits = (DEV,)
    num_examples = None

    def __init__(self, config: EmbeddingsConfig, source: ModelSource):
        """Reads and checks the sets that are used.

        Raises:
          InputError: a flag, a file or the model does not fit.
        """
        files = config.used_files
        self._sets = {
            split: text_groups.open_groups(
                files[f"{split}_file"], f"--{split}_file"
            )
            for split in (TRAIN, DEV)
            if f"{split}_file" in files
        }
        for groups in self._sets.values():
            groups.texts.check()
        if TRAIN in self._sets:
            _check_flags(config, self._sets[TRAIN])
        self._lines = None
        if "test_file" in files:
            self._lines = text_files.open_lines(files["test_file"])
        source.warn_of_other_flags({"max_seq_length": config.max_seq_length})
        self._config = config
        self._tokenizer = source.start.tokenizer
        self.objective = objective.EmbeddingObjective(
            config=source.start.config,
            modules=_modules(config, source),
            scale=config.vectors.scale,
            cache_size=config.vectors.gradient_cache_size,
        )
        self.max_seq_length = config.max_seq_length
        self.evaluates_at_end = config.do_eval

    @property
    def data_settings(self) -> dict[str, Any]:
        """See jobs.task.Task."""
        if TRAIN not in self._sets:
            return {}
        return {"train_file": self._sets[TRAIN].texts.digest}

    @property
    def evaluation_settings(self) -> dict[str, Any]:
        """See jobs.task.Task."""
        return {"dev_file": self._sets[DEV].texts.digest}

    def features(self, split: str, records_dir: str | None) -> Features:
        """See jobs.task.Task."""
        groups = self._sets[split]
        # Correlations do not depend on the largest score.
        is_train = split == TRAIN
        largest = self._config.files.max_score if is_train else None

        cache = features_lib.FeatureCache(
            records_dir,
            {TRAIN: "train", DEV: "eval"}[split],
            schema.text_groups(
                self.max_seq_length,
                groups.num_texts,
                have_scores=groups.have_scores,
            ),
            self._tokenizer,
            {"texts": groups.texts.digest, "max_score": largest},
        )
        if (stored := cache.read()) is not None:
            return stored
        texts = [t for x in groups.texts for t in (x.first, *x.second)]
        statistics = features_lib.TokenizationStatistics()
        with cache.notice():
            encoded = features_lib.encode_blocks(
                self._tokenizer,
                [(texts, None)],
                max_seq_length=self.max_seq_length,
                num_choices=groups.num_texts,
                statistics=statistics,
            )
        statistics.warn(f"{split} set", self.max_seq_length)
        if groups.have_scores:
            scores = groups.scores(largest)
            encoded = dataclasses.replace(encoded, dense={"label_ids": scores})
        cache.write(encoded)
        return encoded

    def evaluate(
        self, task_model: TaskModel, features: Mapping[str, Features]
    ) -> Evaluation:
        """See jobs.task.Task."""
        features_of_set = features[DEV]
        size = self._config.eval_batch_size
        vectors = task_model.predict(features_of_set, size)[objective.VECTORS]
        groups = self._sets[DEV]
        cosines = objective.pair_cosines(vectors)
        if groups.have_scores:
            labels = features_of_set.dense["label_ids"]
            values = objective.correlations(vectors, labels)
            return Evaluation(values, cosines, labels[:, 0])
        values = objective.retrieval(list(groups.texts), vectors)
        return Evaluation(values, cosines, None)

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
        size = self.objective.config.hidden_size
        sentence_modules.write(directory, self.objective.modules, size)
        model_directory.save(model, directory, tokenizer)

    def card(self, flags: Mapping[str, Any]) -> Card:
        """See jobs.task.Task."""
        return Card(
            title=f"BERT for {self._title(flags)}",
            data={TRAIN: self._sets[TRAIN].describe()},
            pipeline_tag=_KIND.pipeline_tag,
        )

    def _title(self, flags: Mapping[str, Any]) -> str:
        path = flags.get("train_file") or self._sets[DEV].texts.path
        return f"{_KIND.title}: {os.path.basename(path.rstrip('/'))}"

    def scores(self, values: Mapping[str, float], step: int) -> Scores:
        """See jobs.task.Task."""
        groups = self._sets[DEV]
        return Scores(
            name=DEV,
            set_name=run_directory.set_name([groups.texts.path]),
            data={DEV: groups.describe()},
            values=run_directory.eval_results(values, step),
        )

    def describe(
        self, evaluation: Evaluation, step: int, flags: Mapping[str, Any]
    ) -> Description:
        """See jobs.task.Task."""
        groups, values = self._sets[DEV], evaluation.values
        in_words = metric_writer.name_in_words
        panels = {"Loss": ("train/loss",), "Accuracy": ("train/accuracy",)}
        # The score is one of the others.
        shown = {k: x for k, x in values.items() if k != "score"}
        for name in shown:
            title = report.capitalized(in_words(name))
            panels[title] = (f"eval/{name}",)
        panels["Learning rate"] = ("train/learning_rate",)
        name = os.path.basename(groups.texts.path.rstrip("/"))
        return Description(
            scores=self.scores(values, step),
            digest=groups.texts.digest,
            title=self._title(flags),
            panels=[report.Panel(k, tags) for k, tags in panels.items()],
            sections=[_worst_pairs(groups.texts, evaluation)],
            facts={
                **{in_words(k): x for k, x in shown.items()},
                f"examples of {name}": groups.texts.count,
                "training steps": step,
            },
        )

    def complete_training(self, task_model: TaskModel, output: Outputs) -> None:
        """Does nothing: the model is complete."""

    def predicted_sets(
        self, task_model: TaskModel, step: int
    ) -> Iterator["TextSet"]:
        """See jobs.task.Task."""
        del step
        if self._lines is not None:
            yield TextSet(self, self._lines, task_model)

    def prompt(self, task_model: TaskModel) -> None:
        """Does nothing: extract_features.py reads typed lines."""


def _check_flags(
    config: EmbeddingsConfig, train: text_groups.TextGroups
) -> None:
    """Refuses flags of the other loss, and pairs without negatives.

    Raises:
      InputError: names the flag.
    """
    flag = "scale" if train.have_scores else "max_score"
    if flag in config_flags.given(config):
        kind = "has" if train.have_scores else "does not have"
        raise errors.InputError(
            f"--{flag}: has no effect, as --train_file={train.texts.path} "
            f"{kind} scores"
        )
    if config.vectors.scale < 1:
        logging.warning(
            "--scale=%g is a factor on cosines; the temperature %g is "
            "--scale=%g",
            config.vectors.scale,
            config.vectors.scale,
            1 / config.vectors.scale,
        )
    steps = config.loop.gradient_accumulation_steps
    size = min(config.grid.train_batch_size)
    if train.num_texts == 2 and not train.have_scores and size <= steps:
        raise errors.InputError(
            f"--train_batch_size={size}: a pair is compared with the others of "
            "its batch, so at least two are computed at once (here "
            f"{size / steps:g}, with --gradient_accumulation_steps={steps})"
        )


def _modules(
    config: EmbeddingsConfig, source: ModelSource
) -> sentence_modules.SentenceModules:
    """Returns how vectors are made, by the flags, else by the model's files."""
    flags = config.vectors
    modules = sentence_modules.SentenceModules(
        normalize=source.stored.get("normalize", True),
        pooling=source.stored.get("pooling", "mean"),
    )
    if source.folder is not None and not source.stored:
        stored = sentence_modules.read(source.folder)
        modules = modules if stored.folder is None else stored
    if modules.dense or modules.truncate_dim:
        what = "dense layers" if modules.dense else "truncate_dim in its files"
        raise errors.InputError(
            f"{modules.folder}: has {what}, which run_embeddings.py does not "
            "train"
        )
    return modules.with_flags(
        pooling=flags.pooling,
        normalize=flags.normalize,
        max_seq_length=config.max_seq_length,
    )


def _worst_pairs(
    texts: Iterable[Example], evaluation: Evaluation
) -> report.Section:
    """Shows the pairs whose cosines contradict the set most."""
    cosines, scores = evaluation.cosines, evaluation.scores
    if scores is None:
        errors_of_pairs = -cosines
        note = "The pairs with the smallest cosines."
        header = ["line", "cosine", "text"]
    else:
        ranks = scipy.stats.rankdata
        errors_of_pairs = np.abs(ranks(cosines) - ranks(scores))
        note = "The pairs whose ranks by score and by cosine differ most."
        header = ["line", "score", "cosine", "text"]
    worst = np.argsort(-errors_of_pairs, kind="stable")[:_MAX_PAIRS].tolist()
    shown = {i: x for i, x in enumerate(texts) if i in set(worst)}
    rows = []
    for i in worst:
        where = shown[i].where.rpartition("/")[2]
        numbers = [] if scores is None else [float(scores[i])]
        pair = (shown[i].first, shown[i].second[0])
        text = " | ".join(f"{part:.{_MAX_CHARACTERS}}" for part in pair)
        rows.append([where, *numbers, float(cosines[i]), text])
    table = report.table(header, rows)
    body = Markup("<p>{}</p>").format(note) + table
    return report.Section("Worst pairs", body)


class TextSet:
    """Lines whose vectors are predicted; see jobs.task.PredictedSet."""

    folder = f"{VECTORS}.incomplete"
    unit = "lines"

    def __init__(
        self,
        task: EmbeddingsTask,
        lines: text_files.Lines,
        task_model: TaskModel,
    ):
        """Predicts nothing yet."""
        self._lines, self._task_model = lines, task_model
        self._modules = task.objective.modules
        self._max_seq_length = task.max_seq_length
        self._statistics = features_lib.TokenizationStatistics()
        self._size = task_model.config.predict_batch_size
        self.total = lines.total
        self.block_items = -(-streaming.BLOCK_ITEMS // self._size) * self._size

    @property
    def stream(self) -> streaming.Stream:
        """The set itself."""
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """See jobs.task.PredictedSet."""
        return {
            "max_seq_length": self._max_seq_length,
            "pooling": self._modules.pooling,
            "normalize": self._modules.normalize,
        }

    def read(self) -> Iterable[str]:
        """Returns the texts of the lines."""
        return (line.text.strip() for line in self._lines.read())

    def key(self, item: str) -> str:
        """Returns the text."""
        return item

    def rows_of(self, item: str) -> int:
        """Returns 1."""
        del item
        return 1

    def encode(self, items: Sequence[str]) -> Features:
        """Tokenizes texts."""
        return features_lib.encode_blocks(
            self._task_model.start.tokenizer,
            [(items, None)],
            max_seq_length=self._max_seq_length,
            statistics=self._statistics,
        )

    def predict(self, encoded: Features) -> np.ndarray:
        """Returns vectors [N, H]."""
        return self._task_model.predict(encoded, self._size)[objective.VECTORS]

    def parts(
        self, items: Sequence[str], encoded: Features, predicted: np.ndarray
    ) -> streaming.Parts:
        """Returns the bytes of the vectors."""
        del items, encoded
        return {VECTORS: predicted.astype("<f4").tobytes()}

    def end(self) -> None:
        """Warns of text that truncation lost."""
        self._statistics.warn(self._lines.name, self._max_seq_length)

    def write(self, blocks: streaming.Blocks, output: Outputs) -> None:
        """Writes the vectors, [N, H] in the order of the lines."""
        (path,) = output.keep_other_sets(
            VECTORS,
            set_name=run_directory.set_name([self._lines.name]),
            digest=self._lines.digest,
        )
        size = self._modules.vector_size(
            self._task_model.start.config.hidden_size
        )
        assert self._lines.total is not None  # It is not standard input.
        array = streaming.NpzArray(
            "<f4", (self._lines.total, size), blocks.parts(VECTORS)
        )
        with atomic.replacing(path, on_disk=True) as temporary:
            streaming.write_npz(temporary, {objective.VECTORS: array})
