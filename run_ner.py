r"""Tags words, e.g. with named entities: trains, evaluates and predicts.

As in the paper, with CoNLL-2003's files in one directory (development F1 96.4
with BERT-Base cased, 96.6 with Large; test F1 92.4 and 92.8):

    python run_ner.py --data_dir=conll2003 --document_context=maximal \
        --init_checkpoint=cased_L-12_H-768_A-12 --max_seq_length=512 \
        --do_train --do_eval --do_predict --output_dir=ner

Your own file with a word and its tag in each line, minutes on a laptop:

    python run_ner.py --train_file=train.txt --dev_file=dev.txt \
        --init_checkpoint=pretrained --do_train --do_eval --output_dir=ner

The paper's feature-based approach, all six rows of its Table 7:

    python run_ner.py --data_dir=conll2003 --features=all --do_train --do_eval \
        --document_context=maximal --max_seq_length=512 \
        --init_checkpoint=cased_L-12_H-768_A-12 --output_dir=frozen

Entities of raw text, as one JSON object per line or at a prompt:

    python run_ner.py --output_dir=ner --do_predict --text_file=news.txt
    python run_ner.py --output_dir=ner --interactive

A run that was stopped continues from its last checkpoint.
"""

import dataclasses
from typing import Literal

from foundation import config_flags
from jobs import run_config

