r"""Trains, evaluates and predicts sentence tasks.

A table of your own takes seconds on a laptop with a small model:

    python run_classifier.py --task_name=csv --train_file=train.csv \
        --dev_file=dev.csv --text_column=review --label_column=stars \
        --init_checkpoint=pretrained --do_train --do_eval --output_dir=stars
    python run_classifier.py --task_name=csv --test_file=new.csv \
        --do_predict --output_dir=stars

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

import dataclasses
from typing import Literal

from foundation import config_flags
from jobs import run_config

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig(run_config.FinetuningConfig):
    """Everything run_classifier.py needs to know."""

    task_name: str = field(
        "A GLUE task such as MRPC, xnli, swag or boolq; or the format of your "
        "own tables: csv, tsv, jsonl or parquet.",
        affects="records",
    )
    data_dir: str | None = field(
        "Directory of the task's released files.", None
    )
    train_file: str | None = field(
        "Training set, instead of the released file in --data_dir.",
        None,
        affects="records",
    )
    dev_file: str | None = field(
        "Development set, instead of the released file in --data_dir.",
        None,
        affects="evaluation",
    )
    test_file: str | None = field(
        "Set to predict, instead of the released file in --data_dir: a file, a "
        "folder, or a pattern such as 'part-*.csv'. If it has labels, its "
        "metrics are written to scores_test.txt. - reads lines from standard "
        "input and writes to standard output; a tab separates a pair.",
        None,
    )
    text_column: str | None = field(
        "Column of the text in your own tables; by default as the model was "
        'trained, else "text".',
        None,
    )
    text_pair_column: str | None = field(
        "Column of the second text of a pair in your own tables; by default as "
        "the model was trained.",
        None,
    )
    label_column: str | None = field(
        "Column of the label in your own tables; by default as the model was "
        'trained, else "label".',
        None,
    )
    id_column: str | None = field(
        "Column of the ids in your own tables, which predictions.tsv repeats; "
        "by default examples are numbered.",
        None,
    )
    problem_type: (
        Literal["classification", "regression", "multi_label"] | None
    ) = field(
        "Kind of label in your own tables; by default that of the model in "
        "--init_checkpoint, else classification.",
        None,
        affects="records",
    )
    label_names: str | None = field(
        "Comma-separated labels in the order of the outputs of the model in "
        "--init_checkpoint, if its classes have no names. With --do_train, the "
        "labels of the new model, in this order; the training set may lack "
        "some.",
        None,
        affects="records",
    )
    language: str = field("Language of the XNLI files.", "zh")
    do_eval: bool = field("Whether to evaluate on the development set.", False)
    predict_dev: bool = field(
        "Whether --do_predict also writes predictions of the development set, "
        "to predictions_dev.tsv.",
        False,
    )
    eval_batch_size: int = field(
        "Examples per evaluation batch, over all replicas.", 8, at_least=1
    )
    glue_submission: str | None = field(
        "Directory for the predictions in the format of GLUE's server.", None
    )
    wnli_majority: bool = field(
        "Submit WNLI's most frequent label for every example, as the paper "
        "did.",
        False,
    )

    def __post_init__(self):
        """Refuses contradictory flags."""
        super().__post_init__()
        if not (self.do_train or self.do_eval or self.do_predict):
            raise ValueError(
                "at least one of --do_train, --do_eval and --do_predict must "
                "be given"
            )
        for name in ("glue_submission", "predict_dev"):
            if getattr(self, name) and not self.do_predict:
                raise ValueError(f"--{name} needs --do_predict")
        if self.test_file == "-" and self.glue_submission:
            raise ValueError("--glue_submission needs a --test_file with ids")
        for name in ("id_column", "text_column"):
            if self.test_file == "-" and name in config_flags.given(self):
                raise ValueError(
                    f"--{name}: --test_file=- reads lines without columns"
                )

    @property
    def standard_input_flag(self) -> str | None:
        """See FinetuningConfig."""
        reads = self.do_predict and self.test_file == "-"
        return "test_file" if reads else None

    @property
    def names_of_labels(self) -> list[str] | None:
        """The labels in --label_names."""
        if self.label_names is None:
            return None
        return [name.strip() for name in self.label_names.split(",")]

    @property
    def data(self) -> "sentence_tasks.DataFlags":
        """The files of the task."""
        return sentence_tasks.DataFlags(
            data_dir=self.data_dir,
            files={
                "train": self.train_file,
                "dev": self.dev_file,
                "test": self.test_file,
            },
            columns=sentence_files.NamedColumns(
                text=self.text_column or "text",
                text_pair=self.text_pair_column,
                label=self.label_column or "label",
                id=self.id_column,
            ),
            language=self.language,
        )


config_flags.parse_early(ClassifierConfig, __name__)

import foundation.tensorflow_setup  # noqa: F401
from jobs import finetuning, run_directory
from tasks.classification import (
    sentence_files,
    sentence_job,
    sentence_outputs,
    sentence_tasks,
)
from weights import task_files


def main(config: ClassifierConfig) -> None:
    """Trains, evaluates and predicts, as the flags say."""
    sentence_tasks.check_flags(config.task_name, config_flags.given(config))
    config = run_directory.as_trained(
        config, sentence_tasks.columns(config.task_name)
    )
    start = finetuning.open_start(config)
    task = sentence_tasks.open_task(
        config.task_name,
        config.data,
        problem_type=config.problem_type,
        known=task_files.ModelClasses(
            labels=start.labels,
            problem_type=start.problem_type,
            num_outputs=start.num_outputs,
        ).with_names(config.names_of_labels, trains=config.do_train),
        trains=config.do_train,
    )
    if not config.do_train and start.init_checkpoint:
        sentence_tasks.check_pairs(
            task.name, config.text_pair_column, start.init_checkpoint
        )
    sentence_tasks.check(
        task,
        train=config.do_train or config.wnli_majority,
        dev=config.do_eval
        or config.predict_dev
        or (config.do_train and config.needs_evaluation),
        test=config.do_predict,
    )
    strategy = finetuning.open_strategy(
        config, start, eval_batch_size=config.eval_batch_size
    )
    job = sentence_job.make_job(
        config, start, task, strategy, eval_batch_size=config.eval_batch_size
    )
    files = finetuning.open_files(config, job)
    writer = sentence_outputs.OutputWriter(files, task)
    if config.do_train:
        task_model, step = finetuning.train_grid(job, files.results, writer)
    else:
        task_model, step = finetuning.load(job)
    if config.do_eval:
        writer.write_evaluation(task_model.evaluate(), step)
    predicted = []
    if config.do_predict:
        predicted += task.test_splits
    if config.predict_dev:
        predicted += task.dev_splits
    for split in predicted:
        sentence_job.predict(
            task,
            split,
            task_model,
            files,
            glue_submission=config.glue_submission,
            wnli_majority=config.wnli_majority,
        )
    run_directory.announce(config.output_dir)


if __name__ == "__main__":
    config_flags.run(ClassifierConfig, main)
