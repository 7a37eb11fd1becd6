"""Reductions of products: `sum(a @ b)` becomes `sum(a) @ b`.

The sum of a product's rows is the sum of the rows of one operand, times the other. Derivatives by what
is added to all rows alike (means of clusters, centres, biases) come as sums of whole products. A product
that sums nothing is a multiplication of broadcasts, which fuses with its neighbours.

Source: XLA's algebraic simplifier, reduce of dot and dot strength reduction.
Input: a jaxpr with sums of products.
Output: the same, with products of sums.
Legal when: the axes summed are free ones of one operand, and nobody else reads the product. A product sums
nothing where all contracted axes have one element.
Pays when: always; fewer multiplications.
Costs: terms are added up in another order, so results are rounded differently.
"""

from collections.abc import Sequence
from functools import lru_cache

from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.def_use import definitions, use_counts
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from fnx.interpreters.rewrite import bind_into, live
from fnx.interpreters.trace import trace_closed
from fnx.ops.base.broadcast import Broadcast, Sum
from fnx.ops.base.permute import Reshape, Transpose
from fnx.ops.elementwise.arithmetic import mul, neg
from fnx.ops.elementwise.pointwise import NUMBER
from fnx.ops.linalg.contraction import DotGeneral

_DTYPES = ("float32", "float64", "complex64", "complex128")


def sums_in_products(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with sums of operands in place of sums of products that nobody else reads.

    Terms are added up in another order, so results are rounded differently.
    """
    if not any(isinstance(e.prim, DotGeneral) for e in jaxpr.eqns):
        return jaxpr
    uses = use_counts(jaxpr)
    maker, eqns, changed = definitions(jaxpr.eqns), list[Eqn](), False
    for e in jaxpr.eqns:
        new = _summed(e, maker, uses) if isinstance(e.prim, Sum) else None
        eqns += new or [e]
        changed |= new is not None
    if not changed:
        return jaxpr
    return jaxpr.with_eqns(live(eqns, jaxpr.outs))


def _summed(e: Eqn, maker: dict[Var, Eqn], uses: dict[Atom, int]) -> list[Eqn] | None:
    """A sum of a product, perhaps transposed or negated, made of sums of the operands."""
    (x,) = e.inputs
    order, negative = list(range(x.aval.ndim)), False  # the product's axes in the order of x
    while uses[x] == 1 and (made := maker.get(x)) and not isinstance(made.prim, DotGeneral):  # type: ignore[call-overload]
        if isinstance(made.prim, Transpose):
            order = [made.prim.permutation[k] for k in order]
        elif made.prim.name == "neg":
            negative = not negative
        else:
            return None
        (x,) = made.inputs
    if uses[x] > 1 or made is None or made.outs[0].aval.dtype.name not in _DTYPES:
        return None
    if any(a.aval.dtype != x.aval.dtype for a in made.inputs):
        return None
    return _with_sums(e, made, order, negative)


def _with_sums(e: Eqn, product: Eqn, order: list[int], negative: bool) -> list[Eqn] | None:
    contracted, batch = product.prim.dimension_numbers  # type: ignore[attr-defined]
    summed = {order[k] for k in e.prim.axes}  # type: ignore[attr-defined]
    eqns: list[Eqn] = []
    atoms, dims, taken = [], [], len(batch[0])
    kept = list(range(taken))
    for x, c, b in zip(product.inputs, contracted, batch, strict=True):
        free = [k for k in range(x.aval.ndim) if k not in c and k not in b]
        gone = tuple(k for n, k in enumerate(free, taken) if n in summed)
        kept += [n for n in range(taken, taken + len(free)) if n not in summed]
        taken += len(free)
        moved = [tuple(k - sum(g < k for g in gone) for k in axes) for axes in (c, b)]
        atoms.append(bind_into(eqns, Sum(gone), [x])[0] if gone else x)
        dims.append(moved)
    if not eqns:
        return None
    prim = DotGeneral(tuple(zip(*dims)), product.prim.preferred_element_type)  # type: ignore[attr-defined]
    (y,) = bind_into(eqns, prim, atoms)
    left = tuple(kept.index(k) for k in kept if k in summed)  # axes of the batch
    if left:
        (y,) = bind_into(eqns, Sum(left), [y])
        kept = [k for k in kept if k not in summed]
    wanted = [k for k in order if k not in summed]
    if wanted != kept:
        (y,) = bind_into(eqns, Transpose(tuple(kept.index(k) for k in wanted)), [y])
    if negative:
        (y,) = bind_into(eqns, neg, [y])
    last = eqns[-1]
    eqns[-1] = Eqn(last.prim, last.inputs, e.outs, e.source)
    return eqns


# --- products that sum nothing -----------------------------------------------------------------


@lru_cache(maxsize=1024)
def outer_product(prim: DotGeneral, x: ShapedArray, y: ShapedArray) -> Jaxpr | None:
    """A product that sums nothing as a multiplication of broadcasts, which fuses with its neighbours."""
    (cx, cy), (bx, by) = prim.dimension_numbers
    (out,) = prim.abstract(x, y)
    if any(x.shape[k] != 1 for k in cx) or out.dtype != x.dtype or x.dtype not in NUMBER:
        return None
    free_x = [k for k in range(x.ndim) if k not in cx and k not in bx]
    free_y = [k for k in range(y.ndim) if k not in cy and k not in by]
    n, m = len(bx), len(bx) + len(free_x)

    def spread(
        v: Array, contracted: Sequence[int], order: list[int], dims: tuple[int, ...]
    ) -> Array:
        if contracted:
            v = Reshape(tuple([s for k, s in enumerate(v.shape) if k not in contracted]))(v)
        left = sorted(order)
        v = Transpose(tuple([left.index(k) for k in order]))(v)
        return Broadcast(out.shape, dims)(v)

    def product(a: Array, b: Array) -> list[Array]:
        batch_axes = tuple(range(n))
        a = spread(a, cx, [*bx, *free_x], (*batch_axes, *range(n, m)))
        return [mul(a, spread(b, cy, [*by, *free_y], (*batch_axes, *range(m, out.ndim))))]

    return trace_closed(product, [x, y])
