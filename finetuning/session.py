"""What a command needs to compute: devices, networks, features, evaluations."""

import functools
import os
from typing import Any

from absl import logging

from data import features as features_lib
from finetuning import devices as devices_lib
from finetuning import given_model, record, task
from finetuning import head as heads
from finetuning import network as networks
from foundation import atomic, file_system
from training import metric_writer
from weights import checkpoint_sources, model_directory

RESULTS = "eval_results.txt"
# The names of the records, as google-research/bert has them.
_RECORDS = {"train": "train", "dev": "eval"}
# While training, smaller sets are predicted without copies of the weights,
# whose making takes longer.
_FEW_TOKENS = 50_000


class Session:
    """The devices, the directory and the task of a command.

    Attributes:
      flags: the flags.
      task: the task with its sets.
      head: the head of the task.
      devices: the devices.
      record: the journal of --output_dir.
      is_writer: whether this process writes the files of the command.
    """

    def __init__(self, flags: Any, task: task.Task):
        """Opens the devices; `task` has been read and checked.

        Raises:
          InputError: the directory has another model, a device is missing, or
            a batch cannot be divided.
        """
        model_directory.check_output_dir(flags.output_dir, task.model.config)
        self.flags, self.task = flags, task
        self.devices = devices_lib.open_devices(flags.devices, flags.output_dir)
        sizes = {"predict_batch_size": flags.predict_batch_size}
        if task.dev_sets:
            sizes["eval_batch_size"] = flags.evaluation_batch_size
        self.devices.check_batch_sizes(**sizes)
        parts = flags.loop.gradient_accumulation_steps
        for size in flags.train_batch_size if flags.do_train else ():
            self.devices.check_batch_sizes(parts, train_batch_size=size)
        self.is_writer = self.devices.is_chief and not flags.loop.dry_run
        self.record = record.RunRecord(
            flags.output_dir, is_chief=self.is_writer
        )
        self.head = task.head()
        # The evaluations of the best weights and of the last, by their step.
        self._evaluations: dict[Any, Any] = {}

    def build(
        self,
        seed: int,
        model: given_model.GivenModel | None = None,
        head: heads.Head | None = None,
    ) -> networks.Network:
        """Builds a network with random weights of a seed.

        It has the size of `model` and the head `head`, by default those of the
        task.
        """
        start, flags = (model or self.task.model).start, self.flags
        return networks.Network(
            head or self.head,
            start.config,
            devices=self.devices,
            max_seq_length=flags.max_seq_length,
            seed=seed,
            attention=start.settings.attention,
            bilstm_size=start.settings.bilstm_size,
            recompute=flags.loop.recompute,
        )

    def load(self) -> tuple[networks.Network, int]:
        """Loads the model of a command that does not train, and its step."""
        model = self.task.model
        network = self.build(self.flags.random_seed)
        if model.unfinished_dir is None:
            network.load(model.weights, self.task.tokenizer)
            return network, model.record.best.get("step", 0)
        step = network.restore(model.unfinished_dir)
        logging.info(
            "using the checkpoint of step %d in %s, whose training has not "
            "ended",
            step,
            model.unfinished_dir,
        )
        return network, step

    @functools.cached_property
    def made_from(self) -> dict[str, Any]:
        """What a training reads: digests of sets and weights, settings."""
        digests = {
            split: examples.summary.digest
            for split, examples in self.task.sets.items()
            if not split.startswith("test")
        }
        weights = {
            "init_checkpoint contents": self.task.model.weights,
            "teacher_dir contents": self.flags.distillation.teacher_dir,
        }
        return {
            **digests,
            **{
                name: checkpoint_sources.digest(path)
                for name, path in weights.items()
                if path is not None
            },
            "tokenizer": features_lib.tokenizer_recipe(self.task.tokenizer),
            "precision in fact": self.devices.precision,
            **self.task.settings,
        }

    def features(self, split: str) -> features_lib.Features:
        """Returns the features of a set with targets.

        They are kept as records in --output_dir, if the task has a schema for
        them, and made again when something has changed.
        """
        task, examples = self.task, self.task.sets[split]

        def make() -> features_lib.Features:
            encoded = ((example, task.encode(example)) for example in examples)
            return task.features(encoded, with_targets=True)

        schema = task.records(split)
        if schema is None or not self.is_writer:
            return make()
        kind, _, suffix = split.partition("_")
        name = "_".join(filter(None, [_RECORDS[kind], suffix]))
        return features_lib.stored(
            os.path.join(self.flags.output_dir, f"{name}.tf_record"),
            schema,
            task.tokenizer,
            {"examples": examples.summary.digest, **task.settings},
            make,
        )

    @functools.cached_property
    def _dev(self) -> dict[str, task.Encoded]:
        """The development sets, in memory."""
        sets = {}
        for split in self.task.dev_sets:
            examples = list(self.task.sets[split])
            sets[split] = task.Encoded(self.task, examples)
            sets[split].features = self.features(split)
        return sets

    def evaluate(
        self,
        network: networks.Network,
        trained: Any = None,
        *,
        is_training: bool = False,
    ) -> task.Evaluation:
        """Evaluates a network on the development sets.

        Args:
          network: the network.
          trained: identifies its weights, which are evaluated once; None for
            other weights.
          is_training: whether its weights will change and be evaluated again.

        Returns:
          The evaluation of the first set, with the metrics of the others, whose
          names begin with that of the set, as in "mismatched_accuracy".
        """
        kept = self._evaluations
        if trained in kept:
            return kept[trained]
        tokens = sum(int(x.features.sizes.sum()) for x in self._dev.values())
        weights_change = is_training and tokens < _FEW_TOKENS
        found, values = [], dict[str, float]()
        for split, encoded in self._dev.items():
            features = network.head.prepare(
                network, encoded.features, self.flags.predict_batch_size, split
            )
            outputs = network.predict(
                features,
                self.flags.evaluation_batch_size,
                weights_change=weights_change,
            )
            examples = self.task.sets[split]
            found.append(self.task.evaluate(examples, encoded, outputs))
            prefix = f"{split}_".removeprefix("dev_")
            values |= {
                f"{prefix}{name}": value
                for name, value in found[-1].values.items()
                # Runs are compared by the first.
                if not prefix or name != record.SCORE
            }
        evaluation = task.Evaluation(**{**vars(found[0]), "values": values})
        # Another graph may round otherwise while the weights change.
        if trained is not None and not weights_change:
            scores = {x: kept[x].values[record.SCORE] for x in kept}
            best = max(scores, key=scores.__getitem__, default=trained)
            self._evaluations = {best: kept.get(best, evaluation)}
            self._evaluations[trained] = evaluation
        return evaluation

    def note_evaluation(
        self, split: str, evaluation: task.Evaluation, step: int
    ) -> None:
        """Writes what is known of a set: metrics and the files of the task.

        Those of development sets go to eval_results.txt and report.html.
        """
        is_dev, values = split.startswith("dev"), evaluation.values
        if values:
            logging.info(
                "results on %s: %s",
                self.task.sets[split].path,
                metric_writer.in_words(values),
            )
            if evaluation.note:
                logging.info("  %s", evaluation.note)
        if not self.is_writer:
            return
        files = dict(evaluation.files)
        if values:
            name = RESULTS if is_dev else f"scores_{split}.txt"
            prefix = "eval" if is_dev else split
            lines = {f"{prefix}_{name}": x for name, x in values.items()}
            lines |= {"global_step": step} if is_dev else {}
            text = "".join(f"{x} = {lines[x]}\n" for x in sorted(lines))
            files.setdefault(name, text.encode())
        file_system.make_folder(self.flags.output_dir)
        for name, data in files.items():
            path = os.path.join(self.flags.output_dir, name)
            atomic.write_bytes(path, data)
        if evaluation.found:
            self.record.write(flags={**self.record.flags, **evaluation.found})
        self.note_set(split)
        if is_dev and values:
            from finetuning import pages  # Matplotlib takes a second.

            pages.write_report(self.record, self.task, evaluation, step)
        if self.record.best:  # The model was trained here.
            if values:
                self.record.note_evaluation(
                    split,
                    values=dict(evaluation.values),
                    note=evaluation.note,
                    by_label=[list(row) for row in evaluation.by_label],
                )
            self.write_card()

    def write_card(self) -> None:
        """Writes the card of the model that was trained in --output_dir."""
        from finetuning import pages

        if self.is_writer:
            pages.write_card(self.record, self.task, self.head)

    def note_set(self, split: str, **facts: Any) -> None:
        """Notes in the journal what a set is, and further facts of it."""
        examples = self.task.sets[split]
        now = {
            "path": examples.path,
            "digest": examples.summary.digest,
            "examples": examples.summary.count,
            **facts,
        }
        before = self.record.sets.get(split, {})
        if before.get("digest") == now["digest"]:
            now = {**before, **now}
        self.record.note_set(split, **now)
