"""What a training step costs: operations and memory, from its graph.

The forward and the backward pass of one micro-batch are traced, not run. Matrix
products are counted, and tensors from the operation that writes them to the
last one that reads them:

    memory of a replica = 1.2 (weights + optimizer's slots
                               + most tensors in use at the same time)

where 1.2 is measured: TensorFlow's allocator keeps regions that are partly
free. Where XLA compiles a step it joins operations, and uses less.
"""

import collections
import contextlib
import dataclasses
import math
import os
import resource
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from training import feed
from training import step as steps

_BATCHES = 50  # That are read to learn their lengths.
_FLAGS = {
    "nothing": "without recomputation",
    "attention": "with --recompute_attention",
    "blocks": "with --recompute",
}
# Of compiled functions and the threads of TensorFlow.
_COMPILED_BYTES = 0.15 * 2**30
_ALLOCATED = 1.2  # Bytes of the process per byte of tensors.

# Operations whose result is their input, or an element of it.
_ALIASES = frozenset(
    "ExpandDims Identity IdentityN PreventGradient ReadVariableOp Reshape "
    "Squeeze StopGradient".split()
)
# Operations that may write their result over an input of the same size.
_IN_PLACE = frozenset(
    "Add AddN AddV2 BiasAdd Mul Neg RealDiv Rsqrt SelectV2 Softmax Square Sub "
    "Tanh".split()
)
_PRODUCTS = ("MatMul", "BatchMatMulV2", "BatchMatMulV3")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphCost:
    """The cost of the forward and backward pass of one micro-batch.

    Attributes:
        flops: floating-point operations of its matrix products.
        activation_bytes: most bytes of tensors in use at the same time, without
            weights and their gradients.
        peak_bytes: the same with the gradients of the weights.
    """

    flops: float
    activation_bytes: float
    peak_bytes: float


def trace(
    train_step: steps.TrainStep, features: Mapping[str, tf.TensorSpec]
) -> GraphCost:
    """Traces a step of a micro-batch and adds up its cost.

    Args:
        train_step: not run.
        features: features of static shape, [micro-batch, ...].
    """
    graph = train_step.gradient_graph(features)
    flops = sum(_flops(x) for x in graph.get_operations())
    return GraphCost(
        flops=flops,
        activation_bytes=_largest_sum(graph, with_results=False),
        peak_bytes=_largest_sum(graph, with_results=True),
    )


def training_flops(
    objective: steps.Objective,
    model: Any,
    features: Mapping[str, tf.TensorSpec],
) -> float:
    """Returns the operations of a training step that utilization counts.

    They are those of the forward pass and twice as many for its gradients.
    Padding is counted, because the hardware multiplies it; what the backward
    pass computes again is not.

    Args:
        objective: the model's losses.
        model: not run.
        features: features of static shape, [examples, ...].
    """
    function = tf.function(
        lambda x: objective.forward(model, x), autograph=False
    )
    with contextlib.ExitStack() as stack:
        for layer in _recomputing(model):
            stack.callback(setattr, layer, "recompute", layer.recompute)
            layer.recompute = "nothing"
        graph = function.get_concrete_function(dict(features)).graph
    return 3.0 * sum(_flops(x) for x in graph.get_operations())


def _recomputing(model: Any) -> list[Any]:
    """Returns the layers that can compute something again."""
    layers = model._flatten_layers()
    return [x for x in layers if hasattr(x, "recompute_choices")]


def _flops(operation: tf.Operation) -> float:
    """Returns 2 m n k of a product [..., m, k] [..., k, n], 0 of others."""
    shapes = [x.shape for x in (*operation.inputs, *operation.outputs)]
    if not all(shape.is_fully_defined() for shape in shapes):
        return 0.0
    if operation.type == "Einsum":
        inputs = operation.get_attr("equation").decode().split("->")[0]
        pairs = zip(inputs.split(","), shapes, strict=False)
        sizes = {k: n for x, y in pairs for k, n in zip(x, y, strict=True)}
        return 2.0 * math.prod(sizes.values())
    if operation.type not in _PRODUCTS:
        return 0.0
    name = "transpose_a" if operation.type == "MatMul" else "adj_x"
    inner = shapes[0][-2 if operation.get_attr(name) else -1]
    return 2.0 * inner * math.prod(shapes[-1])


