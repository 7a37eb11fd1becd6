"""What runs for its side effects runs once, whatever a derivative computes again."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.experimental import io_callback


def noisy(x, seen, value):
    """A step that tells, and that may use what it was told."""
    if not value:
        fnx.debug.callback(seen.append, x)
        return x * jnp.sin(x)
    told = lambda v: (seen.append(v), np.float64(len(seen)))[1]
    got = io_callback(told, jnp.float64(0), lax.stop_gradient(x))
    return x * jnp.sin(x + 0.1 * got) * got


def by_scan(f):
    return lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=3)[0]


def by_fori(f):
    return lambda x: lax.fori_loop(0, 3, lambda k, c: f(c), x)


def by_branch(f):
    return lambda x: lax.scan(
        lambda c, k: (lax.cond(k < 3, f, lambda c: c * c, c), None), x, jnp.arange(5)
    )[0]


def in_turn(f):
    return lambda x: f(f(f(x)))


def nested(f):
    return lambda x: lax.scan(lambda c, _: (by_scan(f)(c) + 1.0, None), x, None, length=1)[0]


WAYS = {
    "gradient of a jitted function": lambda f: fnx.grad(fnx.jit(f)),
    "jitted gradient": lambda f: fnx.jit(fnx.grad(f)),
    "gradient": fnx.grad,
    "pulled back": lambda f: lambda x: fnx.vjp(fnx.jit(f), x)[1](1.0)[0],
    "linearized": lambda f: lambda x: fnx.linearize(fnx.jit(f), x)[1](1.0),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("loop", [by_scan, by_fori, by_branch, in_turn, nested])
@pytest.mark.parametrize("value", [False, True], ids=["tells", "is told"])
def test_side_effects_happen_once(way, loop, value):
    seen, plain = [], []
    slope = WAYS[way](loop(lambda x: noisy(x, seen, value)))(0.7)
    fnx.jit(loop(lambda x: noisy(x, plain, value)))(0.7)
    assert len(plain) == 3
    np.testing.assert_allclose([float(v) for v in seen], [float(v) for v in plain], rtol=1e-12)

    def same(x, step=1e-6):
        ends = [
            loop(lambda x, s=s: noisy(x, s, value))(x + d) for s, d in (([], step), ([], -step))
        ]
        return float(ends[0] - ends[1]) / (2 * step)

    np.testing.assert_allclose(float(slope), same(0.7), rtol=1e-6)
