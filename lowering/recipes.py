"""What is made of each recipe: which room builds the outputs of an equation."""

from typing import Any

import numpy as np

from fnx.core import recipe
from fnx.core.jaxpr import Eqn, Var
from fnx.core.source import at_line
from fnx.core.transport import TransportError
from fnx.lowering.generate import (
    branches,
    elementwise,
    loops,
    slice_update_fusion,
    small_problems,
    updates,
)
from fnx.lowering.generate.builder import Builder
from fnx.lowering.generate.values import Shape, Value
from fnx.lowering.ir.kernel import CallHost, Ref
from fnx.lowering.routines import rejection


def make(builder: Builder, eqn: Eqn, r: Any, inputs: list[Value], outs: list[Value]) -> None:
    """Build the outputs of an equation from its recipe."""
    target, table = builder.target, builder.target.routines
    if type(r) is recipe.Point and not target.math(eqn.prim.name, outs[0].dtype):
        _host(builder, eqn, inputs, outs)
        return
    if builder.scope.position in builder.scope.lanewise:
        small_problems.settle(builder, inputs)
        is_routine = isinstance(r, recipe.Library)
        made = (
            table.functions(r, outs) if is_routine else small_problems.functions(builder, r, outs)
        )
        if made is not None:
            for out, fn in zip(outs, made, strict=True):
                small_problems.values(builder, eqn, out, fn)
            return
    match r:
        case recipe.Point():
            elementwise.point(builder, eqn, r, inputs, outs[0])
        case recipe.Reshape():
            elementwise.reshape(builder, r, outs[0])
        case recipe.Pieces():
            elementwise.pieces(builder, eqn, r, inputs, outs[0])
        case recipe.Fold():
            if not small_problems.reduction(builder, eqn, r, inputs, outs):
                elementwise.reduction(builder, eqn, r, inputs, outs)
        case recipe.Cumulative():
            updates.cumulative(builder, r, outs, eqn.prim.name)
        case recipe.Search():
            rejection.search(builder, r, outs[0], eqn.prim.name)
        case recipe.Update():
            _update(builder, eqn, r, inputs, outs[0])
        case recipe.Products():
            target.products(builder, r, outs[0])
        case recipe.Library() if table.known(r):
            total = table.total(r, outs)
            if total is None:
                table.library(builder, r, outs)
            elif not small_problems.reduction(builder, eqn, total, inputs, outs):
                if table.computes_matrix(r):
                    elementwise.reduction(builder, eqn, total, inputs, outs)
                else:
                    table.library(builder, r, outs)
        case recipe.Host() | recipe.Library():
            _host(builder, eqn, inputs, outs)
        case recipe.Call():
            _call(builder, r, inputs, outs)
        case recipe.Branch():
            branches.branch(builder, r, inputs, outs)
        case recipe.While():
            loops.while_loop(builder, r, inputs, outs)
        case recipe.Loop():
            loops.loop(builder, r, inputs, outs)
        case _:
            raise TypeError(f"unknown recipe {r!r} of {eqn.prim.name}")


def _update(builder: Builder, eqn: Eqn, r: recipe.Update, inputs: list[Value], out: Value) -> None:
    """In one pass with those that follow, as a new array, or in place."""
    operand: Value = r.operand  # type: ignore[assignment]
    if slice_update_fusion.extends(
        builder, r, operand, out, chained=id(eqn) in builder.scope.chains
    ):
        slice_update_fusion.extend(builder, r, inputs, out)
    elif updates.is_anew(builder, r, inputs, out):
        new = slice_update_fusion.pieces(r, out.shape)
        elementwise.side_by_side(builder, eqn, new, inputs, out)
    else:
        updates.update(builder, r, inputs, out, eqn.prim.name)


def _host(builder: Builder, eqn: Eqn, inputs: list[Value], outs: list[Value]) -> None:
    """Call the primitive's own impl from native code."""
    builder.notes.append(f"host call: {eqn.prim.name}")

    def place(h: Value) -> tuple[Ref, Shape, str]:
        stored = builder.store(h)
        return Ref(stored.buffer, stored.base), h.shape, h.dtype

    given = [place(h) for h in inputs]
    made = []
    for h in outs:
        stored = h.destination or builder.new_stored(h)
        h.state = stored
        made.append((Ref(stored.buffer, stored.base), h.shape, h.dtype))
    builder.emit(CallHost(_Impl(eqn.prim, eqn.source), given, made, eqn.prim.name))
    for h in outs:
        if builder.target.is_small(h.shape):
            builder.load_registers(h)


def _call(builder: Builder, r: recipe.Call, inputs: list[Value], outs: list[Value]) -> None:
    destinations = {
        atom: out.destination
        for atom, out in zip(r.jaxpr.outs, outs, strict=True)
        if out.destination is not None and type(atom) is Var
    }
    builder.flush_all()
    results = builder.jaxpr(r.jaxpr, builder.settled(inputs), destinations)
    for out, made in zip(outs, results, strict=True):
        builder.adopt(out, made)


class _Impl:
    """A primitive's impl as a callback: it may be compared and named; of its errors the line is told."""

    def __init__(self, prim: Any, source: Any = None):
        self.prim, self.source = prim, source
        self.borrows = getattr(prim, "borrows", False)

    def __call__(self, *values: Any) -> tuple:
        try:
            if self.borrows:  # a collective: whoever computes in it sees to that
                outs = self.prim.impl(*values)
            else:
                with np.errstate(all="ignore"):
                    outs = self.prim.impl(*values)
        except TransportError as error:
            if self.source is not None:  # instead of where the thread began
                message = str(error.args[0]).partition("\n  at ")[0]
                error.args, error.source = (message + at_line(self.source),), self.source
            raise
        return outs if isinstance(outs, tuple) else (outs,)
