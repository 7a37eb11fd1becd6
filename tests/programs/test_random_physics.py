"""Random programs of physics: compiled as evaluated, and with FNX_FUZZ as JAX has them."""

import importlib
import os
from types import SimpleNamespace

import numpy as np
import pytest
from programs_physics import KINDS, Physics

import fnx
import fnx.numpy as jnp
from fnx import lax

FUZZ = int(os.environ.get("FNX_FUZZ", "0"))
START = int(os.environ.get("FNX_FUZZ_FROM", "0"))
FNX = SimpleNamespace(api=fnx, jnp=jnp, lax=lax)
DERIVATIVES = ("value", "jvp", "grad", "rows", "rows of grad", "forward over reverse")


def transformed(made: Physics, lib: SimpleNamespace, word: str):
    """A program under a transformation, and its arguments."""
    api, run, loss = lib.api, made.program(lib), made.loss(lib)
    x = lib.jnp.asarray(made.start)
    rows = lib.jnp.stack([x, 0.5 * x + 0.1, -0.8 * x])
    along = lib.jnp.cos(lib.jnp.arange(made.size)).astype(made.dtype)

    def numbers(x):
        found = api.tree_util.tree_leaves(run(x))
        return [y for y in found if lib.jnp.issubdtype(y.dtype, lib.jnp.inexact)]

    return {
        "value": (run, x),
        "jvp": (lambda x: api.jvp(numbers, (x,), (along,)), x),
        "grad": (api.value_and_grad(loss), x),
        "rows": (api.vmap(run), rows),
        "rows of grad": (api.vmap(api.grad(loss)), rows),
        "forward over reverse": (lambda x: api.jvp(api.grad(loss), (x,), (along,))[1], x),
    }[word]


def drawn(seed: int, word: str) -> Physics:
    made = Physics(seed)
    if word in ("jvp", "forward over reverse") and "fixed" in made.names:
        pytest.skip("custom_vjp has no forward mode")
    return made


def agree(found: list, expected: list, made: Physics) -> None:
    for a, b in zip(found, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), made.names
        if a.dtype.kind not in "fc":
            np.testing.assert_array_equal(a, b, err_msg=str(made.names))
            continue
        tolerance = 1e-7 if made.dtype == "float64" else 2e-3
        scale = 1 + np.abs(b[np.isfinite(b)]).max(initial=0)
        np.testing.assert_allclose(
            a / scale, b / scale, rtol=tolerance, atol=tolerance, err_msg=str(made.names)
        )


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_compiled_as_it_is_evaluated(kind):
    made = Physics(len(kind), [kind])
    run, x = transformed(made, FNX, "value")
    with fnx.disable_jit():
        expected = fnx.tree_util.tree_leaves(run(x))
    agree(fnx.tree_util.tree_leaves(fnx.jit(run)(x)), expected, made)


@pytest.mark.slow
@pytest.mark.parametrize("word", DERIVATIVES)
@pytest.mark.parametrize("seed", range(START, START + (FUZZ or 6)))
def test_compiled_programs_are_what_evaluated_ones_are(seed, word):
    made = drawn(seed, word)
    run, x = transformed(made, FNX, word)
    with fnx.disable_jit():
        expected = fnx.tree_util.tree_leaves(run(x))
    agree(fnx.tree_util.tree_leaves(fnx.jit(run)(x)), expected, made)


@pytest.mark.skipif(not FUZZ, reason="compares with JAX where FNX_FUZZ asks for it")
@pytest.mark.parametrize("word", DERIVATIVES)
@pytest.mark.parametrize("seed", range(START, START + FUZZ))
def test_programs_are_what_jax_has(seed, word):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    oracle = importlib.import_module("jax_oracle")
    for name in ("scipy.ndimage", "scipy.linalg", "scipy.sparse.linalg"):
        importlib.import_module(f"jax.{name}")
    numpy, jlax = (importlib.import_module(f"jax.{name}") for name in ("numpy", "lax"))
    made = drawn(seed, word)
    run, x = transformed(made, SimpleNamespace(api=jax, jnp=numpy, lax=jlax), word)
    expected = oracle.results(lambda: run(x))
    run, x = transformed(made, FNX, word)
    found = fnx.tree_util.tree_leaves(fnx.jit(run)(x))
    agree(found, [y for y, _ in expected], made)
    assert [fnx.typeof(y).weak_type for y in found] == [weak for _, weak in expected], made.names
