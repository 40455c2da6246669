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

from foundation import atomic, errors, file_system, metadata
from modeling.config import BertConfig
from serving import predictors, served_model
from serving.served_model import Signature, Spec
from weights import model_directory, task_files, tokenizer_files

# Feature of our models -> name of TensorFlow Hub's encoders.
HUB_NAMES = {
    "input_ids": "input_word_ids",
    "input_mask": "input_mask",
    "segment_ids": "input_type_ids",
}
# Feature of our models -> input of an ONNX graph, as transformers names it.
ONNX_NAMES = {
    "input_ids": "input_ids",
    "input_mask": "attention_mask",
    "segment_ids": "token_type_ids",
}


def read_setup(directory: str) -> predictors.Setup | None:
    """Reads the files beside an exported model.

    Returns:
      None of a model of another program, or of an OwnTask.

    Raises:
      InputError: a file is missing or damaged.
    """
    path = os.path.join(directory, served_model.DESCRIPTION)
    description = metadata.read_if_present(path, predictors.Description)
    if description is None or description.task not in predictors.PREDICTORS:
        return None
    config = model_directory.read_config(directory, [model_directory.CONFIG])
    if config is None:
        raise errors.InputError(
            f"{directory}: {model_directory.CONFIG} is missing"
        )
    scores = None
    if file_system.exists(os.path.join(directory, task_files.CRF)):
        import foundation.tensorflow_setup  # noqa: F401
        from tasks.ner import tagging

        scores = tagging.read_crf(description.labels or (), directory)
    settings = model_directory.read_settings(directory)
    return predictors.Setup(
        **vars(description),
        name=directory,
        config=config,
        tokenizer=tokenizer_files.load(directory),
        left_to_right=settings.attention == "left_to_right",
        scores=scores,
    )


def check_folder(directory: str) -> None:
    """Raises InputError if an export would overwrite something else."""
    file_system.refuse_remote(
        directory, "output_dir", "copy the complete directory afterwards"
    )
    file_system.check_output_folder(directory, "output_dir")
    if (
        file_system.exists(directory)
        and not file_system.exists(
            os.path.join(directory, served_model.DESCRIPTION)
        )
        and os.listdir(directory)
    ):
        raise errors.InputError(
            f"--output_dir={directory}: exists and is no exported model"
        )


def write(
    directory: str,
    opened: Any,
    config: BertConfig,
    readme: str,
    facts: Mapping[str, Any],
    **values: Any,
) -> None:
    """Writes the files beside an exported model.

    Args:
      directory: the directory of the export.
      opened: the opened_model.OpenedModel.
      config: its hyperparameters.
      readme: the README, with the names of facts in it.
      facts: name -> value in the README, besides task, labels and precision.
      **values: further values of export.json, the precision among them.
    """
    setup, head = opened.setup, opened.head
    # transformers takes two classes where none has a name.
    labels = ["LABEL_0"] if setup.task == "regression" else setup.labels
    model_directory.write_configs(
        directory,
        config,
        model_directory.Settings(
            architecture=head.architecture,
            attention="left_to_right"
            if setup.left_to_right
            else "bidirectional",
            labels=labels,
            problem_type=head.problem_type,
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

        tagging.save_crf(opened.model, setup.labels or (), directory)
    fields = dataclasses.fields(predictors.Description)
    description = {
        "format_version": 1,
        **{x.name: getattr(setup, x.name) for x in fields},
        "inputs": list(opened.predictor.inputs),
        "source": {
            "model": os.path.basename(os.path.abspath(opened.path)),
            "weights": os.path.basename(opened.source.path),
            "vocabulary_sha256": setup.tokenizer.vocabulary.sha256,
        },
        **values,
    }
    path = os.path.join(directory, served_model.DESCRIPTION)
    atomic.write_json(path, description)
    names = f"Labels: `{'`, `'.join(setup.labels or ())}`.\n"
    text = readme.format(
        task=setup.task.replace("_", " "),
        labels=names if setup.labels else "",
        precision=values["precision"],
        **facts,
    )
    atomic.write_text(os.path.join(directory, "README.md"), text)


class Model(served_model.Model):
    """See served_model.Model."""

    def __init__(
        self,
        setup: predictors.Setup,
        run: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]],
        outputs: Mapping[str, Spec],
    ):
        """Takes what an engine has loaded.

        Args:
          setup: what is known of the model.
          run: maps features int32 [B, S], or [B, K, S], to `outputs`; of a
            masked LM, with masked_lm_positions [B, P], to logits [B, P, V].
          outputs: name -> form of an output.
        """
        self.task, self.max_seq_length = setup.task, setup.max_seq_length
        self._config, self._run = setup.config, run
        self._predictor = predictor = predictors.of_batches(setup, run)
        forms = {"endings": served_model.TEXTS}
        axes = (None,) * (2 if predictor.has_sequences else 1)
        ids = Spec(axes, np.dtype("i4"))
        self.signatures = {
            served_model.DEFAULT_SIGNATURE: Signature(
                {x: forms.get(x, served_model.TEXT) for x in predictor.inputs},
                predictor.outputs,
            ),
            "serve": Signature(dict.fromkeys(HUB_NAMES.values(), ids), outputs),
        }

    def predict(
        self, signature_name: str, inputs: Mapping[str, np.ndarray]
    ) -> list[dict[str, Any]]:
        """See served_model.Model."""
        if signature_name == "serve":
            features = {name: inputs[hub] for name, hub in HUB_NAMES.items()}
            return served_model.rows(self._run(features))
        columns = [_decoded(inputs[name]) for name in self._predictor.inputs]
        items = list(zip(*columns, strict=True))
        if len(columns) == 1:
            items = columns[0]
        results = self._predictor.predict(items)
        return [self._predictor.row(x) for x in results]

    def check(
        self, signature_name: str, inputs: Mapping[str, np.ndarray]
    ) -> None:
        """See served_model.Model: the model would embed such ids as others."""
        if signature_name != "serve":
            return
        shape = inputs[HUB_NAMES["input_ids"]].shape
        longest = self._config.max_position_embeddings
        for name, count in counts(self._config).items():
            hub = HUB_NAMES[name]
            values = inputs[hub]
            if values.shape != shape or not 0 < shape[-1] <= longest:
                raise errors.InputError(
                    f"{hub}: has the shape {list(values.shape)}; all need the "
                    f"same, with 1 to {longest} ids in a row"
                )
            for bad in np.argwhere((values < 0) | (values >= count)):
                raise errors.InputError(
                    f"{hub}: row {bad[0]}: {values[tuple(bad)]} is not from 0 "
                    f"to {count - 1}"
                )


def counts(config: BertConfig) -> dict[str, int]:
    """Returns how many values each feature may have."""
    return {
        "input_ids": config.vocab_size,
        "input_mask": 2,
        "segment_ids": config.type_vocab_size,
    }


def _decoded(values: np.ndarray) -> list:
    """Returns texts as lists of str; bytes that are not UTF-8 are left out."""
    if values.ndim > 1:
        return [_decoded(row) for row in values]
    return [x.decode("utf-8", "ignore") for x in values]
