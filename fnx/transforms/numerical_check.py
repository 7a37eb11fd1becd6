"""Checks of derivatives against finite differences."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, as_array
from fnx.pytree import operations
from fnx.transforms.grad import jvp, vjp

EPS = 1e-4


_DEFAULT = {np.dtype("float64"): 1e-5, np.dtype("complex128"): 1e-5, dtypes.bfloat16: 1e-1}
Tolerance = float | Mapping[Any, float] | None


def _tolerance(tol: Tolerance, leaves: Sequence[Array]) -> float:
    """The tolerance for values of these dtypes: one number, or by dtype, or the default."""
    if tol is not None and not isinstance(tol, Mapping):
        return tol
    given = {dtypes.canonical(d): t for d, t in (tol or {}).items()}
    kinds = {x.dtype for x in leaves if dtypes.is_inexact(x.dtype)}
    return max([given.get(d, _DEFAULT.get(d, 1e-2)) for d in kinds], default=1e-5)


def _random_like(rng: np.random.RandomState, x: Any) -> Any:
    """A random tangent for an array, as JAX draws it: what passes there within a tolerance does here."""
    x = np.asarray(x)
    if not dtypes.is_inexact(x.dtype):
        return np.zeros(x.shape, dtypes.float0)
    noise = rng.randn(*x.shape)
    if x.dtype.kind == "c":
        noise = noise + 1j * rng.randn(*x.shape)
    return np.asarray(noise).astype(x.dtype)


def _tangents(rng: np.random.RandomState, tree: Any) -> Any:
    return operations.tree_map(lambda x: _random_like(rng, x), tree)


def _moved(x: Any, t: Any, step: float) -> Any:
    x = np.asarray(x)
    if not dtypes.is_inexact(x.dtype):
        return x
    return (x + step * np.asarray(t)).astype(x.dtype)


def numerical_jvp(
    f: Callable, primals: Sequence, tangents: Sequence, eps: float | None = None
) -> Any:
    """The derivative of `f` at `primals` along `tangents`, by central differences with step `eps`, or 1e-4.

    >>> fnx.test_util.numerical_jvp(lambda x: x**2, (3.0,), (1.0,)).round(6)
    np.float64(6.0)
    """
    eps = EPS if eps is None else eps

    def at(step: float) -> Any:
        return f(*operations.tree_map(lambda x, t: _moved(x, t, step), primals, tangents))

    def difference(a: Any, b: Any) -> np.ndarray:
        a, b = np.asarray(a), np.asarray(b)
        with np.errstate(invalid="ignore"):  # infinities that stay have the slope 0
            return np.where(a == b, np.zeros((), a.dtype), a - b) / (2 * eps)

    return operations.tree_map(difference, at(eps), at(-eps))


def _compare(found: Any, expected: Any, atol: float, rtol: float, what: str) -> None:
    for path, (a, b) in zip(
        [p for p, _ in operations.tree_leaves_with_path(expected)],
        zip(operations.tree_leaves(found), operations.tree_leaves(expected), strict=True),
    ):
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype == dtypes.float0:
            continue
        where = f"{what}{operations.keystr(path)}"
        # As JAX's: of n elements n times the tolerance, so what passes there does here.
        np.testing.assert_allclose(a, b, rtol=rtol * a.size, atol=atol * a.size, err_msg=where)


def _inner(a: Any, b: Any) -> Any:
    """The sum of products of the leaves, as JAX pairs tangents with cotangents: without conjugation."""
    total: Any = 0.0
    for x, y in zip(operations.tree_leaves(a), operations.tree_leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        if x.dtype != dtypes.float0 and y.dtype != dtypes.float0:
            total = total + np.sum(x * y)
    return total


def check_jvp(
    f: Callable,
    f_jvp: Callable,
    args: Sequence,
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Compare `f_jvp(primals, tangents)` with finite differences of `f`, along a random tangent.

    AssertionError if results or tangents differ by more than `atol`, `rtol`, as in `check_grads`.

    >>> from functools import partial
    >>> fnx.test_util.check_jvp(jnp.sin, partial(fnx.jvp, jnp.sin), (0.5,))
    """
    rng = np.random.RandomState(0)
    args = tuple(args)
    tangents = _tangents(rng, args)
    leaves = [as_array(x) for x in operations.tree_leaves(args)]
    out, found = f_jvp(args, tangents)
    a, r = _tolerance(atol, leaves), _tolerance(rtol, leaves)
    _compare(out, f(*args), a, r, f"{err_msg} result of the jvp")
    _compare(found, numerical_jvp(f, args, tangents, eps), a, r, f"{err_msg} jvp tangent")


