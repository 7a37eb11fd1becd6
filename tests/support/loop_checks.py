"""Checks of functions with loops in them, for tests of the interpreters: sums, derivatives, lanes."""

import numpy as np

import fnx
from fnx import tree_util
from fnx.core.array import as_array
from fnx.ops.elementwise.arithmetic import sin
from fnx.ops.reduction.reduction import Sum
from fnx.transforms.jit import jit

A, X = np.array(0.7), np.linspace(0.2, 1.0, 4)
V, M = np.array([0.3, -0.2, 0.5]), np.arange(9.0).reshape(3, 3) / 10


def total(x):
    """The sum of all elements."""
    x = as_array(x)
    return Sum(tuple(range(x.ndim)))(x) if x.ndim else x


def sum_of(tree):
    """The sum of all elements of all leaves."""
    return sum((total(x) for x in tree_util.tree_leaves(tree)), start=as_array(0.0))


def numeric(f, args, k, eps=1e-6):
    """The gradient of a scalar function by central differences."""
    args = [np.asarray(a, float) for a in args]
    out = np.zeros_like(args[k])
    for index in np.ndindex(args[k].shape):
        sides = []
        for sign in (1, -1):
            moved = [a.copy() for a in args]
            moved[k][index] += sign * eps
            sides.append(float(f(*map(as_array, moved))))
        out[index] = (sides[0] - sides[1]) / (2 * eps)
    return out


def check_grads(f, *args, order=2):
    """grad, jvp, jit of grad, and grad of grad against finite differences."""
    numbers = tuple(range(len(args)))
    found = fnx.grad(f, numbers)(*args)
    compiled = jit(fnx.grad(f, numbers))(*args)
    inner = fnx.grad(jit(f), numbers)(*args)
    for k in numbers:
        expected = numeric(f, args, k)
        np.testing.assert_allclose(np.asarray(found[k]), expected, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(
            np.asarray(compiled[k]), np.asarray(found[k]), rtol=1e-12, atol=1e-14
        )
        np.testing.assert_allclose(
            np.asarray(inner[k]), np.asarray(found[k]), rtol=1e-12, atol=1e-14
        )
    rng = np.random.default_rng(0)
    tangents = tuple(rng.normal(size=np.shape(a)) for a in args)
    _, t = fnx.jvp(f, args, tangents)
    dot = sum(np.sum(np.asarray(g) * v) for g, v in zip(found, tangents))
    np.testing.assert_allclose(float(t), dot, rtol=1e-9, atol=1e-12)
    if order > 1:
        for k in numbers:

            def slope(*xs, k=k):
                return sum_of(sin(1.3 * fnx.grad(f, k)(*xs)))

            check_grads(slope, *args, order=order - 1)


def check_lanes(f, args):
    """vmap against a loop, for each choice of batched arguments."""
    size = 3
    scales = np.linspace(0.8, 1.2, size)
    for mask in range(1, 2 ** len(args)):
        chosen = [bool(mask >> k & 1) for k in range(len(args))]
        axes = tuple(0 if b else None for b in chosen)
        lanes = [
            as_array(np.stack([a * s for s in scales]) if b else a) for a, b in zip(args, chosen)
        ]
        found = np.asarray(fnx.vmap(f, axes)(*lanes))
        for k in range(size):
            expected = np.asarray(f(*[x[k] if b else x for x, b in zip(lanes, chosen)]))
            np.testing.assert_allclose(found[k], expected, rtol=1e-9, atol=1e-12)
        last = np.asarray(fnx.vmap(jit(f), axes, -1)(*lanes))
        np.testing.assert_allclose(np.moveaxis(last, -1, 0), found, rtol=1e-12, atol=1e-14)


def step(c, x):
    """The body of a scan that carries a number."""
    new = sin(c) * x + c
    return new, new * c


def python_loop(low, high, body, state):
    """fori_loop, as Python runs it."""
    for i in range(int(low), int(high)):
        state = body(as_array(i), state)
    return state
