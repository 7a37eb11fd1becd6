"""Functions of functions: vectorize, apply_along_axis, piecewise, ufunc-like reductions."""

import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.core.source import name_of
from fnx.numpy.arrays.creation import asarray
from fnx.numpy.arrays.key_arrays import is_keys
from fnx.numpy.arrays.util import canonical_axis, check_ranks, to_array, transformation
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.structure.shapes import broadcast_shapes, broadcast_to


def _vmap(fn: Callable, in_axes: Any = 0, out_axes: Any = 0) -> Callable:
    return transformation("vmap")(fn, in_axes=in_axes, out_axes=out_axes)


def apply_along_axis(func1d, axis, arr, *args, **kwargs):
    """A function of vectors applied to all vectors along an axis.

    >>> jnp.apply_along_axis(lambda v: v / v.sum(), 0, jnp.array([[1.0, 1.0], [3.0, 1.0]]))
    Array([[0.25, 0.5 ],
           [0.75, 0.5 ]], dtype=float64)
    """
    x = to_array(arr, "apply_along_axis")
    k = canonical_axis(axis, x.ndim)
    fn = lambda v: func1d(v, *args, **kwargs)
    for j in range(1, x.ndim - k):
        fn = _vmap(fn, in_axes=j, out_axes=-1)
    for _ in range(k):
        fn = _vmap(fn, in_axes=0, out_axes=0)
    return fn(x)


def apply_over_axes(func, a, axes):
    """A reduction over axes one after the other, which are kept.

    >>> jnp.apply_over_axes(jnp.sum, jnp.ones((2, 3, 4)), [0, 2])
    Array([[[8.],
            [8.],
            [8.]]], dtype=float64)
    """
    x = to_array(a, "apply_over_axes")
    for axis in axes if isinstance(axes, (tuple, list)) else (axes,):
        y = func(x, axis)  # as NumPy and JAX: the axis may have any name
        x = (
            y
            if y.ndim == x.ndim
            else asarray(y).reshape(
                tuple(1 if k == axis % x.ndim else n for k, n in enumerate(x.shape))
            )
        )
    return x


_TERM = r"\((?:[\w\s]*(?:,[\w\s]*)*)?\)"
_SIGNATURE = rf"^\s*{_TERM}(?:\s*,\s*{_TERM})*\s*->\s*{_TERM}(?:\s*,\s*{_TERM})*\s*$"


