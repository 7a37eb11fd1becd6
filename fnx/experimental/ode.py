"""odeint: ordinary differential equations by an adaptive Runge-Kutta method, with the adjoint method.

E. Hairer, S. P. Norsett, G. Wanner: Solving Ordinary Differential Equations I, 2nd edition: the method of
Dormand and Prince (table II.5.2), step sizes (II.4). The error's estimate, and the quartic through both
ends of a step with their slopes and through its middle, are L. F. Shampine's (Math. Comp. 46, 1986). These,
norms and what the adjoint carries are JAX's, so steps are too, and results agree far below the tolerances.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fnx import numpy
from fnx.control_flow import scan, while_loop
from fnx.core.dtypes import is_inexact
from fnx.core.errors import ShapeError, entrance
from fnx.pytree import operations
from fnx.transforms.custom_derivatives import closure_convert, custom_vjp
from fnx.transforms.grad import vjp
from fnx.transforms.ravel import ravel_pytree
from fnx.transforms.vmap import vmap

jnp: Any = numpy  # arrays get their methods when it is imported, which type checkers do not see

__all__ = ["odeint"]

_NODES = (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_STAGES = (
    (),
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (
    35 / 384 - 1951 / 21600, 0.0, 500 / 1113 - 22642 / 50085, 125 / 192 - 451 / 720,
    12231 / 42400 - 2187 / 6784, 11 / 84 - 649 / 6300, -1 / 60,
)  # fmt: skip
_MIDDLE = (
    6025192743 / 60171106304, 0.0, 51252292925 / 130801643196, -2691868925 / 90256659456,
    187940372067 / 3189068634112, -1776094331 / 39487288512, 11237099 / 470086768,
)  # fmt: skip


@entrance
def odeint(
    func: Callable,
    y0: Any,
    t: Any,
    *args: Any,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    mxstep: float = np.inf,
    hmax: float = np.inf,
) -> Any:
    """The solution of dy/dt = func(y, t, *args) with y(t[0]) = y0, at the times `t`, which increase.

    `y0` is an array or a pytree of arrays; the result has the times in front of each leaf. Errors per
    step are kept below `atol + rtol * |y|`; `mxstep` bounds the steps between two times, `hmax` their
    length. Reverse-mode derivatives with respect to y0, t and args, and what `func` closed over, come
    from the adjoint equation, solved backwards with the same tolerances; there is no forward mode.

    >>> ys = fnx.experimental.ode.odeint(lambda y, t: -y, 1.0, jnp.array([0.0, 1.0, 2.0]))
    >>> bool(jnp.allclose(ys, jnp.exp(-jnp.array([0.0, 1.0, 2.0]))))
    True
    """
    times = jnp.asarray(t)
    if times.ndim != 1:
        raise ShapeError(f"odeint needs times of rank 1, got an array of shape {times.shape}")
    y0 = operations.tree_map(_inexact, y0)
    flat0, unravel = ravel_pytree(y0)
    real = np.zeros((), flat0.dtype).real.dtype
    times = times.astype(real)

    def rate(y: Any, s: Any, *rest: Any) -> Any:
        out = func(unravel(y), s, *rest)  # a list of numbers, say, where y is an array
        flat: Any = ravel_pytree(out)[0]
        if flat.shape != flat0.shape:
            shapes = [[np.shape(x) for x in operations.tree_leaves(tree)] for tree in (out, y0)]
            raise ShapeError(
                f"odeint: func returned derivatives of shapes {shapes[0]} for y0 of shapes "
                f"{shapes[1]}; expected equal ones, of func(y, t, *args)"
            )
        return flat.astype(flat0.dtype)

    converted, consts = closure_convert(rate, flat0, times[0], *args)
    ys = _odeint(converted, rtol, atol, mxstep, hmax, flat0, times, *args, *consts)
    return vmap(unravel)(ys)


def _inexact(x: Any) -> Any:
    x = jnp.asarray(x)
    return x if is_inexact(x.dtype) else x.astype(float)


# --- the method --------------------------------------------------------------------------------


def _combine(weights: tuple, ks: list) -> Any:
    terms = [w * k for w, k in zip(weights, ks) if w]
    return sum(terms[1:], terms[0])


def _step(f: Callable, y: Any, slope: Any, t: Any, dt: Any) -> tuple:
    """One step: the new value and slope, the error's estimate, the coefficients in between."""
    ks = [slope]
    for node, weights in zip(_NODES[1:], _STAGES[1:]):
        new = y + dt * _combine(weights, ks)
        ks.append(f(new, t + node * dt))
    middle, start, end = y + dt * _combine(_MIDDLE, ks), dt * slope, dt * ks[-1]
    dense = [
        y,
        start,
        -4.0 * start + end - 11.0 * y - 5.0 * new + 16.0 * middle,
        5.0 * start - 3.0 * end + 18.0 * y + 14.0 * new - 32.0 * middle,
        2.0 * (end - start) - 8.0 * (y + new) + 16.0 * middle,
    ]
    return new, ks[-1], dt * _combine(_ERROR, ks), jnp.stack(dense)


def _between(dense: Any, part: Any) -> Any:
    """The value after a part (0 to 1) of the last step."""
    a, b, c, d, e = dense
    return a + part * (b + part * (c + part * (d + part * e)))


def _norm(x: Any) -> Any:
    return jnp.sqrt(jnp.mean(jnp.abs(x) ** 2))


