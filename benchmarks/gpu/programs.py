"""Reads compiled programs: kernels, the bytes that they move, loops, and how they are launched.

XLA writes the program's instructions (HLO), and the thunks that its runtime executes. A kernel's
bytes are those of its operands and results; of an operand that it only slices or gathers from, the
bytes of the slices. Caches are not counted on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import jax

_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4}
_BYTES |= {"s64": 8, "u64": 8, "f64": 8, "c64": 8, "c128": 16}
_ARRAY = re.compile(r"\b(" + "|".join(_BYTES) + r")\[([\d,]*)\]")
_COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%(?P<name>[\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(
    r"^\s*(?:ROOT )?%(?P<name>[\w.\-]+) = (?P<type>.*?) (?P<op>[\w\-]+)\((?P<rest>.*)$"
)
_OPERAND = re.compile(r"%([\w.\-]+)")

# Operations that take no kernel.
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call"}
_FREE |= {"opt-barrier", "after-all", "partition-id", "conditional"}
_SLICING = {"slice", "dynamic-slice", "gather"}


class Instruction(NamedTuple):
    name: str
    type: str
    op: str
    operands: list[str]
    attributes: str  # the line's text after the operands


class Kernel(NamedTuple):
    name: str
    op: str
    bytes: int  # read and written


@dataclass(frozen=True)
class Program:
    """A compiled program.

    Attributes:
        computations: the instructions of each computation, by its name.
        entry: the name of the first computation.
        thunks: the kinds of the thunks of the outermost sequence.
        argument_bytes: bytes of its arguments.
        temporary_bytes: bytes of memory that it needs besides arguments and results.
        spills: whether a kernel keeps numbers in memory for want of registers.
    """

    computations: dict[str, list[Instruction]]
    entry: str
    thunks: list[str]
    argument_bytes: int
    temporary_bytes: int
    spills: bool

    def kernels(self, computation: str) -> list[Kernel]:
        """The kernels of a computation, without those of loops in it."""
        return [
            Kernel(x.name, x.op, self._bytes(x, computation))
            for x in self._inlined(computation)
            if x.op not in _FREE
        ]

    def loops(self, computation: str) -> list[str]:
        """The bodies of the loops in a computation."""
        found = (x for x in self._inlined(computation) if x.op == "while")
        return [_attribute(x, "body") for x in found]

    def operations(self) -> set[str]:
        """The names of all operations, inside kernels too."""
        return {x.op for some in self.computations.values() for x in some}

    def _inlined(self, computation: str) -> Iterator[Instruction]:
        for x in self.computations[computation]:
            if x.op == "call":
                yield from self._inlined(_attribute(x, "to_apply"))
            else:
                yield x

    def _bytes(self, x: Instruction, computation: str) -> int:
        if x.op == "custom-call":  # a kernel of ours
            of = {y.name: y.type for y in self.computations[computation]}
            return _size(x.type) + sum(_size(of.get(name, "")) for name in x.operands)
        if x.op != "fusion":
            return 2 * _size(x.type)  # such as a copy
        return _size(x.type) + sum(self._bytes_read(_attribute(x, "calls")))

    def _bytes_read(self, fused: str) -> Iterator[int]:
        """The bytes that a kernel reads of each of its operands."""
        instructions = self.computations[fused]
        for parameter in (x for x in instructions if x.op == "parameter"):
            names, read = {parameter.name}, 0
            for x in instructions:
                if not names & set(x.operands):
                    continue
                if x.op == "bitcast":
                    names.add(x.name)
                elif x.op in _SLICING and x.operands[0] in names:
                    read += _size(x.type)
                elif x.op == "dynamic-update-slice" and x.operands[0] in names:
                    read += 0  # updated in place
                else:
                    read += _size(parameter.type)
            yield min(read, _size(parameter.type))


def compiled(lowered: Any) -> Program:
    """Compiles what `jax.jit(...).lower` returned."""
    with TemporaryDirectory() as folder:
        options = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        strict = options | {"xla_gpu_fail_ptx_compilation_on_register_spilling": True}
        spills = False
        try:
            executable = lowered.compile(compiler_options=strict)
        except jax.errors.JaxRuntimeError as error:
            if "register spilling" not in str(error):
                raise
            executable, spills = lowered.compile(compiler_options=options), True
        # The second is written where passes over thunks changed the first.
        *_, path = sorted(
            Path(folder).glob("*.thunk_sequence*.txt"), key=lambda path: len(path.name)
        )
        thunks = re.findall(r"^\d+: (\w+)", path.read_text(), re.MULTILINE)
    computations, entry = _parsed(executable.as_text())
    memory = executable.memory_analysis()
    return Program(
        computations,
        entry,
        thunks,
        memory.argument_size_in_bytes,
        memory.temp_size_in_bytes,
        spills,
    )


def _parsed(text: str) -> tuple[dict[str, list[Instruction]], str]:
    computations: dict[str, list[Instruction]] = {}
    entry, current = "", None
    for line in text.splitlines():
        if begun := _COMPUTATION.match(line):
            current = computations.setdefault(begun["name"], [])
            entry = begun["name"] if begun["entry"] else entry
        elif current is not None and (found := _INSTRUCTION.match(line)):
            operands, _, attributes = found["rest"].partition("), ")
            current.append(
                Instruction(
                    found["name"],
                    found["type"],
                    found["op"],
                    _OPERAND.findall(operands),
                    attributes,
                )
            )
    return computations, entry


def _attribute(x: Instruction, name: str) -> str:
    return re.search(rf"\b{name}=%([\w.\-]+)", x.attributes)[1]


def _size(of_type: str) -> int:
    """The bytes of an array, or of a tuple of arrays."""
    return sum(
        _BYTES[dtype] * math.prod(int(x) for x in shape.split(",") if x)
        for dtype, shape in _ARRAY.findall(of_type)
    )
