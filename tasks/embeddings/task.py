"""Sentence embeddings: a vector of each text, near those of similar texts.

    eval_results.txt    correlations, or recalls and MRR
    report.html         the pairs whose cosines contradict the set most
    embeddings.npz      "embedding": float32 [N, H], of the lines of --test_file

sentence-transformers opens the model directory.
"""

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import scipy.stats
from absl import logging
from markupsafe import Markup

from data import schema, text_files
from finetuning import given_model
from finetuning import task as tasks
from foundation import errors, file_system
from tasks.embeddings import metrics, text_groups
from tasks.embeddings.settings import EmbeddingsFlags
from tasks.embeddings.text_groups import Group
from weights import sentence_modules

_VECTORS = "embedding"
_FEW_POSITIVES = 0.5  # Different ones per example.
_MAX_PAIRS = 20  # In the report.
_MAX_CHARACTERS = 300  # Of each of their texts.


class Embeddings(tasks.Task):
    """The vectors of texts."""

    Flags, sequences = EmbeddingsFlags, "choices"
    score_note = "The score is Spearman's correlation, or the MRR."

    def __init__(self, flags: EmbeddingsFlags, model: given_model.GivenModel):
        """See Task."""
        self._columns: dict[str, text_groups.Columns] = {}
        self.modules = _modules(flags, model)
        super().__init__(flags, model)
        if flags.do_train:
            _check_flags(flags, self._columns["train"])

    @property
    def title(self) -> str:  # type: ignore[override]
        """See Task."""
        path = self.model.record.flags.get("train_file")
        path = self.flags.train_file or path or self.flags.dev_file or ""
        return f"sentence embedding: {os.path.basename(path.rstrip('/'))}"

    # From files to numbers.

    def open(self, split: str) -> tasks.Examples:
        """See Task."""
        flags, flag = self.flags, f"{split}_file"
        path = getattr(flags, flag)
        if path is None:
            raise errors.InputError(f"--{flag} is required")
        if split == "test":
            if path == tasks.STANDARD_INPUT:
                raise errors.InputError(
                    "--test_file=-: extract_features.py reads standard input"
                )
            path = text_files.find(path)
            read = functools.partial(text_groups.read_lines, path)
            return tasks.Examples(path, read)
        # Correlations do not depend on the largest score.
        max_score = flags.max_score if split == "train" else None
        examples, self._columns[split] = text_groups.open_groups(
            path, f"--{flag}", max_score=max_score
        )
        return examples

    def encode(self, example: Group) -> Sequence[tasks.Tokens]:
        """See Task."""
        length, tokenizer = self.flags.max_seq_length, self.tokenizer
        return [
            tasks.sequence(
                tokenizer, tasks.token_ids(tokenizer, text), (), length
            )
            for text in example.texts
        ]

    def targets(
        self, example: Group, sequences: Sequence[Any]
    ) -> Sequence[Mapping[str, Any]]:
        """See Task."""
        if example.label is None:
            return []
        return [{"label_ids": np.array([example.label], np.float32)}]

    def records(self, split: str) -> schema.Schema:
        """See Task."""
        columns = self._columns[split]
        return schema.text_groups(
            self.flags.max_seq_length,
            columns.num_texts,
            have_scores=columns.kind == text_groups.SCORES,
        )

    @property
    def settings(self) -> dict[str, Any]:
        """See Task."""
        modules = self.modules
        return {
            **super().settings,
            "max_score": self.flags.max_score,
            "pooling": modules.pooling,
            "normalize": modules.normalize,
        }

    def remarks(self, examples: tasks.Examples) -> Iterator[str]:
        """See Task."""
        yield from super().remarks(examples)
        if examples.summary.first.label is None:
            groups = (x.texts for x in examples if len(x.texts) > 1)
            positives = {texts[1] for texts in groups}
            count = examples.summary.count
            if positives and len(positives) < _FEW_POSITIVES * count:
                yield (
                    f"{len(positives)} different positives in {count} "
                    "examples: the same text is a negative of other anchors"
                )

    # With TensorFlow.

    def head(self) -> Any:
        """See Task."""
        from tasks.embeddings import heads

        return heads.VectorHead(
            self.modules,
            scale=self.flags.scale,
            cache_size=self.flags.gradient_cache_size,
        )

    # From outputs to results.

    def files(self, split: str) -> Mapping[str, tasks.Layout]:
        """See Task."""
        size = self.modules.vector_size(self.model.config.hidden_size)
        shape = self.sets[split].summary.count, size

        def write(
            file: BinaryIO, parts: Callable[[str], Iterator[bytes]]
        ) -> None:
            tasks.write_npz(file, {_VECTORS: ("<f4", shape, parts("vectors"))})

        return {"embeddings.npz": tasks.Layout("vectors", write=write)}

    def decode(
        self, encoded: tasks.Encoded, outputs: Mapping[str, np.ndarray]
    ) -> dict[str, bytes]:
        """See Task."""
        return {"vectors": outputs[_VECTORS].astype("<f4").tobytes()}

    def evaluate(
        self,
        examples: tasks.Examples,
        encoded: tasks.Encoded,
        outputs: Mapping[str, np.ndarray],
    ) -> tasks.Evaluation:
        """See Task."""
        vectors, groups = outputs[_VECTORS], encoded.examples
        cosines, scores = metrics.pair_cosines(vectors), None
        if groups[0].label is None:
            values = metrics.retrieval(groups, vectors)
        else:
            scores = encoded.features.dense["label_ids"]
            values = metrics.correlations(vectors, scores)
        return tasks.Evaluation(
            values=values,
            sections=lambda: [_worst_pairs(groups, cosines, scores)],
        )