def _first_step(f: Callable, y: Any, slope: Any, t: Any, rtol: float, atol: float) -> Any:
    scale = atol + jnp.abs(y) * rtol
    norm = jnp.linalg.norm  # the root of a sum, not of a mean, in the estimate of the first step
    d0, d1 = norm(y / scale), norm(slope / scale)
    small = (d0 < 1e-5) | (d1 < 1e-5)
    h0 = jnp.where(small, 1e-6, 0.01 * d0 / jnp.where(small, 1.0, d1))
    d2 = norm((f(y + h0 * slope, t + h0) - slope) / scale) / h0
    largest = jnp.maximum(d1, d2)
    flat = largest <= 1e-15
    h1 = jnp.where(
        flat, jnp.maximum(1e-6, h0 * 1e-3), (0.01 / jnp.where(flat, 1.0, largest)) ** (1 / 5)
    )
    return jnp.minimum(100.0 * h0, h1)


def _next_step(dt: Any, error: Any) -> Any:
    """A step of such a length that the error would be at 0.9 of what is allowed."""
    factor = 0.9 * jnp.where(error == 0, 1.0, error) ** (-1 / 5)
    least = jnp.where(error < 1.0, 1.0, 0.2)
    return dt * jnp.where(error == 0, 10.0, jnp.clip(factor, least, 10.0))


@partial(custom_vjp, nondiff_argnums=(0, 1, 2, 3, 4))
def _odeint(
    func: Callable,
    rtol: float,
    atol: float,
    mxstep: float,
    hmax: float,
    y0: Any,
    ts: Any,
    *args: Any,
) -> Any:
    def f(y: Any, t: Any) -> Any:
        return func(y, t, *args)

    def advance(carry: tuple) -> tuple:
        k, y, slope, t, dt, last, dense = carry
        new, new_slope, error, new_dense = _step(f, y, slope, t, dt)
        ratio = _norm(error / (atol + rtol * jnp.maximum(jnp.abs(y), jnp.abs(new))))
        good = ratio <= 1.0
        kept = [
            jnp.where(good, a, b)
            for a, b in zip((new, new_slope, t + dt, t, new_dense), (y, slope, t, last, dense))
        ]
        # An error that is not a number comes from a step that is too long.
        dt = jnp.clip(_next_step(dt, jnp.where(ratio >= 0, ratio, jnp.inf)), 0.0, hmax)
        return k + 1, kept[0], kept[1], kept[2], dt, kept[3], kept[4]

    def until(carry: tuple, target: Any) -> tuple:
        def going(c: tuple) -> Any:
            return (c[3] < target) & (c[0].astype(float) < mxstep) & (c[4] > 0)

        out = while_loop(going, advance, (jnp.zeros((), int), *carry))[1:]
        _, _, t, _, last, dense = out
        length = jnp.where(t > last, t - last, 1.0)
        return out, _between(dense, jnp.where(t > last, (target - last) / length, 0.0))

    slope = f(y0, ts[0])
    dt = jnp.clip(_first_step(f, y0, slope, ts[0], rtol, atol), 0.0, hmax).astype(ts.dtype)
    dense = jnp.stack([y0, *[jnp.zeros_like(y0)] * 4])
    _, ys = scan(until, (y0, slope, ts[0], dt, ts[0], dense), ts[1:])
    return jnp.concatenate([y0[None], ys])


def _forward(
    func: Callable,
    rtol: float,
    atol: float,
    mxstep: float,
    hmax: float,
    y0: Any,
    ts: Any,
    *args: Any,
) -> tuple:
    ys = _odeint(func, rtol, atol, mxstep, hmax, y0, ts, *args)
    return ys, (ys, ts, args)


def _backward(
    func: Callable, rtol: float, atol: float, mxstep: float, hmax: float, kept: tuple, ct: Any
) -> tuple:
    """The adjoint a(t) of y(t) runs backwards: da/dt = -a df/dy; those of t and args add up.

    What they add up are a df/dt and a df/dargs.
    """
    ys, ts, args = kept
    leaves, treedef = operations.tree_flatten(args)
    moves = [is_inexact(jnp.asarray(x).dtype) for x in leaves]
    chosen = [jnp.asarray(x) for x, m in zip(leaves, moves) if m]

    def f(y: Any, t: Any, some: list) -> Any:
        it = iter(some)
        full = [next(it) if m else x for x, m in zip(leaves, moves)]
        return func(y, t, *treedef.unflatten(full))

    def augmented(state: tuple, s: Any) -> tuple:
        y, a, _, _ = state
        rate, pull = vjp(f, y, -s, chosen)
        return (-rate, *pull(a))

    def back(carry: tuple, row: tuple) -> tuple:
        a, first, some = carry
        y, t, before, g_before, slope_ct = row
        span = jnp.stack([-t, -before])
        options = {"rtol": rtol, "atol": atol, "mxstep": mxstep, "hmax": hmax}
        state = odeint(augmented, (y, a, first - slope_ct, some), span, **options)
        _, a, first, some = operations.tree_map(lambda x: x[1], state)
        return (a + g_before, first, some), None

    def slope_along(y: Any, t: Any, g: Any) -> Any:
        return jnp.sum((f(y, t, chosen) * g).real)

    _, times_ct = scan(lambda _, row: (None, slope_along(*row)), None, (ys[1:], ts[1:], ct[1:]))
    start = ct[-1], jnp.zeros((), ts.dtype), [jnp.zeros_like(x) for x in chosen]
    rows = ys[1:], ts[1:], ts[:-1], ct[:-1], times_ct
    (a, first, some), _ = scan(back, start, rows, reverse=True)
    it = iter(some)
    args_ct = treedef.unflatten([next(it) if m else x for x, m in zip(leaves, moves)])
    return (a, jnp.concatenate([first[None], times_ct]), *args_ct)


_odeint.defvjp(_forward, _backward)
