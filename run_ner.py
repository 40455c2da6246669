r"""Trains, evaluates and predicts tags of words: entities in CoNLL's format.

As in the paper, with CoNLL-2003's files in one folder (its development F1: 96.4
with BERT-Base cased, 96.6 with Large; test: 92.4 and 92.8):

    python run_ner.py --data_dir=conll2003 --document_context=maximal \
        --init_checkpoint=cased_L-12_H-768_A-12 --max_seq_length=512 \
        --do_train --do_eval --do_predict --output_dir=ner

A file of your own, a word and its tag a line, minutes on a laptop:

    python run_ner.py --train_file=train.txt --dev_file=dev.txt \
        --init_checkpoint=pretrained --do_train --do_eval --output_dir=ner

The paper's feature-based approach, all six rows of its Table 7:

    python run_ner.py --data_dir=conll2003 --features=all --do_train --do_eval \
        --init_checkpoint=cased_L-12_H-768_A-12 --output_dir=frozen

Entities of raw text, one JSON object a line, or at the prompt:

    python run_ner.py --output_dir=ner --do_predict --text_file=news.txt
    python run_ner.py --output_dir=ner --interactive

Killed and started again, training goes on from its last checkpoint.
"""

import dataclasses
import functools
from typing import Literal

from foundation import config_flags, errors, file_system
from jobs import run_config

field = config_flags.field
# What would change nothing of a tagger of features.
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
    """Everything run_ner.py needs to know."""

    data_dir: str | None = field(
        "Folder of eng.train, eng.testa, eng.testb, or of train.txt, dev.txt, "
        "test.txt.",
        None,
    )
    train_file: str | None = field(
        "In place of that in --data_dir.", None, affects="records"
    )
    dev_file: str | None = field(
        "In place of that in --data_dir.", None, affects="evaluation"
    )
    test_file: str | None = field("In place of that in --data_dir.", None)
    text_file: str | None = field(
        "Raw text to predict; its entities go to entities.jsonl.", None
    )
    word_column: int = field("Of the files, counted from 0.", 0)
    tag_column: int = field("Of the files; -1 is the last.", -1)
    test_has_tags: bool = field("Whether --test_file has the column.", True)
    tag_scheme: Literal["auto", "iob1", "bio2", "iobes", "plain"] = field(
        "That the files' tags are in; auto recognizes it.", "auto"
    )
    model_scheme: Literal["bio2", "iobes"] = field(
        "That the model learns, whatever the files have.",
        "bio2",
        affects="result",
    )
    entity_types: str | None = field(
        "Comma list; without it, those of the training set.",
        None,
        affects="result",
    )
    document_context: Literal["none", "maximal"] = field(
        "maximal: fill sequences up with the document around each sentence.",
        "none",
        affects="records",
    )
    doc_stride: int = field(
        "With it, sentences of about so many pieces share a sequence, which "
        "saves time; 0: as few as there are sequences.",
        0,
        affects="records",
    )
    do_eval: bool = field("Whether to evaluate on the development set.", False)
    eval_batch_size: int = field("Over all replicas.", 8)
    interactive: bool = field("Show the entities of lines as typed.", False)
    true_case: bool = field(
        "Read lines in capitals in the case that their words have elsewhere in "
        "the training set; a model that was trained so keeps to it.",
        False,
    )
    crf: bool = field(
        "Score whole sentences of tags; a model that has a CRF keeps it.",
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
        "Leave the encoder as it is, and train a BiLSTM on these activations.",
        "none",
    )
    lstm_size: int = field(
        "Of each direction of its two layers.", 768, affects="result"
    )
    lstm_dropout: float = field(
        "In front of each layer and the scores.", 0.1, affects="result"
    )
    lstm_learning_rate: float = field(
        "In place of --learning_rate.", 1e-3, affects="result"
    )

    def __post_init__(self):
        """Refuses combinations that cannot be meant."""
        super().__post_init__()
        modes = ("do_train", "do_eval", "do_predict", "interactive")
        if not any(getattr(self, mode) for mode in modes):
            raise ValueError(
                "at least one of --do_train, --do_eval, --do_predict and "
                "--interactive must be given"
            )
        run_config.require(self, "eval_batch_size", minimum=1)
        run_config.require(self, "doc_stride", minimum=0)
        if self.doc_stride and self.document_context == "none":
            raise ValueError("--doc_stride needs --document_context=maximal")
        run_config.require(self, "lstm_size", minimum=1)
        for name, low in (("lstm_dropout", 0.0), ("lstm_learning_rate", 1e-9)):
            if not low <= getattr(self, name) < 1:
                raise ValueError(
                    f"--{name}={getattr(self, name)}: must be at least {low:g} "
                    "and below 1"
                )
        if self.text_file and not self.do_predict:
            raise ValueError("--text_file needs --do_predict")
        self._check_features()

    def _check_features(self) -> None:
        """Refuses what would be of no effect with --features, or without."""
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
    def types(self) -> list[str]:
        """The types of --entity_types."""
        given = (self.entity_types or "").split(",")
        return [kind.strip() for kind in given if kind.strip()]

    @property
    def context(self) -> "ner_data.Context":
        """How words are laid out in sequences."""
        return ner_data.Context(
            max_seq_length=self.max_seq_length,
            document_context=self.document_context == "maximal",
            doc_stride=self.doc_stride,
        )


