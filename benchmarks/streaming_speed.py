r"""Measures what prediction as a stream costs beside predictions alone.

    python benchmarks/streaming_speed.py --model_dir=sst2 \
        --test_file=texts.jsonl --output_dir=streamed

Both sides predict the same file with the same model in this process, in turns:

    at once     the work of finetuning_speed.py --work=predict: all examples are
                tokenized already, and nothing is written
    streamed    what run_classifier.py --do_predict does: the file is read,
                tokenized, predicted and written block by block

Prints the processor seconds of both sides and the median ratio of turns.
"""

import dataclasses
import os
import statistics
import sys
import time
from collections.abc import Callable

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

from foundation import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The flags of the benchmark."""

    model_dir: str = field("A classifier.")
    test_file: str = field("JSON lines.")
    output_dir: str = field("Directory of the predictions.")
    text_pair_column: str | None = field("Column of the second text.", None)
    rounds: int = field("Turns of each side.", 5)
    precision: str = field("auto, float32 or bfloat16.", "auto")


def processor_seconds(function: Callable[[], object]) -> float:
    """Returns the CPU time of all threads in a call."""
    started = time.process_time()
    function()
    return time.process_time() - started


def main(config: Config) -> None:
    """Lets both sides take turns."""
    import run_classifier
    from data import features
    from jobs import finetuning
    from tasks.classification import sentence_job, sentence_tasks
    from training.cpu import onednn  # noqa: F401  As the commands do.
    from weights import task_files

    flags = run_classifier.ClassifierConfig(
        task_name="jsonl",
        test_file=config.test_file,
        text_pair_column=config.text_pair_column,
        init_checkpoint=config.model_dir,
        output_dir=config.output_dir,
        precision=config.precision,
        do_predict=True,
    )
    start = finetuning.open_start(flags)
    task = sentence_tasks.open_task(
        flags.task_name,
        flags.data,
        known=task_files.ModelClasses(
            labels=start.labels, problem_type=start.problem_type
        ),
        trains=False,
    )
    sizes = {"eval_batch_size": flags.eval_batch_size}
    strategy = finetuning.open_strategy(flags, start, **sizes)
    job = sentence_job.make_job(flags, start, task, strategy, **sizes)
    files = finetuning.open_files(flags, job)
    task_model, _ = finetuning.load(job)
    encoded = sentence_tasks.encode(
        list(task.read("test")),
        start.tokenizer,
        max_seq_length=flags.max_seq_length,
        statistics=features.TokenizationStatistics(),
    )
    sides = {
        "at once": lambda: task_model.predict(
            encoded, flags.predict_batch_size
        ),
        "streamed": lambda: sentence_job.predict(
            task, "test", task_model, files
        ),
    }
    for run in sides.values():
        run()
    turns = {name: [] for name in sides}
    for _ in range(config.rounds):
        for name, run in sides.items():
            turns[name].append(processor_seconds(run))
    print(f"{len(encoded)} examples, {sum(encoded.lengths)} tokens")
    for name, seconds in turns.items():
        shown = ", ".join(f"{x:.2f}" for x in seconds)
        print(f"{name:8}  {shown} processor seconds")
    ratios = [b / a for a, b in zip(*turns.values(), strict=True)]
    print(f"streamed / at once: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    config_flags.run(Config, main)
