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

from foundation import config_flags
from tasks.embeddings.settings import EmbeddingsConfig

config_flags.parse_early(EmbeddingsConfig, __name__)

from tasks.embeddings import early_checks

config_flags.check_early(EmbeddingsConfig, __name__, early_checks.check)

import foundation.tensorflow_setup  # noqa: F401
from jobs import runner
from tasks.embeddings.task import EmbeddingsTask


def main(config: EmbeddingsConfig) -> None:
    """Trains, evaluates and predicts, as the flags say."""
    runner.run(config, EmbeddingsTask)


if __name__ == "__main__":
    config_flags.run(EmbeddingsConfig, main)
