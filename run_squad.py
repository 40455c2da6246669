r"""Answers questions from a paragraph: trains, predicts, scores, or prompts.

As in google-research/bert's README (F1 88.4 and exact match 81.2 on SQuAD 1.1):

    python run_squad.py --init_checkpoint=uncased_L-12_H-768_A-12 \
        --do_train --train_file=train-v1.1.json \
        --do_predict --predict_file=dev-v1.1.json \
        --train_batch_size=12 --learning_rate=3e-5 --num_train_epochs=2 \
        --output_dir=squad

SQuAD 2.0, where a paragraph may contain no answer. The threshold is found on
--predict_file, applied, and stored with the model, whose later predictions use
it.

    python run_squad.py --version_2_with_negative --train_file=train-v2.0.json \
        --predict_file=dev-v2.0.json --do_train --do_predict ...

An ensemble of several runs (seven in the paper), and a prompt:

    python run_squad.py --ensemble_dirs=run1,run2,run3 \
        --predict_file=dev-v1.1.json --output_dir=ensemble
    python run_squad.py --output_dir=squad --interactive

A run that was stopped continues from its last checkpoint.
"""

from finetuning.run import run
from foundation import config_flags
from tasks.squad.settings import SquadFlags
from tasks.squad.task import Squad


def main(flags: SquadFlags) -> None:
    """Trains, predicts and answers questions, as the flags say."""
    run(Squad, flags)


if __name__ == "__main__":
    config_flags.run(SquadFlags, main)
