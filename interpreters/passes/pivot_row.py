"""The pivot's row under masks: whether an iteration leaves it alone.

Source: loop-invariant row.
Input: equations of a body, and the masks that its own row and the pivot's give.
Output: whether what is written to the pivot's row is what was there.
Legal when: it proves by masks alone: comparisons of indices, and what they keep.
Pays when: `loop_vectorize.py` asks.
Costs: nothing at run time.
"""

from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from fnx.ops.structure.dynamic_slice import DynamicSlice, DynamicSliceAdd, DynamicUpdateSlice
from fnx.ops.structure.gather import ScatterAdd
from fnx.ops.structure.scatter import Scatter

_COMPARE = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal,
}  # fmt: skip
# What keeps a truth value or zero, and what keeps the elements of which it makes another shape.
_KEEP = (
    "reshape squeeze expand_dims broadcast_in_dim convert_element_type neg copy transpose".split()
)
_RESHAPE = "reshape squeeze expand_dims copy".split()

ZERO = "zero"


class Offset(NamedTuple):
    """An integer that is the pivot's index and a number."""

    number: int


class Read(NamedTuple):
    """What an array had in the pivot's row, at a place in it, when the iteration began."""

    array: int
    place: tuple


Fact = bool | str | Offset | Read  # of a value in the pivot's iteration: True, False, ZERO, ...


@dataclass
class PivotRound:
    """The iteration whose own row is the pivot's, and what follows from that for the values in it."""

    values: dict[Atom, np.ndarray]  # in all iterations, of what their number alone determines
    own: np.ndarray  # the index of each iteration's row
    pivots: list[Atom]  # what is equal to the pivot's index
    outer: dict[Atom, Atom]  # what constants are outside
    version: dict[Atom, int]  # which carried array a variable is
    axes: list[int]  # along which each of these has its rows
    places: dict[Eqn, Any]  # of reads and writes
    known: dict[Atom, Fact] = field(default_factory=dict)
    same: set[Atom] = field(default_factory=set)  # versions with the row of the first one

    def still(self, body: Jaxpr, carry: list[Var]) -> tuple[bool, ...]:
        """Of each array, whether its row stays as it is. Zero times anything is taken to be zero."""
        self.same.update(carry)
        for v, line in self.values.items():
            off = line - self.own if line.dtype.kind in "iu" else line
            if line.dtype.kind in "biu" and (off == off[0]).all():
                self.known[v] = bool(off[0]) if line.dtype.kind == "b" else Offset(int(off[0]))
        self.known.update((v, Offset(0)) for v in self.pivots)
        for e in body.eqns:
            if len(e.outs) == 1 and e.outs[0] not in self.known:
                found = self._of(e)
                if found is not None:
                    self.known[e.outs[0]] = found
        return tuple([o in self.same for o in body.outs[: len(carry)]])

    def _get(self, a: Atom) -> Fact | None:
        if type(a) is Literal:
            x = a.value._value  # type: ignore[attr-defined]
            if x.dtype == bool:
                return bool(x)
            return ZERO if x.dtype.kind == "f" and x == 0 else None
        return self.known.get(a)

    def _of(self, e: Eqn) -> Fact | None:
        """What is known of the result."""
        prim: Any = e.prim
        ins = [self._get(a) for a in e.inputs]
        if e.inputs and e.inputs[0] in self.version:
            return self._access(e, ins)
        if prim.name in _COMPARE and all(isinstance(x, Offset) for x in ins):
            return bool(_COMPARE[prim.name](ins[0].number, ins[1].number))
        if prim.name in ("and", "or"):
            stop = prim.name == "or"
            if any(x is stop for x in ins):
                return stop
            return (not stop) if all(x is (not stop) for x in ins) else None
        if prim.name == "not":
            return (not ins[0]) if type(ins[0]) is bool else None
        if prim.name == "select_n" and type(ins[0]) is bool:
            return ins[1 + ins[0]]
        if prim.name in ("mul", "dot_general") and ZERO in ins:
            return ZERO
        if prim.name in ("add", "sub") and ins[1] == ZERO:
            return ins[0]
        if prim.name == "add" and ins[0] == ZERO:
            return ins[1]
        if prim.name in _KEEP and type(ins[0]) in (bool, str):
            return ins[0]
        if prim.name in _RESHAPE:
            return ins[0]
        return None

    def _access(self, e: Eqn, ins: list) -> Fact | None:
        """What a read finds; of a write, whether it leaves the row as it is."""
        k, at = self.version[e.inputs[0]], self.places[e]
        key = tuple([None if d == self.axes[k] else self._key(a) for d, a in enumerate(at)])
        if isinstance(e.prim, DynamicSlice):
            return Read(k, key) if e.inputs[0] in self.same else None
        if e.inputs[0] in self.same:
            update = ins[2 if isinstance(e.prim, (Scatter, ScatterAdd)) else 1]
            adds = isinstance(e.prim, (DynamicSliceAdd, ScatterAdd))
            sets = isinstance(e.prim, (DynamicUpdateSlice, Scatter))
            if (adds and update == ZERO) or (sets and update == Read(k, key)):
                self.same.add(e.outs[0])
        return None

    def _key(self, a: Any) -> Any:
        """What two indices have in common that are equal."""
        a = self.outer.get(a, a)
        return a if a is None or type(a) is Var else ("number", float(a.value._value))
