"""A network of equinox's is fitted: filtered jit, gradients, and a loop that is gone back over."""

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp

key = jax.random.PRNGKey(0)
x = jnp.linspace(-1.0, 1.0, 64)[:, None]
y = jnp.sin(3 * x)
model = eqx.nn.MLP(1, 1, 16, 2, key=key, dtype=x.dtype)


@eqx.filter_value_and_grad
def loss(model):
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


@eqx.filter_jit
def step(model):
    value, slopes = loss(model)
    return value, eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, slopes))


losses = []
for _ in range(300):
    value, model = step(model)
    losses.append(float(value))
assert losses[-1] < 0.2 * losses[0], losses[::50]

double = lambda x: eqxi.while_loop(
    lambda c: c < 50, lambda c: 2 * c, x, max_steps=16, kind="checkpointed"
)
assert jax.value_and_grad(double)(3.0) == (96.0, 32.0)
