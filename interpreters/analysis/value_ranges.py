"""Intervals of integers: between which numbers a value of a jaxpr lies, whatever its inputs are."""

from collections.abc import Callable, Iterable
from typing import Any

from fnx.core import dtypes, policy
from fnx.core.array import ConcreteArray
from fnx.core.jaxpr import Atom, Eqn, Literal, Var
from fnx.interpreters.jvp import JVPTracer
from fnx.interpreters.trace import StageTracer

Interval = tuple[int, int]


class Intervals:
    """What is known of the variables of a jaxpr."""

    def __init__(self, known: Iterable[tuple[Var, Interval | None]] = ()):
        self.known = {v: r for v, r in known if r is not None}

    def of(self, atom: Atom) -> Interval | None:
        if type(atom) is Var:
            return self.known.get(atom)
        return of_value(atom.value)  # type: ignore[union-attr]

    def add(self, e: Eqn) -> None:
        """Note the interval of an equation's result."""
        if len(e.outs) == 1:
            found = of_equation(e, [self.of(a) for a in e.inputs])
            if found is not None:
                self.known[e.outs[0]] = found


def of_value(x: Any, near: int = policy.RANGE_EQUATIONS) -> Interval | None:
    """The interval of an array: of a tracer by the equations that made it."""
    while type(x) is JVPTracer:
        x = x.primal
    if type(x) is ConcreteArray:
        if x.dtype.kind not in "iu" or not 0 < x.size <= policy.RANGE_ELEMENTS:
            return None
        return int(x._value.min()), int(x._value.max())
    if type(x) is not StageTracer or not dtypes.is_integer(x.dtype):
        return None
    return _of_var(x._var, x.owner.eqns[-near:])


def _of_var(v: Var, eqns: list[Eqn]) -> Interval | None:
    for k in range(len(eqns) - 1, -1, -1):
        e = eqns[k]
        if v in e.outs:
            before = eqns[:k]
            inputs = [
                _of_var(a, before) if type(a) is Var else of_value(a.value, len(before))  # type: ignore[union-attr]
                for a in e.inputs
                if dtypes.is_integer(a.aval.dtype) or type(a) is Literal
            ]
            return of_equation(e, inputs) if len(inputs) == len(e.inputs) else None
    return None


def of_equation(e: Eqn, inputs: list[Interval | None]) -> Interval | None:
    """The interval of the result of an equation, of operands in such intervals."""
    out = e.outs[0].aval
    if not dtypes.is_integer(out.dtype):
        return None
    rule = _RULES.get(e.prim.name)
    found = rule(e, inputs) if rule is not None else None
    if found is None:
        return None
    info = dtypes.iinfo(out.dtype)
    return found if info.min <= found[0] and found[1] <= info.max else None


Rule = Callable[[Eqn, list], Interval | None]


def _by_ends(op: Callable[[int, int], int]) -> Rule:
    """Of an operation that grows or falls with each operand all the way."""

    def rule(e: Eqn, r: list) -> Interval | None:
        if r[0] is None or r[1] is None:
            return None
        ends = [op(a, b) for a in r[0] for b in r[1]]
        return min(ends), max(ends)

    return rule


def _same(e: Eqn, r: list) -> Interval | None:
    return r[0]


def _union(e: Eqn, r: list) -> Interval | None:
    if not r or any(x is None for x in r):
        return None
    return min(x[0] for x in r), max(x[1] for x in r)


def _max(e: Eqn, r: list) -> Interval | None:
    return _by_ends(max)(e, r)


def _quotient(e: Eqn, r: list) -> Interval | None:
    """Towards zero, by positive numbers."""
    if r[1] is None or r[1][0] <= 0:
        return None
    return _by_ends(lambda a, b: abs(a) // b * (1 if a >= 0 else -1))(e, r)


def _remainder(e: Eqn, r: list) -> Interval | None:
    if r[0] is None or r[1] is None or r[1][0] <= 0:
        return None
    most = r[1][1] - 1
    return max(-most, min(r[0][0], 0)), min(most, max(r[0][1], 0))


def _clamp(e: Eqn, r: list) -> Interval | None:
    low, x, high = r
    if low is None or high is None:
        return None
    if x is None:
        return low[0], max(high[1], low[1])
    return min(max(x[0], low[0]), high[0]), min(max(x[1], low[1]), max(high[1], low[1]))


def _iota(e: Eqn, r: list) -> Interval | None:
    prim: Any = e.prim
    n = e.outs[0].aval.shape[prim.dimension]
    return (0, n - 1) if n else None


def _place(e: Eqn, r: list) -> Interval | None:
    """Of argmax: the axis that it searches."""
    prim: Any = e.prim
    shape = e.inputs[0].aval.shape
    return 0, max([shape[k] for k in prim.axes], default=1) - 1


_RULES: dict[str, Rule] = {
    "add": _by_ends(lambda a, b: a + b),
    "sub": _by_ends(lambda a, b: a - b),
    "mul": _by_ends(lambda a, b: a * b),
    "max": _max,
    "min": _by_ends(min),
    "neg": lambda e, r: r[0] and (-r[0][1], -r[0][0]),
    "div": _quotient,
    "rem": _remainder,
    "clamp": _clamp,
    "iota": _iota,
    "argmax": _place,
    "argmin": _place,
    "select_n": lambda e, r: _union(e, r[1:]),
    "concatenate": _union,
    "sign": lambda e, r: (-1, 1),
    **dict.fromkeys(
        "convert_element_type broadcast_in_dim reshape squeeze expand_dims slice dynamic_slice "
        "transpose rev copy stop_gradient reduce_max reduce_min".split(),
        _same,
    ),
}
