"""The equation and the line where NaN or an infinity came up."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp


def test_debug_nans_names_the_line():
    def f(x):
        y = x - 2.0
        return jnp.sum(jnp.log(y) * 2.0)  # the log of a negative number

    with fnx.debug_nans():
        for g in (f, fnx.jit(f), fnx.jit(lambda x: fnx.jit(f)(x) + 1)):
            with pytest.raises(FloatingPointError, match=r"test_debug_nans\.py") as caught:
                g(jnp.ones(2))
            assert "log" in str(caught.value)
        assert float(fnx.jit(f)(jnp.array([3.0, 4.0]))) == pytest.approx(2 * np.log(2))
        with pytest.raises(FloatingPointError):
            fnx.grad(lambda x: jnp.sqrt(x) * 0.0 + jnp.where(x > 0, 0.0, x / x))(0.0)
    assert np.isnan(float(f(jnp.ones(2))))


def test_debug_nans_finds_those_of_16_bits():
    for dtype in ("float16", "bfloat16"):
        with fnx.debug_nans(True), pytest.raises(FloatingPointError, match="log"):
            fnx.jit(jnp.log)(jnp.array(-1.0, dtype))


def test_debug_nans_for_good():
    fnx.config.update("jax_debug_nans", True)
    try:
        with pytest.raises(FloatingPointError):
            jnp.zeros(1) / jnp.zeros(1)
    finally:
        fnx.config.update("jax_debug_nans", False)
    assert np.isnan(np.asarray(jnp.zeros(1) / jnp.zeros(1)))[0]


def test_debug_infs_is_as_debug_nans():
    f = lambda x: jnp.sum(1.0 / x)
    with fnx.debug_infs():
        for g in (f, fnx.jit(f)):
            with pytest.raises(FloatingPointError, match="div made an infinity"):
                g(jnp.zeros(2))
            assert g(jnp.array([np.inf, 1.0])) == 1.0
        assert np.isnan(jnp.log(-1.0))
        with fnx.debug_nans(), pytest.raises(FloatingPointError, match="log made a nan"):
            jnp.log(-1.0)
        with fnx.debug_infs(False):
            assert f(jnp.zeros(2)) == np.inf
    assert f(jnp.zeros(2)) == np.inf
    fnx.config.update("jax_debug_infs", True)
    try:
        with pytest.raises(FloatingPointError):
            f(jnp.zeros(1))
    finally:
        fnx.config.update("jax_debug_infs", False)
    assert f(jnp.zeros(2)) == np.inf
