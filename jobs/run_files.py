"""The files that every fine-tuning run writes besides its task's.

The model directory with its card, report.html, eval_results.txt, and the flags
in run_config.json.
"""

import dataclasses
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from absl import logging

from data.tokenization import wordpiece
from foundation import file_system
from jobs import grid, model_card, report
from weights import model_directory

RUN_CONFIG = "run_config.json"
TEXT = "eval_results.txt"
JSON = "eval_results.json"
# Names the set of each output file: {"predictions.json": {"set": "dev-v1.1",
# "digest": "..."}, ...}
SETS = "predicted_sets.json"


def flags(output_dir: str) -> dict[str, Any]:
    """Returns the flags in a directory's run_config.json, {} without one.

    Raises:
      InputError: the file is not JSON.
    """
    path = os.path.join(output_dir, RUN_CONFIG)
    found = file_system.read_json(path) if file_system.exists(path) else {}
    return found if isinstance(found, dict) else {}


def training_flags(output_dir: str) -> dict[str, Any] | None:
    """Returns the flags of the training in a directory, None without one."""
    found = flags(output_dir)
    return found if found.get("do_train") else None


def writes_flags_first(output_dir: str, do_train: bool) -> bool:
    """Returns whether a command writes its flags before it begins.

    A training writes them when all checks have passed. A command that only
    predicts must not replace those of the training.
    """
    return not do_train and training_flags(output_dir) is None


def eval_results(values: Mapping[str, float], step: int) -> dict[str, float]:
    """Returns metrics under google-research/bert's names."""
    found = {f"eval_{name}": value for name, value in values.items()}
    return found | {"global_step": step, "loss": values["loss"]}


def write_eval_results(output_dir: str, values: Mapping[str, float]) -> None:
    """Writes metrics as sorted `name = value` lines, and as JSON."""
    file_system.make_folder(output_dir)
    lines = [f"{name} = {values[name]}" for name in sorted(values)]
    for line in lines:
        logging.info("  %s", line)
    file_system.write_text(
        os.path.join(output_dir, TEXT), "\n".join(lines) + "\n"
    )
    path = os.path.join(output_dir, JSON)
    file_system.write_json(path, dict(sorted(values.items())))


def weights_digest(model: Any) -> str:
    """Returns the SHA-256 of a model's weights."""
    sha = hashlib.sha256()
    for variable in model.weights:
        sha.update(keras.ops.convert_to_numpy(variable).tobytes())
    return sha.hexdigest()


def set_name(paths: Sequence[str]) -> str:
    """Returns a short name of the files of a set: "dev-v1.1", "a+b"."""
    ending = r"(\.(json|jsonl|txt|tsv|csv|conll|parquet))?(\.(gz|bz2|zst))?$"
    names = [re.sub(ending, "", os.path.basename(path)) for path in paths]
    return re.sub(r"[*?\[\]]+", "", "+".join(names)) or "set"