def check_vjp(
    f: Callable,
    f_vjp: Callable,
    args: Sequence,
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Compare `f_vjp(*args)`, (result, pull), with finite differences of `f`, along random directions.

    AssertionError if they differ by more than `atol`, `rtol`, as in `check_grads`.

    >>> from functools import partial
    >>> fnx.test_util.check_vjp(jnp.sin, partial(fnx.vjp, jnp.sin), (0.5,))
    """
    rng = np.random.RandomState(0)
    args = tuple(args)
    leaves = [as_array(x) for x in operations.tree_leaves(args)]
    out, pull = f_vjp(*args)
    a, r = _tolerance(atol, leaves), _tolerance(rtol, leaves)
    _compare(out, f(*args), a, r, f"{err_msg} result of the vjp")
    tangents = _tangents(rng, args)
    cotangent = _tangents(rng, out)
    # As real directions do: of complex numbers the real part is compared.
    expected = np.real(_inner(numerical_jvp(f, args, tangents, eps), cotangent))
    found = np.real(_inner(tangents, pull(cotangent)))
    np.testing.assert_allclose(found, expected, rtol=r, atol=a, err_msg=f"{err_msg} vjp")


def check_grads(
    f: Callable,
    args: Sequence,
    order: int,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
) -> None:
    """Compare the derivatives of `f` up to an order with finite differences of those one order lower.

    `modes` holds "fwd" (jvp), "rev" (vjp) or both; both are mixed in higher orders. AssertionError if
    they differ by more than `atol`, `rtol`: numbers, or dicts of numbers by dtype (1e-5, for float32
    1e-2, for bfloat16 0.1). In forward mode tangents of n elements may differ by n times as much.

    >>> fnx.test_util.check_grads(lambda x: x**3, (2.0,), order=2)
    """
    args = tuple(args)
    forward = "fwd" in modes
    reverse = "rev" in modes

    def check(f: Callable, args: tuple, order: int, message: str) -> None:
        if forward:
            push = lambda primals, tangents: jvp(f, primals, tangents)
            check_jvp(f, push, args, atol, rtol, eps, f"{message} fwd {order}")
        if reverse:
            check_vjp(f, lambda *xs: vjp(f, *xs), args, atol, rtol, eps, f"{message} rev {order}")
        if order == 1:
            return
        rng = np.random.RandomState(order)
        directions = _tangents(rng, args)
        if forward:
            check(lambda *xs: jvp(f, xs, directions)[1], args, order - 1, f"{message} fwd {order}")
        if reverse:
            out, _ = vjp(f, *args)
            cotangent = _tangents(rng, out)
            back = lambda *xs: _floats(vjp(f, *xs)[1](cotangent), args)
            check(back, args, order - 1, f"{message} rev {order}")

    check(f, args, order, "")


def _floats(grads: Any, like: Any) -> list:
    pairs = zip(operations.tree_leaves(grads), operations.tree_leaves(like), strict=True)
    return [g for g, x in pairs if dtypes.is_inexact(as_array(x).dtype)]


__all__ = ["check_grads", "check_jvp", "check_vjp", "numerical_jvp"]
