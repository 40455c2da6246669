"""Training: the runs of a grid, each of them, and the model that is kept.

network, step = train_all(session)
"""

import dataclasses
import functools
import gc
import math
import os
import sys
from collections.abc import Mapping
from typing import Any

from absl import logging

from data import length_groups
from finetuning import distillation, given_model, learner, record
from finetuning import head as heads
from finetuning import network as networks
from finetuning import session as sessions
from foundation import atomic, errors
from training import checkpoints, loop
from training import strategy as strategies


def train_all(session: sessions.Session) -> tuple[networks.Network, int]:
    """Trains the runs that have not ended; returns the best network, its step.

    A run that diverges has ended, too. A command that was killed continues with
    the run that it was training, from its last checkpoint, and ends with the
    same files.

    Raises:
      InputError: the directory has another training, or all runs diverge.
    """
    flags, journal = session.flags, session.record
    runs = record.plan(flags)
    teacher = None
    if flags.distillation.teacher_dir is not None:
        teacher = distillation.open_teacher(session)
    journal.begin(flags, session.made_from)
    if flags.is_grid:
        _score_single_run(session)
    network, trained = None, None
    for number, run in enumerate(runs, 1):
        if flags.is_grid:
            logging.info("run %d of %d: %s", number, len(runs), run.name)
        if run.name in journal.runs:
            logging.info("%s: has been trained already", run.directory)
        else:
            # Two models need not fit into memory. The compiled step is in a
            # cycle of references, which only the garbage collector frees.
            network = None
            if flags.is_grid:
                gc.collect()
            network, result = train(session, run, teacher)
            trained = run.name
            _finish(session, network, run, result)
        _remove_checkpoints(session, run)
    results = {run.name: journal.runs[run.name] for run in runs}
    reasons = [result["failed"] for result in results.values()]
    if all(reasons):
        raise errors.InputError(reasons[0])
    if flags.is_grid and session.is_writer:
        sys.stdout.write(record.table(results))
    best = journal.best
    if flags.is_grid:
        logging.info(
            "the model is that of %s at step %d", best["run"], best["step"]
        )
    if network is None or trained != best["run"]:
        network = None
        gc.collect()
        network = session.build(flags.random_seed)
        network.load(flags.output_dir)
    for split in session.task.sets:
        if not split.startswith("test"):
            session.note_set(split)
    session.write_card()
    return network, best["step"]


def _finish(
    session: sessions.Session,
    network: networks.Network,
    run: record.Run,
    result: Mapping[str, Any],
) -> None:
    """Keeps the model of a run that has ended, if it is the best so far.

    The model is written before the journal names its run. A command that is
    killed in between finds the run's last checkpoint, trains no step and writes
    the model again.
    """
    output_dir = session.flags.output_dir
    if session.record.is_best(run.name, result) and session.is_writer:
        for name, data in session.task.model_files().items():
            atomic.write_bytes(os.path.join(output_dir, name), data)
        network.head.save(network.model, output_dir, session.task.tokenizer)
    session.record.finish(run.name, result)


def _score_single_run(session: sessions.Session) -> None:
    """Evaluates a single run that has ended, before a grid is made of it."""
    for name, result in session.record.runs.items():
        if not result["values"] and not result["failed"]:
            network = session.build(session.flags.random_seed)
            network.load(session.flags.output_dir)
            evaluation = session.evaluate(network, (name, result["step"]))
            values = dict(evaluation.values)
            session.record.finish(name, {**result, "values": values})


def _remove_checkpoints(session: sessions.Session, run: record.Run) -> None:
    """Removes the checkpoints of a run that has ended, if none is kept."""
    keeps_some = session.flags.loop.keep_checkpoint_max > 0
    if keeps_some and not session.flags.is_grid:
        return
    strategies.wait_for_all(session.devices.strategy)  # They may read them.
    if session.is_writer:
        checkpoints.remove_all(run.directory)
        checkpoints.remove_all(os.path.join(run.directory, checkpoints.BEST))


