r"""Shows which operands of matrix products XLA transposes in memory first.

    XLA_FLAGS="--xla_dump_to=D --xla_dump_hlo_as_text" ...a training step...
    python benchmarks/hlo_transposes.py D

cuBLAS reads either order of a matrix: a fusion that only transposes what a
product reads next costs time for nothing. The table counts the operands of all
products by what writes them, and names the largest transposed ones.
"""

import collections
import glob
import math
import os
import re
import sys
from typing import NamedTuple

_SIZES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "f32": 4, "s32": 4}
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
_INSTRUCTION = re.compile(
    r"^\s*(?:ROOT )?%?(?P<name>[\w.-]+) = (?P<shape>\(.*?\)|\S+) "
    r"(?P<kind>[\w-]+)\((?P<operands>[^)]*)\)(?P<rest>.*)$"
)
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.-]+) .*\{$")
_CALLS = re.compile(r"calls=%?([\w.-]+)")
_SOURCE = re.compile(r'op_name="([^"]*)"')
_PRODUCTS = (
    "__cublas",
    "__triton_gemm",
    "__triton_nested_gemm",
    "__cudnn$fusion",
)
# Instructions that pass their operand on as it is.
_VIEWS = "bitcast", "get-tuple-element", "copy-done"


class Instruction(NamedTuple):
    """One line of a program."""

    name: str
    shape: str
    kind: str
    operands: list[str]
    rest: str


class Operand(NamedTuple):
    """What a product reads: who wrote it, how much, for which operation."""

    writer: str
    megabytes: float
    source: str


def find(directory: str) -> str | None:
    """Returns the path of the largest optimized program of a dump."""
    pattern = os.path.join(glob.escape(directory), "*after_optimizations.txt")
    return max(glob.glob(pattern), key=os.path.getsize, default=None)


def read(path: str) -> dict[str, dict[str, Instruction]]:
    """Returns the instructions of every computation, by name."""
    program: dict[str, dict[str, Instruction]] = {}
    current: dict[str, Instruction] = {}
    with open(path) as file:
        for line in file:
            match = _COMPUTATION.match(line)
            if match:
                current = program.setdefault(match[1], {})
                continue
            match = _INSTRUCTION.match(line)
            if match:
                names = re.findall(r"%([\w.-]+)", match["operands"])
                current[match["name"]] = Instruction(
                    match["name"],
                    match["shape"],
                    match["kind"],
                    names,
                    match["rest"],
                )
    return program


def operands(path: str) -> list[Operand]:
    """Returns the operands of all matrix products of a program."""
    program = read(path)
    found = []
    for computation in program.values():
        for product in computation.values():
            is_plain = product.kind == "dot"
            if not is_plain and not any(x in product.rest for x in _PRODUCTS):
                continue
            for name in product.operands[:2]:
                writer = _writer(name, computation)
                if writer is None:
                    continue
                source = _SOURCE.search(product.rest)
                found.append(
                    Operand(
                        _kind(writer, program),
                        _megabytes(computation[name].shape),
                        source[1] if source else product.name,
                    )
                )
    return found


def _writer(
    name: str, computation: dict[str, Instruction]
) -> Instruction | None:
    """Returns the instruction that writes an operand, through views."""
    instruction = computation.get(name)
    while instruction and instruction.kind in _VIEWS and instruction.operands:
        instruction = computation.get(instruction.operands[0])
    return instruction


def _kind(
    writer: Instruction, program: dict[str, dict[str, Instruction]]
) -> str:
    """Returns "transpose" for a writer that also transposes."""
    called = _CALLS.search(writer.rest)
    inner = program.get(called[1], {}) if called else {}
    kinds = {writer.kind, *(x.kind for x in inner.values())}
    if "transpose" in kinds:
        return "transpose" if len(kinds - _CHEAP) == 1 else "fusion, transposes"
    return writer.kind


# Beside these a fusion that transposes does other work as well.
_CHEAP = {"fusion", "parameter", "bitcast", "convert", "copy", "tuple"}


def _megabytes(shape: str) -> float:
    total = 0
    for dtype, sizes in _SHAPE.findall(shape):
        elements = math.prod(int(n) for n in sizes.split(",") if n)
        total += elements * _SIZES.get(dtype, 4)
    return total / 1e6


def table(path: str, largest: int = 12) -> str:
    """Returns Markdown: operands by writer, and the largest transposed ones."""
    found = operands(path)
    counts: dict[str, list[float]] = collections.defaultdict(list)
    for operand in found:
        counts[operand.writer].append(operand.megabytes)
    lines = [
        "| operands of products, written by | number | MB |",
        "|---|---|---|",
    ]
    for writer, sizes in sorted(counts.items(), key=lambda x: -sum(x[1])):
        lines.append(f"| {writer} | {len(sizes)} | {sum(sizes):.1f} |")
    transposed = [x for x in found if "transpose" in x.writer]
    transposed.sort(key=lambda x: -x.megabytes)
    if transposed:
        lines += ["", "| largest transposed operands | MB |", "|---|---|"]
    for x in transposed[:largest]:
        lines.append(f"| `{x.source[-70:]}`, {x.writer} | {x.megabytes:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    path = find(sys.argv[1]) if len(sys.argv) == 2 else None
    if path is None:
        sys.exit("hlo_transposes.py DIRECTORY: with *after_optimizations.txt")
    print(table(path))
