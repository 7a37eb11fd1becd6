"""Whether a round of a loop leaves the row of the pivot alone, where its own masks say that it does."""

from typing import Any

import numpy as np

from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from fnx.core.records import dataclass
from fnx.ops.dynamic_slice import DynamicSlice, DynamicSliceAdd, DynamicUpdateSlice
from fnx.ops.indexing import ScatterAdd
from fnx.ops.scatter import Scatter

_COMPARE = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal,
}  # fmt: skip
_SAME = (
    "reshape squeeze expand_dims broadcast_in_dim convert_element_type neg copy transpose".split()
)


@dataclass
class Round:
    """The round whose own row is the pivot's: `values` of all rounds, `own` index, `pivots` equal to it.

    `version`: which array a variable is; `axes`: along which each has rows; `places` of reads and writes.
    """

    values: dict[Atom, np.ndarray]
    own: np.ndarray
    pivots: list[Atom]
    outer: dict[Atom, Atom]  # what constants are
    version: dict[Atom, int]
    axes: list[int]
    places: dict[Eqn, Any]

    def still(self, body: Jaxpr, carry: list[Var]) -> tuple[bool, ...]:
        """Of each array, whether its row stays as it is. Zero times anything is taken to be zero."""
        self.known: dict[Atom, Any] = {}  # True, False, 0, an offset from the index, what was read
        self.same: set[Atom] = set(carry)  # versions whose row is the first one's
        for v, line in self.values.items():
            off = line - self.own if line.dtype.kind in "iu" else line
            if line.dtype.kind in "biu" and (off == off[0]).all():
                self.known[v] = bool(off[0]) if line.dtype.kind == "b" else ("index", int(off[0]))
        self.known.update((v, ("index", 0)) for v in self.pivots)
        for e in body.eqns:
            if len(e.outs) == 1 and e.outs[0] not in self.known:
                found = self._of(e)
                if found is not None:
                    self.known[e.outs[0]] = found
        return tuple([o in self.same for o in body.outs[: len(carry)]])

    def _get(self, a: Atom) -> Any:
        if type(a) is Literal:
            x = a.value._value  # type: ignore[attr-defined]
            if x.dtype == bool:
                return bool(x)
            return "zero" if x.dtype.kind == "f" and x == 0 else None
        return self.known.get(a)

    def _of(self, e: Eqn) -> Any:
        prim: Any = e.prim
        ins = [self._get(a) for a in e.inputs]
        if e.inputs and e.inputs[0] in self.version:
            return self._access(e, ins)
        if prim.name in _COMPARE and all(type(x) is tuple and x[0] == "index" for x in ins):
            return bool(_COMPARE[prim.name](ins[0][1], ins[1][1]))
        if prim.name in ("and", "or"):
            stop = prim.name == "or"
            if any(x is stop for x in ins):
                return stop
            return (not stop) if all(x is (not stop) for x in ins) else None
        if prim.name == "not":
            return (not ins[0]) if type(ins[0]) is bool else None
        if prim.name == "select_n" and type(ins[0]) is bool:
            return ins[1 + ins[0]]
        if prim.name in ("mul", "dot_general") and "zero" in ins:
            return "zero"
        if prim.name in ("add", "sub") and ins[1] == "zero":
            return ins[0]
        if prim.name == "add" and ins[0] == "zero":
            return ins[1]
        if prim.name in _SAME and type(ins[0]) in (bool, str):
            return ins[0]
        if prim.name in ("reshape", "squeeze", "expand_dims") or prim.name == "copy":
            return ins[0]
        return None

    def _access(self, e: Eqn, ins: list) -> Any:
        k, at = self.version[e.inputs[0]], self.places[e]
        key = tuple([None if d == self.axes[k] else self._key(a) for d, a in enumerate(at)])
        if isinstance(e.prim, DynamicSlice):
            return ("read", k, key) if e.inputs[0] in self.same else None
        if e.inputs[0] in self.same:
            update = ins[2 if isinstance(e.prim, (Scatter, ScatterAdd)) else 1]
            adds = isinstance(e.prim, (DynamicSliceAdd, ScatterAdd))
            sets = isinstance(e.prim, (DynamicUpdateSlice, Scatter))
            if (adds and update == "zero") or (sets and update == ("read", k, key)):
                self.same.add(e.outs[0])
        return None

    def _key(self, a: Any) -> Any:
        a = self.outer.get(a, a)
        return a if a is None or type(a) is Var else ("number", float(a.value._value))
