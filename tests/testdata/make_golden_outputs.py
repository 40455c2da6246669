"""Makes golden_outputs.json with transformers, an independent BERT.

Needs torch and transformers, which the tests do not:

    pip install torch==2.13.0 transformers==5.23.0 absl-py
    PYTHONPATH=. python tests/testdata/make_golden_outputs.py
"""

import dataclasses
import json
import pathlib

import numpy as np
import torch
import transformers

from modeling.config import BertConfig
from tests.modeling import formula
from weights import stored_weights

HEADS = {
    "BertForPreTraining": [
        stored_weights.MASKED_LM,
        stored_weights.NEXT_SENTENCE,
    ],
    "BertForSequenceClassification": [stored_weights.CLASSIFIER],
    "BertForTokenClassification": [stored_weights.CLASSIFIER],
    "BertForQuestionAnswering": [stored_weights.SPAN],
}
CLASSES = 3


def build(architecture: str, config: BertConfig, **options):
    """Makes a model of transformers with the formula's weights."""
    heads = HEADS[architecture]
    if stored_weights.CLASSIFIER in heads:
        options["num_labels"] = CLASSES
    model = getattr(transformers, architecture)(
        transformers.BertConfig(**config.to_hugging_face(), **options)
    ).eval()
    for name, parameter in model.named_parameters():
        row = stored_weights.by_hugging_face(name)
        assert row is not None, name
        shape = tuple(parameter.shape)[:: -1 if row.is_transposed else 1]
        value = formula.weight(row.path, shape)
        value = np.ascontiguousarray(value.T if row.is_transposed else value)
        parameter.data.copy_(torch.tensor(value))
    return model


def inputs() -> dict:
    """Returns the batch under the names of transformers."""
    batch = formula.features()
    return {
        "input_ids": torch.tensor(batch["input_ids"]).long(),
        "attention_mask": torch.tensor(batch["input_mask"]).long(),
        "token_type_ids": torch.tensor(batch["segment_ids"]).long(),
    }


def pretraining(config: BertConfig, **options) -> dict:
    """Runs both pre-training heads, their losses and the gradients."""
    model = build("BertForPreTraining", config, **options)
    batch = formula.features()
    out = model(**inputs(), output_hidden_states=True)
    rows = torch.arange(formula.BATCH)[:, None]
    positions = torch.tensor(batch["masked_lm_positions"]).long()
    logits = out.prediction_logits[rows, positions]
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1),
        torch.tensor(batch["masked_lm_ids"]).long().flatten(),
        reduction="none",
    )
    weights = torch.tensor(batch["masked_lm_weights"]).flatten()
    masked_lm = (losses * weights).sum() / (weights.sum() + 1e-5)
    next_sentence = torch.nn.functional.cross_entropy(
        out.seq_relationship_logits,
        torch.tensor(batch["next_sentence_labels"]).long().flatten(),
    )
    (masked_lm + next_sentence).backward()
    gradients = {}
    for name, parameter in model.named_parameters():
        row = stored_weights.by_hugging_face(name)
        gradient = parameter.grad.numpy()
        gradients[row.path] = summary(
            gradient.T if row.is_transposed else gradient
        )
    pooled = model.bert(**inputs()).pooler_output
    return {
        "embedding_output": listed(out.hidden_states[0]),
        "sequence_output": listed(out.hidden_states[-1]),
        "pooled_output": listed(pooled),
        "masked_lm_logits": listed(logits),
        "next_sentence_logits": listed(out.seq_relationship_logits),
        "masked_lm_loss": masked_lm.item(),
        "next_sentence_loss": next_sentence.item(),
        "gradients": gradients,
    }


def summary(gradient: np.ndarray) -> list[float]:
    """Returns the norm and a weighted sum that notices any transposition."""
    flat = gradient.ravel().astype(np.float64)
    return [float(np.linalg.norm(flat)), float(flat @ np.cos(range(flat.size)))]


def listed(tensor) -> list:
    """Returns nested lists, rounded to seven decimals."""
    return np.round(tensor.detach().numpy().astype(float), 7).tolist()


def main() -> None:
    """Writes every variant into one file."""
    config = BertConfig(**formula.CONFIG)
    erf = dataclasses.replace(config, hidden_act="gelu_erf")
    golden = {
        "bidirectional": pretraining(config),
        "left_to_right": pretraining(config, is_decoder=True),
        "gelu_erf": pretraining(erf),
    }
    with torch.no_grad():
        for name in list(HEADS)[1:]:
            out = build(name, config)(**inputs())
            golden[name] = (
                [listed(out.start_logits), listed(out.end_logits)]
                if name == "BertForQuestionAnswering"
                else listed(out.logits)
            )
    path = pathlib.Path(__file__).with_name("golden_outputs.json")
    path.write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
