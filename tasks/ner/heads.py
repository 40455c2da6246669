"""The heads of taggers: logits [B, S, C], of which only words have a label.

Tags         cross entropy of the words
CrfTags      likelihood of the sequences of tags of the sentences
FrozenTags   cross entropy; a BiLSTM on the activations of a frozen encoder
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from data.features import Features
from data.tokenization import wordpiece
from finetuning import head
from finetuning import network as networks
from modeling import crf, losses, lstm, models
from modeling.config import BertConfig
from tasks.ner import activations, tag_spans, tagging, windowing


class Tags(head.Head):
    """One of C tags for each word."""

    per_token = True
    loss_name = "tagging_loss"
    architecture = "BertForTokenClassification"
    pipeline_tag = "token-classification"
    labels: Sequence[str]

    def __init__(self, labels: Sequence[str]):
        """Takes the tags in the order of the outputs."""
        self.labels = list(labels)

    def build(self, config: BertConfig, **options: Any) -> keras.Model:
        """See Head."""
        return models.TaggingModel(
            config, num_classes=len(self.labels), **options
        )

    def loss(
        self, outputs: Any, features: Mapping[str, Any]
    ) -> tuple[losses.Weighted, dict[str, losses.Weighted]]:
        """See Head."""
        labels = features["label_ids"]
        accuracy = losses.accuracy(outputs, labels, labels >= 0)
        return losses.tagging(outputs, labels), {"accuracy": accuracy}

    def soft_loss(
        self,
        outputs: Any,
        teacher: Mapping[str, Any],
        features: Mapping[str, Any],
        temperature: float,
    ) -> losses.Weighted:
        """See Head."""
        is_word = features["label_ids"] >= 0
        return losses.soft_classification(
            outputs, teacher["logits"], temperature, is_word
        )

    def weight(self, features: Mapping[str, Any]) -> Any:
        """See Head: the number of words."""
        return ops.sum(ops.cast(features["label_ids"] >= 0, "float32"))

    def save(
        self, model: Any, directory: str, tokenizer: wordpiece.Tokenizer
    ) -> None:
        """See Head; the scores of a CRF are in a file of their own."""
        tagging.save_crf(model, self.labels, directory)
        # Other programs read a tagger without a CRF.
        super().save(getattr(model, "tagger", model), directory, tokenizer)


class CrfTags(Tags):
    """The most probable sequence of tags of each sentence."""

    def __init__(self, labels: Sequence[str], forbidden: tagging.Scores):
        """Takes the tags, and which of them may not follow each other."""
        super().__init__(labels)
        self._forbidden = crf.Scores(**forbidden)

    def build(self, config: BertConfig, **options: Any) -> keras.Model:
        """See Head."""
        return crf.CrfTaggingModel(
            config,
            num_classes=len(self.labels),
            forbidden=self._forbidden,
            **options,
        )

    def forward(
        self,
        model: Any,
        features: Mapping[str, Any],
        dropout_seed: Any = None,
    ) -> tuple[dict, dict]:
        """See Head; the accuracy is that of each word by itself."""
        logits, labels = (
            model(features, dropout_seed=dropout_seed),
            features["label_ids"],
        )
        boundaries = features["words"] % windowing.WORD
        loss = model.sequence_loss(logits, labels, boundaries)
        accuracy = losses.accuracy(logits, labels, labels >= 0)
        return {self.loss_name: loss}, {"accuracy": accuracy}

    def constants(self, model: Any) -> dict[str, Any]:
        """See Head: the scores of tag sequences."""
        return model.scores._asdict()

    def load_files(self, model: Any, directory: str) -> list[str]:
        """See Head."""
        if not tagging.has_crf(directory):
            return []
        scores = tagging.read_crf(self.labels, directory)
        model.set_scores(crf.Scores(**scores))
        return [variable.path for variable in model.learned]


def head_of(
    labels: Sequence[str], *, has_crf: bool, is_plain: bool = False
) -> Tags:
    """Returns the head of a fine-tuned tagger.

    Args:
      labels: the tags in the order of the outputs.
      has_crf: whether it predicts sequences.
      is_plain: whether tags mark no spans, whatever their names.
    """
    if not has_crf:
        return Tags(labels)
    scheme = tag_spans.PLAIN if is_plain else tag_spans.scheme_of(labels)
    return CrfTags(labels, tagging.forbidden(labels, scheme))


class _Activations:
    """What inference.Predictor calls."""

    def predict(
        self, model: Any, features: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {activations.NAME: model.activations(features)}


_ACTIVATIONS = _Activations()


class FrozenTags(Tags):
    """One of C tags for each word, from activations that are computed once."""

    is_frozen = True
    architecture = "BertModel"

    def __init__(
        self,
        labels: Sequence[str],
        layers: Sequence[int],
        folder: str | None,
        **options: Any,
    ):
        """Takes the tags and the layers whose activations the BiLSTM reads.

        Args:
          labels: the tags in the order of the outputs.
          layers: 0 is the embeddings, L the last layer.
          folder: where activations are kept; None of a dry run, which computes
            none.
          **options: is_mixed, size and rate; see lstm.BiLstmTagger.
        """
        super().__init__(labels)
        self._layers, self._folder, self._options = layers, folder, options

    def build(
        self,
        config: BertConfig,
        *,
        seed: int = 0,
        dtype: Any = None,
        attention: str = "bidirectional",
        **unused: Any,
    ) -> keras.Model:
        """See Head."""
        return lstm.FrozenTaggingModel(
            config,
            layers=self._layers,
            num_classes=len(self.labels),
            seed=seed,
            dtype=dtype,
            attention=attention,
            **self._options,
        )

    def prepare(
        self,
        network: networks.Network,
        features: Features,
        batch_size: int,
        split: str | None = None,
    ) -> Features:
        """See Head: sentences of words with their activations."""
        if activations.NAME in features.ragged:
            return features
        model, devices = network.model, network.devices
        predictor = network.predictor(_ACTIVATIONS)

        def predict(rows: Features) -> Iterator[Mapping[str, np.ndarray]]:
            return predictor.batches(network.batches(rows, batch_size))

        shape = (len(self._layers), model.config.hidden_size)
        if self._folder is None:
            # Zeros, whose pages take no memory until they are written.
            values = activations.in_memory(features, shape, lambda rows: ())
        elif split is None or devices.is_multi_worker:
            values = activations.in_memory(features, shape, predict)
        else:
            facts = {
                "weights": networks.digest_of(model.bert),
                "config": model.config.to_dict(),
                "attention": model.bert.attention,
                "layers": list(self._layers),
                "precision": devices.precision,
                "uses_xla": devices.uses_xla,
                "batches": [batch_size, network.lengths],
            }
            path = os.path.join(self._folder, f"{split}.float16")
            values = activations.on_disk(path, features, shape, predict, facts)
        return activations.sentences(features, values)
