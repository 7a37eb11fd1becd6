"""Loops that should become vectors do: in the assembly stand calls of vector functions."""

import re

import numpy as np
import pytest

import fnx as jax
import fnx.numpy as jnp


def triads(x, y):
    """Costly functions of neighbours, which are read at several places of two axes."""
    a, b = jnp.minimum(y[:-1, :-1], -0.1), jnp.minimum(y[:-1, 1:], -0.1)
    c, d = jnp.minimum(y[1:, :-1], -0.1), jnp.minimum(y[1:, 1:], -0.1)
    slope = x[1:, 1:] - x[:-1, :-1]
    return [jnp.tanh(slope / z) for z in (a, b, c, d)]


def neighbours(x, y):
    """One costly function of a sum of neighbours along the last axis."""
    return jnp.tanh(x[:, :-2] + x[:, 1:-1] * y[:, 1:-1] + x[:, 2:])


def rows(x, y):
    """A reduction of each row between costly functions."""
    e = jnp.tanh(x - jnp.max(x, axis=1, keepdims=True))
    return e / jnp.sum(e, axis=1, keepdims=True)


@pytest.mark.parametrize("f", [triads, neighbours, rows])
def test_costly_functions_are_called_on_vectors(f):
    x, y = np.random.default_rng(0).normal(size=(2, 90, 70))
    asm = jax.jit(f).lower(x, y).as_text("asm")
    functions = re.split(r"^\w+:", asm, flags=re.MULTILINE)
    calling = [text for text in functions if "fnx_v_tanh_float64" in text]
    assert calling
    for text in calling:
        assert "fnx_v_tanh_float64_w" in text
