"""equinox, optax and flax: steps of training."""

from __future__ import annotations

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from program import Case


def step_of(loss, optimiser):
    """One step of an equinox model by optax: the new loss and parameters."""

    @eqx.filter_jit
    def step(model, state, *data):
        value, grads = eqx.filter_value_and_grad(loss)(model, *data)
        updates, state = optimiser.update(grads, state, eqx.filter(model, eqx.is_inexact_array))
        return value, eqx.apply_updates(model, updates), state

    def run(*args):
        return eqx.filter(step(*args), eqx.is_array)

    return run


def trained(model, *data):
    """A step of adam on the mean square error of a model."""
    loss = lambda model, x, y: jnp.mean((jax.vmap(model)(x) - y) ** 2)
    optimiser = optax.adam(1e-3)
    state = optimiser.init(eqx.filter(model, eqx.is_inexact_array))
    return step_of(loss, optimiser), (model, state, *data)


def mlp():
    """Three hidden layers of 64, a batch of 128."""
    model = eqx.nn.MLP(8, 1, 64, 3, key=jax.random.PRNGKey(0))
    x = jax.random.normal(jax.random.PRNGKey(1), (128, 8))
    return trained(model, x, jnp.sum(jnp.sin(x), -1, keepdims=True))


def cnn():
    """Two convolutions and a layer, a batch of 32 images of 28 x 28."""
    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    model = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(1, 8, 3, key=keys[0]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Conv2d(8, 16, 3, key=keys[1]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(400, 10, key=keys[2]),
        ]
    )
    x = jax.random.normal(keys[3], (32, 1, 28, 28))
    return trained(model, x, jnp.eye(10)[jnp.arange(32) % 10])


class Block(nn.Module):
    """A block of a transformer, attention before and after which is normalised."""

    width: int = 128
    heads: int = 4

    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm()(x)
        # Without biases: the slope of that of keys is zero, and two roundings of it are not alike.
        x = x + nn.MultiHeadDotProductAttention(self.heads, use_bias=False)(h, h)
        h = nn.Dense(4 * self.width)(nn.LayerNorm()(x))
        return x + nn.Dense(self.width)(nn.gelu(h))


def transformer():
    """A step of adam on a block, a batch of 8 with 128 tokens."""
    model, optimiser = Block(), optax.adam(1e-3, eps=1e-6)
    x = jax.random.normal(jax.random.PRNGKey(0), (8, 128, 128), jnp.float32)
    params = model.init(jax.random.PRNGKey(1), x)
    loss = lambda params, x: jnp.mean((model.apply(params, x) - jnp.roll(x, 1, 1)) ** 2)

    @jax.jit
    def step(params, state, x):
        value, grads = jax.value_and_grad(loss)(params, x)
        updates, state = optimiser.update(grads, state, params)
        return value, optax.apply_updates(params, updates), state

    return step, (params, optimiser.init(params), x)


CASES = [
    Case("optax adam, equinox MLP", mlp, tolerance=1e-3),
    Case("optax adam, equinox CNN", cnn, tolerance=1e-3),
    Case("flax transformer block", transformer, tolerance=1e-3),
]
