"""Computes ONNX models with onnxruntime, for the server.

    texts -> our tokenizer -> onnxruntime -> the decoding of the task -> outputs

A directory is one that export_model.py --format=onnx writes. Its answers are
those of the SavedModel of the same model: windows, answers, entities and words
are found by the code of the tasks.
"""

import dataclasses
import functools
import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnxruntime

from data import features as features_lib
from data.features import Features
from data.tokenization import plain_wordpiece
from foundation import config_flags, errors, file_system, metadata
from modeling.config import BertConfig
from serving import onnx_names, served_model
from serving.served_model import Signature, Spec
from tasks.classification import outcomes
from tasks.squad import answering, decoding
from tasks.squad.settings import AnswerSettings
from weights import kinds, tokenizer_files

if TYPE_CHECKING:
    from modeling import models
    from tasks.fill_mask import masked_words
    from tasks.ner import tagger

_BATCH_SIZE = 32  # Windows of long texts that are computed together.
# Tokens whose logits of words are computed together: 125 MB for 30,522 words.
_WORD_TOKENS = 1024
_TEXT, _TEXTS = Spec((), np.dtype(object)), Spec((None,), np.dtype(object))
_FLOAT, _FLOATS = Spec((), np.dtype("f4")), Spec((None,), np.dtype("f4"))
_INT, _INTS = Spec((), np.dtype("i4")), Spec((None,), np.dtype("i4"))
# The outputs for texts; those of a sentence embedding are read from the file.
_OUTPUTS = {
    "classification": {
        "label": _TEXT,
        "score": _FLOAT,
        "labels": _TEXTS,
        "probabilities": _FLOATS,
    },
    "regression": {"score": _FLOAT},
    "multilabel": {"labels": _TEXTS, "probabilities": _FLOATS},
    "multiple_choice": {"choice": _INT, "probabilities": _FLOATS},
    "question_answering": {
        "answer": _TEXT,
        "start": _INT,
        "end": _INT,
        "score": _FLOAT,
        "answers": _TEXTS,
        "scores": _FLOATS,
    },
    "token_classification": {
        "entity": _TEXTS,
        "entity_type": _TEXTS,
        "start": _INTS,
        "end": _INTS,
        "score": _FLOATS,
    },
    "fill_mask": {
        "words": Spec((None, None), np.dtype(object)),
        "probabilities": Spec((None, None), np.dtype("f4")),
    },
}
_TYPES = {"O": "DT_STRING", "f": "DT_FLOAT", "i": "DT_INT32"}


@dataclasses.dataclass(frozen=True)
class _Description:
    """The keys of export.json that are used."""

    task: str
    max_seq_length: metadata.Size
    inputs: list[str]
    settings: metadata.Object
    labels: list[str] | None = None