field = config_flags.field
# Flags that a trained model remembers.
_COLUMNS = ("word_column", "tag_column", "tokens_field", "tags_field")
# Flags without an effect on feature-based taggers.
_NOT_OF_FEATURES = (
    "interactive",
    "text_file",
    "crf",
    "eval_every_steps",
    "early_stopping_patience",
    "reinit_layers",
    "layer_decay",
    "bilstm_size",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NerConfig(run_config.FinetuningConfig):
    """The flags of run_ner.py."""

    data_dir: str | None = field(
        "Directory of eng.train, eng.testa, eng.testb, or of train.txt, "
        "dev.txt, test.txt.",
        None,
    )
    train_file: str | None = field(
        "The training set; by default, the file in --data_dir.",
        None,
        affects="records",
    )
    dev_file: str | None = field(
        "The development set; by default, the file in --data_dir.",
        None,
        affects="evaluation",
    )
    test_file: str | None = field(
        "The test set: a file, a glob or a folder, with --features a file; by "
        "default, the file in --data_dir.",
        None,
    )
    text_file: str | None = field(
        "Raw text whose entities are written to entities.jsonl: a file, a "
        "glob or a folder of .txt; - reads standard input and writes standard "
        "output.",
        None,
    )
    word_column: int | None = field(
        "The column of words, counted from 0; by default as the model was "
        "trained, else 0.",
        None,
    )
    tag_column: int | None = field(
        "The column of tags, -1 for the last; by default as the model was "
        "trained, else -1.",
        None,
    )
    tokens_field: str | None = field(
        "The words' field in .jsonl and .parquet files; by default as the "
        'model was trained, else "tokens".',
        None,
    )
    tags_field: str | None = field(
        "The tags' field in .jsonl and .parquet files; by default as the model "
        'was trained, else "ner_tags".',
        None,
    )
    tag_names: str | None = field(
        "Names of integer tags, from 0: separated by commas, or a file with "
        "one per line. By default those in the metadata of a .parquet file.",
        None,
    )
    test_has_tags: bool = field("Whether --test_file has tags.", True)
    tag_scheme: Literal["auto", "iob1", "bio2", "iobes", "plain"] = field(
        "The scheme of the files' tags; auto recognizes it.", "auto"
    )
    model_scheme: Literal["bio2", "iobes"] = field(
        "The scheme of the model's labels.", "bio2", affects="result"
    )
    entity_types: str | None = field(
        "Comma-separated; by default, those of the training set.",
        None,
        affects="result",
    )
    document_context: Literal["none", "maximal"] = field(
        "maximal: fill windows with the sentences around in the document.",
        "none",
        affects="records",
    )
    doc_stride: int = field(
        "With --document_context=maximal, consecutive sentences of about this "
        "many tokens in total share a window, which saves time; 0: one window "
        "per sentence.",
        0,
        affects="records",
        at_least=0,
    )
    do_eval: bool = field("Whether to evaluate on the development set.", False)
    eval_batch_size: int = field("Sentences, over all replicas.", 8, at_least=1)
    interactive: bool = field("Show the entities of typed lines.", False)
    crf: bool = field(
        "Predict sequences of tags with a CRF; stored with the model.",
        False,
        affects="result",
    )
    features: Literal[
        "none",
        "embeddings",
        "second_to_last",
        "last",
        "weighted_sum_last_four",
        "concat_last_four",
        "weighted_sum_all",
        "all",
    ] = field(
        "Freeze the encoder, and train a BiLSTM on these activations.", "none"
    )
    lstm_size: int = field(
        "Units of each direction of the two LSTM layers.",
        768,
        affects="result",
        at_least=1,
    )
    lstm_dropout: float = field(
        "Dropout before each LSTM layer and the logits.",
        0.1,
        affects="result",
        at_least=0,
        below=1,
    )
    lstm_learning_rate: float = field(
        "Peak learning rate of the LSTM.",
        1e-3,
        affects="result",
        at_least=1e-9,
        below=1,
    )

    def __post_init__(self):
        """Checks the flags and their combinations."""
        super().__post_init__()
        modes = ("do_train", "do_eval", "do_predict", "interactive")
        if not any(getattr(self, mode) for mode in modes):
            raise ValueError(
                "at least one of --do_train, --do_eval, --do_predict and "
                "--interactive must be given"
            )
        if self.doc_stride and self.document_context == "none":
            raise ValueError("--doc_stride needs --document_context=maximal")
        if self.text_file and not self.do_predict:
            raise ValueError("--text_file needs --do_predict")
        self._check_features()

    @property
    def standard_input_flag(self) -> str | None:
        """See FinetuningConfig."""
        if self.interactive:
            return "interactive"
        return "text_file" if self.text_file == "-" else None

    def _check_features(self) -> None:
        """Raises ValueError for flags without an effect."""
        given = config_flags.given(self)
        if self.features == "none":
            unused = [name for name in given if name.startswith("lstm_")]
            if unused:
                raise ValueError(f"--{', --'.join(unused)}: needs --features")
            return
        unused = [f"--{name}" for name in _NOT_OF_FEATURES if name in given]
        if self.is_grid:
            unused.append("several rates or seeds")
        if unused:
            raise ValueError(
                f"--features={self.features} excludes {', '.join(unused)}"
            )

    @property
    def options(self) -> "ner_data.NerOptions":
        """The flags of tagging."""
        types = (self.entity_types or "").split(",")
        tagger = None
        if self.features != "none":
            tagger = ner_data.TaggerOptions(
                features=self.features,
                size=self.lstm_size,
                dropout=self.lstm_dropout,
                learning_rate=self.lstm_learning_rate,
            )
        return ner_data.NerOptions(
            files=ner_data.Files(
                data_dir=self.data_dir,
                paths={
                    "train": self.train_file,
                    "dev": self.dev_file,
                    "test": self.test_file,
                },
                word_column=self.word_column or 0,
                tag_column=-1 if self.tag_column is None else self.tag_column,
                untagged=() if self.test_has_tags else ("test",),
                text_file=self.text_file if self.do_predict else None,
                tokens_field=self.tokens_field or "tokens",
                tags_field=self.tags_field or "ner_tags",
                tag_names=self.tag_names,
            ),
            tag_scheme=self.tag_scheme,
            model_scheme=self.model_scheme,
            types=[kind.strip() for kind in types if kind.strip()],
            windows=windowing.WindowSettings(
                max_seq_length=self.max_seq_length,
                document_context=self.document_context == "maximal",
                doc_stride=self.doc_stride,
            ),
            crf=self.crf,
            do_eval=self.do_eval,
            eval_batch_size=self.eval_batch_size,
            tagger=tagger,
        )


config_flags.parse_early(NerConfig, __name__)

import foundation.tensorflow_setup  # noqa: F401
from jobs import finetuning, run_directory
from tasks.ner import feature_based, ner_data, ner_job, outputs, windowing


def main(config: NerConfig) -> None:
    """Reads the data; then trains, evaluates and predicts."""
    config = run_directory.as_trained(config, _COLUMNS)
    options = config.options
    data, job = ner_job.open_job(config, options)
    if options.tagger is not None:
        feature_based.run(config, options, data, job)
        run_directory.announce(config.output_dir)
        return
    files = finetuning.open_files(config, job)
    writer = outputs.OutputWriter(files, data)
    if config.do_train:
        task_model, step = finetuning.train_grid(job, files.results, writer)
    else:
        task_model, step = finetuning.load(job)
    if config.do_eval:
        writer.write_evaluation(task_model.evaluate(), step)
    if config.do_predict:
        ner_job.predict(data, options, task_model, writer)
    run_directory.announce(config.output_dir)
    if config.interactive:
        ner_job.prompt(data, options, task_model)


if __name__ == "__main__":
    config_flags.run(NerConfig, main)
