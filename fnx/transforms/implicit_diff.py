"""Solutions of equations, differentiated by the implicit function theorem."""

from collections.abc import Callable
from typing import Any

from fnx.core.array import Array, as_array
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.core.jaxpr import Jaxpr, eval_jaxpr
from fnx.core.source import brief
from fnx.interpreters.linearize import transpose_jaxpr
from fnx.interpreters.operands import only
from fnx.interpreters.primitives.linear_solve import LinearSolve
from fnx.interpreters.trace import trace
from fnx.interpreters.variation import pulled
from fnx.ops.elementwise.arithmetic import neg
from fnx.ops.structure.basic import zeros
from fnx.pytree import operations
from fnx.pytree.flatten_fun import flatten_arrays, name_of
from fnx.transforms.custom_derivatives import custom_jvp
from fnx.transforms.grad import jvp, linearize

__all__ = [
    "custom_linear_solve",
    "custom_root",
]

Tree = Any


def _closed(fun: Callable, treedef: Any, avals: list, what: str, aux: list | None = None) -> tuple:
    """A function of trees of one structure as a jaxpr, and what it closed over."""
    if not callable(fun):
        raise TypeMismatch(f"{what} must be a function, not {brief(fun)}")

    def flat(*xs: Array) -> list[Array]:
        out = fun(treedef.unflatten(xs))
        if aux is not None:
            out, more = out
            arrays, structure = flatten_arrays(more, "auxiliary results")
            aux.append(structure)
        leaves, structure = flatten_arrays(out, f"results of {what}")
        if structure != treedef or any(x.shape != a.shape for x, a in zip(leaves, avals)):
            raise (ShapeError if structure == treedef else TypeMismatch)(
                f"{what} returned {[x.aval.str_short() for x in leaves]} in "
                f"{operations.shown(structure)}; expected the types of its argument, "
                f"{[a.str_short() for a in avals]} in {operations.shown(treedef)}"
            )
        return [*leaves, *arrays] if aux is not None else leaves

    return trace(flat, avals, what=what, name=what)


