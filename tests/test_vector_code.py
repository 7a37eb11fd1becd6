"""Loops that should become vectors do: in the assembly stand calls of vector functions."""

import re

import numpy as np
import pytest

import fnx as jax
import fnx.numpy as jnp


def triads(x, y):
    """Costly functions of neighbours, which are read at several places of two axes."""
    n, m = x.shape[1] - 1, x.shape[2] - 2
    z = jnp.tanh(y[:, :, 1:] - y[:, :, :-1])
    rho = x[:, 1:] - x[:, :-1]
    total = jnp.zeros((*x.shape[:2], m + 1))
    flux = jnp.zeros_like(rho)
    for low in (0, 1):
        for k in (0, 1):
            cells = slice(None), slice(low, n + low), slice(k, m + k)
            slope = -rho[:, :, 1:-1] / jnp.minimum(z[cells], -1e-7)
            share = jnp.tanh(abs(slope))
            flux = flux.at[:, :, 1:-1].add(share * slope)
            total = total.at[cells].add(share * slope * slope)
    return flux, total


def neighbours(x, y):
    """One costly function of a sum of neighbours along the last axis."""
    return jnp.tanh(x[:, :-2] + x[:, 1:-1] * y[:, 1:-1] + x[:, 2:])


def rows(x, y):
    """A reduction of each row between costly functions."""
    e = jnp.tanh(x - jnp.max(x, axis=1, keepdims=True))
    return e / jnp.sum(e, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("f", "shape"), [(triads, (40, 40, 40)), (neighbours, (90, 70)), (rows, (90, 70))]
)
def test_costly_functions_are_called_on_vectors(f, shape):
    x, y = np.random.default_rng(0).normal(size=(2, *shape))
    asm = jax.jit(f).lower(x, y).as_text("asm")
    functions = re.split(r"^\w[\w.]*:", asm, flags=re.MULTILINE)
    calling = [text for text in functions if "fnx_v_tanh_float64" in text]
    assert calling
    for text in calling:
        assert "fnx_v_tanh_float64_w" in text
