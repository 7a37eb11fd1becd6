"""A network of flax.linen's and one of flax.nnx's learn the same function."""

import jax
import jax.numpy as jnp
from flax import linen, nnx

x = jnp.linspace(-1.0, 1.0, 64, dtype=jnp.float32)[:, None]
y = jnp.sin(3 * x)


class Net(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(1)(jnp.tanh(linen.Dense(16)(x)))


net = Net()
weights = net.init(jax.random.key(0), x)
loss = jax.jit(jax.value_and_grad(lambda w: jnp.mean((net.apply(w, x) - y) ** 2)))
first, _ = loss(weights)
for _ in range(200):
    last, slopes = loss(weights)
    weights = jax.tree.map(lambda w, g: w - 0.3 * g, weights, slopes)
assert last < 0.2 * first, (first, last)


class Model(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(1, 16, rngs=rngs), nnx.Linear(16, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(jnp.tanh(self.hidden(x)))


@nnx.jit
def step(model):
    value, slopes = nnx.value_and_grad(lambda m: jnp.mean((m(x) - y) ** 2))(model)
    nnx.update(model, jax.tree.map(lambda w, g: w - 0.3 * g, nnx.state(model), slopes))
    return value


model = Model(nnx.Rngs(0))
losses = [float(step(model)) for _ in range(200)]
assert losses[-1] < 0.2 * losses[0], losses[::40]
