r"""Pre-trains BERT on masked TFRecord shards, and evaluates it.

On a laptop, a small model from shards with a vocabulary of 8,192 tokens:

    python run_pretraining.py --bert_config_file=configs/small_cpu.json \
        --input_file='shards/train-*' --eval_file='shards/heldout-*' \
        --max_seq_length=64 --max_predictions_per_seq=10 --train_batch_size=64 \
        --num_train_steps=10000 --num_warmup_steps=1000 --learning_rate=1e-3 \
        --output_dir=pretrained --do_train --do_eval

The paper's recipe, 90 % of the steps at length 128 and the rest at 512, is

    python run_pretraining.py --flagfile=configs/pretraining_base.flags \
        --input_file='shards128/*.tfrecord,shards512/*.tfrecord' \
        --bert_config_file=configs/uncased_L-12_H-768_A-12.json \
        --output_dir=pretrained --do_train

A run that was killed continues from its last checkpoint when the same command
is started again. Others report a masked-LM accuracy of 0.60 to 0.64 for
BERT-Base, and a next-sentence accuracy of 0.97 to 0.98.
"""

from foundation import config_flags
from tasks.pretraining.settings import PretrainingFlags


def main(flags: PretrainingFlags) -> None:
    """Trains, saves and evaluates a model, as the flags say."""
    import foundation.tensorflow_setup  # noqa: F401
    from tasks.pretraining import pretraining_job

    pretraining_job.run(flags)


if __name__ == "__main__":
    config_flags.run(PretrainingFlags, main)
