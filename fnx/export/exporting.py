"""How functions become exported ones: traced once, or at a few sizes where some are symbolic."""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.aval import ShapedArray
from fnx.core.errors import InvalidValue
from fnx.export import templates
from fnx.export.dimensions import Dim, SymbolicScope, solve
from fnx.export.exported import Body, Exported, made, struct_at
from fnx.pytree import operations
from fnx.pytree.flatten_fun import aval_like
from fnx.transforms.jit import jit
from fnx.transforms.make_jaxpr import flatten_types
from fnx.transforms.traced_program import Empty


def export(
    fun_jit: Any,
    *,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[Any] = (),
) -> Callable[..., Exported]:
    """The function that exports a jitted one for arguments of these types (arrays, ShapeDtypeStructs).

    Sizes may be symbolic: the function is then traced at a few sizes, and the program is one for all
    where it differs in nothing but numbers that are polynomials of them. ValueError for a function that is
    not jitted (nor one of fnx's own, which need not be), for other platforms than "cpu", and for programs
    that depend on sizes in another way. Static arguments are part of the program, and are not passed to it.

    >>> (rows,) = fnx.export.symbolic_shape("b")
    >>> mean = fnx.export.export(fnx.jit(lambda x: x.mean(0)))(fnx.ShapeDtypeStruct((rows, 2), float))
    >>> mean.in_avals
    (ShapedArray(float64[b,2]),)
    >>> fnx.export.deserialize(mean.serialize()).call(jnp.ones((5, 2)))
    Array([1., 1.], dtype=float64)
    """
    if not hasattr(fun_jit, "trace") and getattr(fun_jit, "__module__", "").startswith("fnx."):
        fun_jit = jit(fun_jit)
    if not hasattr(fun_jit, "trace"):
        raise InvalidValue(f"export of {fun_jit!r:.60}; expected a jitted function: fnx.jit(f)")
    named = ("cpu",) if platforms is None else tuple(platforms)
    if "cpu" not in named:
        raise InvalidValue(f"export for the platforms {named}; fnx compiles for 'cpu' alone")

    def of_types(*args: Any, **kwargs: Any) -> Exported:
        static: Any = getattr(fun_jit, "static", None)
        fixed = None
        if static is not None and static.any:
            args, kwargs, fixed = static.split(args, kwargs)
        leaves, treedef = flatten_types((args, kwargs))
        avals = tuple([_in_aval(x) for x in leaves])
        variables = [n for a in avals for n in a.shape if type(n) is Dim]
        scope = variables[0].scope if variables else SymbolicScope()
        if any(n.scope is not scope for n in variables):
            raise InvalidValue("sizes of different scopes; expected one scope for all arguments")
        names = {name for n in variables for name in n.names}
        solve([(n, n.at(dict.fromkeys(names, 1000))) for n in variables], None)
        samples, outs = [], []
        structure: Any = None
        for sizes in templates.sample_sizes(list(names), scope) if names else [{}]:
            given, named_given = operations.tree_unflatten(
                treedef, [struct_at(a, sizes) for a in avals]
            )
            if fixed is not None:
                given, named_given = static.join(given, named_given, fixed)
            body, structure = Body.of(fun_jit, given, named_given)
            samples.append((sizes, body))
            results = Empty.within(body.empty.outs, body.jaxpr.out_avals)
            outs.append([ShapedArray(x.shape, x.dtype) for x in results])
        out_avals = _out_avals([s for s, _ in samples], outs, scope)
        return made(
            getattr(fun_jit, "__name__", "f"), (treedef, structure), (avals, out_avals), samples, scope,
            platforms=named, disabled_checks=disabled_checks,
        )  # fmt: skip

    return of_types


def _in_aval(x: Any) -> ShapedArray:
    return aval_like(x).strong()


def _out_avals(samples: list, outs: list, scope: SymbolicScope) -> tuple[ShapedArray, ...]:
    """The types of results, whose sizes are polynomials as all else."""
    if len(samples) == 1:
        return tuple(outs[0])
    overlay = templates.Overlay(samples)
    common = overlay.of([[list(a.shape) for a in types] for types in outs])
    shapes = [tuple(_dim(n, scope) for n in shape) for shape in common]
    return tuple([ShapedArray(s, a.dtype) for s, a in zip(shapes, outs[0], strict=True)])


def _dim(size: Any, scope: SymbolicScope) -> Any:
    if type(size) is int:
        return size
    return Dim({tuple(m): c for m, c in size[1:]}, scope)


__all__ = ["export"]
