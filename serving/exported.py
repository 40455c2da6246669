"""An exported model of this project, as an engine serves it.

    config.json, vocab.txt, tokenizer_config.json   as in a model directory
    crf.json                                        of a tagger with a CRF
    export.json                                     see `write`

The engine computes token ids to outputs; texts become ids, and outputs become
results, by the code of `predictors`.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from data import examples
from data.tokenization import plain_wordpiece
from foundation import atomic, errors, file_system, metadata
from modeling.config import BertConfig
from serving import predictors, served_model
from serving.served_model import Signature, Spec
from weights import kinds, model_directory, tokenizer_files

# Feature of our models -> name of TensorFlow Hub's encoders.
HUB_NAMES = {
    "input_ids": "input_word_ids",
    "input_mask": "input_mask",
    "segment_ids": "input_type_ids",
}
_CONFIG = "config.json"


@dataclasses.dataclass(frozen=True)
class Description:
    """The keys of export.json that are read."""

    task: str
    max_seq_length: metadata.Size
    inputs: list[str]
    settings: metadata.Object
    labels: list[str] | None = None


def read_description(directory: str) -> Description | None:
    """Returns what export.json says; None without that file."""
    path = os.path.join(directory, served_model.DESCRIPTION)
    return metadata.read_if_present(path, Description)


def read_setup(directory: str) -> predictors.Setup:
    """Reads the files beside an exported model.

    Raises:
      InputError: one is missing or damaged.
    """
    description = read_description(directory)
    config = os.path.join(directory, _CONFIG)
    if description is None or not file_system.exists(config):
        missing = _CONFIG if description else served_model.DESCRIPTION
        raise errors.InputError(f"{directory}: {missing} is missing")
    task = description.task
    if task not in kinds.BY_EXPORT_NAME:
        raise errors.InputError(f"{directory}: the task {task} is unknown")
    tokenizer = tokenizer_files.load(directory)
    labels, scores = description.labels, None
    if task == kinds.TOKEN_CLASSIFICATION:
        # Imports Keras.
        from tasks.ner import tagging

        if tagging.has_crf(directory):
            scores = tagging.read_crf(labels or (), directory)
    settings = model_directory.read_settings(directory)
    return predictors.Setup(
        name=directory,
        task=task,
        config=BertConfig.from_json_file(config),
        tokenizer=plain_wordpiece.PlainTokenizer(
            tokenizer.vocabulary, **tokenizer.settings
        ),
        max_seq_length=description.max_seq_length,
        labels=labels,
        settings=description.settings,
        are_pairs="text_pair" in description.inputs,
        left_to_right=settings.attention == "left_to_right",
        scores=scores,
    )


def write(
    directory: str,
    setup: predictors.Setup,
    model: Any,
    inputs: list[str],
    **values: Any,
) -> dict[str, Any]:
    """Writes the files beside an exported model; returns export.json.

    Args:
      directory: the directory of the export.
      setup: what is known of the model.
      model: the Keras model, whose CRF is written.
      inputs: the names of the inputs.
      **values: further values of export.json.
    """
    kind = kinds.BY_EXPORT_NAME[setup.task]
    model_directory.write_configs(
        directory,
        setup.config,
        model_directory.Settings(
            architecture=kind.architecture or "BertModel",
            attention="left_to_right"
            if setup.left_to_right
            else "bidirectional",
            # transformers takes two classes where none has a name.
            labels=["LABEL_0"]
            if setup.task == examples.REGRESSION
            else setup.labels,
            problem_type=kind.problem_type,
            pad_token_id=setup.tokenizer.vocabulary.pad_id,
        ),
    )
    tokenizer_files.save(
        setup.tokenizer,
        directory,
        max_length=setup.config.max_position_embeddings,
    )
    if setup.scores is not None:
        from tasks.ner import tagging

        tagging.save_crf(model, setup.labels or (), directory)
    description = {
        "format_version": 1,
        "task": setup.task,
        "inputs": inputs,
        "labels": setup.labels,
        "max_seq_length": setup.max_seq_length,
        "settings": dict(setup.settings),
        **values,
    }
    path = os.path.join(directory, served_model.DESCRIPTION)
    atomic.write_json(path, description)
    return description


class Model:
    """See served_model.Model."""

    def __init__(
        self,
        setup: predictors.Setup,
        run: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]],
        outputs: Mapping[str, Spec],
        *,
        fill: Callable | None = None,
    ):
        """Takes what an engine has loaded.

        Args:
          setup: what is known of the model.
          run: maps features int32 [B, S], or [B, K, S], to `outputs`.
          outputs: name -> form of an output.
          fill: of a masked LM, maps features with masked_lm_positions [B, P] to
            the logits of words [B, P, V].
        """
        self.task: str | None = setup.task
        self.max_seq_length: int | None = setup.max_seq_length
        self._config, self._run = setup.config, run
        self._predictor = predictors.make(
            setup, fill or predictors.in_batches(run)
        )
        inputs = self._predictor.inputs
        has_axis = setup.windows or setup.task == "multiple_choice"
        ids = Spec((None,) * (2 if has_axis else 1), np.dtype("i4"))
        self.signatures: Mapping[str, Signature] = {
            served_model.DEFAULT_SIGNATURE: Signature(
                {
                    name: served_model.TEXTS
                    if name == "endings"
                    else served_model.TEXT
                    for name in inputs
                },
                self._predictor.outputs,
            ),
            "serve": Signature(dict.fromkeys(HUB_NAMES.values(), ids), outputs),
        }

    def predict(
        self, signature_name: str, inputs: Mapping[str, np.ndarray]
    ) -> list[dict[str, Any]]:
        """See served_model.Model."""
        if signature_name == "serve":
            features = {name: inputs[hub] for name, hub in HUB_NAMES.items()}
            self._refuse(features)
            return served_model.rows(self._run(features))
        columns = [_decoded(inputs[name]) for name in self._predictor.inputs]
        items = columns[0]
        if len(columns) > 1:
            items = list(zip(*columns, strict=True))
        results = self._predictor.predict(items)
        return [self._predictor.row(x) for x in results]

    def _refuse(self, features: Mapping[str, np.ndarray]) -> None:
        """Refuses ids that the model does not have.

        The model would embed them as others.
        """
        config, first = self._config, features["input_ids"]
        for name, values in features.items():
            if values.shape != first.shape:
                raise errors.InputError(
                    f"{HUB_NAMES[name]}: has the shape {list(values.shape)}, "
                    f"{HUB_NAMES['input_ids']} {list(first.shape)}"
                )
        longest = config.max_position_embeddings
        if not first.size or first.shape[-1] > longest:
            raise errors.InputError(
                f"{HUB_NAMES['input_ids']}: row 0: {first.shape[-1]} ids, not "
                f"from 1 to {longest}"
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
                raise errors.InputError(
                    f"{HUB_NAMES[name]}: row {bad[0][0]}: "
                    f"{values[tuple(bad[0])]} is not from 0 to {count - 1}"
                )


def _decoded(values: np.ndarray) -> list:
    """Returns texts as lists of str; bytes that are not UTF-8 are left out."""
    if values.ndim > 1:
        return [_decoded(row) for row in values]
    return [x.decode("utf-8", "ignore") for x in values]
