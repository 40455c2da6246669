"""Trains and evaluates a pre-training model, and reports on it.

run(flags)
  PretrainingJob        checks the files and opens the devices
  PretrainingJob.train  all phases; the model
  PretrainingJob.evaluate_model   the held-out records of the last phase
  PretrainingJob.write_pages      the report and the model card
"""

import functools
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from finetuning import devices as devices_lib
from finetuning import learner, pages, record, report
from foundation import atomic, config_flags, file_system, progress
from modeling import models
from tasks.pretraining import (
    objectives,
    pretraining_data,
    pretraining_report,
    settings,
)
from training import inference, loop, metric_writer, throughput
from training import strategy as strategies
from weights import model_directory, pretrained

_HELD_OUT = "held out"
_RUN = "pretraining"  # The only run in the journal.
_RESULTS = "eval_results.txt"


def run(flags: settings.PretrainingFlags) -> None:
    """Trains, saves and evaluates a model, as the flags say.

    Raises:
      InputError: files do not fit together, or output_dir has another model.
    """
    job = PretrainingJob(flags)
    step, values, warning = 0, None, None
    if flags.do_train:
        step = job.train()
    if flags.do_eval:
        step, values = job.evaluate_model()
    if flags.do_train:
        warning = job.write_pages(step, values)
    logging.info("all files are in %s", flags.output_dir)
    if warning is not None:
        logging.warning("%s", warning)