def _largest_sum(graph: tf.Graph, *, with_results: bool) -> float:
    """Returns the most bytes in use at any operation, in order of creation."""
    operations = graph.get_operations()
    last_use: dict[Any, int] = {}
    # Tensor -> the tensor that owns its buffer.
    owner: dict[Any, Any] = {}
    resources = {x.ref() for x in graph.inputs}
    kept = {x.ref() for x in graph.outputs if x is not None}

    def own(tensor):
        return owner.get(tensor.ref(), tensor.ref())

    for number, operation in enumerate(operations):
        for tensor in operation.inputs:
            last_use[tensor.ref()] = number
    # The last use of a buffer is that of any of its aliases.
    for operation in operations:
        if operation.type in _ALIASES:
            for source, result in zip(
                operation.inputs, operation.outputs, strict=False
            ):
                owner[result.ref()] = own(source)
    buffer_use: dict[Any, int] = collections.defaultdict(int)
    for ref, number in last_use.items():
        root = owner.get(ref, ref)
        buffer_use[root] = max(buffer_use[root], number)
    results = {owner.get(ref, ref) for ref in kept}

    size: dict[Any, float] = {}
    frees: dict[int, list[Any]] = collections.defaultdict(list)
    now = largest = 0.0
    for number, operation in enumerate(operations):
        for tensor in operation.outputs:
            ref = tensor.ref()
            if ref in owner or ref in resources:
                continue
            if ref in results and not with_results:
                continue
            bytes_ = _bytes(tensor)
            if operation.type in _IN_PLACE:
                # The input's buffer, which is free from here on, is reused.
                for source in operation.inputs:
                    root = own(source)
                    is_last = buffer_use[root] == number
                    if is_last and size.get(root) == bytes_:
                        now -= size.pop(root)
                        break
            size[ref] = bytes_
            now += bytes_
            if ref not in results:
                frees[max(buffer_use[ref], number)].append(ref)
        largest = max(largest, now)
        for ref in frees.pop(number, ()):
            now -= size.pop(ref, 0.0)
    return largest


def _bytes(tensor: tf.Tensor) -> float:
    if tensor.dtype in (tf.resource, tf.variant, tf.string):
        return 0.0
    # Only loops, e.g. of an LSTM, have tensors of unknown shape.
    if tensor.op.type == "Const" or not tensor.shape.is_fully_defined():
        return 0.0
    return float(math.prod(tensor.shape)) * tensor.dtype.size


def _variable_bytes(variables: Iterable[Any]) -> float:
    return sum(math.prod(v.shape) * v.dtype.size for v in variables)


def _num_elements(variables: Iterable[Any]) -> int:
    return sum(math.prod(v.value.shape) for v in variables)


def resident_bytes(*, is_peak: bool = False) -> float:
    """Returns the memory that this process uses, or the most that it used."""
    if is_peak:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))


def available_bytes() -> float | None:
    """Returns the memory of the first GPU, or what is free on this machine.

    Memory of the GPU that other processes use is not subtracted.
    """
    try:
        if tf.config.list_logical_devices("GPU"):
            command = ["nvidia-smi", "--query-gpu=memory.total"]
            command.append("--format=csv,noheader,nounits")
            if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
                command.append(f"--id={visible.split(',')[0]}")
            text = subprocess.check_output(command, text=True)
            return float(text.split()[0]) * 2**20
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":") for line in file)
        return float(lines["MemAvailable"].split()[0]) * 1024.0
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return None  # Not Linux, or without NVIDIA's tool.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """The memory of one replica, in bytes.

    Attributes:
        program: memory of the process without the model; 0 on a GPU.
        weights: weights of the model.
        slots: slots of the optimizer.
        sums: sums of gradients over micro-batches; 0 for one micro-batch.
        gradients: gradients of a micro-batch.
        activations: activations of a micro-batch.
        peak: most of gradients and activations at the same time; the last
            activations are freed before the first gradients are there.
        by_choice: other choices of what the model computes again in the
            backward pass (see modeling.encoder.BertEncoder) -> their peak.
    """

    program: float
    weights: float
    slots: float
    sums: float
    gradients: float
    activations: float
    peak: float
    by_choice: Mapping[str, float]

    @property
    def total(self) -> float:
        """All of it, with what the allocator keeps."""
        tensors = self.weights + self.slots + self.sums + self.peak
        return self.program + _ALLOCATED * tensors

    def largest_batch(self, micro_batch: int, available: float) -> int:
        """Returns the most examples of a micro-batch that fit.

        Args:
            micro_batch: examples of the activations.
            available: bytes of a GPU, or those that are free on a machine
                whose CPU has weights and slots already; a tenth is left free.
        """
        free = 0.9 * available / _ALLOCATED - self.sums - self.gradients
        if not self.program:
            free -= self.weights + self.slots
        return max(0, int(free / self.activations * micro_batch))


class Estimate(NamedTuple):
    """The cost of a phase.

    Attributes:
        rows: examples of a batch, over all replicas.
        micro_batch: examples of a micro-batch.
        largest_micro_batch: examples of a micro-batch that fit into the memory
            of the device; None if its memory is not known.
        length_note: note on the length of batches, "" if all have the same
          length.
        num_parameters: number of parameters of the model.
        num_trained: those that the optimizer changes.
        flops: operations of a step on the mean batch, over all replicas.
        memory: memory of a replica, for the longest batch.
    """

    rows: int
    micro_batch: int
    largest_micro_batch: int | None
    length_note: str
    num_parameters: int
    num_trained: int
    flops: float
    memory: Memory

    @property
    def fits(self) -> bool:
        """Whether a micro-batch fits, or the device's memory is not known."""
        largest = self.largest_micro_batch
        return largest is None or largest >= self.micro_batch

    def lines(self, num_steps: int) -> list[str]:
        """Returns the lines of a report on a phase of so many steps."""
        memory = self.memory
        names = "program", "weights", "slots", "sums", "peak"
        gib = {name: f"{getattr(memory, name) / 2**30:.2f}" for name in names}
        sums = f" sums of gradients {gib['sums']}," if memory.sums else ""
        others = "".join(
            f", {memory.by_choice[choice] / 2**30:.2f} {flag}"
            for choice, flag in _FLAGS.items()
            if choice in memory.by_choice
        )
        batch_size = "the memory of the device is not known"
        if self.largest_micro_batch is not None:
            batch_size = (
                f"{self.largest_micro_batch:,} examples per replica and "
                "micro-batch fit into the memory of the device"
                + ("" if self.fits else f"; {self.micro_batch} do not")
            )
        return [
            f"parameters  {self.num_parameters:,}, {self.num_trained:,} of "
            "them trained",
            f"steps       {num_steps:,} of {self.rows:,} examples: "
            f"{num_steps * self.rows:,} examples in all" + self.length_note,
            f"operations  {self.flops:.3g} FLOP per step, "
            f"{self.flops * num_steps:.3g} in all",
            f"memory      {memory.total / 2**30:.2f} GiB per replica: program "
            f"{gib['program']}, weights {gib['weights']}, optimizer "
            f"{gib['slots']},{sums} activations and gradients {gib['peak']}"
            f"{others}; {_ALLOCATED - 1:.0%} of all but the program for the "
            "allocator",
            f"batch size  {batch_size}",
        ]


