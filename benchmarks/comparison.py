"""Comparisons with a peer: processes that take turns, and scores over seeds.

A comparison of speed starts its script once for each side. Every side prepares
its work, then does it once for each line of its standard input. The sides take
turns, so that other load on the machine slows all of them alike:

    compare_speed(__file__, config, title="MRPC", done=800, unit="examples")
        starts the script with --side=ours and with --side=peer
    serve(config, make_ours, make_peer)
        does the work in the process of a side

A comparison of scores trains both sides with the same seeds:

    compare_scores("MRPC accuracy", {"ours": [...], "peer": [...]})
"""

import collections
import dataclasses
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import load
import smoke

from foundation import atomic, config_flags, errors

field = config_flags.field
PEER_PYTHON = "Python with absl-py, torch and transformers; None: ours only."
PRECISION = "Of both sides; auto as in the commands."


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpeedComparison:
    """The flags of every comparison of speed."""

    peer_python: str | None = field(PEER_PYTHON, None)
    precision: Literal["auto", "float32", "bfloat16"] = field(PRECISION, "auto")
    rounds: int = field("Turns of each side.", 3)
    side: Literal["both", "ours", "peer"] = field(
        "Set by the script itself.", "both"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreComparison:
    """The flags of every comparison of scores."""

    init_checkpoint: str = field("A model directory that both sides read.")
    output_dir: str = field("Directory for all runs.")
    peer_python: str | None = field(PEER_PYTHON, None)
    learning_rate: float = field("Peak learning rate.", 5e-5)
    num_train_epochs: float = field("Epochs.", 3.0)
    train_batch_size: int = field("Examples per step.", 32)
    bias_correction: bool = field(
        "Whether our optimizer corrects the bias of its moments, as PyTorch's "
        "AdamW does.",
        False,
    )
    peer_schedule: Literal["released", "transformers"] = field(
        "Decay of the peer's learning rate: from step 0 (released) or from the "
        "end of the warm-up (transformers).",
        "transformers",
    )
    precision: Literal["auto", "float32", "bfloat16"] = field(PRECISION, "auto")
    num_seeds: int = field("Runs of each side, with seeds 1, 2, ...", 5)

    OUR_FLAGS = (
        "init_checkpoint",
        "learning_rate",
        "num_train_epochs",
        "train_batch_size",
        "bias_correction",
        "precision",
    )

    def check_recipe(self) -> None:
        """Stores the flags beside the runs, which are not repeated.

        Raises:
          InputError: the runs in output_dir were made with other flags.
        """
        from foundation import metadata  # Not in the environments of peers.

        recipe = dataclasses.asdict(self)
        for name in ("output_dir", "peer_python", "num_seeds"):
            del recipe[name]
        recipe.pop("num_peer_seeds", None)
        path = os.path.join(self.output_dir, "recipe.json")
        found = metadata.read_if_present(path, metadata.Object) or {}
        if not found and os.path.isdir(self.output_dir):
            raise errors.InputError(
                f"--output_dir={self.output_dir}: exists, but has no "
                "recipe.json; take another"
            )
        refuse_other_recipe(self.output_dir, found or recipe, recipe)
        os.makedirs(self.output_dir, exist_ok=True)
        atomic.write_json(path, recipe)

    def our_flags(self, *names: str, **others: object) -> list[str]:
        """Returns --name=value for OUR_FLAGS, the named fields, and others."""
        given = {
            name: getattr(self, name) for name in (*self.OUR_FLAGS, *names)
        }
        given |= others
        return [f"--{k}={v}" for k, v in given.items() if v is not None]

    def peer_flags(self, **others: object) -> list[str]:
        """Returns the flags that squad_peer.py and tagging_peer.py have."""
        given = {
            "model": self.init_checkpoint,
            "learning_rate": self.learning_rate,
            "epochs": self.num_train_epochs,
            "batch_size": self.train_batch_size,
            "schedule": self.peer_schedule,
            "precision": resolve_precision(self.precision),
        }
        return [f"--{k}={v}" for k, v in {**given, **others}.items()]


def refuse_other_recipe(
    where: str, found: Mapping[str, Any], recipe: Mapping[str, Any]
) -> None:
    """Raises InputError if results in `where` were made with other flags."""
    changed = [
        f"--{name}"
        for name in sorted({*found, *recipe})
        if found.get(name) != recipe.get(name)
    ]
    if changed:
        raise errors.InputError(
            f"{', '.join(changed)}: {where} was made with other values; take "
            "another --output_dir"
        )


class _Medians(NamedTuple):
    """Medians over the turns of a side."""

    seconds: float
    processor_seconds: float


def command(script: str, config: Any, python: str, **changes) -> list[str]:
    """Returns the command line that starts a script with a configuration.

    Args:
      script: path of the script.
      config: a dataclass whose fields are the script's flags.
      python: the interpreter.
      **changes: fields with other values.
    """
    flags = {**dataclasses.asdict(config), **changes}
    given = [f"--{k}={v}" for k, v in flags.items() if v is not None]
    return [python, os.path.abspath(script), *given]


def run(arguments: Sequence[str]) -> float:
    """Runs a command without its output; returns its processor seconds.

    Raises:
      InputError: it failed.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(arguments, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise errors.InputError(
            f"{arguments[1]} failed with exit code {done.returncode}; the same "
            "command continues"
        )
    return sum(after[:2]) - sum(before[:2])


def resolve_precision(name: str) -> str:
    """Returns the precision that "auto" means on this machine."""
    from training import precision

    return precision.choose(name)


def peer_groupings(group_by_length: str) -> dict[str, dict[str, str]]:
    """Returns the peers to measure, for compare_speed.

    Args:
      group_by_length: "off", "on" or "both": whether the peer groups examples
        of similar length, as the Trainer of transformers does if
        group_by_length is set. It is off by default there.
    """
    labels = {"off": "peer", "on": "peer with group_by_length"}
    chosen = labels if group_by_length == "both" else [group_by_length]
    return {labels[x]: {"peer_group_by_length": x} for x in chosen}


def compare_speed(
    script: str,
    config: SpeedComparison,
    *,
    title: str,
    done: int,
    unit: str,
    peers: Mapping[str, Mapping[str, object]] | None = None,
) -> None:
    """Lets the sides of a script take turns and prints their speeds.

    Args:
      script: path of the script, which is started with --side.
      config: its flags.
      title: start of every printed line.
      done: units of work per turn.
      unit: name of the unit, in the plural.
      peers: label -> flags with other values for this peer; None is one peer.

    Raises:
      InputError: other programs took too much of the machine for a ratio.
    """
    config = dataclasses.replace(
        config, precision=resolve_precision(config.precision)
    )
    sides = {"ours": command(script, config, sys.executable, side="ours")}
    if config.peer_python:
        for label, changes in (peers or {"peer": {}}).items():
            sides[label] = command(
                script, config, config.peer_python, side="peer", **changes
            )
    medians, others = _measure(sides, rounds=config.rounds)
    title = f"{title}, {config.precision}"
    for label, x in medians.items():
        print(
            f"{title}, {label}: {done / x.seconds:.2f} {unit}/s, "
            f"{done / x.processor_seconds:.2f} per processor second"
        )
    ours = medians.pop("ours")
    if medians and others > load.MOST and not smoke.is_smallest:
        raise errors.InputError(
            f"no ratio: other programs took {others:.0%} of the cores, and may "
            f"take {load.MOST:.0%}; measure again when they have ended"
        )
    for label, peer in medians.items():
        by_processor = peer.processor_seconds / ours.processor_seconds
        print(
            f"{title}, ratio ours / {label}: "
            f"{peer.seconds / ours.seconds:.2f}, by CPU time "
            f"{by_processor:.2f}",
            flush=True,
        )


def serve(
    config: SpeedComparison,
    make_ours: Callable[[Any], Callable[[], Any]],
    make_peer: Callable[[Any], Callable[[], Any]],
    *,
    warm_up_runs: int = 1,
) -> None:
    """Does the work of one side once for each line of standard input.

    Args:
      config: its `side` selects one of the two functions.
      make_ours: takes the configuration, returns a function that does the work.
      make_peer: the same for the peer.
      warm_up_runs: runs before the first measured one, to compile.
    """
    run = (make_ours if config.side == "ours" else make_peer)(config)
    for _ in range(warm_up_runs):
        run()
    print(json.dumps("ready"), flush=True)
    for _ in sys.stdin:
        started, used = time.perf_counter(), time.process_time()
        run()
        seconds = time.perf_counter() - started
        print(json.dumps([seconds, time.process_time() - used]), flush=True)


def compare_scores(title: str, scores: Mapping[str, Sequence[float]]) -> bool:
    """Prints mean and standard deviation of each side and their distance.

    Args:
      title: start of the line.
      scores: "ours" and, if it was run, "peer": one score per seed.

    Returns:
      Whether the means differ by more than three standard errors. False if a
      side has only one seed: its standard error is not known.
    """
    shown = []
    for side, values in scores.items():
        found = f"{side} {statistics.fmean(values):.4f}"
        if len(values) > 1:
            found += f" +- {statistics.stdev(values):.4f}"
        shown.append(f"{found} ({len(values)})")
    apart = 0.0
    if "peer" in scores:
        both = scores["ours"], scores["peer"]
        difference = statistics.fmean(both[0]) - statistics.fmean(both[1])
        shown.append(f"difference {difference:+.4f}")
        if min(map(len, both)) > 1:
            error = math.hypot(
                *(statistics.stdev(x) / math.sqrt(len(x)) for x in both)
            )
            apart = difference / error if error else 0.0
            shown.append(f"{apart:+.1f} standard errors")
    print(f"{title}: {'; '.join(shown)}", flush=True)
    return abs(apart) > 3


def _measure(
    commands: Mapping[str, Sequence[str]], *, rounds: int
) -> tuple[dict[str, _Medians], float]:
    """Starts all sides, waits until all are ready, and lets them take turns.

    Returns:
      The medians of the sides, and the fraction of the cores that other
      programs took meanwhile.
    """
    sides = {name: _start(command) for name, command in commands.items()}
    try:
        for name, process in sides.items():
            _read_line(name, process)
        turns = collections.defaultdict(list)
        measured = load.Load()
        for _ in range(rounds):
            for name, process in sides.items():
                process.stdin.write("\n")
                process.stdin.flush()
                turns[name].append(_read_line(name, process))
        others = measured.of_others() or 0.0
    finally:
        for process in sides.values():
            process.kill()
            process.wait()
    medians = {
        name: _Medians(*map(statistics.median, zip(*x, strict=True)))
        for name, x in turns.items()
    }
    return medians, others


def _start(command: Sequence[str]) -> subprocess.Popen:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )


def _read_line(name: str, process: subprocess.Popen) -> Any:
    """Returns the next line of JSON; libraries print other lines."""
    for line in process.stdout:
        try:
            return json.loads(line)
        except ValueError:
            continue
    sys.exit(f"{name} ended early with code {process.wait()}")
