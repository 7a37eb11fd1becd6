"""Small functions where overhead is what is measured: calls, eager code, long chains, a perceptron."""

from __future__ import annotations

import itertools

import numpy as np
from program import Program

LAYERS = (8, 32, 32, 32, 1)
BATCH = 16


def chain(jax, jnp, lax, length):
    """`length` elementwise equations, each on the results of the last ones."""
    functions = (jnp.sin, jnp.tanh, jnp.exp, jnp.cos, jnp.sqrt)

    def apply(x):
        older, y = x, x
        for k in range(length // 4):
            mixed = y * 0.9 + older
            inner = mixed * mixed if k % 5 == 4 else mixed * 0.5
            older, y = y, functions[k % 5](inner)
        return y

    return apply


def chain_inputs(_):
    """A vector in (0.5, 1.5)."""
    return (np.linspace(0.5, 1.5, 1000),)


def perceptron(jax, jnp, lax, _):
    """Mean squared error of a perceptron of four layers, and its gradient."""
    return jax.value_and_grad(perceptron_loss(jnp))


def eager_gradient(jax, jnp, lax, _):
    """The gradient alone."""
    return jax.grad(perceptron_loss(jnp))


def perceptron_loss(jnp):
    """The loss, a function of parameters, inputs and labels."""

    def loss(layers, x, y):
        for w, b in layers[:-1]:
            x = jnp.tanh(jnp.dot(x, w) + b)
        w, b = layers[-1]
        return jnp.mean((jnp.dot(x, w) + b - y) ** 2)

    return loss


def perceptron_inputs(_):
    """Parameters as a list of pairs, inputs, labels."""
    rng = np.random.default_rng(0)
    layers = [
        (rng.normal(size=(m, n)) / np.sqrt(m), np.zeros(n)) for m, n in itertools.pairwise(LAYERS)
    ]
    return layers, rng.normal(size=(BATCH, LAYERS[0])), rng.normal(size=(BATCH, 1))


def autograd_gradient(_):
    """The eager gradient by HIPS autograd."""
    import autograd
    import autograd.numpy

    return autograd.grad(perceptron_loss(autograd.numpy))


def affine(jax, jnp, lax, _):
    """As little work as can be."""
    return lambda x: x * 2.0 + 1.0


def dict_of_arrays(jax, jnp, lax, _):
    """A tree in, a tree out."""
    return lambda tree: {k: v * 2.0 for k, v in tree.items()}


def small(_):
    """Ten numbers."""
    return (np.linspace(0.0, 1.0, 10),)


def twenty(_):
    """Twenty small arrays in a dict."""
    return ({f"parameter_{k}": np.linspace(0.0, 1.0, 10) + k for k in range(20)},)


def plus(jax, jnp, lax, _):
    """The operator of arrays."""
    return lambda x, y: x + y


def two(shape, dtype):
    """Two small arrays."""

    def inputs(_):
        rng = np.random.default_rng(1)
        return tuple(rng.normal(size=shape).astype(dtype) for _ in range(2))

    return inputs


PROGRAMS = [
    Program(
        "call, one array of 10",
        "calls",
        affine,
        small,
        targets={"run": {"jax": 0.6}},
        wait_each=False,
    ),
    Program(
        "call, dict of 20 arrays",
        "calls",
        dict_of_arrays,
        twenty,
        targets={"run": {"jax": 0.15}},
        wait_each=False,
    ),
    Program(
        "call, dict of 20 NumPy arrays",
        "calls",
        dict_of_arrays,
        twenty,
        targets={"run": {"jax": 0.15}},
        wait_each=False,
        feed_numpy=True,
    ),
    Program(
        "chain of 200 equations",
        "compile",
        chain,
        chain_inputs,
        size=200,
        targets={
            "compile": {"jax": 1.0},
            "warm": {"jax": None},
            "process": {"own": 1 / 3},
            "run": {"jax": None},
        },
    ),
    Program(
        "perceptron value and gradient",
        "compile",
        perceptron,
        perceptron_inputs,
        targets={
            "compile": {"jax": 1.0},
            "warm": {"jax": None},
            "process": {"own": 1 / 3},
            "run": {"jax": None},
        },
    ),
    Program(
        "eager x + y, 10 numbers",
        "eager",
        plus,
        two(10, np.float64),
        targets={"run": {"jax": 0.5, "numpy": None}},
        rivals={"numpy": lambda _: np.add},
        eager=True,
        wait_each=False,
    ),
    Program(
        "eager x + y, 8x8 f32",
        "eager",
        plus,
        two((8, 8), np.float32),
        targets={"run": {"jax": 0.5, "numpy": None}},
        rivals={"numpy": lambda _: np.add},
        eager=True,
        wait_each=False,
    ),
    Program(
        "eager gradient of perceptron",
        "eager",
        eager_gradient,
        perceptron_inputs,
        targets={"run": {"jax": 0.15, "autograd": None}},
        rivals={"autograd": autograd_gradient},
        eager=True,
    ),
]
