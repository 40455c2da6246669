"""Features of texts, as commands make them."""

from data import features
from finetuning import task as tasks


def encode(
    tokenizer,
    first,
    second=None,
    *,
    max_seq_length,
    num_choices=0,
    windows=None,
):
    """Returns the features of texts, or of pairs of them."""
    rows = []
    for pair in zip(first, second or [""] * len(first), strict=True):
        a, b = (tasks.token_ids(tokenizer, text) for text in pair)
        sizes = (tokenizer, a, b, max_seq_length)
        if windows is None:
            rows.append([tasks.sequence(*sizes)])
        else:
            rows.append(tasks.windows(*sizes, **windows._asdict()))
    return features.from_sequences(
        rows, num_choices=num_choices, are_windows=windows is not None
    )
