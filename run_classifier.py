r"""Trains, evaluates and predicts sentence tasks.

A table of your own takes seconds on a laptop with a small model:

    python run_classifier.py --task_name=csv --train_file=train.csv \
        --dev_file=dev.csv --text_column=review --label_column=stars \
        --init_checkpoint=pretrained --do_train --do_eval --output_dir=stars
    python run_classifier.py --test_file=new.csv --do_predict \
        --output_dir=stars

The command of google-research/bert's README for a task of GLUE (84 to 88 % on
MRPC's development set); XNLI, SWAG and BoolQ are tasks, too:

    python run_classifier.py --task_name=MRPC --data_dir=glue/MRPC \
        --do_train --do_eval --init_checkpoint=uncased_L-12_H-768_A-12 \
        --learning_rate=2e-5 --output_dir=mrpc

The paper's protocol keeps the run of a grid that is best on the development
set:

    python run_classifier.py --task_name=RTE --data_dir=glue/RTE \
        --init_checkpoint=uncased_L-24_H-1024_A-16 --do_train --do_eval \
        --learning_rate=5e-5,4e-5,3e-5,2e-5 --num_seeds=5 --output_dir=rte

A run that was killed continues from its last checkpoint when the same command
is started again.
"""

from finetuning.run import run
from foundation import config_flags
from tasks.classification.settings import ClassifierFlags
from tasks.classification.task import Classification


def main(flags: ClassifierFlags) -> None:
    """Trains, evaluates and predicts, as the flags say."""
    run(Classification, flags)


if __name__ == "__main__":
    config_flags.run(ClassifierFlags, main)
