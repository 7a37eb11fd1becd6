"""Compiling: the work of the passes grows with the length of a program, not with its square."""

import gc
import re
import sys

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.lowering.cpu.jit import compiler
from fnx.lowering.cpu.processor import thresholds


def powers(n):
    """One long expression, whose parts are read once."""

    def f(x):
        total = 0.0 * x
        for k in range(n):
            total = total * x + 1.0 / (k + 1)
        return total

    return f, (np.linspace(0.0, 1.0, 100),)


def waves(n):
    """Values that are read twice each, of one shape."""

    def f(x):
        for k in range(n):
            x = jnp.sin(x) + 0.1 * k * x
        return x

    return f, (np.linspace(0.0, 1.0, 100),)


def layers(n):
    def f(w, x):
        for _ in range(n):
            x = jnp.tanh(x @ w)
        return jnp.sum(x)

    return fnx.grad(f), (np.eye(16) * 0.9, np.ones((4, 16)))


def gates(n):
    """Half as many steps, of twenty operations each."""
    n //= 2

    def f(w, xs):
        h = c = jnp.zeros((4, 8))
        for t in range(n):
            i, g, o = jnp.split(jnp.concatenate([xs[t], h], -1) @ w, 3, -1)
            c = fnx.nn.sigmoid(i) * c + jnp.tanh(g)
            h = fnx.nn.sigmoid(o) * jnp.tanh(c)
        return jnp.sum(h**2)

    return fnx.grad(f), (np.ones((16, 24)) * 0.1, np.ones((n, 4, 8)))


def keys(n):
    """Numbers in registers, each made of the one before, and nests that read them."""

    def f(key):
        total = 0.0
        for _ in range(n):
            key, sub = fnx.random.split(key)
            total = total + jnp.sum(fnx.random.uniform(sub, (20,)))
        return total

    return f, (fnx.random.PRNGKey(0),)


def nested(n):
    """Jitted functions in each other, half as many as would end Python's stack."""

    def around(inner, k):
        return fnx.jit(lambda x: inner(x) * 1.5 + k)

    f = jnp.sin
    for k in range(n // 2):
        f = around(f, k)
    return f, (np.ones(50),)


def leaves(n):
    """Many small arrays, each by itself."""
    tree = {f"leaf {k}": np.full(3, 0.1 * k) for k in range(n)}
    return lambda tree: fnx.tree.map(lambda x: x * 2.0 + 1.0, tree), (tree,)


def slopes(n):
    """Many small arrays, and a number made of all."""
    f, args = leaves(n)
    return fnx.grad(lambda tree: sum(jnp.sum(jnp.sin(x)) for x in fnx.tree.leaves(f(tree)))), args


def calls(make, n: int) -> int:
    """How many Python functions are called from the jaxpr to LLVM's text."""
    f, args = make(n)
    lowered = fnx.jit(f).lower(*args)
    count = 0

    def note(frame, event, arg):
        nonlocal count
        count += event == "call"

    gc.collect()  # or finalizers of what other tests left would be counted
    gc.disable()
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        lowered.as_text("llvm")
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


@pytest.mark.parametrize("make", [powers, waves, layers, gates, keys, nested, leaves, slopes])
@pytest.mark.slow
def test_twice_the_program_is_twice_the_work(make):
    calls(make, 4)  # imports
    # What other tests left may end its life meanwhile, and call functions: only what repeats counts.
    assert any(calls(make, 64) < 2.4 * calls(make, 32) for _ in range(3))


def test_long_straight_code_is_compiled_block_by_block():
    """LLVM's time to choose instructions grows with the third power of a block's loads."""
    f, args = slopes(250)
    lowered = fnx.jit(f).lower(*args)
    text = lowered.as_text("llvm")
    assert text.count("\n") > thresholds.STRAIGHT_LINES
    assert " phi " not in text
    blocks = re.split(r"^\w+:\n", compiler.in_blocks(text), flags=re.MULTILINE)
    assert max(map(len, blocks)) < 100_000 < len(text)
    for name, slope in lowered.compile()(*args).items():
        np.testing.assert_allclose(slope, 2.0 * np.cos(2.0 * args[0][name] + 1.0), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("make", [powers, waves])
def test_long_expressions_are_several_nests(make):
    """A nest's code is bounded: LLVM's time grows with the square of a block."""
    f, args = make(1500)
    lowered = fnx.jit(f).lower(*args)
    text = lowered.as_text("llvm")
    bodies = [part.count("\n") for part in text.split("\ndefine")[1:]]
    assert 2 <= len([n for n in bodies if n > 100]) <= 8
    assert max(bodies) < 3000
    np.testing.assert_allclose(lowered.compile()(*args), f(*map(jnp.asarray, args)), rtol=1e-9)
