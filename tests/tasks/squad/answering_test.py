"""Proves how questions about one paragraph are answered.

python -m pytest tests/tasks/squad/answering_test.py
"""

import types

import numpy as np
import pytest

from data.tokenization import vocabulary, wordpiece
from tasks.squad import answering, settings
from tasks.squad import prompt as prompt_lib

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "anna", "w"]
TOKENIZER = wordpiece.Tokenizer(vocabulary.Vocabulary.from_tokens(WORDS))


def make_prompt(score, used):
    """A prompt whose model gives "anna" a score."""

    def predictions(features, size, *, pads):
        used.append((size, pads))
        length = int(features.lengths.max())
        batch = features.batch(np.arange(len(features)), length)
        is_anna = np.where(batch["input_ids"] == WORDS.index("anna"), score, 0)
        yield {
            "start_logits": is_anna,
            "end_logits": is_anna,
            "example_index": np.arange(len(features)),
        }

    task_model = types.SimpleNamespace(
        config=types.SimpleNamespace(
            predict_batch_size=8,
            devices=types.SimpleNamespace(precision="float32"),
        ),
        predictions=predictions,
    )
    return prompt_lib.Prompt(
        tokenizer=TOKENIZER,
        logits=answering.model_logits(task_model, pads=False),
        settings=settings.AnswerSettings(
            windows=settings.WindowSizes(
                max_seq_length=16, doc_stride=4, max_query_length=4
            )
        ),
    )


@pytest.mark.parametrize("count", [3, 90])
def test_windows_of_a_paragraph_are_predicted_together(count, caplog):
    used = []
    context = "w " * count + "Anna"
    entry = make_prompt(9.0, used).answer("who", context)
    assert used == [(8, False)]
    assert context[slice(*entry.span)] == entry.text == "Anna"
    shown = prompt_lib.describe_answer(entry, context)
    assert shown.endswith("w w [Anna]")
    assert f"characters {2 * count}-{2 * count + 4}" in shown
    assert not caplog.text


def test_logits_that_are_no_numbers_are_noticed(caplog):
    make_prompt(np.nan, []).answer("who", "w Anna w")
    assert "logits are not finite numbers" in caplog.text
