"""Kernels of neural networks in the forward direction: softmax, convolutions, whole networks."""

from __future__ import annotations

import math

import numpy as np

from programs.kernels import kernel, random  # its decorator adds to the programs of that module

LAYOUT = ("NHWC", "HWIO", "NHWC")
SINGLE = np.float32


@kernel("softmax", random(lambda n: (16, 16, n, n), dtype=SINGLE), 128, 8)
def softmax(jax, jnp, lax, n):
    """Over the last axis."""

    def apply(x):
        e = jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))
        return e / jnp.sum(e, axis=-1, keepdims=True)

    return apply


def convolve(lax, x, kernel, padding="VALID"):
    """A convolution with stride one."""
    return lax.conv_general_dilated(x, kernel, (1, 1), padding, dimension_numbers=LAYOUT)


@kernel(
    "conv2d and bias",
    random(lambda n: (8, n, n, 3), (5, 5, 3, 16), (16,), dtype=SINGLE),
    64,
    10,
)
def conv_bias(jax, jnp, lax, n):
    """Channels last."""
    return lambda x, kernel, bias: convolve(lax, x, kernel) + bias


def lenet_inputs(batch):
    """Images and parameters."""
    rng = np.random.default_rng(16)
    shapes = [
        (5, 5, 1, 6), (6,), (5, 5, 6, 16), (16,),
        (256, 120), (120,), (120, 84), (84,), (84, 10), (10,),
    ]  # fmt: skip
    made = [
        (rng.normal(size=s) / math.sqrt(max(math.prod(s[:-1]), 1))).astype(SINGLE) for s in shapes
    ]
    return rng.uniform(size=(batch, 28, 28, 1)).astype(SINGLE), made


@kernel("LeNet inference", lenet_inputs, 16, 2)
def lenet(jax, jnp, lax, batch):
    """Two convolutions with pooling, three dense layers."""

    def pool(x):
        window = (1, 2, 2, 1)
        return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")

    def apply(x, parameters):
        k1, b1, k2, b2, w3, b3, w4, b4, w5, b5 = parameters
        x = pool(jnp.maximum(convolve(lax, x, k1) + b1, 0.0))
        x = pool(jnp.maximum(convolve(lax, x, k2) + b2, 0.0))
        x = jnp.reshape(x, (x.shape[0], -1))
        x = jnp.maximum(x @ w3 + b3, 0.0)
        x = jnp.maximum(x @ w4 + b4, 0.0)
        return x @ w5 + b5

    return apply


def block_inputs(n):
    """An image batch, and the kernels of a bottleneck."""
    rng = np.random.default_rng(17)
    shapes = [(1, 1, 64, 16), (3, 3, 16, 16), (1, 1, 16, 64)]
    made = [(rng.normal(size=s) / math.sqrt(math.prod(s[:-1]))).astype(SINGLE) for s in shapes]
    return rng.normal(size=(4, n, n, 64)).astype(SINGLE), made


@kernel("ResNet block inference", block_inputs, 28, 6)
def resnet_block(jax, jnp, lax, n):
    """1x1, 3x3, 1x1 convolutions, normalised over the batch, around a shortcut."""

    def normal(x):
        centred = x - jnp.mean(x, axis=0, keepdims=True)
        return centred / jnp.sqrt(jnp.mean(centred**2, axis=0, keepdims=True) + 1e-5)

    def apply(x, kernels):
        a, b, c = kernels
        y = jnp.maximum(normal(convolve(lax, x, a)), 0.0)
        y = jnp.maximum(normal(convolve(lax, y, b, "SAME")), 0.0)
        return jnp.maximum(normal(convolve(lax, y, c)) + x, 0.0)

    return apply