def custom_linear_solve(
    matvec: Callable,
    b: Tree,
    solve: Callable,
    transpose_solve: Callable | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Tree:
    """x with `matvec(x) = b`, found by `solve(matvec, b)`.

    Derivatives are further solves; `solve` itself is not differentiated. Reverse mode needs
    `transpose_solve(vecmat, b)`, or a `symmetric` matvec. With `has_aux`, solve returns (x, aux).
    TypeError where functions change types.

    >>> lax.custom_linear_solve(lambda x: 4.0 * x, 8.0, lambda mv, b: b / 4.0, symmetric=True)
    Array(2., dtype=float64, weak_type=True)
    """
    leaves, treedef = flatten_arrays(b, "the right-hand side of custom_linear_solve")
    avals = [x.aval for x in leaves]
    mv, mv_consts = _closed(matvec, treedef, avals, "matvec")
    aux: list | None = [] if has_aux else None
    forward, consts = _closed(lambda v: solve(matvec, v), treedef, avals, "solve", aux)
    vecmat: Jaxpr | None = None
    backward: Jaxpr | None = None
    vm_consts: list = []
    back_consts: list = []
    if symmetric:
        vecmat, vm_consts, backward, back_consts = mv, mv_consts, forward, consts
    elif transpose_solve is not None:
        n = len(avals)
        linear = (False,) * len(mv_consts) + (True,) * n
        transposed, mask = transpose_jaxpr(mv, linear, (True,) * n)

        def apply_transposed(v: Tree) -> Tree:
            pull = lambda cts: eval_jaxpr(transposed, [*mv_consts, *cts])
            given = [as_array(x) for x in operations.tree_leaves(v)]
            it = iter(pulled(pull, given, mv.out_avals, only(mask, avals), mv.eqns))
            return treedef.unflatten([next(it) if m else zeros(a) for m, a in zip(mask, avals)])

        vecmat, vm_consts = _closed(apply_transposed, treedef, avals, "vecmat")
        backward, back_consts = _closed(
            lambda v: transpose_solve(apply_transposed, v), treedef, avals, "transpose_solve", aux
        )
    counts = (len(mv_consts), len(consts), len(vm_consts), len(back_consts))
    n = len(avals)
    solved = Jaxpr(forward.inputs, forward.eqns, forward.outs[:n], name="solve")
    if backward is not None:
        backward = Jaxpr(backward.inputs, backward.eqns, backward.outs[:n], name="transpose_solve")
    prim = LinearSolve(mv, solved, vecmat, backward, counts)
    strong = [as_array(x) for x in leaves]
    xs = prim(*mv_consts, *consts, *vm_consts, *back_consts, *strong)
    x = operations.tree_unflatten(treedef, xs)
    if not has_aux:
        return x
    extra = eval_jaxpr(Jaxpr(forward.inputs, forward.eqns, forward.outs[n:]), [*consts, *strong])
    return x, operations.tree_unflatten(aux[0], extra)  # type: ignore[index]


def custom_root(
    f: Callable,
    initial_guess: Tree,
    solve: Callable,
    tangent_solve: Callable,
    has_aux: bool = False,
) -> Tree:
    """x with `f(x) = 0`, found by `solve(f, initial_guess)`, and differentiated implicitly.

    `tangent_solve(g, y)` solves the linear equation g(x) = y. Neither solver is differentiated.

    >>> root = lambda a: lax.custom_root(
    ...     lambda x: x * x - a, 1.0, lambda f, x: a**0.5, lambda g, y: y / g(1.0))
    >>> fnx.grad(root)(4.0)
    Array(0.25, dtype=float64, weak_type=True)
    """
    leaves, treedef = flatten_arrays(initial_guess, "the first guess of custom_root")
    avals = [x.aval for x in leaves]
    jaxpr, consts = _closed(f, treedef, avals, f"the function {name_of(f)} of custom_root")
    aux: list | None = [] if has_aux else None
    solver, solver_consts = _closed(lambda g: solve(f, g), treedef, avals, "solve", aux)
    n, m = len(consts), len(avals)

    # Traced now, since tangent_solve may close over traced values, which rules may not.
    tangent, tangent_consts = _tangent_solver(jaxpr, n, treedef, avals, tangent_solve)

    @custom_jvp
    def root(params: list, closed: list, more: list, guess: list) -> list:
        return eval_jaxpr(solver, [*closed, *guess])

    @root.defjvp
    def root_rule(primals: tuple, tangents: tuple) -> tuple:
        params, _, more, _ = primals
        outs = root(*primals)
        x = outs[:m]
        if not n:
            return outs, [zeros(o.aval.tangent()) for o in outs]
        residual = lambda p: eval_jaxpr(jaxpr, [*p, *x])
        _, moved = jvp(residual, (params,), (tangents[0],))
        solved = eval_jaxpr(tangent, [*more, *params, *x, *(neg(t) for t in moved)])
        extra = [zeros(o.aval.tangent()) for o in outs[m:]]
        return outs, [*solved, *extra]

    outs = root(consts, solver_consts, tangent_consts, leaves)
    x = treedef.unflatten(outs[:m])
    return (x, operations.tree_unflatten(aux[0], outs[m:])) if has_aux else x  # type: ignore[index]


def _tangent_solver(
    jaxpr: Jaxpr, n: int, treedef: Any, avals: list, tangent_solve: Callable
) -> tuple[Jaxpr, list[Array]]:
    """(constants, parameters of the function, x, y) -> the solution of its derivative at x for y."""
    m = len(avals)

    def flat(*values: Array) -> list[Array]:
        params, x, rhs = values[:n], list(values[n : n + m]), treedef.unflatten(values[n + m :])
        _, push = linearize(lambda v: eval_jaxpr(jaxpr, [*params, *v]), x)
        apply = lambda v: treedef.unflatten(push(operations.tree_leaves(v)))
        solved = custom_linear_solve(apply, rhs, tangent_solve, tangent_solve)
        return operations.tree_leaves(solved)

    return trace(flat, [*jaxpr.in_avals[:n], *avals, *avals], what="tangent_solve")
