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

from data.tokenization import vocabulary, wordpiece
from foundation import config_flags, progress, stamp
from jobs import assembly, model_card, report, run_directory
from modeling import models
from modeling.config import BertConfig
from tasks.pretraining import (
    objectives,
    pretraining_data,
    pretraining_report,
    redrawn_masks,
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
    masks = None
    if config.mask_fractions:
        masks = redrawn_masks.make(
            config.mask_fractions,
            shards["input_file"],
            config.do_whole_word_mask,
            tokenizer,
            config.random_seed,
        )
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
        masks=masks,
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PretrainingJob(loop.Hooks):
    """A model, its objective and the records to train and evaluate it on."""

    config: settings.PretrainingConfig
    strategy: Any
    objective: objectives.PretrainingObjective  # Of the last phase.
    model: Any  # Made in strategy.scope(), with random weights.
    tokenizer: wordpiece.Tokenizer | None  # None if it is not known.
    phases: Sequence[pretraining_data.Phase]
    masks: redrawn_masks.RedrawnMasks | None = None  # None: stored masks.

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
        causal_learner = dataclasses.replace(
            learner, objective=self._objectives[True]
        )
        if self.masks is not None:
            draw = functools.partial(
                self.masks.draw, assembly.progress_of(num_steps)
            )
            learner = dataclasses.replace(learner, prepare=draw)
        settings = self.settings
        assembly.check_settings(config.output_dir, settings)
        assembly.write_run_config(config, self.strategy)
        loop.train(
            learner,
            strategy=self.strategy,
            phases=[
                loop.Phase(
                    phase.num_steps,
                    phase.train.train_batches(*self._order(index)),
                    name=f"length {phase.name}" if len(self.phases) > 1 else "",
                    learner=causal_learner if phase.left_to_right else learner,
                    speed=self._throughput(phase),
                    describe_batch=functools.partial(
                        phase.train.describe_batch, *self._order(index)
                    ),
                    find_damage=phase.train.check_records,
                )
                for index, phase in enumerate(self.phases)
            ],
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

    @functools.cached_property
    def _objectives(self) -> dict[bool, objectives.PretrainingObjective]:
        """The objectives, by whether a phase is left to right."""
        config = self.config
        left_to_right = objectives.PretrainingObjective(
            config.objective,
            config.next_sentence_loss_weight,
            left_to_right=True,
        )
        return {False: self.objective, True: left_to_right}

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
        architecture = self.model.config
        sections, ends = [], self._ends()
        baseline = {}
        part = self.config.eval_batch_size, self._num_batches(last.held_out)
        if self.objective.name != "left_to_right":
            baseline = pretraining_data.baseline(last.held_out, *part)
        if self._shows_predictions:
            predictions = self._predictor(last.held_out, *part)
            sections = pretraining_report.accuracy(
                predictions, last.train, self._words
            )
        is_held_out = last.held_out is not last.train
        evaluated_on = _HELD_OUT if is_held_out else "training records"
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
                "training records": sum(
                    {x.lengths: x.train.total for x in self.phases}.values()
                ),
                "of training": progress.duration(
                    loop.training_seconds(config.output_dir)
                ),
            },
            results=pretraining_report.Results(
                values, baseline, evaluated_on=evaluated_on
            ),
            data=self._data(ends),
            sections=sections,
            left_to_right=[
                f"{first + 1:,} to {end:,}"
                for phase, first, end in zip(
                    self.phases, ends, ends[1:], strict=False
                )
                if phase.left_to_right and end > first
            ],
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

    @property
    def _words(self) -> vocabulary.Vocabulary | None:
        return self.tokenizer.vocabulary if self.tokenizer else None

    @property
    def _shows_predictions(self) -> bool:
        """Whether the report shows predictions: not on several machines."""
        return (
            self.objective.name != "left_to_right"
            and not strategies.is_multi_worker(self.strategy)
            and not strategies.is_tpu(self.strategy)
        )

    @functools.cached_property
    def _predictor(self) -> pretraining_report.Predictor:
        return pretraining_report.Predictor(
            self.objective, self.model, self._words
        )

    def samples(self, phase: int) -> Sequence[Mapping[str, Any]]:
        """Returns predictions of held-out masked words; see loop.Hooks."""
        is_causal = self.phases[phase].left_to_right
        if self._words is None or is_causal or not self._shows_predictions:
            return []
        batch_size = pretraining_report.NUM_SAMPLES
        held_out = self.phases[phase].held_out
        predictions = self._predictor(held_out, batch_size, 1)
        return pretraining_report.samples(predictions, self._words)

    def _order(self, phase: int) -> tuple[int, int]:
        """Returns the batch size and the seed of the order of the records.

        A second phase on the same shards reads them in another order.
        """
        config, length = self.config, self.phases[phase].lengths
        earlier = sum(x.lengths == length for x in self.phases[:phase])
        return config.train_batch_size, config.random_seed + earlier

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
    def _evaluators(self) -> dict[bool, inference.Evaluator]:
        return {
            left_to_right: inference.Evaluator(
                objective, self.model, strategy=self.strategy
            )
            for left_to_right, objective in self._objectives.items()
        }

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
        evaluator = self._evaluators[self.phases[phase].left_to_right]
        try:
            values = evaluator(
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
