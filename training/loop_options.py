"""What a run is told besides its parts; loop.train takes it."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How long, how often, from which seed.

    Attributes:
        seed: keys dropout.
        num_accumulation_steps: micro-batches per step and replica.
        iterations_per_loop: at most so many steps per compiled call.
        log_every: steps between lines of metrics.
        save_checkpoints_steps: steps between checkpoints.
        keep_checkpoint_max: how many of the last to keep; 0 keeps all.
        eval_every: steps between evaluations; 0 is never.
        best_metric: which of evaluate's values picks `best/`.
        higher_is_better: in which direction.
        patience: end after so many evaluations without a better one; 0 is
            never.
        jit_compile: whether XLA compiles forward and backward.
        compile_parts: whether it compiles parts of them, not the products.
        settings: the run's flags as JSON values, kept in its checkpoints.
        data_settings: which of them decide what records a step reads, or what
            the best step is told by; a resumed run may not change them.
        extendable_settings: which of those list what is read in turn, so that
            a resumed run may add to the end.
        allow_changed_data: whether it may change anything.
    """

    seed: int
    num_accumulation_steps: int = 1
    iterations_per_loop: int = 1000
    log_every: int = 100
    save_checkpoints_steps: int = 1000
    keep_checkpoint_max: int = 5
    eval_every: int = 0
    best_metric: str = "loss"
    higher_is_better: bool = False
    patience: int = 0
    jit_compile: bool = False
    compile_parts: bool = False
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    data_settings: Collection[str] = ()
    extendable_settings: Collection[str] = ()
    allow_changed_data: bool = False