config_flags.parse_early(NerConfig, __name__)

import foundation.tensorflow_setup  # noqa: F401
from data.features import Features
from jobs import finetuning
from tasks.ner import feature_based, ner_data, ner_job, ner_outputs, tagging

TRAIN, DEV, TEST = ner_data.TRAIN, ner_data.DEV, ner_data.TEST


def main(config: NerConfig) -> None:
    """Opens everything, then trains, evaluates and predicts as asked."""
    data, job = open_job(config)
    if config.features != "none":
        feature_based.run(config, data, job)
        ner_job.save_true_case(config, data, job)
        return
    files = finetuning.open_files(config, job)
    record = ner_outputs.OutputWriter(files, data)
    if config.do_train:
        task_model, step = finetuning.train_grid(
            job, files.results, record.save_model
        )
        ner_job.save_true_case(config, data, job)
    else:
        task_model, step = finetuning.load(job)
    if config.do_eval:
        record.evaluation(task_model.evaluate(), step)
    if config.do_predict:
        ner_job.predict(config, data, task_model, record)
    if config.interactive:
        ner_job.talk(config, data, task_model)


def open_job(
    config: NerConfig,
) -> tuple[ner_data.NerData, finetuning.Job]:
    """Finds and checks everything before anything takes time."""
    start = finetuning.open_start(config)
    data = open_data(config, start.labels)
    data = ner_job.with_true_case(config, data, start.tokenizer)
    uses_crf = ner_job.uses_crf(config)
    strategy = finetuning.open_strategy(
        config, start, eval_batch_size=config.eval_batch_size
    )

    @functools.cache
    def features(split: str) -> Features:
        found = ner_data.prepare(
            data,
            split,
            start.tokenizer,
            config.context,
            records_dir=config.output_dir if config.write_records else None,
        )
        if uses_crf and split == TRAIN:
            found = tagging.with_boundaries(found, data.read(split))
        return found

    def evaluate(task_model: finetuning.TaskModel) -> ner_outputs.Evaluation:
        size = config.eval_batch_size
        return ner_outputs.evaluate(
            data, DEV, *ner_job.tag(data, task_model, DEV, features(DEV), size)
        )

    settings = dataclasses.asdict(config.context)
    if config.do_train:
        settings["train_file"] = data.digest_of_words(TRAIN)
    job = finetuning.Job(
        config=config,
        start=start,
        strategy=strategy,
        features=features,
        evaluate=evaluate,
        data_settings=settings,
        evaluation_settings=lambda: {"dev_file": data.digest(DEV)},
        **ner_job.modeling(start.config, data, uses_crf=uses_crf),
    )
    return data, job


def open_data(
    config: NerConfig, known_labels: list[str] | None
) -> ner_data.NerData:
    """Reads the files that the run needs, and compares their labels."""
    if config.features != "none":
        file_system.refuse_remote(
            config.output_dir,
            "output_dir",
            "--features maps activations into memory",
        )
        known_labels = feature_based.read_labels(config.output_dir)
    files = {s: getattr(config, f"{s}_file") for s in (TRAIN, DEV, TEST)}
    data = ner_data.open_data(
        data_dir=config.data_dir,
        files=files,
        columns={
            "word_column": config.word_column,
            "tag_column": config.tag_column,
        },
        tag_scheme=config.tag_scheme,
        model_scheme=config.model_scheme,
        types=config.types,
        known_labels=None if config.do_train else known_labels,
        former_labels=known_labels,
        untagged=() if config.test_has_tags else (TEST,),
        text_file=config.text_file if config.do_predict else None,
    )
    tagged = [TRAIN] if config.do_train else []
    if config.do_eval or (config.do_train and config.needs_evaluation):
        tagged.append(DEV)
    used = list(tagged)
    if config.do_predict and data.has(TEST):
        used.append(TEST)
    elif config.do_predict and config.text_file is None:
        raise errors.InputError("--do_predict needs --test_file or --text_file")
    ner_data.check(data, tagged=tagged, used=used, context=config.context)
    return data


if __name__ == "__main__":
    config_flags.run(NerConfig, main)
