r"""Trains sentence embeddings: one vector per text, near for similar texts.

Pairs of texts, a question and its answer, say, in a table with the columns
anchor and positive (and negative, for hard negatives); the other texts of a
batch are what the anchor is not near to:

    python run_embeddings.py --train_file=pairs.csv --dev_file=dev_pairs.csv \
        --init_checkpoint=bert-base --train_batch_size=64 --do_train --do_eval \
        --output_dir=embedder

The released files of MNLI make triples, those of STS-B pairs with scores:

    python run_embeddings.py --train_file=glue/MNLI/train.tsv \
        --dev_file=glue/STS-B/dev.tsv --init_checkpoint=bert-base \
        --do_train --do_eval --output_dir=embedder

Vectors of the lines of a file, to output_dir/embeddings.npz:

    python run_embeddings.py --output_dir=embedder --do_predict \
        --test_file=lines.txt

sentence-transformers opens output_dir, and so do export_model.py, serve.py and
extract_features.py. A run that was stopped continues from its last checkpoint.
"""

from finetuning.run import run
from foundation import config_flags
from tasks.embeddings.settings import EmbeddingsFlags
from tasks.embeddings.task import Embeddings


def main(flags: EmbeddingsFlags) -> None:
    """Trains, evaluates and predicts, as the flags say."""
    run(Embeddings, flags)


if __name__ == "__main__":
    config_flags.run(EmbeddingsFlags, main)
