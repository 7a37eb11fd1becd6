"""Einsum: sums of products by names of axes, in an order that costs little."""

from functools import lru_cache
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.numpy.algebra.products import contract
from fnx.numpy.arrays.util import convert, no_out, of_one_dtype, reshape_to
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.structure.diagonals import diagonal
from fnx.ops.base.broadcast import Sum, scalar
from fnx.ops.base.permute import Reshape, Transpose
from fnx.ops.elementwise import arithmetic as ops


def _path(subscripts: str, shapes: tuple, optimize: Any) -> list:
    """The contractions of an einsum: operand numbers, in the order in which they are taken out, and
    their subscripts.
    """
    import opt_einsum

    names = {"optimal": "optimal", "greedy": "greedy", True: "optimal", "auto": "auto"}
    if optimize is False:
        optimize = [tuple(range(len(shapes)))] if len(shapes) <= 2 else "auto"
    elif not isinstance(optimize, (list, tuple)):
        optimize = names.get(optimize, optimize)
    _, info = opt_einsum.contract_path(subscripts, *shapes, shapes=True, optimize=optimize)
    return [(step[0], step[2]) for step in info.contraction_list]


_cached_path = lru_cache(maxsize=1024)(_path)


def einsum(
    subscripts,
    /,
    *operands,
    out=None,
    optimize="auto",
    precision=None,
    preferred_element_type=None,
    _dot_general=None,
    out_sharding=None,
):
    """Sums of products by Einstein's convention.

    >>> jnp.einsum("ij,j->i", jnp.eye(2), jnp.ones(2))
    Array([1., 1.], dtype=float64)
    """
    no_out("einsum", out)
    if not isinstance(subscripts, str):
        subscripts, operands = _from_lists((subscripts, *operands))
    xs = list(of_one_dtype("einsum", *operands))
    subscripts = _canonical(subscripts, tuple([x.shape for x in xs]))
    if preferred_element_type is not None:
        xs = [convert(x, dtypes.canonical(preferred_element_type)) for x in xs]
    boolean = xs[0].dtype == dtypes.bool_
    if boolean:
        xs = [convert(x, dtypes.int32) for x in xs]
    shapes = tuple([x.shape for x in xs])
    if len(xs) <= 2:
        xs = [_contract_once(subscripts, xs)]
    else:
        find = _path if isinstance(optimize, list) else _cached_path
        for numbers, text in find(subscripts, shapes, optimize):
            xs.append(_contract_once(text, [xs.pop(k) for k in numbers]))
    return ops.ne(xs[0], scalar(0, xs[0].dtype)) if boolean else xs[0]


def _canonical(text: str, shapes: tuple) -> str:
    """Subscripts with an arrow, and letters for the ellipsis."""
    text = text.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise InvalidValue(
            f"einsum {text!r} names {len(terms)} operands, but {len(shapes)} were given"
        )
    unused = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in text]
    counts = [
        len(s) - len(t.replace("...", "")) if "..." in t else 0 for t, s in zip(terms, shapes)
    ]
    letters = "".join(unused[: max(counts)])
    terms = [t.replace("...", letters[len(letters) - n :]) for t, n in zip(terms, counts)]
    for t, s in zip(terms, shapes):
        if len(t) != len(s):
            raise ShapeError(f"einsum {text!r}: {t!r} does not fit an operand of shape {s}")
    if arrow:
        right = right.replace("...", letters)
    else:
        joined = "".join(terms)
        once = sorted({c for c in joined if joined.count(c) == 1 and c not in letters})
        right = letters + "".join(once)
    if any(c not in "".join(terms) for c in right) or len(set(right)) != len(right):
        raise InvalidValue(
            f"einsum {text!r}: the result's subscripts {right!r} must come from operands, once"
        )
    return ",".join(terms) + "->" + right


