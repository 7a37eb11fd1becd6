"""odeint: ordinary differential equations by an adaptive Runge-Kutta method, with the adjoint method.

E. Hairer, S. P. Norsett, G. Wanner: Solving Ordinary Differential Equations I, 2nd edition: the method of
Dormand and Prince (table II.5.2), its continuous extension (II.6), step sizes (II.4).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fnx import numpy
from fnx.control_flow import scan, while_loop
from fnx.core.dtypes import is_inexact
from fnx.core.errors import ShapeError
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
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
_DENSE = (
    -12715105075 / 11282082432, 0.0, 87487479700 / 32700410799, -10690763975 / 1880347072,
    701980252875 / 199316789632, -1453857185 / 822651844, 69997945 / 29380423,
)  # fmt: skip


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
                f"{shapes[1]}; expected equal ones"
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
    change = new - y
    bend = dt * slope - change
    dense = [y, change, bend, change - dt * ks[-1] - bend, dt * _combine(_DENSE, ks)]
    return new, ks[-1], dt * _combine(_ERROR, ks), jnp.stack(dense)


def _between(dense: Any, part: Any) -> Any:
    """The value after a part (0 to 1) of the last step."""
    a, b, c, d, e = dense
    rest = 1.0 - part
    return a + part * (b + rest * (c + part * (d + rest * e)))


def _norm(x: Any) -> Any:
    return jnp.sqrt(jnp.mean(jnp.abs(x) ** 2))


def _first_step(f: Callable, y: Any, slope: Any, t: Any, rtol: float, atol: float) -> Any:
    scale = atol + jnp.abs(y) * rtol
    d0, d1 = _norm(y / scale), _norm(slope / scale)
    small = (d0 < 1e-5) | (d1 < 1e-5)
    h0 = jnp.where(small, 1e-6, 0.01 * d0 / jnp.where(small, 1.0, d1))
    d2 = _norm((f(y + h0 * slope, t + h0) - slope) / scale) / h0
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
    """The adjoint a(t) of y(t) runs backwards: da/dt = -a df/dy; that of args adds up a df/dargs."""
    ys, ts, args = kept
    leaves, treedef = operations.tree_flatten(args)
    moves = [is_inexact(jnp.asarray(x).dtype) for x in leaves]
    chosen = [jnp.asarray(x) for x, m in zip(leaves, moves) if m]

    def f(y: Any, t: Any, some: list) -> Any:
        it = iter(some)
        full = [next(it) if m else x for x, m in zip(leaves, moves)]
        return func(y, t, *treedef.unflatten(full))

    def augmented(state: tuple, s: Any) -> tuple:
        y, a, _ = state
        rate, pull = vjp(lambda y, some: f(y, -s, some), y, chosen)
        return (-rate, *pull(a))

    def back(carry: tuple, row: tuple) -> tuple:
        a, some = carry
        y, t, before, g_before = row
        span = jnp.stack([-t, -before])
        options = {"rtol": rtol, "atol": atol, "mxstep": mxstep, "hmax": hmax}
        state = odeint(augmented, (y, a, some), span, **options)
        _, a, some = operations.tree_map(lambda x: x[1], state)
        return (a + g_before, some), None

    def slope_along(y: Any, t: Any, g: Any) -> Any:
        return jnp.sum((f(y, t, chosen) * g).real)

    _, times_ct = scan(lambda _, row: (None, slope_along(*row)), None, (ys[1:], ts[1:], ct[1:]))
    # The first cotangent is for y0 itself, which does not move with the first time.
    zero = jnp.zeros_like(ct[0])
    pulled = ct.at[0].set(zero)
    start = pulled[-1], [jnp.zeros_like(x) for x in chosen]
    rows = ys[1:], ts[1:], ts[:-1], pulled[:-1]
    (a, some), _ = scan(back, start, rows, reverse=True)
    first = -slope_along(ys[0], ts[0], a)
    it = iter(some)
    args_ct = treedef.unflatten([next(it) if m else x for x, m in zip(leaves, moves)])
    return (a + ct[0], jnp.concatenate([first[None], times_ct]), *args_ct)


_odeint.defvjp(_forward, _backward)
