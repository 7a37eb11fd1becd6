"""Loop trimming: reductions without the iterations that a mask makes idle.

`sum(where(iota < k, x, 0))` takes k iterations. Programs whose shapes may not vary write triangles so:
row after row is summed up to its diagonal.

Source: trim_no_ops of Halide; loop bound reduction by value ranges.
Input: loops that reduce a select by a comparison of the index.
Output: the loop from the first iteration that the mask lets through to the last one.
Legal when: the other iterations combine the neutral element for sure; infinity times zero is none.
Pays when: always.
Costs: the bounds, once before the loop.
"""

from collections.abc import Callable, Sequence
from math import inf

from fnx.core import policy, scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import dependence
from fnx.lowering.ir.expressions import nodes
from fnx.lowering.ir.kernel import Loop, Stmt

from . import index_set_splitting

# What changes nothing, by how a reduction combines; sums in any order do not tell 0.0 from -0.0.
_NEUTRAL = {"add": 0, "mul": 1, "max": -inf, "min": inf}


def shorten(body: Sequence[Stmt]) -> list[Stmt]:
    """The statements, with such reductions among them shortened."""
    found: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Loop):
            stmt.body = shorten(stmt.body)
            stmt = _shortened(stmt)
        found.append(stmt)
    return found


def _shortened(loop: Loop) -> Loop:
    """The loop from the first iteration that a mask lets through to the last one."""
    if (
        loop.extent.op != "size"
        or loop.extent.attr < policy.SPLIT_ITERATIONS
        or loop.reverse
        or loop.body
    ):
        return loop
    if not loop.carries or not loop.reassociate:
        return loop
    start, end = scalar.size(0), loop.extent
    passed: dict[int, Expr] = {}
    for point, masks in _masks(loop).values():
        for below in (False, True):
            known = {k: scalar.const(true == below, "bool") for k, true in masks.items()}
            if not _is_idle(loop, index_set_splitting.Rebuilt({}, known)):
                continue
            bound = scalar.clamp(scalar.size(0), point, loop.extent)
            if below:
                start = bound if start.op == "size" else scalar.apply("max", start, bound)
            else:
                end = bound if end is loop.extent else scalar.apply("min", end, bound)
            passed |= {k: scalar.const(true != below, "bool") for k, true in masks.items()}
            break
    if not passed:
        return loop
    index = scalar.counter("i", loop.extent.attr)
    new = index_set_splitting.Rebuilt({id(loop.index): scalar.add(start, index)}, passed)
    iterations = (
        end if start.op == "size" else scalar.apply("max", scalar.sub(end, start), scalar.size(0))
    )
    yields = [new(e) for e in loop.yields]
    return Loop(
        index, iterations, [], loop.carries, loop.init, yields, reassociate=True, rolled=loop.rolled
    )


def _masks(loop: Loop) -> dict[tuple, tuple[Expr, dict[int, bool]]]:
    """Where comparisons of the index change, and which do there: whether they are true below."""
    found: dict[tuple, tuple[Expr, dict[int, bool]]] = {}
    for e in nodes(loop.yields):
        if (e.op, 1) not in index_set_splitting.SIDES or e.args[0].dtype != "int64":
            continue
        x, y = e.args
        crossing = index_set_splitting.crossing(e.op, x, y, loop.index)
        if crossing is not None:
            point, true_below = crossing
            if any(c in loop.carries for c in nodes([point])):
                continue
            found.setdefault(dependence.terms(point), (point, {}))[1][id(e)] = true_below
    return found


def _is_idle(loop: Loop, known: Callable[[Expr], Expr]) -> bool:
    """Whether iterations change nothing, given what is known of the masks in them."""
    for carry, after in zip(loop.carries, loop.yields, strict=True):
        e = known(after)
        if e is carry:
            continue
        if e.op not in _NEUTRAL or carry not in e.args:
            return False
        (other,) = [a for a in e.args if a is not carry] or [carry]
        if not _is(other, _NEUTRAL[e.op]):
            return False
    return True


def _is(e: Expr, number: float) -> bool:
    """Whether an expression is a number for sure; a product with zero is not, if the other is infinite."""
    if e.op in ("const", "literal"):
        return isinstance(e.attr, float | int) and float(e.attr) == number
    if e.op == "mul" and number == 0:
        return all(_is(a, 0) for a in e.args)
    return False
