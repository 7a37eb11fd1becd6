"""Linear functions: their transposes, and those whose transposes users give."""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.errors import TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Jaxpr, eval_jaxpr
from fnx.core.primitive import Undefined
from fnx.interpreters import linearize as linearize_
from fnx.interpreters.primitives.linear_call import LinearCall
from fnx.interpreters.trace import trace
from fnx.interpreters.variation import check_cotangents, pulled
from fnx.ops.base.broadcast import typed_zeros
from fnx.pytree import operations
from fnx.pytree.flatten_fun import aval_like, check_callable, flat_function, flatten_arrays, name_of

from .grad import check_like

Tree = Any


def _traced(fun: Callable, treedef: Any, avals: list) -> tuple[Jaxpr, list[Array], Any]:
    """The jaxpr of a function of two trees, what it closed over, and the structure of its result."""
    structures: list = []

    def flat(*xs: Array) -> list[Array]:
        arrays, structure = flatten_arrays(
            fun(*operations.tree_unflatten(treedef, xs)), f"results of {name_of(fun)}"
        )
        structures.append(structure)
        return arrays

    jaxpr, consts = trace(flat, avals, what="linear_call", name=name_of(fun))
    return jaxpr, consts, structures[0]


def linear_call(
    fun: Callable, fun_transpose: Callable, residual_args: Tree, linear_args: Tree
) -> Tree:
    """`fun(residual_args, linear_args)`, linear in the second, with the transpose `fun_transpose`.

    `fun_transpose(residual_args, cotangent)` gives the cotangent of `linear_args`. There is no derivative
    by `residual_args`. TypeError where it gives another structure, shapes or dtypes than those.

    >>> from fnx.custom_derivatives import linear_call
    >>> f = lambda x: linear_call(lambda r, x: x / r, lambda r, ct: ct / r, 4.0, x)
    >>> float(f(2.0)), float(fnx.grad(f)(2.0))
    (0.5, 0.25)
    """
    check_callable(fun, "linear_call")
    check_callable(fun_transpose, "linear_call")
    residuals, residual_tree = flatten_arrays(residual_args, "residuals of linear_call")
    linear, linear_tree = flatten_arrays(linear_args, "linear arguments of linear_call")
    known = [x.aval for x in residuals]
    both = operations.treedef_tuple([residual_tree, linear_tree])
    forward, consts, out_tree = _traced(fun, both, [*known, *[x.aval for x in linear]])
    cts = [a.strong() for a in forward.out_avals]
    both = operations.treedef_tuple([residual_tree, out_tree])
    back, back_consts, back_tree = _traced(fun_transpose, both, [*known, *cts])
    fits = len(back.outs) == len(linear) and all(
        a.like(x.aval) for a, x in zip(back.out_avals, linear)
    )
    if back_tree != linear_tree or not fits:
        raise TypeMismatch(
            f"the transpose {name_of(fun_transpose)} of linear_call returned {back_tree} of "
            f"{[a.str_short() for a in back.out_avals]}; expected {linear_tree} of "
            f"{[x.aval.str_short() for x in linear]}, as its linear arguments"
        )
    n, m, rest = len(consts), len(back_consts), len(residuals)
    shared = [*consts, *back_consts, *residuals]

    def over_all(jaxpr: Jaxpr, first: int, count: int, avals: Any) -> Jaxpr:
        """The jaxpr as one of all residuals, of which its constants are some."""

        def run(*xs: Array) -> list[Array]:
            return eval_jaxpr(jaxpr, [*xs[first : first + count], *xs[n + m :]])

        return trace(run, [*[x.aval for x in shared], *avals], name=jaxpr.name)[0]

    prim = LinearCall(
        over_all(forward, 0, n, [x.aval for x in linear]), over_all(back, n, m, cts), n + m + rest
    )
    return operations.tree_unflatten(out_tree, prim(*shared, *linear))


__all__ = ["linear_call"]


def linear_transpose(fun: Callable, *primals: Any, reduce_axes: Sequence = ()) -> Callable:
    """The transpose of a linear function; `primals` are arrays or ShapeDtypeStructs.

    >>> transposed = fnx.linear_transpose(lambda x: jnp.stack([x, 2 * x]), 0.0)
    >>> transposed(jnp.array([1.0, 10.0]))
    (Array(21., dtype=float64),)
    """
    del reduce_axes
    check_callable(fun, "linear_transpose")
    leaves, treedef = operations.tree_flatten(primals)
    avals = [aval_like(x) for x in leaves]
    structures: list = []
    flat = flat_function(fun, treedef, structures)
    jaxpr, consts = trace(flat, avals, what="linear_transpose")
    kinds = {dtypes.is_inexact(a.dtype) for a in (*avals, *jaxpr.out_avals)}
    if len(kinds) > 1:
        raise TypeMismatch(
            f"linear_transpose of a function from {', '.join([a.str_short() for a in avals])} to "
            f"{', '.join([a.str_short() for a in jaxpr.out_avals])}; expected numbers with a fraction on "
            "both sides, or integers on both"
        )
    return _Transposed(consts, _Transposable(jaxpr, treedef, tuple(avals), structures[0]))


@dataclass(frozen=True, eq=False)
class _Transposable:
    """What a transposed function knows beside what its function closed over."""

    jaxpr: Any
    treedef: Any
    inputs: tuple[ShapedArray, ...]
    structure: Any


class _Transposed:
    """The function that `linear_transpose` returns; a pytree whose leaves are what it closed over."""

    def __init__(self, consts: Sequence[Any], of: _Transposable):
        self.consts, self.of = list(consts), of

    def __call__(self, ct: Any) -> Any:
        of, what = self.of, "the cotangent of a linear_transpose"
        cts, structure = operations.tree_flatten(ct)
        if structure != of.structure:
            raise TypeMismatch(
                f"{what} is {operations.shown(structure)}; expected the structure of the result, "
                f"{operations.shown(of.structure)}"
            )
        given = [check_like(c, a, what, False) for c, a in zip(cts, of.jaxpr.out_avals)]
        args = [*self.consts, *map(Undefined, of.inputs)]
        check_cotangents(given, of.jaxpr.out_avals, what)

        def pull(cts: Sequence) -> Sequence:
            return linearize_.backward_jaxpr(of.jaxpr, args, cts)[len(self.consts) :]

        try:
            back = pulled(pull, given, of.jaxpr.out_avals, of.inputs, of.jaxpr.eqns)
        except (TypeMismatch, AttributeError) as error:  # a rule asked for an input's numbers
            types = ", ".join([a.str_short() for a in of.inputs])
            raise TypeMismatch(f"linear_transpose needs a function linear in {types}") from error
        full = [typed_zeros(a) if b is None else b for a, b in zip(of.inputs, back, strict=True)]
        return operations.tree_unflatten(of.treedef, full)


operations.register_pytree_node(
    _Transposed, lambda f: (f.consts, f.of), lambda of, consts: _Transposed(list(consts), of)
)
