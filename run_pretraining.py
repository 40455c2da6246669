r"""Pre-trains BERT on masked TFRecord shards, and evaluates it.

On a laptop, from the shards of create_pretraining_data.py:

    python run_pretraining.py \
        --bert_config_file=configs/uncased_L-4_H-256_A-4.json \
        --input_file='shards/train-*' --eval_file='shards/heldout-*' \
        --output_dir=pretrained --do_train --do_eval \
        --num_train_steps=1000 --num_warmup_steps=100 --learning_rate=5e-4

The paper's recipe, 90 % of the steps at length 128 and the rest at 512, is

    python run_pretraining.py --flagfile=configs/pretraining_base.flags \
        --input_file='shards128/*.tfrecord,shards512/*.tfrecord' \
        --bert_config_file=configs/uncased_L-12_H-768_A-12.json \
        --output_dir=pretrained --do_train

Killed and started again, a run goes on from its last checkpoint. Held out,
BERT-Base ends at a masked-LM accuracy of 0.60-0.64 and a next-sentence accuracy
of 0.97-0.98.
"""

import dataclasses
import functools
from typing import Literal

from absl import logging

from foundation import config_flags
from jobs import run_config

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingConfig(run_config.RunConfig):
    """Everything run_pretraining.py needs to know."""

    bert_config_file: str = field(
        "JSON of the model's hyperparameters.", affects="execution"
    )
    input_file: str = field(
        "Comma list of shards or globs to train on.", affects="records"
    )
    eval_file: str | None = field(
        "Held-out shards; without them --input_file is evaluated.",
        None,
        affects="execution",
    )
    vocab_file: str | None = field(
        "The vocabulary, where no manifest beside the shards names it.",
        None,
        affects="execution",
    )
    do_lower_case: bool | None = field(
        "How they were made, where no manifest says it; default: what "
        "--init_checkpoint says, else by the capitals of --vocab_file.",
        None,
        affects="execution",
    )
    objective: Literal[
        "masked_lm_and_next_sentence", "masked_lm", "left_to_right"
    ] = field(
        "Which losses to train on.",
        "masked_lm_and_next_sentence",
        affects="result",
    )
    do_train: bool = field("Whether to train.", False)
    do_eval: bool = field("Whether to evaluate.", False)
    max_seq_length: int = field(
        "As the shards were made.", 128, affects="result"
    )
    max_predictions_per_seq: int = field(
        "As the shards were made.", 20, affects="result"
    )
    train_batch_size: int = field("Over all replicas.", 32, affects="records")
    eval_batch_size: int = field("Over all replicas.", 8, affects="execution")
    num_train_steps: int = field(
        "Where the learning rate reaches 0.", 100000, affects="result"
    )
    phases: str | None = field(
        "Stretches of different lengths, LENGTH:STEPS,..., in place of "
        "--max_seq_length, --max_predictions_per_seq and --num_train_steps; "
        "each reads those shards of --input_file that have its length.",
        None,
        affects="records",
    )
    num_warmup_steps: int = field(
        "Steps of rising learning rate.", 10000, affects="result"
    )
    max_eval_steps: int = field(
        "Batches of an evaluation, at most.", 100, affects="execution"
    )
    eval_every_steps: int = field(
        "Also evaluate while training, so often; 0 is never.",
        0,
        affects="execution",
    )
    peak_tflops: float | None = field(
        "Of one device, to report the utilization where it is not known.",
        None,
        affects="execution",
    )

    def __post_init__(self):
        """Refuses combinations that cannot be meant."""
        super().__post_init__()
        if not (self.do_train or self.do_eval):
            raise ValueError("--do_train or --do_eval must be given")
        for name in (
            "train_batch_size",
            "eval_batch_size",
            "num_train_steps",
            "max_eval_steps",
            "max_seq_length",
            "max_predictions_per_seq",
        ):
            run_config.require(self, name, minimum=1)
        for name in ("num_warmup_steps", "eval_every_steps"):
            run_config.require(self, name, minimum=0)
        run_config.require_positive(self, "peak_tflops")
        if self.phases and self.max_train_hours:
            raise ValueError("--max_train_hours: not together with --phases")

    @property
    def total_steps(self) -> int:
        """The steps of all phases, over which the learning rate decays."""
        if not self.phases:
            return self.num_train_steps
        return sum(p.num_steps for p in pretraining_data.parse(self.phases))


config_flags.parse_early(PretrainingConfig, __name__)

import foundation.tensorflow_setup  # noqa: F401
from jobs import assembly, run_files
from modeling import models
from modeling.config import BertConfig
from tasks.pretraining import objectives, pretraining_data, pretraining_report
from training import evaluation, feed, loop
from weights import model_directory, pretrained


def open_inputs(
    config: PretrainingConfig, bert_config: BertConfig
) -> pretraining_data.PretrainingInputs:
    """Finds the records and checks that they fit each other and the model."""
    return pretraining_data.open_inputs(
        input_file=config.input_file,
        eval_file=config.eval_file,
        vocab_file=config.vocab_file,
        do_lower_case=config.do_lower_case,
        init_checkpoint=config.init_checkpoint,
        max_seq_length=config.max_seq_length,
        max_predictions_per_seq=config.max_predictions_per_seq,
        config=bert_config,
        num_train_steps=config.num_train_steps,
        phases=config.phases,
    )


