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

import dataclasses

from foundation import config_flags
from jobs import run_config

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadConfig(run_config.FinetuningConfig):
    """The flags of run_squad.py."""

    train_file: str | None = field(
        "SQuAD's JSON; several files separated by commas.",
        None,
        affects="records",
    )
    predict_file: str | None = field(
        "SQuAD's JSON; the predictions are scored if it has answers.",
        None,
        affects="evaluation",
    )
    max_seq_length: int = field("Tokens of a window.", 384, affects="records")
    doc_stride: int = field(
        "Tokens from one window's start to the next.",
        128,
        affects="records",
        at_least=1,
    )
    max_query_length: int = field(
        "Tokens; longer questions are cut.",
        64,
        affects="records",
        at_least=1,
    )
    n_best_size: int = field(
        "Number of answers in nbest_predictions.json, and of best starts and "
        "of best ends that are considered in each window.",
        20,
        affects="evaluation",
        at_least=1,
    )
    max_answer_length: int = field(
        "The most tokens of an answer.",
        30,
        affects="evaluation",
        at_least=1,
    )
    version_2_with_negative: bool | None = field(
        "Whether questions may have no answer, as in SQuAD 2.0; by default, as "
        "the model was trained, else False.",
        None,
        affects="evaluation",
    )
    null_score_diff_threshold: float | None = field(
        "Null odds above which there is no answer, in this command only; by "
        "default that stored with the model; after training, and if none is "
        "stored, the best on --predict_file.",
        None,
        affects="evaluation",
    )
    exact_answers: bool = field(
        "Answer with the characters of the tokens instead of projecting them "
        "to words as google-research/bert does: for scripts without spaces "
        "between words.",
        False,
        affects="evaluation",
    )
    verbose_logging: bool = field("Log all questions that are left out.", False)
    ensemble_dirs: str | None = field(
        "Directories of runs, separated by commas, to combine.", None
    )
    question: str | None = field("A question about --context.", None)
    context: str | None = field("A paragraph.", None)
    interactive: bool = field("Answer questions at a prompt.", False)

    def __post_init__(self):
        """Checks the flags and their combinations."""
        super().__post_init__()
        if self.max_seq_length <= self.max_query_length + 3:
            raise ValueError(
                f"--max_seq_length={self.max_seq_length}: must be greater than "
                f"--max_query_length={self.max_query_length} + 3"
            )
        if self.do_train and not self.train_file:
            raise ValueError("--do_train needs --train_file")
        predicts = (
            self.do_predict
            or self.ensemble_dirs
            or (self.do_train and self.needs_evaluation)
        )
        if predicts and not self.predict_file:
            raise ValueError(
                "--predict_file is needed to predict, for ensembles, grids "
                "and --eval_every_steps"
            )
        for name in ("question", "context"):
            text = getattr(self, name) or ""
            # Python's form of bytes on the command line that are not UTF-8.
            if any("\ud800" <= char <= "\udfff" for char in text):
                raise ValueError(f"--{name}: not UTF-8 text")
        if self.question and not self.context:
            raise ValueError("--question needs --context")
        if self.context and not self.prompts:
            raise ValueError("--context needs --question or --interactive")
        if not (self.do_train or predicts or self.prompts):
            raise ValueError(
                "at least one of --do_train, --do_predict, --ensemble_dirs, "
                "--interactive and --question must be given"
            )
        if self.ensemble_dirs and (
            self.do_train or self.do_predict or self.prompts
        ):
            raise ValueError(
                "--ensemble_dirs only combines predictions of other runs"
            )

    @property
    def standard_input_flag(self) -> str | None:
        """See FinetuningConfig."""
        return "interactive" if self.interactive else None

    @property
    def prompts(self) -> bool:
        """Whether single questions are answered."""
        return bool(self.question or self.interactive)

    @property
    def options(self) -> "squad_job.SquadOptions":
        """The flags of question answering."""
        return squad_job.SquadOptions(
            train_file=self.train_file if self.do_train else None,
            predict_file=self.predict_file,
            with_negative=self.version_2_with_negative,
            threshold=self.null_score_diff_threshold,
            sizes=windowing.WindowSizes(
                max_seq_length=self.max_seq_length,
                doc_stride=self.doc_stride,
                max_query_length=self.max_query_length,
            ),
            rules=decoding.AnswerRules(
                n_best_size=self.n_best_size,
                max_answer_length=self.max_answer_length,
                exact_answers=self.exact_answers,
            ),
            compares_runs=self.do_train and self.needs_evaluation,
            verbose_logging=self.verbose_logging,
            ensemble_dirs=self.ensemble_dirs,
        )


config_flags.parse_early(SquadConfig, __name__)

import foundation.tensorflow_setup  # noqa: F401
from jobs import finetuning, run_directory
from tasks.squad import decoding, ensemble, outputs, squad_job, windowing


def main(config: SquadConfig) -> None:
    """Reads the data; then trains, predicts, and answers questions."""
    if config.ensemble_dirs:
        ensemble.run(config, config.options)
        return
    start = finetuning.open_start(config)
    stored = squad_job.find_settings(
        config.output_dir, start.init_checkpoint, start.task_settings
    )
    data = squad_job.open_data(config.options, stored)
    job = squad_job.open_job(config, start, data)
    files = finetuning.open_files(config, job)
    writer = outputs.OutputWriter(
        files,
        trained_on=data.train,
        with_negative=data.with_negative,
        threshold=data.stored_threshold,
    )
    if config.do_train:
        task_model, step = finetuning.train_grid(job, files.results, writer)
    else:
        task_model, step = finetuning.load(job)
    threshold = None
    if config.do_predict:
        store = squad_job.open_blocks(task_model, data)
        evaluation = squad_job.predict(task_model, data, store=store)
        writer.write_evaluation(evaluation, store, data.sizes, step)
        threshold = evaluation.threshold
    elif data.trains_threshold:
        writer.write_threshold(task_model.evaluate())
    run_directory.announce(config.output_dir)
    if config.prompts:
        if threshold is None:
            threshold = data.default_threshold(config.output_dir)
        questions = squad_job.Prompt(
            task_model=task_model, data=data, threshold=threshold
        )
        if config.question:
            questions.show(config.question, config.context)
        if config.interactive:
            questions.run(config.context)


if __name__ == "__main__":
    config_flags.run(SquadConfig, main)
