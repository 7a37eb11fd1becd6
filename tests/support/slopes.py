"""Derivatives of whole programs against differences."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp


def directional(f, x, v, h=1e-5):
    """The derivative of f at x along v, by a central difference of fourth order."""
    at = [float(f(x + k * h * v)) for k in (-2, -1, 1, 2)]
    return (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h)


def slope_check(f, x, rtol=1e-5, step=1e-6):
    """The compiled gradient of f at x along a direction, against central differences of the compiled f."""
    f = fnx.jit(f)
    direction = np.random.default_rng(0).normal(size=np.shape(x))
    value = lambda s: float(f(jnp.asarray(np.asarray(x) + s * direction)))
    expected = (value(step) - value(-step)) / (2 * step)
    gradient = fnx.jit(fnx.grad(f))(jnp.asarray(x))
    assert float(np.sum(np.asarray(gradient) * direction)) == pytest.approx(
        expected, rel=rtol, abs=1e-7
    )
    return gradient