def estimate(
    learner: steps.Learner,
    train_step: steps.TrainStep,
    make_batches: feed.MakeBatches,
    *,
    replicas: int,
    accumulation: int,
) -> Estimate:
    """Estimates the cost of a phase without running a step.

    Args:
        learner: the model and its optimizer.
        train_step: the compiled step of the learner.
        make_batches: makes the batches of the phase.
        replicas: number of replicas that divide a batch.
        accumulation: micro-batches per replica and step.
    """
    batches = make_batches(first_batch=0, part=0, num_parts=1)
    spec = batches.element_spec
    rows = next(iter(spec.values())).shape[0]
    micro_batch = rows // (replicas * accumulation)
    shapes = {name: list(x.shape[1:]) for name, x in spec.items()}
    fraction, note = 1.0, ""
    if any(None in shape for shape in shapes.values()):
        # Batches of varying length: the largest of some, and their mean size.
        shapes_of_batches = [
            {name: x.shape[1:].as_list() for name, x in batch.items()}
            for batch in batches.take(_BATCHES)
        ]
        sizes = [
            sum(map(math.prod, batch.values())) for batch in shapes_of_batches
        ]
        shapes = shapes_of_batches[sizes.index(max(sizes))]
        fraction = sum(sizes) / len(sizes) / max(sizes)
        note = (
            f"; the mean batch has {fraction:.0%} of the longest one's tokens"
        )
    traced = {
        name: tf.TensorSpec([micro_batch, *shapes[name]], x.dtype)
        for name, x in spec.items()
    }
    trained = _variable_bytes(v.value for v in learner.optimizer.variables)

    def peak(shapes_of_batches):
        # The update needs the gradients and as many bytes of its own.
        return max(shapes_of_batches.peak_bytes, 2 * trained)

    cost = trace(train_step, traced)
    resident = resident_bytes()  # With a traced graph, as in training.
    by_choice = {}
    for layer in _recomputing(learner.model):
        chosen = layer.recompute
        for choice in {*layer.recompute_choices} - {chosen}:
            layer.recompute = choice
            by_choice[choice] = peak(trace(train_step, traced))
        layer.recompute = chosen
    weights = _variable_bytes(v.value for v in learner.model.variables)
    slots = _variable_bytes(learner.optimizer.slots.values())
    program = 0.0
    if not tf.config.list_logical_devices("GPU"):
        program = resident + _COMPILED_BYTES - weights - slots
    memory = Memory(
        program=program,
        weights=weights,
        slots=slots,
        # TensorFlow's loop keeps the sum before and after a micro-batch.
        sums=2 * trained if accumulation > 1 else 0.0,
        gradients=trained,
        activations=cost.activation_bytes,
        peak=peak(cost),
        by_choice=by_choice,
    )
    available = available_bytes()
    largest = None
    if available is not None:
        largest = memory.largest_batch(micro_batch, available)
    return Estimate(
        rows=rows,
        micro_batch=micro_batch,
        largest_micro_batch=largest,
        length_note=note,
        num_parameters=_num_elements(learner.model.variables),
        num_trained=_num_elements(learner.optimizer.variables),
        flops=cost.flops * fraction * replicas * accumulation,
        memory=memory,
    )
