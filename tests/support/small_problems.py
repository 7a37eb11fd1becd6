"""What tests of many small problems side by side share."""

import numpy as np

import fnx as jax
import fnx.numpy as jnp


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def report(f, *args):
    return jax.jit(f).lower(*args).compile().report()


def kernels(f, *args):
    """How many nests there are, and bytes of arrays in between."""
    text = report(f, *args)
    workspace = int(text.split("workspace ")[1].split()[0])
    return text.count("\n  kernel"), workspace


def agrees(f, *args, rtol=1e-12):
    """Compiled as equation by equation."""
    found = jax.tree_util.tree_leaves(jax.jit(f)(*args))
    expected = jax.tree_util.tree_leaves(f(*jax.tree_util.tree_map(jnp.asarray, args)))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=1e-12)
