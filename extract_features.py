r"""Writes the activations of an encoder's layers, or one vector per text.

The command of google-research/bert's README, for one text (or pair "a ||| b")
per line:

    python extract_features.py --input_file=input.txt --output_file=out.jsonl \
        --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \
        --init_checkpoint=$BERT/bert_model.ckpt --layers=-1,-2,-3,-4 \
        --max_seq_length=128 --batch_size=8

The sentence embeddings of sentence-transformers:

    python extract_features.py --input_file=input.txt --output_file=out.npz \
        --output_format=npz --init_checkpoint=all-MiniLM-L6-v2 --pooling=auto

Lines are written in the order of the input. Memory does not grow with their
number. A command that was stopped continues where it was.
"""

from foundation import config_flags
from tasks.features.settings import ExtractFlags


def main(flags: ExtractFlags) -> None:
    """Writes the layers of every line."""
    from tasks.features import command

    command.extract(flags)


if __name__ == "__main__":
    config_flags.run(ExtractFlags, main)