def parse(signature: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """The names of core axes of arguments and results: "(n),(n,m)->(m)"."""
    if not re.match(_SIGNATURE, signature):  # compiled at the first use
        raise InvalidValue(f"{signature!r} is no signature; expected one as '(n),(n,m)->(m)'")
    sides = []
    for side in signature.split("->"):
        terms = re.findall(r"\(([^)]*)\)", side)
        sides.append([tuple(n.strip() for n in t.split(",") if n.strip()) for t in terms])
    return sides[0], sides[1]


def vectorize(pyfunc, *, excluded=frozenset(), signature=None):
    """A function of small arrays applied to all of larger ones, whose leading axes broadcast.

    `signature` names the axes that the function itself takes and gives: "(n),(n)->()".

    TypeError and ValueError for `excluded` that are neither names nor positions; ValueError for
    None as an argument that is not excluded.

    >>> product = jnp.vectorize(lambda a, x: a @ x, signature="(n,m),(m)->(n)")
    >>> product(jnp.ones((5, 3, 2)), jnp.ones(2)).shape
    (5, 3)
    """
    if any(not isinstance(k, (str, int)) for k in excluded):
        raise TypeMismatch(f"vectorize with excluded={excluded}; expected names or positions")
    if any(isinstance(k, int) and k < 0 for k in excluded):
        raise InvalidValue(f"vectorize with excluded={excluded}; expected positions from the start")
    parsed = None if signature is None else parse(signature)

    @wraps(pyfunc)
    def wrapped(*args, **kwargs):
        names = [k for k in kwargs if k not in excluded]
        fixed = {k: v for k, v in kwargs.items() if k in excluded}
        absent = [k for k in range(len(args)) if k not in excluded and args[k] is None]
        if absent and parsed is not None:
            raise InvalidValue(
                f"vectorize with signature={signature!r} got None as the arguments {absent}; expected "
                "arrays, or positions in excluded="
            )
        moving = [k for k in range(len(args)) if k not in excluded and k not in absent]

        def core(*xs):
            full = list(args)
            for k, x in zip(moving, xs):
                full[k] = x
            extra = dict(zip(names, xs[len(moving) :]))
            return pyfunc(*full, **fixed, **extra)

        given = [(args[k], k) for k in moving] + [(kwargs[k], 0) for k in names]
        xs = [x if is_keys(x) else to_array(x, "vectorize", k) for x, k in given]
        return _vectorized(core, xs, parsed, pyfunc)

    return wrapped


def _vectorized(core: Callable, xs: list, parsed: Any, pyfunc: Callable) -> Any:
    ins = parsed[0] if parsed else [()] * len(xs)
    if len(ins) != len(xs):
        raise TypeMismatch(f"the signature names {len(ins)} arguments, but {len(xs)} were given")
    leads, sizes = dimensions(xs, ins, f"in {name_of(pyfunc)}")
    check_ranks(name_of(pyfunc), leads)
    lead = broadcast_shapes(*leads) if leads else ()
    padded = [x.reshape((1,) * (len(lead) - len(s)) + x.shape) for x, s in zip(xs, leads)]
    fn = checked(core, parsed[1], sizes) if parsed else core
    fn.__wrapped__ = pyfunc  # type: ignore[attr-defined]
    # Innermost axes first; an axis of size 1 is not mapped where another argument's is larger.
    squeezed = list(padded)
    plan = []
    for k in range(len(lead)):
        axes = [0 if x.shape[k] == lead[k] and (lead[k] != 1) else None for x in padded]
        plan.append([a if a is not None else None for a in axes])
    for x_index, x in enumerate(padded):
        drop = tuple(k for k in range(len(lead)) if plan[k][x_index] is None)
        squeezed[x_index] = x.reshape(tuple(n for k, n in enumerate(x.shape) if k not in drop))
    ones = [k for k in range(len(lead)) if lead[k] == 1]
    for k in range(len(lead))[::-1]:
        if k not in ones:
            fn = _vmap(fn, in_axes=tuple(plan[k]))
    out = fn(*squeezed)
    if not ones:
        return out
    many = isinstance(out, (tuple, list))
    fixed = [_with_ones(o, ones) for o in (out if many else (out,))]
    return tuple(fixed) if many else fixed[0]


def dimensions(
    xs: Sequence[Any], terms: Sequence[tuple[str, ...]], where: str
) -> tuple[list[tuple[int, ...]], dict[str, int]]:
    """The leading axes of each argument, and the sizes of core axes by name."""
    leads: list[tuple[int, ...]] = []
    sizes: dict[str, int] = {}
    for x, term in zip(xs, terms):
        if x.ndim < len(term):
            raise ShapeError(f"an argument of shape {x.shape} lacks the axes ({','.join(term)})")
        leads.append(x.shape[: x.ndim - len(term)])
        for name, n in zip(term, x.shape[x.ndim - len(term) :]):
            if sizes.setdefault(name, n) != n:
                raise ShapeError(f"axis {name!r} has sizes {sizes[name]} and {n} {where}")
    return leads, sizes


def _with_ones(x: Any, ones: list[int]) -> Any:
    x = x if is_keys(x) else asarray(x)
    for k in ones:
        x = x.reshape((*x.shape[:k], 1, *x.shape[k:]))
    return x


def checked(core: Callable, terms: list[tuple[str, ...]], sizes: dict) -> Callable:
    """The function with its results held against the signature's terms for them."""

    def fn(*xs):
        out = core(*xs)
        outs = out if isinstance(out, tuple) else (out,)
        if len(outs) != len(terms):
            raise TypeMismatch(
                f"the signature names {len(terms)} results, the function gave {len(outs)}"
            )
        known = dict(sizes)
        for o, term in zip(outs, terms):
            shape = o.shape if is_keys(o) else asarray(o).shape
            good = len(shape) == len(term) and all(
                known.setdefault(t, n) == n for t, n in zip(term, shape)
            )
            if not good:
                raise ShapeError(
                    f"a result of shape {shape} does not fit the axes ({','.join(term)})"
                )
        return out

    return fn


def piecewise(x, condlist, funclist, *args, **kw):
    """By conditions, the values of functions or numbers; the one left over is the default.

    ValueError for another number of functions.

    >>> x = jnp.array([-2.0, 0.5, 3.0])
    >>> jnp.piecewise(x, [x < 0, x > 1], [0.0, 1.0, lambda v: v])
    Array([0. , 0.5, 1. ], dtype=float64)
    """
    x, functions = to_array(x, "piecewise"), list(funclist)
    if isinstance(condlist, (list, tuple)):
        conditions = [asarray(c) for c in condlist]
    else:
        table = asarray(condlist)
        many = table.ndim > 0 and table.shape[0] in (len(functions), len(functions) - 1)
        conditions = [table[k] for k in range(table.shape[0])] if many else [table]
    if len(functions) == len(conditions):
        functions.append(0)
    if len(functions) != len(conditions) + 1:
        raise InvalidValue(
            f"piecewise of {len(conditions)} conditions and {len(funclist)} functions; expected as many, "
            "or one more for the default"
        )
    value = lambda f: f(x, *args, **kw) if callable(f) else f
    out = broadcast_to(asarray(value(functions[-1]), dtype=x.dtype), x.shape)
    for mask, fn in zip(conditions, functions, strict=False):  # the last that holds decides
        out = ufuncs.where3(ufuncs.truth(mask, "piecewise"), asarray(value(fn), dtype=x.dtype), out)
    return out


__all__ = ["apply_along_axis", "apply_over_axes", "piecewise", "vectorize"]