def keep_other_sets(
    output_dir: str, names: Sequence[str], *, name: str, digest: str
) -> None:
    """Renames the output files of other sets before they are overwritten.

    predictions.json of the set "dev" becomes predictions_dev.json. Files whose
    set is unknown get the name "earlier".

    Args:
      output_dir: the directory of the files.
      names: the released names of the files that are about to be written.
      name: a short name of the set that they are written for.
      digest: identifies the content of this set.
    """
    path = os.path.join(output_dir, SETS)
    sets = file_system.read_json(path) if file_system.exists(path) else {}
    for file in names:
        before = sets.get(file, {"set": "earlier", "digest": ""})
        old = os.path.join(output_dir, file)
        if before["digest"] != digest and file_system.exists(old):
            stem, ending = os.path.splitext(file)
            kept = f"{stem}_{before['set']}{ending}"
            if sets.get(kept, before)["digest"] != before["digest"]:
                kept = f"{stem}_{before['set']}-{before['digest'][:8]}{ending}"
            file_system.replace(old, os.path.join(output_dir, kept))
            logging.warning("%s is of another set and is kept as %s", old, kept)
            sets[kept] = before
        sets[file] = {"set": name, "digest": digest}
    file_system.make_folder(output_dir)
    file_system.write_json(path, sets)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFiles:
    """Writes the files of a run.

    Attributes:
      output_dir: of the job.
      tokenizer: of the model; None if no model is written.
      settings: all flags.
      given: the flags that differ from their defaults.
      trained_with: all flags of an earlier command's training, if this command
        does not train.
      results: of the grid's runs.
      is_chief: whether this process writes; others' calls have no effect.
    """

    output_dir: str
    tokenizer: wordpiece.Tokenizer | None = None
    settings: Mapping[str, Any]
    given: Mapping[str, Any]
    trained_with: Mapping[str, Any] | None = None
    results: grid.Results
    is_chief: bool = True

    @property
    def is_trained(self) -> bool:
        """Whether this command trains."""
        return self.results.seconds is not None

    def save_model(
        self,
        model: Any,
        *,
        labels: list[str] | None = None,
        problem_type: str | None = None,
    ) -> str | None:
        """Writes the model directory; see model_directory.save.

        Returns:
          The digest of the weights, for `begin_card`; None if the directory has
          a card of the same weights, which stays.
        """
        if not self.is_chief:
            return None
        model_directory.save(
            model,
            self.output_dir,
            self.tokenizer,
            labels=labels,
            problem_type=problem_type,
        )
        digest = weights_digest(model)
        return (
            None if digest == model_card.weights_of(self.output_dir) else digest
        )

    def begin_card(
        self,
        title: str,
        *,
        data: Mapping[str, str],
        labels: Sequence[str] | None = None,
        weights: str | None = None,
    ) -> None:
        """Writes the card of a newly trained model; see model_card.begin."""
        if self.is_chief and self.is_trained:
            model_card.begin(
                self.output_dir,
                title,
                data=data,
                flags=self.given,
                seconds=self.results.seconds,
                labels=labels,
                weights=weights,
            )

    def add_scores(
        self, name: str, *, data: Mapping[str, str], metrics: Mapping
    ) -> None:
        """Adds an evaluation to the card of the model in output_dir, if any."""
        is_here = self.is_trained or model_directory.has_model(self.output_dir)
        if self.is_chief and is_here:
            model_card.add_scores(
                self.output_dir, name, data=data, metrics=metrics
            )

    def report(
        self,
        title: str,
        *,
        values: Mapping[str, float],
        panels: Sequence[report.Panel],
        sections: Sequence[report.Section],
    ) -> None:
        """Writes report.html.

        Args:
          title: of the page.
          values: the metrics in eval_results.txt.
          panels: the learning curves of the kept run.
          sections: the task's own, shown after those of every task.
        """
        if not self.is_chief:
            return
        path = os.path.join(self.results.metrics_dir, "metrics.jsonl")
        rows = [[name, values[name]] for name in sorted(values)]
        shown = [
            report.Section("Results", report.table(["metric", "value"], rows))
        ]
        runs = self.results.table()
        if runs is not None:
            shown.append(report.Section("All runs", report.table(*runs)))
        curves = report.curves(report.read_metrics(path), panels)
        shown.append(report.Section("Learning curves", curves))
        shown += sections
        if self.trained_with is None:
            shown.append(_flags("Flags", self.settings))
        else:
            shown.append(_flags("Training", self.trained_with))
            shown.append(_flags("Flags", self.given))
        path = os.path.join(self.output_dir, "report.html")
        report.write(path, title, shown)


def _flags(title: str, flags: Mapping[str, Any]) -> report.Section:
    rows = [[name, str(value)] for name, value in flags.items()]
    return report.Section(title, report.table(["flag", "value"], rows))