def _from_lists(args: tuple) -> tuple[str, tuple]:
    """The other way to write einsum: operand, axes, operand, axes, ..., result's axes."""
    pairs, rest = list(zip(args[::2], args[1::2])), args[len(args) // 2 * 2 :]
    letter = lambda k: "..." if k is Ellipsis else (chr(97 + k) if k < 26 else chr(65 + k - 26))
    terms = ["".join(map(letter, axes)) for _, axes in pairs]
    text = ",".join(terms)
    if rest:
        text += "->" + "".join(map(letter, rest[0]))
    return text, tuple([x for x, _ in pairs])


def _contract_once(text: str, xs: list[Array]) -> Array:
    left, right = text.split("->")
    terms = left.split(",")
    if len(xs) > 2:
        x, term = xs[0], terms[0]
        for k in range(1, len(xs)):
            later = set("".join(terms[k + 1 :])) | set(right)
            keep = "".join(dict.fromkeys(c for c in term + terms[k] if c in later))
            x, term = _contract_once(f"{term},{terms[k]}->{keep}", [x, xs[k]]), keep
        return _permuted(x, term, right)
    xs, terms = map(list, zip(*[_simple(x, t) for x, t in zip(xs, terms)]))
    if len(xs) == 1:
        x, term = _summed(xs[0], terms[0], set(right))
        return _permuted(x, term, right)
    (x, y), (s, t) = xs, terms
    x, s = _summed(x, s, set(t) | set(right))
    y, t = _summed(y, t, set(s) | set(right))
    (x, s), (y, t) = _stretched(x, s, y, t)
    x, s = _summed(x, s, set(t) | set(right))
    y, t = _summed(y, t, set(s) | set(right))
    shared = [c for c in s if c in t]
    batch = [c for c in shared if c in right]
    summed = [c for c in shared if c not in right]
    if not summed:
        return _product(x, s, y, t, right)
    at = lambda names, term: tuple([term.index(c) for c in names])
    out = contract(x, y, at(summed, s), at(summed, t), at(batch, s), at(batch, t))
    free = [c for c in s if c not in shared] + [c for c in t if c not in shared]
    return _permuted(out, "".join(batch + free), right)


def _product(x: Array, s: str, y: Array, t: str, right: str) -> Array:
    """Nothing is summed: a product of broadcast operands."""
    names = right
    x = _permuted(x, s, "".join([c for c in names if c in s]))
    y = _permuted(y, t, "".join([c for c in names if c in t]))
    place = lambda z, term: reshape_to(
        z,
        tuple(
            [
                z.shape["".join([c for c in names if c in term]).index(c)] if c in term else 1
                for c in names
            ]
        ),
    )
    return ufuncs.multiply(place(x, s), place(y, t))


def _simple(x: Array, term: str) -> tuple[Array, str]:
    """Repeated subscripts become diagonals."""
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            i = term.index(c)
            j = term.index(c, i + 1)
            if x.shape[i] != x.shape[j]:
                raise ShapeError(f"einsum: subscript {c!r} has sizes {x.shape[i]} and {x.shape[j]}")
            x = diagonal(x, 0, i, j)
            term = "".join([d for k, d in enumerate(term) if k not in (i, j)]) + c
    return x, term


def _summed(x: Array, term: str, needed: set) -> tuple[Array, str]:
    axes = tuple([k for k, c in enumerate(term) if c not in needed])
    if not axes:
        return x, term
    return Sum(axes)(x), "".join([c for c in term if c in needed])


def _stretched(x: Array, s: str, y: Array, t: str) -> tuple:
    """Shared axes of size 1 in one operand only disappear from it: they broadcast."""
    for c in [c for c in s if c in t]:
        n, m = x.shape[s.index(c)], y.shape[t.index(c)]
        if n == m:
            continue
        if n == 1:
            x, s = _without(x, s, c)
        elif m == 1:
            y, t = _without(y, t, c)
        else:
            raise ShapeError(f"einsum: subscript {c!r} has sizes {n} and {m}; expected equal ones")
    return (x, s), (y, t)


def _without(x: Array, term: str, c: str) -> tuple[Array, str]:
    k = term.index(c)
    return Reshape((*x.shape[:k], *x.shape[k + 1 :]))(x), term.replace(c, "")


def _permuted(x: Array, term: str, right: str) -> Array:
    if term == right:
        return x
    order = tuple([term.index(c) for c in right])
    return x if order == tuple(range(len(order))) else Transpose(order)(x)


def einsum_path(subscripts, /, *operands, optimize="auto"):
    """The order in which an einsum contracts, and a report (by opt_einsum).

    >>> jnp.einsum_path("ij,jk,kl->il", jnp.ones((2, 8)), jnp.ones((8, 8)), jnp.ones((8, 2)))[0]
    [(0, 1), (0, 1)]
    """
    import opt_einsum

    return opt_einsum.contract_path(
        subscripts, *[np.empty(o.shape) for o in operands], optimize=optimize
    )


__all__ = [
    "einsum",
    "einsum_path",
]
