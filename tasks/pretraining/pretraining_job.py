"""Trains and evaluates a pre-training model, and reports on it.

main -> run(config)
  open_job                  checks the files and opens the devices
  PretrainingJob.train      all phases; the model, its card, the report
  PretrainingJob.evaluate_model   the held-out records of the last phase
"""

import dataclasses
import functools
import itertools
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from data.tokenization import wordpiece
from foundation import config_flags, progress, stamp
from jobs import assembly, model_card, report, run_directory
from modeling import models
from modeling.config import BertConfig
from tasks.pretraining import (
    dynamic_masks,
    objectives,
    pretraining_data,
    pretraining_report,
    settings,
)
from training import feed, inference, loop, precision, throughput
from training import strategy as strategies
from weights import model_directory, pretrained

_HELD_OUT = "held out"


def run(config: settings.PretrainingConfig) -> None:
    """Trains, saves and evaluates a model, as the flags say."""
    job = open_job(config)
    warning = None
    if config.do_train:
        warning = job.train()
    if config.do_eval:
        warning = job.evaluate_model()
    run_directory.announce(config.output_dir)
    if warning is not None:
        logging.warning("%s", warning)


def open_job(config: settings.PretrainingConfig) -> "PretrainingJob":
    """Checks the flags against the files, and opens the devices.

    Raises:
      InputError: files do not fit together, or output_dir has another model.
    """
    phase_specs = config.phase_specs
    bert_config = pretrained.read_config(config.bert_config_file)
    model_directory.check_output_dir(config.output_dir, bert_config)
    if config.do_train:
        check_warmup(config.num_warmup_steps, phase_specs)
        model_directory.check_not_the_start(
            config.output_dir, config.init_checkpoint
        )
    shards = pretraining_data.find_shards(config.input_file, config.eval_file)
    # Before the first record is read, which initializes the devices.
    strategy = assembly.make_strategy(config.devices, config.output_dir)
    tokenizer = pretraining_data.find_tokenizer(
        shards["input_file"],
        config.vocab_file,
        config.do_lower_case,
        config.init_checkpoint,
    )
    phases = pretraining_data.open_phases(
        shards,
        phase_specs,
        bert_config,
        tokenizer,
        has_pairs=config.objective == "masked_lm_and_next_sentence",
    )
    assembly.check_batch_sizes(
        config,
        strategy,
        train=[config.train_batch_size] if config.do_train else [],
        others={"eval_batch_size": config.eval_batch_size},
    )
    if config.dynamic_masking:
        phases = [
            phase._replace(
                masks=dynamic_masks.of_shards(
                    phase.train.paths,
                    phase.lengths.max_predictions_per_seq,
                    tokenizer,
                )
            )
            for phase in phases
        ]
    run_directory.begin(config, is_chief=strategies.is_chief(strategy))
    objective = objectives.PretrainingObjective(
        config.objective, config.next_sentence_loss_weight
    )
    return PretrainingJob(
        config=config,
        strategy=strategy,
        objective=objective,
        model=make_model(bert_config, objective, strategy, config),
        tokenizer=tokenizer,
        phases=phases,
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PretrainingJob(loop.Hooks):
    """A model, its objective and the records to train and evaluate it on."""

    config: settings.PretrainingConfig
    strategy: Any
    objective: objectives.PretrainingObjective
    model: Any  # Made in strategy.scope(), with random weights.
    tokenizer: wordpiece.Tokenizer | None  # None if it is not known.
    phases: Sequence[pretraining_data.Phase]

    def train(self) -> str | None:
        """Trains through all phases and writes the model and the report.

        Returns:
          A warning about the result; None if `evaluate_model` will return it.
        """
        config = self.config
        num_steps = sum(phase.num_steps for phase in self.phases)
        learner = assembly.make_learner(
            config,
            self.objective,
            self.model,
            strategy=self.strategy,
            learning_rate=config.learning_rate,
            num_train_steps=num_steps,
            num_warmup_steps=config.num_warmup_steps,
        )
        settings = self.settings
        assembly.check_settings(config.output_dir, settings)
        assembly.write_run_config(config, self.strategy)
        loop.train(
            learner,
            strategy=self.strategy,
            phases=[self._phase(phase) for phase in self.phases],
            options=assembly.loop_options(
                config,
                num_steps,
                output_dir=config.output_dir,
                seed=config.random_seed,
                selection=loop.Selection(every=config.eval_every_steps),
                settings=settings,
            ),
            hooks=self,
        )
        self.export(config.output_dir)
        if strategies.is_chief(self.strategy):
            self._begin_card()
            if not self.config.do_eval:
                return self._write_report()
        return None

    def _phase(self, phase: pretraining_data.Phase) -> loop.Phase:
        """Returns a phase for the loop."""
        config, train = self.config, phase.train
        order = config.train_batch_size, config.random_seed
        make_batches = train.train_batches(*order)
        if phase.masks is not None:
            make_batches = phase.masks.batches(make_batches, config.random_seed)
        return loop.Phase(
            phase.num_steps,
            make_batches,
            name=f"length {phase.name}" if len(self.phases) > 1 else "",
            speed=self._throughput(phase),
            describe_batch=functools.partial(train.describe_batch, *order),
            find_damage=train.check_records,
        )

    @property
    def settings(self) -> stamp.Stamp:
        """The settings that a resumed run compares."""
        architecture = {
            f"bert_config_file's {name}": value
            for name, value in self.model.config.to_dict().items()
        }
        # One value for each phase: a run may be continued with more phases.
        records = {
            "input_file": [x.train.fingerprint for x in self.phases],
            # A name of its own: the checkpoints of versions that did not
            # compare contents lack it, so their runs can continue.
            "input_file contents": [x.train.contents for x in self.phases],
        }
        compared = assembly.settings_of(
            self.config,
            self.strategy,
            stamp.flags("execution", architecture)
            | pretrained.contents(self.config.init_checkpoint)
            | stamp.flags("records", records, extendable=True),
        )
        if self.config.eval_every_steps == 0:
            return compared
        # The best checkpoint is chosen by losses on the same held-out records.
        held_out = [phase.held_out for phase in self.phases]
        evaluation = {
            # These names, too, are missing in checkpoints of earlier versions.
            "eval_file contents": [x.contents for x in held_out],
            "max_eval_steps in records": list(
                map(self._num_evaluated, held_out)
            ),
        }
        return compared | stamp.flags("evaluation", evaluation, extendable=True)

    def export(self, directory: str) -> None:
        """Writes a model directory; see loop.Hooks."""
        if strategies.is_chief(self.strategy):
            config_flags.write_run_config(self.config, directory)
            model_directory.save(self.model, directory, self.tokenizer)

    def _num_batches(self, records: pretraining_data.ShardSet) -> int:
        """Returns how many batches of a set an evaluation reads."""
        total = -(-records.total // self.config.eval_batch_size)
        return min(self.config.max_eval_steps or total, total)

    def _num_evaluated(self, records: pretraining_data.ShardSet) -> int:
        """Returns how many records of a set an evaluation reads."""
        most = self._num_batches(records) * self.config.eval_batch_size
        return min(most, records.total)

    def evaluate_model(self) -> str | None:
        """Evaluates the trained model, else the weights of --init_checkpoint.

        Writes the metrics on the held-out records of the last phase into
        eval_results.txt; after a training, also writes the report.

        Returns:
          A warning about the result of the training, if there is one.

        Raises:
          InputError: there are no weights.
        """
        output_dir = self.config.output_dir
        step = loop.restore_model(self.model, output_dir)
        if step is None:
            pretrained.require_weights(self.config.init_checkpoint)
            self.warm_start()
        held_out = self.phases[-1].held_out
        values = dict(self.evaluate(len(self.phases) - 1, step or 0))
        evaluated = self._num_evaluated(held_out)
        if evaluated < held_out.total:
            logging.info(
                "evaluated %d of %d records: --max_eval_steps=%d",
                evaluated,
                held_out.total,
                self.config.max_eval_steps,
            )
        if strategies.is_chief(self.strategy):
            values["global_step"] = step or 0
            run_directory.keep_other_sets(
                output_dir,
                (run_directory.RESULTS_TEXT, run_directory.RESULTS_JSON),
                name=run_directory.set_name(held_out.paths[:1]),
                digest=f"{held_out.fingerprint} {held_out.contents}",
            )
            run_directory.write_eval_results(output_dir, values)
            data = {_HELD_OUT: _described(held_out)}
            if step is not None:
                model_card.add_scores(
                    output_dir, _HELD_OUT, data=data, metrics=values
                )
            if self.config.do_train:
                return self._write_report(values)
        return None

    def warm_start(self) -> None:
        """Assigns the weights of --init_checkpoint; see loop.Hooks."""
        pretrained.assign(
            self.model, self.config.init_checkpoint, tokenizer=self.tokenizer
        )

    def _begin_card(self) -> None:
        """Writes the card of new weights."""
        digest = run_directory.weights_digest(self.model)
        output_dir = self.config.output_dir
        if digest == model_card.weights_of(output_dir):
            return
        is_causal = self.objective.name == "left_to_right"
        model_card.begin(
            output_dir,
            "BERT, pre-trained",
            data={
                f"training, length {x.lengths.max_seq_length}": _described(
                    x.train
                )
                for x in self.phases
            },
            flags=config_flags.given(self.config),
            seconds=loop.training_seconds(output_dir),
            pipeline_tag="text-generation" if is_causal else "fill-mask",
            weights=digest,
        )

    def _write_report(
        self, values: Mapping[str, float] | None = None
    ) -> str | None:
        """Writes the report; returns its warning about the result."""
        config, last = self.config, self.phases[-1]
        architecture, ends = self.model.config, self._ends()
        constant = {}
        if self.objective.name != "left_to_right":
            constant = pretraining_data.baseline(
                last.held_out,
                config.eval_batch_size,
                self._num_batches(last.held_out),
            )
        is_held_out = last.held_out is not last.train
        given_flags = config_flags.given(config)
        other_flags = {
            name: value
            for name, value in config_flags.flat_values(config).items()
            if name not in given_flags
        }
        path = self.phases[0].train.paths[0]
        name = re.sub(r"-\d+-of-\d+|\.tf_?record", "", os.path.basename(path))
        folder = os.path.basename(os.path.dirname(path))
        return pretraining_report.write(
            config.output_dir,
            title=f"Pre-training: {os.path.join(folder, name)}",
            flags=report.flags(given_flags, other_flags),
            facts={
                "layers": architecture.num_hidden_layers,
                "hidden units": architecture.hidden_size,
                "parameters": self.model.count_params(),
                "training steps": ends[-1],
                "training records": sum(x.train.total for x in self.phases),
                "of training": progress.duration(
                    loop.training_seconds(config.output_dir)
                ),
            },
            values=values,
            constant=constant,
            evaluated_on=_HELD_OUT if is_held_out else "training records",
            data=self._data(ends),
        )

    def _data(self, ends: Sequence[int]) -> list[list[Any]]:
        """Returns the rows of the report's table of data; see `_ends`."""
        rows: list[list[Any]] = []
        for phase, first, end in zip(self.phases, ends, ends[1:], strict=False):
            train, held_out, name = phase.train, phase.held_out, phase.name
            passes = (end - first) * self.config.train_batch_size / train.total
            shards = len(train.paths)
            rows.append(
                ["training", name, end - first, shards, train.total, passes]
            )
            if held_out is not train:
                shards = len(held_out.paths)
                rows.append([_HELD_OUT, name, "", shards, held_out.total, ""])
        return rows

    def _ends(self) -> list[int]:
        """Returns 0 and the last step of each phase, as far as it is done."""
        state = loop.last_state(self.config.output_dir)
        ends = list(itertools.accumulate(x.num_steps for x in self.phases))
        done = state.get("step", ends[-1])
        return [min(end, done) for end in (0, *ends)]

    @functools.cached_property
    def _predict(self) -> pretraining_report.Predict:
        assert self.tokenizer is not None
        return pretraining_report.make_predict(
            self.objective, self.model, len(self.tokenizer.vocabulary)
        )

    def samples(self, phase: int) -> Sequence[Mapping[str, Any]]:
        """Returns predictions of held-out masked words; see loop.Hooks."""
        if (
            self.tokenizer is None
            or self.objective.name == "left_to_right"
            or strategies.is_multi_worker(self.strategy)
            or strategies.is_tpu(self.strategy)
        ):
            return []
        return pretraining_report.samples(
            self._predict,
            self.phases[phase].held_out,
            self.tokenizer.vocabulary,
        )

    def _throughput(
        self, phase: pretraining_data.Phase
    ) -> throughput.Throughput:
        """Returns the report of the speed of a phase."""
        length, architecture = phase.lengths.max_seq_length, self.model.config
        dtype = precision.choose(self.config.devices.precision)
        return throughput.Throughput(
            tokens=length,
            flops=throughput.training_flops(
                sum(
                    math.prod(x.shape)
                    for x in self.model.variables
                    if "embeddings" not in x.path
                ),
                length,
                num_layers=architecture.num_hidden_layers,
                hidden_size=architecture.hidden_size,
            ),
            peak=throughput.peak(self.strategy, dtype),
        )

    @functools.cached_property
    def _evaluator(self) -> inference.Evaluator:
        return inference.Evaluator(
            self.objective, self.model, strategy=self.strategy
        )

    @functools.cached_property
    def _held_out_batches(self) -> list[feed.MakeBatches]:
        """The held-out batches of each phase.

        Evaluations with the same function share one pipeline.
        """
        size = self.config.eval_batch_size
        return [phase.held_out.eval_batches(size) for phase in self.phases]

    @functools.cached_property
    def _evaluated(self) -> dict[tuple[int, int], Mapping[str, float]]:
        """The last evaluation, by the phase of its data and its step."""
        return {}

    def evaluate(self, phase: int, step: int) -> Mapping[str, float]:
        """Evaluates on the held-out data of a phase; see loop.Hooks.

        The same weights are evaluated once.
        """
        if (phase, step) in self._evaluated:
            return self._evaluated[phase, step]
        held_out = self.phases[phase].held_out
        most = self._num_batches(held_out)
        try:
            values = self._evaluator(
                self._held_out_batches[phase], max_steps=most, num_batches=most
            )
        except loop.DAMAGED:
            held_out.check_records()  # Names a damaged record.
            raise
        # The exponential of a larger loss would overflow.
        perplexity = math.exp(min(values["masked_lm_loss"], 700.0))
        values = {**values, "masked_lm_perplexity": perplexity}
        self._evaluated.clear()
        self._evaluated[phase, step] = values
        return values


def _described(records: pretraining_data.ShardSet) -> str:
    folder = os.path.basename(os.path.dirname(records.paths[0]))
    return (
        f"{records.total:,} records in {len(records.paths)} shards of "
        f"{folder}, contents {records.contents}"
    )


def make_model(
    bert_config: BertConfig,
    objective: objectives.PretrainingObjective,
    strategy: Any,
    config: settings.PretrainingConfig,
) -> models.PretrainingModel:
    """Makes the model of an objective with random weights."""
    with strategy.scope():
        return models.PretrainingModel(
            bert_config,
            attention=objective.attention,
            next_sentence=objective.predicts_next_sentence,
            recompute=assembly.recomputed(config.loop),
            seed=config.random_seed,
            dtype=assembly.dtype_policy(config.devices),
        )


def check_warmup(
    num_warmup_steps: int, phases: Sequence[settings.PhaseSpec]
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
