r"""Tags words, e.g. with named entities: trains, evaluates and predicts.

As in the paper, with CoNLL-2003's files in one directory (development F1 96.4
with BERT-Base cased, 96.6 with Large; test F1 92.4 and 92.8):

    python run_ner.py --data_dir=conll2003 --document_context=maximal \
        --init_checkpoint=cased_L-12_H-768_A-12 --max_seq_length=512 \
        --do_train --do_eval --do_predict --output_dir=ner

Your own file with a word and its tag in each line, minutes on a laptop:

    python run_ner.py --train_file=train.txt --dev_file=dev.txt \
        --init_checkpoint=pretrained --do_train --do_eval --output_dir=ner

The paper's feature-based approach, a row of its Table 7:

    python run_ner.py --data_dir=conll2003 --features=concat_last_four \
        --document_context=maximal --max_seq_length=512 --learning_rate=1e-3 \
        --init_checkpoint=cased_L-12_H-768_A-12 --do_train --do_eval \
        --output_dir=frozen

Entities of raw text, as one JSON object per line or at a prompt:

    python run_ner.py --output_dir=ner --do_predict --text_file=news.txt
    python run_ner.py --output_dir=ner --interactive

A run that was stopped continues from its last checkpoint.
"""

from finetuning.run import run
from foundation import config_flags
from tasks.ner.settings import NerFlags
from tasks.ner.task import Ner


def main(flags: NerFlags) -> None:
    """Trains, evaluates and predicts, as the flags say."""
    run(Ner, flags)


if __name__ == "__main__":
    config_flags.run(NerFlags, main)