def train(
    session: sessions.Session,
    run: record.Run,
    teacher: given_model.GivenModel | None = None,
) -> tuple[networks.Network, dict[str, Any]]:
    """Trains a run to its end, from its last checkpoint if it has one.

    Returns:
      The network with the weights of the run, those of the best evaluation if
      there are evaluations every few steps; and the result for the journal.

    Raises:
      InputError: there is less than one step, or a single run diverges.
    """
    flags, task = session.flags, session.task
    network = session.build(run.seed)
    objective: Any = network.head
    if teacher is None:
        features = session.features("train")
    else:
        features = distillation.with_targets(session, teacher)
        objective = heads.Student(
            network.head,
            flags.distillation.distillation_temperature,
            flags.distillation.distillation_weight,
        )
    hooks = _Hooks(session, network, run)
    if network.head.is_frozen:
        hooks.warm_start()
        features = network.head.prepare(
            network, features, flags.predict_batch_size, "train"
        )
    num_examples = task.epoch_size(features)
    # As google-research/bert counts them.
    num_steps = int(num_examples / run.batch_size * run.epochs)
    if num_steps < 1:
        raise errors.InputError(
            f"--train_batch_size={run.batch_size}: {num_examples} examples in "
            f"{run.epochs:g} epoch(s) do not fill one batch; lower it, or "
            "raise --num_train_epochs"
        )
    every, loop_flags = flags.eval_every_steps, flags.loop
    if flags.evaluates_each_epoch and not every:
        every = math.ceil(num_examples / run.batch_size)
        saves = min(every, loop_flags.save_checkpoints_steps)
        loop_flags = dataclasses.replace(
            loop_flags, save_checkpoints_steps=saves
        )
    batches = functools.partial(
        length_groups.train_batches,
        features,
        batch_size=run.batch_size,
        seed=run.seed,
        lengths=network.lengths_of(features),
    )
    result: dict[str, Any] = {"values": {}, "failed": ""}
    try:
        loop.train(
            learner.make_learner(
                flags,
                objective,
                network.model,
                strategy=session.devices.strategy,
                learning_rate=run.learning_rate,
                num_train_steps=num_steps,
                num_warmup_steps=int(num_steps * flags.warmup_proportion),
                rate_factors=learner.layer_factors(
                    network.model, flags.layer_decay
                ),
            ),
            strategy=session.devices.strategy,
            phases=[loop.Phase(num_steps, batches)],
            options=loop.Options(
                output_dir=run.directory,
                seed=run.seed,
                flags=loop_flags,
                selection=loop.Selection(
                    every=every,
                    keeps_best=flags.eval_every_steps > 0,
                    metric=record.SCORE,
                    higher_is_better=True,
                    patience=flags.early_stopping_patience,
                ),
                jit_compile=session.devices.uses_xla,
                compile_functions=session.devices.compiles_functions(num_steps),
            ),
            hooks=hooks,
        )
    except loop.Diverged as error:
        if not flags.is_grid:
            raise
        logging.warning("%s: %s", run.name, error.reason)
        result |= {"step": error.step, "seconds": error.seconds}
        return network, result | {"failed": error.reason}
    best = os.path.join(run.directory, checkpoints.BEST)
    step = network.restore(best) if flags.eval_every_steps else 0
    result["step"] = step or network.restore(run.directory)
    result["seconds"] = loop.last_state(run.directory).get("seconds", 0.0)
    if flags.is_grid:
        values = session.evaluate(network, (run.name, result["step"])).values
        result["values"] = dict(values)
        if not math.isfinite(values[record.SCORE]):
            result["failed"] = (
                f"step {result['step']}: the score on the development set is "
                f"{values[record.SCORE]}"
            )
    return network, result


class _Hooks(loop.Hooks):
    """What the loop calls in a run."""

    def __init__(
        self,
        session: sessions.Session,
        network: networks.Network,
        run: record.Run,
    ):
        self._session, self._network, self._run = session, network, run

    def warm_start(self) -> None:
        """See loop.Hooks."""
        model = self._session.task.model
        self._network.warm_start(model.start, labels=model.labels)

    def evaluate(self, phase: int, step: int) -> Mapping[str, float]:
        """See loop.Hooks."""
        return self._session.evaluate(
            self._network, (self._run.name, step), is_training=True
        ).values
