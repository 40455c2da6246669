"""Proves how questions about one paragraph are answered.

python -m pytest tests/tasks/squad/squad_job_test.py
"""

import dataclasses
import types

import numpy as np
import pytest

from data.tokenization import vocabulary, wordpiece
from tasks.squad import decoding, squad_job, windowing
from weights import task_files

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "anna", "w"]
TOKENIZER = wordpiece.Tokenizer(vocabulary.Vocabulary.from_tokens(WORDS))


def make_prompt(score, used):
    """A prompt whose model gives "anna" a score."""

    def predictions(features, size):
        used.append(size)
        length = int(features.lengths.max())
        batch = features.batch(np.arange(len(features)), length)
        is_anna = np.where(batch["input_ids"] == WORDS.index("anna"), score, 0)
        yield {
            "start_logits": is_anna,
            "end_logits": is_anna,
            "example_index": np.arange(len(features)),
        }

    job = types.SimpleNamespace(
        start=types.SimpleNamespace(tokenizer=TOKENIZER),
        strategy=types.SimpleNamespace(num_replicas_in_sync=1),
        config=types.SimpleNamespace(predict_batch_size=8, precision="float32"),
    )
    return squad_job.Prompt(
        task_model=types.SimpleNamespace(job=job, predictions=predictions),
        data=types.SimpleNamespace(
            sizes=windowing.WindowSizes(
                max_seq_length=16, doc_stride=4, max_query_length=4
            ),
            rules=decoding.AnswerRules(),
        ),
        threshold=None,
    )


@pytest.mark.parametrize(("count", "batch_size"), [(3, 1), (90, 8)])
def test_windows_of_a_long_paragraph_are_predicted_together(
    count, batch_size, caplog
):
    used = []
    context = "w " * count + "Anna"
    entry = make_prompt(9.0, used).answer("who", context)
    assert used == [batch_size]
    assert context[slice(*entry.span)] == entry.text == "Anna"
    shown = squad_job.describe_answer(entry, context)
    assert shown.endswith("w w [Anna]")
    assert f"characters {2 * count}-{2 * count + 4}" in shown
    assert not caplog.text


def test_a_given_threshold_is_not_the_models(caplog):
    options = squad_job.SquadOptions(
        train_file=None,
        predict_file=None,
        with_negative=None,
        threshold=5.0,
        sizes=None,
        rules=decoding.AnswerRules(),
        compares_runs=False,
        verbose_logging=False,
        ensemble_dirs=None,
    )
    stored = task_files.SquadSettings(
        version_2_with_negative=True, null_score_diff_threshold=-1.5
    )
    with caplog.at_level("INFO", logger="absl"):
        data = squad_job.open_data(options, stored)
        assert (data.threshold, data.stored_threshold) == (5.0, -1.5)
        assert not caplog.messages
        options = dataclasses.replace(options, threshold=None)
        data = squad_job.open_data(options, stored)
        assert (data.threshold, data.stored_threshold) == (-1.5, -1.5)
    assert caplog.messages == ["threshold: -1.5, stored with the model"]


def test_logits_that_are_no_numbers_are_noticed(caplog):
    make_prompt(np.nan, []).answer("who", "w Anna w")
    assert "logits are not finite numbers" in caplog.text