class Model:
    """An ONNX model; see `served_model.Model`."""

    def __init__(self, directory: str, threads: int = 0):
        """Loads a directory; `threads` compute a batch, 0 is all cores.

        Raises:
          InputError: a file is missing or damaged.
        """
        path = os.path.join(directory, served_model.DESCRIPTION)
        description = metadata.read_object(path, _Description)
        config = os.path.join(directory, onnx_names.CONFIG)
        if description is None or not file_system.exists(config):
            missing = onnx_names.CONFIG
            if description is None:
                missing = served_model.DESCRIPTION
            raise errors.InputError(f"{directory}: {missing} is missing")
        self.description = description
        self._config = BertConfig.from_json_file(config)
        self._task: str = description["task"]
        self._labels: list[str] = description["labels"] or []
        self._settings = description["settings"]
        self._max_seq_length: int = description["max_seq_length"]
        if self._task not in kinds.BY_EXPORT_NAME:
            raise errors.InputError(f"{path}: the task {self._task} is unknown")
        self._kind = kinds.BY_EXPORT_NAME[self._task].name
        tokenizer = tokenizer_files.load(directory)
        self._tokenizer = plain_wordpiece.PlainTokenizer(
            tokenizer.vocabulary, **tokenizer.settings
        )
        self._session = _open_session(
            os.path.join(directory, onnx_names.MODEL), threads
        )
        # Output's name -> its shape; asking the session takes time.
        self._shapes = {
            info.name: info.shape
            for info in self._session.get_outputs()
            if info.name != "last_hidden_state"
        }
        self._predict = self._predictor(directory)
        self.signatures = self._signatures()
        self.metadata = {
            name: {
                "inputs": _infos(signature.inputs),
                "outputs": _infos(signature.outputs),
                "method_name": "",
            }
            for name, signature in self.signatures.items()
        }

    def predict(
        self, signature_name: str, inputs: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """See `served_model.Model`."""
        if signature_name == "serve":
            features = {
                name: inputs[theirs]
                for name, theirs in served_model.HUB_NAMES.items()
            }
            self._refuse(features)
            outputs = self._run(features)
            return {self._output_name(k): outputs[k] for k in sorted(outputs)}
        texts = {
            name: _decoded(inputs[name]) for name in self.description["inputs"]
        }
        return dict(sorted(self._predict(**texts).items()))

    def _run(self, features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Maps the features of a batch to the outputs of the head."""
        names = list(self._shapes)
        inputs = {
            onnx_names.INPUTS[name]: features[name].astype(np.int64)
            for name in onnx_names.INPUTS
        }
        return dict(zip(names, self._session.run(names, inputs), strict=True))

    def _output_name(self, name: str) -> str:
        """Returns the name of an output in the signature of ids."""
        if self._task == "fill_mask":
            return "mlm_logits"
        return "embedding" if self._task == "sentence_embedding" else name

    def _signatures(self) -> dict[str, Signature]:
        """Returns the functions of texts and of ids."""
        rank = 2 if self._task == "multiple_choice" else 1
        ids = Spec((None,) * rank, np.dtype("i4"))
        outputs = {
            self._output_name(name): Spec(
                tuple(n if isinstance(n, int) else None for n in shape[1:]),
                np.dtype("f4"),
            )
            for name, shape in self._shapes.items()
        }
        texts = {
            name: _TEXTS if name == "endings" else _TEXT
            for name in self.description["inputs"]
        }
        signatures = {
            served_model.DEFAULT_SIGNATURE: (
                texts,
                _OUTPUTS.get(self._task, outputs),
            ),
            "serve": (
                dict.fromkeys(served_model.HUB_NAMES.values(), ids),
                outputs,
            ),
        }
        return {
            name: Signature(*(dict(sorted(specs.items())) for specs in pair))
            for name, pair in signatures.items()
        }

    def _refuse(self, features: Mapping[str, np.ndarray]) -> None:
        """Refuses what `serving.input_checks` refuses, with the same lines."""
        names, config = served_model.HUB_NAMES, self._config
        first = features["input_ids"]
        for name, values in features.items():
            if values.shape != first.shape:
                raise errors.InputError(
                    f"{names[name]}: row 0: {_size(values)} values, but "
                    f"{names['input_ids']} has {_size(first)} values"
                )
        where = f"{names['input_ids']}: row 0"
        if first.ndim == 3 and not first.shape[1]:
            raise errors.InputError(f"{where}: 0 choices, at least 1 is needed")
        longest = config.max_position_embeddings
        if not 1 <= first.shape[-1] <= longest:
            raise errors.InputError(
                f"{where}: {first.shape[-1]} ids, not from 1 to {longest}"
            )
        counts = {
            "input_ids": config.vocab_size,
            "input_mask": 2,
            "segment_ids": config.type_vocab_size,
        }
        for name, count in counts.items():
            values = features[name]
            bad = np.argwhere((values < 0) | (values >= count))
            if len(bad):
                row, *choice = bad[0][:-1]
                place = f"row {row}" + "".join(f", choice {n}" for n in choice)
                raise errors.InputError(
                    f"{names[name]}: {place}: {values[tuple(bad[0])]} is not "
                    f"from 0 to {count - 1}"
                )

    # Texts to outputs, for each task.

    def _predictor(self, directory: str) -> Callable[..., dict[str, Any]]:
        """Returns the function that maps texts to the task's outputs."""
        if self._task in ("classification", "regression", "multilabel"):
            return self._classify
        if self._task == "multiple_choice":
            return self._choose
        if self._task == "sentence_embedding":
            return self._embed
        if self._task == "question_answering":
            return functools.partial(self._answer, self._answerer())
        # What follows imports TensorFlow.
        importlib.import_module("foundation.tensorflow_setup")
        if self._task == "token_classification":
            return functools.partial(self._tag, self._tagger(directory))
        return functools.partial(self._fill, self._filler(directory))

    def _encode(
        self,
        first: Sequence[str],
        second: Sequence[str] | None = None,
        num_choices: int = 0,
    ) -> dict[str, np.ndarray]:
        """Returns the features of texts, padded to the longest."""
        features = features_lib.encode(
            self._tokenizer,
            first,
            second,
            max_seq_length=self._max_seq_length,
            num_choices=num_choices,
        )
        rows = np.arange(len(features))
        return features.batch(rows, int(features.lengths.max()))

    def _classify(
        self, text: list[str], text_pair: list[str] | None = None
    ) -> dict[str, Any]:
        logits = self._run(self._encode(text, text_pair))["logits"]
        probabilities = self._probabilities(logits)
        if self._task == "regression":
            return {"score": probabilities[:, 0]}
        names = np.array([x.encode() for x in self._labels], object)
        outputs = {
            "labels": np.tile(names, (len(text), 1)),
            "probabilities": probabilities,
        }
        if self._task == "multilabel":
            return outputs
        best = outcomes.decisions(self._kind, logits)
        return outputs | {
            "label": names[best],
            "score": probabilities.max(axis=1),
        }

    def _choose(
        self, context: list[str], endings: list[list[str]]
    ) -> dict[str, Any]:
        count = len(endings[0])
        if not count:
            raise errors.InputError(
                "endings: row 0: 0 endings, at least 1 is needed"
            )
        features = self._encode(
            [text for text in context for _ in range(count)],
            [text for row in endings for text in row],
            num_choices=count,
        )
        logits = self._run(features)["logits"]
        return {
            "choice": outcomes.decisions(self._kind, logits).astype(np.int32),
            "probabilities": self._probabilities(logits),
        }

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        return outcomes.probabilities(self._kind, logits).astype(np.float32)

    def _embed(self, text: list[str]) -> dict[str, Any]:
        outputs = self._run(self._encode(text))
        return {"embedding": outputs[onnx_names.OUTPUTS["embedding"]]}

    def _predictions(
        self, features: Features
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yields the outputs of windows in batches of similar length."""
        order = np.argsort(features.lengths, kind="stable")
        for first in range(0, len(order), _BATCH_SIZE):
            rows = order[first : first + _BATCH_SIZE]
            length = int(features.lengths[rows[-1]])
            outputs = self._run(features.batch(rows, length))
            yield {"example_index": rows, **outputs}

    def _answerer(self) -> answering.Answerer:
        return answering.Answerer(
            self._tokenizer,
            config_flags.build(
                AnswerSettings,
                max_seq_length=self._max_seq_length,
                **self._settings,
            ),
        )

    def _answer(
        self,
        answerer: answering.Answerer,
        question: list[str],
        context: list[str],
    ) -> dict[str, Any]:
        def outputs(features: Features) -> dict[str, np.ndarray]:
            batches = self._predictions(features)
            return features_lib.by_token(batches, features.row_splits)

        questions = list(zip(question, context, strict=True))
        pairs = answerer.answers(questions, outputs)
        chosen = [entry for entry, _ in pairs]
        spans = [entry.span or (-1, -1) for entry in chosen]
        lists = [
            [
                # "empty" of a question without any span; "" in a graph.
                ("" if x.text == decoding.NOTHING and not x.span else x.text)
                for x in answers.entries
            ]
            for _, answers in pairs
        ]
        scores = [[x.probability for x in a.entries] for _, a in pairs]
        return {
            "answer": _bytes([x.text for x in chosen]),
            "start": np.array([start for start, _ in spans], np.int32),
            "end": np.array([end for _, end in spans], np.int32),
            "score": np.array([x.probability for x in chosen], np.float32),
            "answers": _bytes_rows(lists),
            "scores": _padded(scores, 0.0, np.float32),
        }

    def _tagger(self, directory: str) -> "tagger.Tagger":
        from tasks.ner import tagger, tagging, windowing

        return tagger.Tagger(
            windows=windowing.Windows(
                self._max_seq_length, self._settings["document_context"]
            ),
            tokenizer=self._tokenizer,
            labels=self._labels,
            predictions=self._predictions,
            scores=tagging.read_crf(self._labels, directory)
            if tagging.has_crf(directory)
            else None,
        )

    def _tag(
        self, word_tagger: "tagger.Tagger", text: list[str]
    ) -> dict[str, Any]:
        rows = word_tagger(text)

        def column(key: str) -> list[list]:
            return [[entity[key] for entity in row] for row in rows]

        return {
            "entity": _bytes_rows(column("text")),
            "entity_type": _bytes_rows(column("type")),
            "start": _padded(column("start"), -1, np.int32),
            "end": _padded(column("end"), -1, np.int32),
            "score": _padded(column("probability"), 0.0, np.float32),
        }

    def _filler(self, directory: str) -> "masked_words.MaskFiller":
        from tasks.fill_mask import masked_words
        from weights import model_directory

        settings = model_directory.read_settings(directory)
        return masked_words.MaskFiller(
            _MaskedLm(self._run),
            self._tokenizer,
            left_to_right=settings.attention == "left_to_right",
            max_length=self._max_seq_length,
        )

    def _fill(
        self, filler: "masked_words.MaskFiller", text: list[str]
    ) -> dict[str, Any]:
        """Ranks the words for masks; those beyond the cut get none."""
        from tasks.fill_mask import masked_words

        top_k = min(self._settings["top_k"], len(self._tokenizer.vocabulary))
        # Longer texts are cut here instead of refused.
        encoded = masked_words.encode_texts(
            self._tokenizer, text, max_length=sum(map(len, text)) + 2
        )
        longest, rows, counts = self._max_seq_length, {}, [0]
        for number, masked in enumerate(encoded):
            if isinstance(masked, errors.InputError):
                continue  # There is no mask.
            counts.append(len(masked.positions))
            ids, positions = masked
            if len(ids) > longest:
                ids = [*ids[: longest - 1], ids[-1]]
                positions = [i for i in positions if i < longest - 1]
            if positions:
                rows[number] = masked_words.MaskedText(ids, positions)
        shape = len(text), max(counts), top_k
        words = np.full(shape, b"", object)
        probabilities = np.zeros(shape, np.float32)
        ranked = filler.rank(list(rows.values()), top_k=top_k)
        for number, masks in zip(rows, ranked, strict=True):
            for position, candidates in enumerate(masks):
                tokens, values = zip(*candidates, strict=True)
                words[number, position] = [x.encode() for x in tokens]
                probabilities[number, position] = values
        return {"words": words, "probabilities": probabilities}


class _MaskedLm(NamedTuple):
    """What MaskFiller uses of a PretrainingModel.

    run: maps the features of a batch to the logits of words [B, S, V].
    """

    run: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]

    def __call__(
        self, features: Mapping[str, np.ndarray]
    ) -> "models.PretrainingOutputs":
        """Computes the logits at masked_lm_positions [B, P], some at a time."""
        from modeling import models

        batch, length = features["input_ids"].shape
        size = max(1, _WORD_TOKENS // length)
        parts = []
        for first in range(0, batch, size):
            rows = {k: x[first : first + size] for k, x in features.items()}
            positions = rows["masked_lm_positions"][..., None]
            logits = self.run(rows)["logits"]
            parts.append(np.take_along_axis(logits, positions, axis=1))
        return models.PretrainingOutputs(np.concatenate(parts), None)


def make(threads: int = 0) -> served_model.Engine:
    """Returns the engine; `threads` compute a batch, 0 is all cores."""
    load = functools.partial(Model, threads=threads)
    return served_model.Engine("onnxruntime", onnx_names.MODEL, load)


def _open_session(path: str, threads: int) -> onnxruntime.InferenceSession:
    file_system.refuse_pointer(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # Its types are not public.
        raise errors.InputError(
            f"{path}: cannot be loaded: {errors.reason(error)}"
        ) from error


def _size(values: np.ndarray) -> str:
    """Returns the length of a row, or "K choices of" their length."""
    return " choices of ".join(map(str, values.shape[1:]))


def _infos(specs: Mapping[str, Spec]) -> dict[str, Any]:
    """Returns inputs or outputs in the JSON form of TensorFlow Serving."""

    def size(n):
        return {"size": str(-1 if n is None else n), "name": ""}

    return {
        name: {
            "name": name,
            "dtype": _TYPES[spec.dtype.kind],
            "tensor_shape": {
                "dim": [size(n) for n in (None, *spec.shape)],
                "unknown_rank": False,
            },
        }
        for name, spec in specs.items()
    }


def _decoded(values: np.ndarray) -> list:
    """Returns texts as lists of str; bytes that are not UTF-8 are left out."""
    if values.ndim > 1:
        return [_decoded(row) for row in values]
    return [x.decode("utf-8", "ignore") for x in values]


def _bytes(texts: Sequence[str]) -> np.ndarray:
    """Returns texts in UTF-8, object [n]."""
    encoded = np.empty(len(texts), object)
    encoded[:] = [x.encode("utf-8", "replace") for x in texts]
    return encoded


def _bytes_rows(rows: Sequence[Sequence[str]]) -> np.ndarray:
    return _padded(list(map(_bytes, rows)), b"", object)


def _padded(
    rows: Sequence[Sequence | np.ndarray], padding: Any, dtype: Any
) -> np.ndarray:
    """Returns rows of different lengths as an array [n, longest]."""
    longest = max(map(len, rows), default=0)
    padded = np.full((len(rows), longest), padding, dtype)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return padded
