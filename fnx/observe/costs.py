"""What programs cost by the cost model: bytes and floating point operations of a run."""

from typing import Any, NamedTuple

import numpy as np

from fnx.core import dtypes
from fnx.core.cost import ELEMENTARY
from fnx.core.jaxpr import Jaxpr, made_once, subjaxprs
from fnx.interpreters.control_flow import WhileRecord
from fnx.interpreters.passes.simplify import simplify
from fnx.process.cost_analysis import cost_analysis


class Cost(NamedTuple):
    """Bytes of arguments and results, and operations; `exact` is False where a loop's length is unknown."""

    bytes: float
    flops: float
    exact: bool
    itemsize: int  # of the real numbers that are computed with


@made_once
def cost(jaxpr: Jaxpr) -> Cost:
    """What one run costs; an elementary function counts as the operations that it takes."""
    final = simplify(jaxpr, final=True)
    found = cost_analysis(final)
    flops = found["flops"] + ELEMENTARY.operations * found["transcendentals"]
    return Cost(found["bytes accessed"], flops, not _has_unknown_loops(final), _itemsize(final))


def _has_unknown_loops(jaxpr: Jaxpr) -> bool:
    return any(
        isinstance(e.prim, WhileRecord) or any(map(_has_unknown_loops, subjaxprs(e.prim)))
        for e in jaxpr.eqns
    )


def _itemsize(jaxpr: Jaxpr) -> int:
    avals = (*jaxpr.in_avals, *jaxpr.out_avals)
    sizes = [_real(a.dtype) for a in avals if dtypes.is_inexact(a.dtype)]
    return max(sizes, default=8)


def _real(dtype: Any) -> int:
    dtype = np.dtype(dtype)
    return dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize


def types_of(jaxpr: Jaxpr) -> str:
    """The types of arguments, those that a function closed over excepted."""
    return ", ".join(v.aval.str_short() for v in jaxpr.inputs[jaxpr.consts :])


class Kernel(NamedTuple):
    """One of a program's loop nests: what it is for, and the bytes of the arrays that it touches."""

    name: str
    note: str
    bytes: int


def kernels(native: Any, anew: bool = False) -> list[Kernel]:
    """The kernels of a native program, where they are known, or can be made `anew`."""
    held = getattr(native, "__dict__", {})
    program = held["_built"][0] if "_built" in held else held.get("program")
    if program is None and anew:  # it was recalled from the disk
        program = getattr(native, "program", None)
    body = getattr(program, "body", None)
    if body is None:  # evaluated, or made by a backend without kernels
        return []
    from fnx.lowering.ir import traversal
    from fnx.lowering.ir.kernel import Nest
    from fnx.lowering.ir.number_formats import itemsize
    from fnx.lowering.transform.buffer_assignment import touched

    found = []
    for nest in traversal.statements(body):
        if isinstance(nest, Nest):
            buffers = {b for s in traversal.statements([nest]) for b in touched(s)}
            size = sum(b.size * itemsize(b.dtype) for b in buffers if b.space != "private")
            found.append(Kernel(nest.name, str(nest.note), size))
    return found


__all__ = ["Cost", "Kernel", "cost", "kernels", "types_of"]
