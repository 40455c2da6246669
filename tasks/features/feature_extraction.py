"""Extracts activations of an encoder's layers, per token or pooled per text.

layers    -1 is the last of L, as released; files call it "layer_-1"
pooling   none: [S, H] per text; cls: the vector of [CLS]; mean, max: over all
          tokens, including [CLS] and [SEP]
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from data import features as features_lib
from data import length_groups, text_files
from data.features import Features
from data.tokenization import wordpiece
from foundation import errors
from jobs import run_files, streaming
from modeling import encoder
from modeling.config import BertConfig
from tasks.features import feature_files
from training import inference
from weights import pretrained

_PAIR = re.compile(r"^(.*) \|\|\| (.*)$")
_BLOCK_BYTES = 1 << 27  # Of activations; three blocks are in memory.
_BLOCK_BATCHES = 200
_MIN_NORM = 1e-12  # As in PyTorch's normalize.
_LOWEST = -1e9

Predict = Callable[[Features], Iterable[dict[str, np.ndarray]]]


class ExtractionTask:
    """Selects layers, and pools and normalizes them."""

    def __init__(
        self,
        layers: Sequence[int],
        *,
        pooling: str = "none",
        normalize: bool = False,
    ):
        """Takes the flags' values; see parse_layers."""
        self.layers = list(layers)
        self.pooling = pooling
        self._normalize = normalize

    def predict(self, model: Any, features: dict) -> dict[str, Any]:
        """Returns each layer by name: float32 [B, S, H], pooled [B, H]."""
        mask = features["input_mask"]
        outputs = model(features["input_ids"], mask, features["segment_ids"])
        found = {}
        for layer in self.layers:
            x = ops.cast(outputs.all_encoder_layers[layer], "float32")
            x = self._pool(x, ops.cast(mask, "float32")[..., None])
            if self._normalize:
                norm = ops.sqrt(ops.sum(ops.square(x), -1, keepdims=True))
                x = x / ops.maximum(norm, _MIN_NORM)
            found[_name(layer)] = x
        return found

    def _pool(self, x, mask):
        """Maps float32 [B, S, H] and [B, S, 1] to [B, H], or returns x."""
        if self.pooling == "cls":
            return x[:, 0]
        if self.pooling == "mean":
            return ops.sum(x * mask, axis=1) / ops.sum(mask, axis=1)
        if self.pooling == "max":
            return ops.max(ops.where(mask > 0, x, _LOWEST), axis=1)
        return x


def _name(layer: int) -> str:
    return f"layer_{layer}"


def parse_layers(text: str, config: BertConfig) -> list[int]:
    """Parses the value of --layers."""
    count = config.num_hidden_layers
    found = []
    for part in text.split(","):
        try:
            layer = int(part)
        except ValueError:
            raise errors.InputError(
                f"--layers={text}: {part!r} is no whole number"
            ) from None
        if not -count <= layer < count:
            raise errors.InputError(
                f"--layers={text}: the model has {count} layers, "
                f"{-count} to {count - 1}, but not {layer}"
            )
        found.append(layer)
    if len(set(found)) < len(found):
        raise errors.InputError(f"--layers={text}: one occurs twice")
    return found