def main(config: PretrainingConfig) -> None:
    """Reads, builds, trains if asked, evaluates if asked, saves the model."""
    check_warmup(config)
    bert_config = pretrained.read_config(config.bert_config_file)
    task = objectives.PretrainingTask(config.objective)
    model_directory.check_output_dir(config.output_dir, bert_config)
    if config.do_train:
        model_directory.check_not_the_start(
            config.output_dir, config.init_checkpoint
        )
    pretraining_data.find_shards(config.input_file, config.eval_file)
    # Shards without a manifest are read, for which a device is taken into use.
    strategy = assembly.make_strategy(config, config.output_dir)
    data = open_inputs(config, bert_config)
    assembly.check_batch_sizes(
        config,
        strategy,
        train_batch_size=config.train_batch_size,
        eval_batch_size=config.eval_batch_size,
    )
    if run_files.is_noted_first(config.output_dir, do_train=config.do_train):
        assembly.write_run_config(config, strategy)
    with strategy.scope():
        model = models.PretrainingModel(
            bert_config,
            attention=task.attention,
            next_sentence=task.predicts_next_sentence,
            recompute=config.recompute,
            seed=config.random_seed,
            dtype=assembly.dtype_policy(config),
        )
    evaluator = evaluation.Evaluator(task, model, strategy=strategy)

    def warm_start() -> None:
        pretrained.assign(
            model, config.init_checkpoint, do_lower_case=data.do_lower_case
        )

    if config.do_train:
        train(config, data, task, model, evaluator, strategy, warm_start)
        if assembly.is_chief(strategy):
            model_directory.save(model, config.output_dir, data.tokenizer)
            pretraining_report.write(config.output_dir, vars(config))
    if config.do_eval:
        evaluate_checkpoint(
            config, data, model, evaluator, strategy, warm_start
        )


def check_warmup(config: PretrainingConfig) -> None:
    """Warns of a learning rate that never reaches its peak."""
    if config.do_train and config.num_warmup_steps >= config.total_steps:
        logging.warning(
            "--num_warmup_steps=%d, but all steps are %d: the learning rate "
            "never reaches its peak",
            config.num_warmup_steps,
            config.total_steps,
        )


def evaluate_checkpoint(
    config, data, model, evaluator, strategy, warm_start
) -> None:
    """Evaluates what was trained, else what --init_checkpoint names."""
    step = loop.restore_model(model, config.output_dir)
    if step is None:
        pretrained.require_weights(config.init_checkpoint)
        warm_start()
    values = evaluate(config, held_out_batches(config, data), evaluator)
    if assembly.is_chief(strategy):
        values["global_step"] = step or 0
        run_files.write_eval_results(config.output_dir, values)


def train(config, data, task, model, evaluator, strategy, warm_start) -> None:
    """Trains through all phases, most often one."""
    phases = [
        _phase(config, part, task, model, evaluator, strategy)
        for part in data.phases
    ]
    assembly.train(
        config,
        task,
        model,
        strategy=strategy,
        phases=phases,
        num_warmup_steps=config.num_warmup_steps,
        eval_every=config.eval_every_steps,
        warm_start=warm_start,
        begun=functools.partial(assembly.write_run_config, config, strategy),
        settings=assembly.settings_of(
            config,
            {
                **{
                    f"bert_config_file's {name}": value
                    for name, value in model.config.to_dict().items()
                },
                "input_file": [part.train.fingerprint for part in data.phases],
                # Separate, so that runs begun before it was compared continue.
                "input_file contents": [p.train.contents for p in data.phases],
            },
            extendable=_LISTED_BY_PHASE,
        ),
    )


_LISTED_BY_PHASE = ("phases", "input_file", "input_file contents")


def _phase(config, part, task, model, evaluator, strategy) -> loop.Phase:
    order = (config.train_batch_size, config.random_seed)
    kind = part.train.schema
    held_out = held_out_batches(config, part)
    return loop.Phase(
        part.num_steps,
        part.train.train_batches(*order),
        evaluate=functools.partial(evaluate, config, held_out, evaluator),
        describe_batch=part.train.describe_batch(*order),
        diagnose=part.train.check_records,
        throughput=assembly.make_throughput(
            config,
            strategy,
            tokens=part.lengths.max_seq_length,
            flops=objectives.task_flops(model.config, task, kind),
            peak_tflops=config.peak_tflops,
        ),
    )


def held_out_batches(config, data) -> feed.MakeBatches:
    """Returns what makes the batches of an evaluation."""
    return data.held_out.eval_batches(config.eval_batch_size)


def evaluate(config, make_batches, evaluator) -> dict[str, float]:
    """Returns losses and metrics on held-out batches."""
    values = evaluator(make_batches, max_steps=config.max_eval_steps)
    return objectives.with_perplexity(values)


if __name__ == "__main__":
    config_flags.run(PretrainingConfig, main)
