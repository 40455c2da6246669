"""Trains and evaluates a pre-training model, and reports on it."""

import dataclasses
import functools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from data.tokenization import wordpiece
from jobs import assembly, report, run_config, run_files
from modeling import models
from modeling.config import BertConfig
from tasks.pretraining import objectives, pretraining_data
from training import inference, loop
from weights import model_directory, pretrained

# A run may be continued with more phases: these settings list them.
_SETTINGS_BY_PHASE = ("phases", "input_file", "input_file contents")
_PANELS = (
    report.Panel("Loss", ("train/loss", "eval/loss")),
    report.Panel(
        "Masked-LM accuracy",
        ("train/masked_lm_accuracy", "eval/masked_lm_accuracy"),
    ),
    report.Panel(
        "Next-sentence accuracy",
        ("train/next_sentence_accuracy", "eval/next_sentence_accuracy"),
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PretrainingJob:
    """A model, its objective and the records to train and evaluate it on."""

    config: run_config.RunConfig
    strategy: Any
    task: objectives.PretrainingTask
    model: Any  # Made in strategy.scope(), with random weights.
    tokenizer: wordpiece.Tokenizer | None  # None if it is not known.
    phases: Sequence[pretraining_data.Phase]
    train_batch_size: int  # Over all replicas.
    eval_batch_size: int  # Over all replicas.
    max_eval_steps: int  # Batches of one evaluation, at most.

    def train(
        self,
        *,
        num_warmup_steps: int,
        eval_every_steps: int,
        peak_tflops: float | None,
    ) -> None:
        """Trains through all phases and writes the model and the report."""
        config = self.config
        num_steps = sum(phase.num_steps for phase in self.phases)
        learner = assembly.make_learner(
            config,
            self.task,
            self.model,
            strategy=self.strategy,
            num_train_steps=num_steps,
            num_warmup_steps=num_warmup_steps,
        )
        settings = assembly.settings_of(
            config,
            {
                **{
                    f"bert_config_file's {name}": value
                    for name, value in self.model.config.to_dict().items()
                },
                "input_file": [x.train.fingerprint for x in self.phases],
                # Separate, so that runs that were started before contents were
                # compared can continue.
                "input_file contents": [x.train.contents for x in self.phases],
            },
            extendable=_SETTINGS_BY_PHASE,
        )
        loop.train(
            learner,
            strategy=self.strategy,
            phases=[self._phase(phase, peak_tflops) for phase in self.phases],
            options=assembly.loop_options(
                config,
                num_steps,
                selection=loop.Selection(every=eval_every_steps),
                settings=settings,
            ),
            warm_start=self._warm_start,
            on_start=functools.partial(
                assembly.write_run_config, config, self.strategy
            ),
        )
        if assembly.is_chief(self.strategy):
            model_directory.save(self.model, config.output_dir, self.tokenizer)
            write_report(config.output_dir, dataclasses.asdict(config))

    def evaluate(self) -> None:
        """Evaluates the trained model, else --init_checkpoint's weights.

        Writes eval_results.txt, with the metrics on the last phase's held-out
        records.

        Raises:
          InputError: there are no weights.
        """
        output_dir = self.config.output_dir
        step = loop.restore_model(self.model, output_dir)
        if step is None:
            pretrained.require_weights(self.config.init_checkpoint)
            self._warm_start()
        values = self._evaluate(self.phases[-1])
        if assembly.is_chief(self.strategy):
            values["global_step"] = step or 0
            run_files.write_eval_results(output_dir, values)

    def _warm_start(self) -> None:
        pretrained.assign(
            self.model, self.config.init_checkpoint, tokenizer=self.tokenizer
        )

    def _phase(
        self, phase: pretraining_data.Phase, peak_tflops: float | None
    ) -> loop.Phase:
        order = (self.train_batch_size, self.config.random_seed)
        train = phase.train
        return loop.Phase(
            phase.num_steps,
            train.train_batches(*order),
            evaluate=functools.partial(self._evaluate, phase),
            describe_batch=train.describe_batch(*order),
            diagnose=train.check_records,
            throughput=assembly.make_throughput(
                self.config,
                self.strategy,
                tokens=phase.lengths.max_seq_length,
                flops=objectives.task_flops(
                    self.model.config, self.task, train.schema
                ),
                peak_tflops=peak_tflops,
            ),
        )

    @functools.cached_property
    def _evaluator(self) -> inference.Evaluator:
        return inference.Evaluator(
            self.task, self.model, strategy=self.strategy
        )

    def _evaluate(self, phase: pretraining_data.Phase) -> dict[str, float]:
        try:
            values = self._evaluator(
                phase.held_out.eval_batches(self.eval_batch_size),
                max_steps=self.max_eval_steps,
            )
        except (tf.errors.DataLossError, tf.errors.InvalidArgumentError):
            phase.held_out.check_records()  # Names a damaged record.
            raise
        # The exponential of a larger loss would overflow.
        perplexity = math.exp(min(values["masked_lm_loss"], 700.0))
        return {**values, "masked_lm_perplexity": perplexity}


def make_model(
    bert_config: BertConfig,
    task: objectives.PretrainingTask,
    strategy: Any,
    config: run_config.RunConfig,
) -> models.PretrainingModel:
    """Makes the model of an objective with random weights."""
    with strategy.scope():
        return models.PretrainingModel(
            bert_config,
            attention=task.attention,
            next_sentence=task.predicts_next_sentence,
            recompute=config.recompute,
            seed=config.random_seed,
            dtype=assembly.dtype_policy(config),
        )


def check_warmup(
    num_warmup_steps: int, phases: Sequence[pretraining_data.PhaseSpec]
) -> None:
    """Logs a warning if the learning rate never reaches its peak."""
    num_steps = sum(phase.num_steps for phase in phases)
    if num_warmup_steps >= num_steps:
        logging.warning(
            "--num_warmup_steps=%d, but all steps are %d: the learning rate "
            "never reaches its peak",
            num_warmup_steps,
            num_steps,
        )


def write_report(output_dir: str, settings: Mapping[str, Any]) -> None:
    """Writes report.html from the run's metrics.jsonl and its flags."""
    lines = report.read_metrics(os.path.join(output_dir, "metrics.jsonl"))
    sections = [
        report.Section("Learning curves", report.curves(lines, _PANELS))
    ]
    held_out = [line for line in lines if "eval/loss" in line]
    if held_out:
        names = sorted({name for line in held_out for name in line} - {"step"})
        rows = [
            [line["step"], *(line.get(name, "") for name in names)]
            for line in held_out
        ]
        header = ["step", *(name.removeprefix("eval/") for name in names)]
        sections.append(report.Section("Held out", report.table(header, rows)))
    flags = [[name, value] for name, value in settings.items()]
    sections.append(
        report.Section("Flags", report.table(["flag", "value"], flags))
    )
    report.write(
        os.path.join(output_dir, "report.html"), "Pre-training", sections
    )