def _check_flags(flags: EmbeddingsFlags, train: text_groups.Columns) -> None:
    """Refuses pairs without negatives.

    Raises:
      InputError: names the flag.
    """
    have_scores = train.kind == text_groups.SCORES
    if flags.scale < 1:
        logging.warning(
            "--scale=%g is a factor on cosines; the temperature %g is "
            "--scale=%g",
            flags.scale,
            flags.scale,
            1 / flags.scale,
        )
    steps, size = (
        flags.loop.gradient_accumulation_steps,
        min(flags.train_batch_size),
    )
    if train.num_texts == 2 and not have_scores and size <= steps:
        raise errors.InputError(
            f"--train_batch_size={size}: a pair is compared with the others of "
            "its batch, so at least two are computed at once (here "
            f"{size / steps:g}, with --gradient_accumulation_steps={steps})"
        )


def _modules(
    flags: EmbeddingsFlags, model: given_model.GivenModel
) -> sentence_modules.SentenceModules:
    """Returns how vectors are made, by the flags, else by the model's files."""
    modules = sentence_modules.SentenceModules(normalize=True, pooling="mean")
    if model.unfinished_dir is not None:
        read = model.record.made_from
        modules = sentence_modules.SentenceModules(
            normalize=read["normalize"], pooling=read["pooling"]
        )
    elif model.weights is not None:
        stored = sentence_modules.read(file_system.folder_of(model.weights))
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
        max_seq_length=flags.max_seq_length,
    )


def _worst_pairs(
    groups: Sequence[Group], cosines: np.ndarray, scores: np.ndarray | None
) -> Any:
    """Shows the pairs whose cosines contradict the set most."""
    from finetuning import report

    if scores is None:
        errors_of_pairs = -cosines
        note = "The pairs with the smallest cosines."
        header = ["line", "cosine", "text"]
    else:
        ranks = scipy.stats.rankdata
        errors_of_pairs = np.abs(ranks(cosines) - ranks(scores))
        note = "The pairs whose ranks by cosine and by score differ most."
        header = ["line", "score", "cosine", "text"]
    rows = []
    for i in np.argsort(-errors_of_pairs, kind="stable")[:_MAX_PAIRS].tolist():
        where = groups[i].where.rpartition("/")[2]
        texts = [x[:_MAX_CHARACTERS] for x in groups[i].texts[:2]]
        score = [] if scores is None else [float(scores[i, 0])]
        cells = [where, *score, float(cosines[i]), " | ".join(texts)]
        rows.append(cells)
    table = report.table(header, rows)
    return report.Section("Worst pairs", Markup(f"<p>{note}</p>") + table)
