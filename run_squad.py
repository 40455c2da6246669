r"""Answers questions from a paragraph: trains, predicts, scores, can be asked.

As in google-research/bert's README (F1 88.5 and exact match 81.2 on SQuAD 1.1):

    python run_squad.py --init_checkpoint=uncased_L-12_H-768_A-12 \
        --do_train --train_file=train-v1.1.json \
        --do_predict --predict_file=dev-v1.1.json \
        --train_batch_size=12 --learning_rate=3e-5 --num_train_epochs=2 \
        --output_dir=squad

SQuAD 2.0, where a paragraph may hold no answer: the threshold is found on
--predict_file, applied and stored with the model.

    python run_squad.py --version_2_with_negative --train_file=train-v2.0.json \
        --predict_file=dev-v2.0.json --do_train --do_predict ...

Several runs as one (seven in the paper), and a model that answers at the
prompt:

    python run_squad.py --ensemble_dirs=run1,run2,run3 \
        --predict_file=dev-v1.1.json --output_dir=ensemble
    python run_squad.py --output_dir=squad --interactive

Killed and started again, training goes on from its last checkpoint.
"""

import dataclasses

import foundation.tensorflow_setup  # noqa: F401
from foundation import config_flags
from jobs import finetuning, run_config
from tasks.squad import squad_job, squad_outputs

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadConfig(run_config.FinetuningConfig):
    """Everything run_squad.py needs to know."""

    train_file: str | None = field(
        "SQuAD's JSON; several files between commas.", None
    )
    predict_file: str | None = field(
        "SQuAD's JSON; its answers, if it has any, are what is scored.", None
    )
    max_seq_length: int = field("Pieces of a window.", 384)
    doc_stride: int = field("Pieces from one window's start to the next.", 128)
    max_query_length: int = field("Pieces; longer questions are cut.", 64)
    n_best_size: int = field("Answers in nbest_predictions.json.", 20)
    max_answer_length: int = field("Pieces of an answer, at most.", 30)
    version_2_with_negative: bool | None = field(
        "Whether there may be no answer, as in SQuAD 2.0; without it, as the "
        "model was trained, else False.",
        None,
    )
    null_score_diff_threshold: float | None = field(
        "Above these odds nothing is answered; without it, the best one on "
        "--predict_file after training, else the one stored with the model.",
        None,
    )
    exact_answers: bool = field(
        "Answer with the characters of the pieces, not as google-research/bert "
        "projects them: for scripts that put no spaces between words.",
        False,
    )
    verbose_logging: bool = field(
        "Name all questions that are left out.", False
    )
    ensemble_dirs: str | None = field(
        "Folders of runs, between commas, whose answers become one.", None
    )
    question: str | None = field("Asked about --context.", None)
    context: str | None = field("A paragraph.", None)
    interactive: bool = field("Answer at the prompt.", False)

    def __post_init__(self):
        """Refuses combinations that cannot be meant."""
        super().__post_init__()
        for name in ("doc_stride", "max_query_length", "n_best_size"):
            run_config.require(self, name, minimum=1)
        run_config.require(self, "max_answer_length", minimum=1)
        if self.max_seq_length <= self.max_query_length + 3:
            raise ValueError(
                f"--max_seq_length={self.max_seq_length}: must be greater than "
                f"--max_query_length={self.max_query_length} + 3"
            )
        if self.do_train and not self.train_file:
            raise ValueError("--do_train needs --train_file")
        predicts = self.do_predict or self.ensemble_dirs
        if self.do_train and self.needs_evaluation:
            predicts = True
        if predicts and not self.predict_file:
            raise ValueError(
                "--predict_file is needed to predict, for ensembles, grids "
                "and --eval_every_steps"
            )
        self._refuse_half_questions()
        asks = self.question or self.interactive
        if not (self.do_train or predicts or asks):
            raise ValueError(
                "at least one of --do_train, --do_predict, --ensemble_dirs, "
                "--interactive and --question must be given"
            )
        if self.ensemble_dirs and (self.do_train or self.do_predict or asks):
            raise ValueError(
                "--ensemble_dirs only combines what runs have left"
            )

    def _refuse_half_questions(self) -> None:
        for name in ("question", "context"):
            text = getattr(self, name) or ""
            # So Python keeps bytes of a command line that are not UTF-8.
            if any("\ud800" <= char <= "\udfff" for char in text):
                raise ValueError(f"--{name}: not UTF-8 text")
        if self.question and not self.context:
            raise ValueError("--question needs --context")
        if self.context and not (self.question or self.interactive):
            raise ValueError("--context needs --question or --interactive")


def main(config: SquadConfig) -> None:
    """Opens everything, then trains, predicts and answers as asked."""
    if config.ensemble_dirs:
        squad_job.combine(config)
        return
    start = finetuning.open_start(config)
    stored = squad_job.find_settings(config.output_dir, start.init_checkpoint)
    sets = squad_job.open_sets(config, stored)
    job = squad_job.open_job(config, start, sets)
    files = finetuning.open_files(config, job)
    record = squad_outputs.OutputWriter(
        files,
        trained_on=sets.train,
        with_negative=sets.with_negative,
        threshold=sets.threshold,
    )
    if config.do_train:
        task_model, step = finetuning.train_grid(
            job, files.results, record.save_model
        )
    else:
        task_model, step = finetuning.load(job)
    if config.do_predict:
        made = task_model.evaluate()
        record.predictions(made, step)
        sets = dataclasses.replace(sets, threshold=made.threshold)
    elif sets.seeks_threshold:
        record.threshold(task_model.evaluate())
    if config.question or config.interactive:
        squad_job.ask(config, task_model, sets)


if __name__ == "__main__":
    config_flags.run(SquadConfig, main)
