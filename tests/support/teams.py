"""Programs of devices that run at once, and the same in turn."""

import numpy as np
import pytest
from agreement import close

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.lowering.cpu.loader import team

WAITING = pytest.mark.skipif(not team.can_wait(), reason="threads cannot sleep here")


def mesh(x=2, y=2):
    return fnx.make_mesh((x, y), ("x", "y"))


def in_control_flow(f):
    """A member's function in a loop with a known length, in one without, and in a branch, over axis "i"."""

    def scanned(x):
        def step(c, k):
            return c + jnp.sum(f(c * 0.1)) * k, f(c)

        return lax.scan(step, x, jnp.arange(3.0))

    def looped(x):
        return lax.while_loop(
            lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + jnp.mean(f(s[1]))), (0, x)
        )[1]

    def chosen(x):
        return lax.cond(lax.pmax(x[0, 0], "i") > 0, f, lambda v: f(2 * v), x)

    return scanned, looped, chosen


def both(f, *args, runs, exact=False):
    """What devices make at once, and in turn."""
    before = len(runs)
    found = fnx.jit(f)(*args)
    assert len(runs) > before
    with config.backend("reference"):
        expected = fnx.jit(f)(*args)
    for a, b in zip(fnx.tree.leaves(found), fnx.tree.leaves(expected), strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        if exact:
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        else:
            close(a, b)


def ring(n):
    return [(k, (k + 1) % n) for k in range(n)]


def mapped(f):
    return fnx.pmap(f, axis_name="i")