class PretrainingJob(loop.Hooks):
    """A model, its objective and the records to train and evaluate it on."""

    # Of the model card.
    title = "pre-training on one's own text"
    datasets = labels = ()

    def __init__(self, flags: settings.PretrainingFlags):
        """Checks the flags against the files, and opens the devices."""
        self.flags = flags
        config = pretrained.read_config(flags.bert_config_file)
        model_directory.check_output_dir(flags.output_dir, config)
        if flags.do_train:
            model_directory.check_not_the_start(
                flags.output_dir, flags.init_checkpoint
            )
        shards = pretraining_data.find_shards(flags.input_file, flags.eval_file)
        # Before the first record is read, which initializes the devices.
        self.devices = devices_lib.open_devices(flags.devices, flags.output_dir)
        self.tokenizer = pretraining_data.find_tokenizer(
            shards["input_file"],
            flags.vocab_file,
            flags.do_lower_case,
            flags.init_checkpoint,
        )
        self.objective = objectives.PretrainingObjective(
            flags.objective, flags.next_sentence_loss_weight
        )
        self.phases = pretraining_data.open_phases(
            shards,
            flags.phase_specs,
            config,
            self.tokenizer,
            has_pairs=self.objective.predicts_next_sentence,
            redraws=flags.dynamic_masking,
        )
        self.devices.check_batch_sizes(eval_batch_size=flags.eval_batch_size)
        if flags.do_train:
            self.devices.check_batch_sizes(
                flags.loop.gradient_accumulation_steps,
                train_batch_size=flags.train_batch_size,
            )
        with self.devices.strategy.scope():
            self.model = models.PretrainingModel(
                config,
                attention=self.objective.attention,
                next_sentence=self.objective.predicts_next_sentence,
                recompute=flags.loop.recompute,
                seed=flags.random_seed,
                dtype=self.devices.dtype_policy,
            )
        self.journal = record.RunRecord(
            flags.output_dir,
            is_chief=self.devices.is_chief and not flags.loop.dry_run,
        )
        self._evaluator = inference.Evaluator(
            self.objective, self.model, strategy=self.devices.strategy
        )
        # The held-out batches of each phase, which have one pipeline each.
        self._held_out_batches = [
            phase.held_out.eval_batches(flags.eval_batch_size)
            for phase in self.phases
        ]
        # The last evaluation, by the phase of its data and its step.
        self._evaluated: dict[tuple[int, int], Mapping[str, float]] = {}

    @property
    def pipeline_tag(self) -> str:
        """The Hub's name of what the model does."""
        is_causal = self.objective.is_left_to_right
        return "text-generation" if is_causal else "fill-mask"

    def train(self) -> int:
        """Trains through all phases and writes the model; returns its step."""
        flags, strategy = self.flags, self.devices.strategy
        num_steps = sum(phase.num_steps for phase in self.phases)
        if flags.num_warmup_steps >= num_steps:
            logging.warning(
                "--num_warmup_steps=%d, but all steps are %d: the learning "
                "rate never reaches its peak",
                flags.num_warmup_steps,
                num_steps,
            )
        # A run that has ended goes on if it is given more steps.
        self.journal.begin(flags, self._made_from, goes_on=True)
        loop.train(
            learner.make_learner(
                flags,
                self.objective,
                self.model,
                strategy=strategy,
                learning_rate=flags.learning_rate,
                num_train_steps=num_steps,
                num_warmup_steps=flags.num_warmup_steps,
            ),
            strategy=strategy,
            phases=[self._phase(phase) for phase in self.phases],
            options=loop.Options(
                output_dir=flags.output_dir,
                seed=flags.random_seed,
                flags=flags.loop,
                selection=loop.Selection(every=flags.eval_every_steps),
                jit_compile=self.devices.uses_xla,
                compile_functions=self.devices.compiles_functions(num_steps),
            ),
            hooks=self,
        )
        self.export(flags.output_dir)
        state = loop.last_state(flags.output_dir)
        self.journal.finish(
            _RUN,
            {
                "step": state["step"],
                "seconds": state["seconds"],
                "values": {},
                "failed": "",
            },
        )
        for phase in self.phases:
            self._note_set(f"training, length {phase.name}", phase.train)
        return state["step"]

    @property
    def _made_from(self) -> dict[str, Any]:
        """What a training reads, by lengths: a run may get more phases."""
        found: dict[str, Any] = {}
        for phase in self.phases:
            name, train, held_out = phase.name, phase.train, phase.held_out
            found[f"--input_file of length {name}"] = (
                f"{train.total} records in {len(train.paths)} shard(s), "
                f"contents {train.contents}"
            )
            if self.flags.eval_every_steps:
                # By their losses the best checkpoint is chosen.
                found[f"--eval_file of length {name}"] = held_out.contents
                found[f"records evaluated of length {name}"] = (
                    self._num_evaluated(held_out)
                )
        return found

    def _note_set(self, name: str, records: pretraining_data.ShardSet) -> None:
        self.journal.note_set(
            name,
            path=os.path.dirname(records.paths[0]),
            digest=records.contents,
            examples=records.total,
        )

    def _phase(self, phase: pretraining_data.Phase) -> loop.Phase:
        """Returns a phase for the loop."""
        train, config = phase.train, self.model.config
        order = self.flags.train_batch_size, self.flags.random_seed
        make_batches = train.train_batches(*order)
        if phase.masks is not None:
            make_batches = phase.masks.batches(make_batches, order[1])
        length = phase.lengths.max_seq_length
        speed = throughput.Throughput(
            tokens=length,
            flops=throughput.training_flops(
                sum(
                    math.prod(x.shape)
                    for x in self.model.variables
                    if "embeddings" not in x.path
                ),
                length,
                num_layers=config.num_hidden_layers,
                hidden_size=config.hidden_size,
            ),
            peak=throughput.peak(self.devices.strategy, self.devices.precision),
        )
        return loop.Phase(
            phase.num_steps,
            make_batches,
            name=f"length {phase.name}" if len(self.phases) > 1 else "",
            speed=speed,
            describe_batch=functools.partial(train.describe_batch, *order),
            find_damage=train.check_records,
        )

    def warm_start(self) -> None:
        """Assigns the weights of --init_checkpoint; see loop.Hooks."""
        pretrained.assign(
            self.model, self.flags.init_checkpoint, tokenizer=self.tokenizer
        )

    def export(self, directory: str) -> None:
        """Writes a model directory; see loop.Hooks."""
        if self.journal.is_chief:
            model_directory.save(self.model, directory, self.tokenizer)

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
            or self.objective.is_left_to_right
            or self.devices.is_multi_worker
            or strategies.is_tpu(self.devices.strategy)
        ):
            return []
        return pretraining_report.samples(
            self._predict,
            self.phases[phase].held_out,
            self.tokenizer.vocabulary,
        )

    def _num_batches(self, records: pretraining_data.ShardSet) -> int:
        """Returns how many batches of a set an evaluation reads."""
        total = -(-records.total // self.flags.eval_batch_size)
        return min(self.flags.max_eval_steps or total, total)

    def _num_evaluated(self, records: pretraining_data.ShardSet) -> int:
        """Returns how many records of a set an evaluation reads."""
        most = self._num_batches(records) * self.flags.eval_batch_size
        return min(most, records.total)

    def evaluate(self, phase: int, step: int) -> Mapping[str, float]:
        """Evaluates on the held-out data of a phase; see loop.Hooks.

        The same weights are evaluated once.
        """
        if (phase, step) not in self._evaluated:
            held_out = self.phases[phase].held_out
            most = self._num_batches(held_out)
            try:
                values = self._evaluator(
                    self._held_out_batches[phase],
                    max_steps=most,
                    num_batches=most,
                )
            except loop.DAMAGED:
                held_out.check_records()  # Names a damaged record.
                raise
            # The exponential of a larger loss would overflow.
            perplexity = math.exp(min(values["masked_lm_loss"], 700.0))
            values = {**values, "masked_lm_perplexity": perplexity}
            self._evaluated = {(phase, step): values}
        return self._evaluated[phase, step]

    def evaluate_model(self) -> tuple[int, dict[str, float]]:
        """Evaluates the trained model, else the weights of --init_checkpoint.

        Writes the metrics on the held-out records of the last phase into
        eval_results.txt.

        Returns:
          The step of the model, 0 if it was not trained here, and the metrics.

        Raises:
          InputError: there are no weights.
        """
        output_dir, held_out = self.flags.output_dir, self.phases[-1].held_out
        step = loop.restore_model(self.model, output_dir)
        if step is None:
            pretrained.require_weights(self.flags.init_checkpoint)
            self.warm_start()
        values = dict(self.evaluate(len(self.phases) - 1, step or 0))
        logging.info(
            "results on %d of %d records: %s",
            self._num_evaluated(held_out),
            held_out.total,
            metric_writer.in_words(values),
        )
        if self.journal.is_chief:
            lines = values | {"global_step": step or 0}
            text = "".join(
                f"{name} = {lines[name]}\n" for name in sorted(lines)
            )
            file_system.make_folder(output_dir)  # Nothing was trained there.
            atomic.write_text(os.path.join(output_dir, _RESULTS), text)
        if step is not None:
            self._note_set(_HELD_OUT, held_out)
            self.journal.note_evaluation(
                _HELD_OUT, values=values, note="", by_label=[]
            )
        return step or 0, values

    def write_pages(
        self, step: int, values: Mapping[str, float] | None
    ) -> str | None:
        """Writes the report and the card; returns a warning of the result.

        Args:
          step: the last step of the training.
          values: metrics of the model; None if it was not evaluated.
        """
        flags, last, config = self.flags, self.phases[-1], self.model.config
        if not self.journal.is_chief:
            return None
        pages.write_card(self.journal, self, self)
        constant = {}
        if not self.objective.is_left_to_right:
            constant = pretraining_data.baseline(
                last.held_out,
                flags.eval_batch_size,
                self._num_batches(last.held_out),
            )
        is_held_out = last.held_out is not last.train
        given = config_flags.given(flags)
        others = config_flags.flat_values(flags)
        path = self.phases[0].train.paths[0]
        name = re.sub(r"-\d+-of-\d+|\.tf_?record", "", os.path.basename(path))
        folder = os.path.basename(os.path.dirname(path))
        return pretraining_report.write(
            flags.output_dir,
            title=f"Pre-training: {os.path.join(folder, name)}",
            flags=report.flags(
                given, {k: x for k, x in others.items() if k not in given}
            ),
            facts={
                "layers": config.num_hidden_layers,
                "hidden units": config.hidden_size,
                "parameters": self.model.count_params(),
                "training steps": step,
                "training records": sum(x.train.total for x in self.phases),
                "of training": progress.duration(
                    self.journal.runs[_RUN]["seconds"]
                ),
            },
            values=values,
            constant=constant,
            evaluated_on=_HELD_OUT if is_held_out else "training records",
            data=self._data(step),
        )

    def _data(self, step: int) -> list[list[Any]]:
        """Returns the rows of the report's table of data."""
        rows: list[list[Any]] = []
        for phase in self.phases:
            train, held_out = phase.train, phase.held_out
            steps = min(phase.num_steps, step)
            step -= steps
            passes = steps * self.flags.train_batch_size / train.total
            sizes = len(train.paths), train.total
            rows.append(["training", phase.name, steps, *sizes, passes])
            if held_out is not train:
                sizes = len(held_out.paths), held_out.total
                rows.append([_HELD_OUT, phase.name, "", *sizes, ""])
        return rows
