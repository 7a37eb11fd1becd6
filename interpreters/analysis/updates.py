"""Write sets: which elements of an array an update in place overwrites, and chains of such updates."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.def_use import definitions
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var, made_once
from fnx.core.primitive import Primitive
from fnx.interpreters.rewrite import dependent, live, reads
from fnx.ops.structure.dynamic_slice import (
    DynamicSlice,
    dynamic_update_slice,
)
from fnx.ops.structure.gather import AnyScatter
from fnx.ops.structure.scatter import Scatter
from fnx.ops.structure.slice import Slice, SliceAdd
from fnx.ops.structure.slice_set import SliceSet


def is_update(prim: Primitive) -> bool:
    """Whether the result is the first operand with a part of it changed."""
    return prim.update_operand is not None


@dataclass(frozen=True)
class Places:
    """The part of an array that an update writes: `read(x, *where)`, `write(x, old, *where)`."""

    array: ShapedArray
    box: ShapedArray
    reader: Any
    writer: Any
    where: tuple[Atom, ...]

    @property
    def nbytes(self) -> int:
        """How many bytes are overwritten."""
        return self.box.nbytes

    @property
    def needs(self) -> list[Var]:
        """What must be known to go back."""
        return [a for a in self.where if type(a) is Var]


def nothing_added(dtype: np.dtype) -> complex:
    """What is added where nothing changes: x + -0.0 is x, bit by bit."""
    if dtypes.is_complex(dtype):
        return complex(-0.0, -0.0)
    return -0.0 if dtypes.is_inexact(dtype) else 0


def places(e: Eqn) -> Places:
    """The places that an update writes to."""
    prim: Any = e.prim
    x, *rest = e.inputs
    if isinstance(prim, (SliceSet, SliceAdd)):
        box = (prim.start_indices, prim.limit_indices, prim.strides)
        return Places(x.aval, rest[0].aval, Slice(*box), SliceSet(*box), ())
    if isinstance(prim, AnyScatter):
        indices, updates = rest
        reader = prim.reader(x.aval, indices.aval, updates.aval)
        return Places(x.aval, updates.aval, reader, _Put(prim.again(Scatter)), (indices,))
    update, *starts = rest
    reader = DynamicSlice(update.aval.shape)
    return Places(x.aval, update.aval, reader, dynamic_update_slice, tuple(starts))


@dataclass(frozen=True)
class _Put:
    """A scatter whose indices come last."""

    scatter: Callable[..., Array]

    def __call__(self, x: Array, old: Array, at: Array) -> Array:
        return self.scatter(x, at, old)


@dataclass(frozen=True)
class Step:
    """An equation that makes an array's next version of the one before: an update or a loop."""

    eqn: Eqn
    before: Var
    after: Var

    @property
    def number(self) -> int:
        """Of the array among the loop's carries."""
        return self.eqn.outs.index(self.after)

    def items(self) -> "list[Places | LoopUpdates]":
        """What must be put back, in the order in which it is overwritten."""
        if is_update(self.eqn.prim):
            return [places(self.eqn)]
        return _items_of_loop(self.eqn, self.number)


@dataclass(frozen=True)
class LoopUpdates:
    """What the iterations of a loop overwrite at places that change from iteration to iteration."""

    eqn: Eqn
    number: int
    steps: tuple[tuple[Step, "tuple[Places | LoopUpdates, ...]"], ...]

    @property
    def nbytes(self) -> int:
        prim: Any = self.eqn.prim
        return prim.length * sum(i.nbytes for _, items in self.steps for i in items)

    @property
    def needs(self) -> list[Var]:
        prim: Any = self.eqn.prim
        wanted = self.wanted()
        read = reads(live(prim.jaxpr.eqns, wanted, prim.jaxpr.inputs), wanted)
        pairs = zip(prim.jaxpr.inputs, self.eqn.inputs)
        found = [a for v, a in pairs if v in read and type(a) is Var]
        iterations = self.eqn.inputs[0]
        return [iterations, *found] if prim.counted and type(iterations) is Var else found

    def wanted(self) -> list[Var]:
        return [v for _, items in self.steps for i in items for v in i.needs]


def _items_of_loop(e: Eqn, number: int) -> list[Places | LoopUpdates]:
    """Places that are the same in all iterations first."""
    prim: Any = e.prim
    outer = dict(zip(prim.jaxpr.inputs[: prim.consts], e.inputs))
    same: list[Places] = []
    rest = []
    for step in steps_of_loop(prim, number) or ():
        varying = []
        for i in step.items():
            if isinstance(i, Places) and all(v in outer for v in i.needs):
                where = tuple([outer[a] if type(a) is Var else a for a in i.where])
                same.append(replace(i, where=where))
            else:
                varying.append(i)
        if varying:
            rest.append((step, tuple(varying)))
    found: list[Places | LoopUpdates] = list(dict.fromkeys(same))
    return [*found, LoopUpdates(e, number, tuple(rest))] if rest else found


def chain(maker: dict[Var, Eqn], start: Var, end: Atom) -> list[Step] | None:
    """The steps that lead from `start` to `end`, in order; None if there is anything else."""
    found: list[Step] = []
    while end is not start:
        e = maker.get(end) if type(end) is Var else None  # type: ignore[arg-type]
        if e is None:
            return None
        if is_update(e.prim):
            before = e.inputs[0]
        elif e.prim.name == "scan":
            prim: Any = e.prim
            k = e.outs.index(end)  # type: ignore[arg-type]
            if k >= prim.carry or steps_of_loop(prim, k) is None:
                return None
            before = e.inputs[prim.consts + k]
        else:
            return None
        if type(before) is not Var:
            return None
        found.append(Step(e, before, end))  # type: ignore[arg-type]
        end = before
    return found[::-1] or None


def steps_of_loop(prim: Any, number: int) -> list[Step] | None:
    """The steps of an iteration, if they write at places that do not depend on what the loop carries."""
    return _steps(prim.jaxpr, prim.consts, prim.carry, number)


@made_once
def _steps(body: Jaxpr, consts: int, carry: int, number: int) -> list[Step] | None:
    steps = chain(definitions(body.eqns), body.inputs[consts + number], body.outs[number])
    moved = dependent(body.eqns, body.inputs[consts : consts + carry])
    needs = [v for s in steps or () for i in s.items() for v in i.needs]
    return None if any(v in moved for v in needs) else steps


def overwritten(steps: Sequence[Step]) -> int:
    """The bytes that a chain of steps overwrites."""
    return sum(i.nbytes for s in steps for i in s.items())


def needed(steps: Sequence[Step]) -> list[Var]:
    """What must be known to go back over a chain."""
    return list(dict.fromkeys(v for s in steps for i in s.items() for v in i.needs))
