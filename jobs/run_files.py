"""The files that every fine-tuning run leaves: model, card, report."""

import dataclasses
import hashlib
import json
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


def flags(output_dir: str) -> dict[str, Any]:
    """Returns the flags that a folder's run was given, none if none are told.

    Raises:
      InputError: the file that tells them is no JSON.
    """
    path = os.path.join(output_dir, RUN_CONFIG)
    found = file_system.read_json(path) if file_system.exists(path) else {}
    return found if isinstance(found, dict) else {}


def training_flags(output_dir: str) -> dict[str, Any] | None:
    """Returns the flags that a folder was trained with, None if it was not."""
    found = flags(output_dir)
    return found if found.get("do_train") else None


def is_noted_first(output_dir: str, *, do_train: bool) -> bool:
    """Tells whether a command's flags are to be noted before it begins.

    Those of training are noted when it has begun; those of a question to what
    was trained in a folder are not, as training's stay there.
    """
    return not do_train and training_flags(output_dir) is None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFiles:
    """Where a run's files go, and what all of them mention.

    Attributes:
      output_dir: of the job.
      tokenizer: what text is read with; None where no model is written.
      settings: all flags.
      given: those that differ from their defaults.
      trained_with: all flags of an earlier command that trained, if this one
        does not.
      results: of the grid's runs.
      is_chief: whether this process writes; the others' calls do nothing.
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
          What tells the model from others, for its card to begin with; None if
          the card that lies there is of this very model, and stays.
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
        weights = _digest(model)
        known = model_card.weights_of(self.output_dir)
        return None if weights == known else weights

    def begin_card(
        self,
        title: str,
        *,
        data: Mapping[str, str],
        labels: Sequence[str] | None = None,
        weights: str | None = None,
    ) -> None:
        """Writes the card of a model that was trained; see model_card."""
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
        """Puts an evaluation in the card of the model that was asked.

        It is that of output_dir, if there is one.
        """
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
          values: of eval_results.txt.
          panels: the learning curves to draw, of the run that was kept.
          sections: what the task shows besides.
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


def _digest(model: Any) -> str:
    sha = hashlib.sha256()
    for variable in model.weights:
        sha.update(keras.ops.convert_to_numpy(variable).tobytes())
    return sha.hexdigest()


# ----------------------------------------------------------------------
# Writes eval_results.txt as google-research/bert does, and as JSON.

TEXT = "eval_results.txt"
JSON = "eval_results.json"


def named(values: Mapping[str, float], step: int) -> dict[str, float]:
    """Returns metrics by the names that google-research/bert gives them."""
    found = {f"eval_{name}": value for name, value in values.items()}
    return found | {"global_step": step, "loss": values["loss"]}


def write_eval_results(output_dir: str, values: Mapping[str, float]) -> None:
    """Writes one `name = value` line each, sorted, and the same as JSON."""
    file_system.make_folder(output_dir)
    lines = [f"{name} = {values[name]}" for name in sorted(values)]
    for line in lines:
        logging.info("  %s", line)
    file_system.write_text(
        os.path.join(output_dir, TEXT), "\n".join(lines) + "\n"
    )
    text = json.dumps(dict(values), indent=2, sort_keys=True) + "\n"
    file_system.write_text(os.path.join(output_dir, JSON), text)


# Names the set of each output file: {"predictions.json": {"set": "dev-v1.1",
# "digest": "..."}, ...}
SETS = "predicted_sets.json"


def set_name(paths: Sequence[str]) -> str:
    """Returns a short name of the files of a set: "dev-v1.1", "a+b"."""
    ending = r"(\.(json|jsonl|txt|tsv|csv|conll))?(\.(gz|bz2))?$"
    names = [re.sub(ending, "", os.path.basename(path)) for path in paths]
    return "+".join(names)


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