def block_size(
    task: ExtractionTask,
    *,
    batch_size: int,
    max_seq_length: int,
    hidden_size: int,
) -> int:
    """Returns the number of lines whose activations make a block."""
    vectors = max_seq_length if task.pooling == "none" else 1
    line_bytes = 4 * vectors * hidden_size * len(task.layers)
    batches = max(1, _BLOCK_BYTES // (line_bytes * batch_size))
    return batch_size * min(batches, _BLOCK_BATCHES)


def make_predict(
    task: ExtractionTask,
    start: pretrained.Start,
    strategy: Any,
    *,
    dtype: Any,
    jit_compile: bool,
    batch_size: int,
    lengths: Sequence[int],
) -> tuple[Predict, str]:
    """Makes the encoder with its weights and compiles it.

    Args:
      task: selects the layers.
      start: the pre-trained model.
      strategy: the devices.
      dtype: policy of the model's layers.
      jit_compile: whether XLA compiles the model.
      batch_size: over all replicas.
      lengths: permitted sequence lengths of batches.

    Returns:
      A function from features to batches of the task's predictions.
      The digest of the weights.
    """
    with strategy.scope():
        model = encoder.make_encoder(
            start.config, attention=start.attention, dtype=dtype
        )
    pretrained.assign(model, start.init_checkpoint, tokenizer=start.tokenizer)
    predictor = inference.Predictor(
        task, model, strategy=strategy, jit_compile=jit_compile
    )

    def predict(features: Features) -> Iterator[dict[str, np.ndarray]]:
        start.check_segments(features)
        return predictor.batches(
            length_groups.OrderedBatches(
                features, batch_size=batch_size, lengths=lengths
            )
        )

    return predict, run_files.weights_digest(model)


def extract(
    lines: text_files.Lines,
    output: feature_files.FeatureFile,
    predict: Predict,
    *,
    task: ExtractionTask,
    tokenizer: wordpiece.Tokenizer,
    max_seq_length: int,
    hidden_size: int,
    block_lines: int,
    settings: Mapping[str, Any],
) -> int:
    """Writes the activations of lines; returns the number of lines.

    Args:
      lines: texts, and pairs `a ||| b`.
      output: the file.
      predict: of make_predict.
      task: selects the layers.
      tokenizer: of the model.
      max_seq_length: in tokens; longer lines are truncated.
      hidden_size: H.
      block_lines: see `block_size`.
      settings: see streaming.Blocks.
    """
    losses = features_lib.Losses()

    def encode(block: list[tuple[int, str]]) -> Features:
        texts = [text for _, text in block]
        matches = [_PAIR.match(text) for text in texts]
        first = [
            match[1] if match else text
            for match, text in zip(matches, texts, strict=True)
        ]
        second = [match[2] if match else "" for match in matches]
        return features_lib.encode_blocks(
            tokenizer,
            [(first, second)],
            max_seq_length=max_seq_length,
            losses=losses,
        )

    def text(
        block: list[tuple[int, str]],
        features: Features,
        layers: list[dict[str, np.ndarray]],
    ) -> streaming.Parts:
        tokens = tokenizer.vocabulary.tokens
        ids = np.split(features.ragged["input_ids"], features.row_splits[1:-1])
        rows = zip(block, ids, layers, strict=True)
        return output.parts(
            [
                feature_files.Line(
                    number, found, [tokens[i] for i in found.tolist()], values
                )
                for (number, _), found, values in rows
            ]
        )

    store: streaming.Store = streaming.StandardOutput(output.form)
    if output.path != feature_files.STANDARD_OUTPUT:
        store = streaming.Blocks(f"{output.path}.incomplete", settings)
    count = streaming.run(
        enumerate(line.text.strip() for line in lines.read()),
        encode=encode,
        predict=lambda x: _in_order(task, x, predict(x)),
        text=text,
        to=store,
        block_items=block_lines,
        total=lines.total,
        unit="lines",
    )
    if not count:
        if isinstance(store, streaming.Blocks):
            store.remove()
        raise errors.InputError(f"{lines.name}: has no lines")
    losses.warn(lines.name, max_seq_length)
    if isinstance(store, streaming.Blocks):
        output.write(store, list(map(_name, task.layers)), hidden_size)
        store.remove()
    return count


def _in_order(
    task: ExtractionTask,
    features: Features,
    batches: Iterable[dict[str, np.ndarray]],
) -> list[dict[str, np.ndarray]]:
    """Returns each line's layers, [tokens, H] or [H], in the lines' order."""
    lengths = features.lengths
    found: list[dict[str, np.ndarray]] = [{} for _ in lengths]
    for batch in batches:
        for number, row in enumerate(batch["example_index"].tolist()):
            for name in map(_name, task.layers):
                values = batch[name][number]
                if task.pooling == "none":
                    values = values[: lengths[row]].copy()
                found[row][name] = values
    return found
