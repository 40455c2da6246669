"""The life of a fine-tuned model, for all tasks.

main -> run(config, make_task)
  source.resolve            which model does the command use?
  make_task                 reads and checks the files
  open_run                  devices; reserves output_dir
  finetuning.train_grid     or finetuning.load, without --do_train
  Task.evaluate             metrics and report, with --do_eval
  predict                   each set in blocks, continued after a kill
  Task.prompt
"""

from collections.abc import Callable, Mapping
from typing import Any

from foundation import config_flags, progress
from jobs import (
    distillation,
    finetuning,
    grid,
    run_config,
    run_directory,
    source,
    streaming,
)
from jobs.outputs import Outputs
from jobs.task import PredictedSet, PrintedSet, Task
from jobs.task_model import Builder, TaskModel


def run(
    config: run_config.AnyConfig,
    make_task: Callable[[run_config.AnyConfig, source.ModelSource], Task],
) -> None:
    """Trains, evaluates and predicts, as the flags say.

    `make_task` makes the task, which reads and checks its files; the labels and
    settings of the source apply if flags are not given.
    """
    model_source = source.resolve(config)
    config = model_source.with_trained_flags(config)
    task = make_task(config, model_source)
    start = model_source.start
    teacher = distillation.open_teacher(config, start, task.objective)
    strategy = finetuning.open_run(config, start)
    job = make_job(config, model_source, task, strategy, teacher)
    outputs = open_outputs(job)
    trained = None
    if config.do_train:
        task_model, step = finetuning.train_grid(job, outputs)
        trained = outputs.results.best_run, step
        task.complete_training(task_model, outputs)
    else:
        task_model, step = finetuning.load(job)
    if task.evaluates_at_end:
        with progress.notice("evaluating ..."):
            evaluation = job.evaluate(task_model, trained)
        outputs.write_evaluation(
            task.describe(evaluation, step, outputs.training_flags)
        )
    sets = task.predicted_sets(task_model, step)
    blocks_of_sets = [predict(x, task_model, outputs) for x in sets]
    # After all files are written, so that a killed command predicts no block
    # twice.
    for blocks in filter(None, blocks_of_sets):
        blocks.remove()
    run_directory.announce(config.output_dir)
    if config.do_train and job.is_chief:
        run_directory.announce_deletable(config.output_dir)
    task.prompt(task_model)


def make_job(
    config: run_config.FinetuningConfig,
    model_source: source.ModelSource,
    task: Task,
    strategy: Any,
    teacher: distillation.Teacher | None = None,
) -> finetuning.Job:
    """Returns the training of a task."""
    builder = Builder(
        config=config,
        start=model_source.start,
        strategy=strategy,
        objective=task.objective,
        max_seq_length=task.max_seq_length,
    )
    return finetuning.Job(
        source=model_source, task=task, builder=builder, teacher=teacher
    )


def open_outputs(job: finetuning.Job) -> Outputs:
    """Returns the writer of card, report and files of sets."""
    config = job.config
    results = grid.Results(config.output_dir)
    trained_with: Mapping[str, Any] = {}
    if not config.do_train:
        results.read()
        trained_with = run_directory.training_flags(config.output_dir)
    return Outputs(
        output_dir=config.output_dir,
        flags=config_flags.flat_values(config),
        given_flags=config_flags.given(config),
        trained_with=trained_with,
        trains=config.do_train,
        results=results,
        is_chief=job.is_chief,
    )


def predict(
    predicted: PredictedSet | PrintedSet,
    task_model: TaskModel,
    outputs: Outputs,
) -> streaming.Blocks | None:
    """Predicts a set block by block, and writes its files.

    Returns:
      The blocks, for the caller to remove; None for standard output, and on
      workers that write nothing.
    """
    if isinstance(predicted, PrintedSet):
        store = streaming.StandardOutput(predicted.part, predicted.head)
        streaming.run(predicted.stream, store)
        return None
    blocks = task_model.open_blocks(predicted.folder, predicted.settings)
    streaming.run(predicted.stream, blocks)
    if blocks is not None:
        predicted.write(blocks, outputs)
    return blocks
