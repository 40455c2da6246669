"""Vectors of texts as serving/ builds their models: layers and predictions."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from modeling.config import BertConfig
from tasks.features import heads
from tasks.features.extraction import parse_layers
from weights import sentence_modules

__all__ = ["ExtractionObjective", "parse_layers"]


@dataclasses.dataclass(frozen=True, eq=False)
class ExtractionObjective:
    """Selects layers, and pools them to vectors of texts.

    Attributes:
      layers: numbers of the layers; -1 is the last layer.
      modules: how the vectors of texts are made from a layer.
      config: the encoder's hyperparameters.
    """

    layers: Sequence[int]
    modules: sentence_modules.SentenceModules
    config: BertConfig

    def make_model(self, **options: Any) -> Any:
        """Makes the encoder; see task_model.Objective."""
        return heads.LayersHead(self.layers, self.modules).build(
            self.config, **options
        )

    @property
    def vector_size(self) -> int:
        """The size of a vector; see SentenceModules."""
        size = self.config.hidden_size
        pooled = self.modules.is_pooled
        return self.modules.vector_size(size) if pooled else size

    def predict(
        self, model: Any, features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns each layer by name: float32 [B, S, H], pooled [B, size]."""
        head = heads.LayersHead(self.layers, self.modules)
        return head.predict(model, features)
