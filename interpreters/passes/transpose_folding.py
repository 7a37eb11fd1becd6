"""Transpose folding: transposes of products' operands and results are part of the product.

A product may go through its operands in any order, and may have its factors in either one; written as
such it is stored in the order in which those around it are, and nothing goes through memory across.

Source: XLA's TransposeFolding.
Input: a jaxpr with products of matrices.
Output: the same, with other dimension numbers and fewer transposes.
Legal when: nobody else reads the transpose.
Pays when: always, but for many small problems: their operands stay as they are, since where the batch
axis is last, what makes them is vectors.
Costs: nothing.
"""

from typing import Any

from fnx.core.def_use import use_counts
from fnx.core.jaxpr import Eqn, Jaxpr, Var
from fnx.ops.base.permute import Transpose
from fnx.ops.linalg.contraction import DotGeneral, layout


def without_transposed_products(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with products for such transposes."""
    made: dict[Var, Eqn] = {}
    if not any(isinstance(e.prim, DotGeneral) for e in jaxpr.eqns):
        return jaxpr
    readers = use_counts(jaxpr)
    place: dict[Var, int] = {}  # of the products among the equations
    eqns: list[Eqn] = []
    for e in jaxpr.eqns:
        if isinstance(e.prim, DotGeneral):
            e = _of_operands(e, made)
            place[e.outs[0]] = len(eqns)
        elif isinstance(e.prim, Transpose):
            product = made.get(e.inputs[0]) if type(e.inputs[0]) is Var else None
            if product is not None and isinstance(product.prim, DotGeneral):
                swapped = _swapped(product, e) if readers[e.inputs[0]] == 1 else None
                if swapped is not None:
                    eqns[place[product.outs[0]]] = swapped
                    continue
        made.update(dict.fromkeys(e.outs[:1], e))  # callbacks may have no results
        eqns.append(e)
    return jaxpr.with_eqns(eqns)


def _of_operands(e: Eqn, made: dict[Var, Eqn]) -> Eqn:
    """The product of what its operands are transposes of."""
    prim: Any = e.prim
    atoms, sides = list(e.inputs), [list(axes) for axes in zip(*prim.dimension_numbers)]
    for k, a in enumerate(e.inputs):
        turn = made.get(a) if type(a) is Var else None
        if turn is None or not isinstance(turn.prim, Transpose) or sides[k][1]:
            continue
        perm = turn.prim.permutation
        contracted, batch = sides[k]
        free = [p for axis, p in enumerate(perm) if axis not in contracted and axis not in batch]
        if free == sorted(free):
            atoms[k] = turn.inputs[0]
            sides[k] = [tuple(perm[axis] for axis in axes) for axes in sides[k]]
    if atoms == list(e.inputs):
        return e
    dims: Any = tuple(zip(*(tuple(side) for side in sides)))
    return Eqn(DotGeneral(dims, prim.preferred_element_type), atoms, e.outs, e.source)


def _swapped(product: Eqn, turn: Eqn) -> Eqn | None:
    """The product with its factors in the other order, if that makes the transpose of it."""
    prim: Any = product.prim
    x, y = product.inputs
    (lc, rc), (lb, rb) = prim.dimension_numbers
    way = layout(prim.dimension_numbers, x.aval.ndim, y.aval.ndim)
    batch, left, right = len(lb), len(way.lf), len(way.rf)
    first = batch + left
    order = (*range(batch), *range(first, first + right), *range(batch, first))
    if turn.prim.permutation != order:  # type: ignore[attr-defined]
        return None
    swapped = DotGeneral(((rc, lc), (rb, lb)), prim.preferred_element_type)
    return Eqn(swapped, [y, x], turn.outs, product.source)
