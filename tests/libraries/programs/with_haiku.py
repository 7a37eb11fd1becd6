"""A network with batch normalisation and dropout, whose state goes through a jitted step."""

import haiku as hk
import jax
import jax.numpy as jnp


def network(x, training):
    x = hk.Linear(16)(x)
    x = hk.BatchNorm(True, True, 0.9)(x, training)
    x = jax.nn.relu(x)
    x = hk.dropout(hk.next_rng_key(), 0.1, x) if training else x
    return hk.Linear(1)(x)


f = hk.transform_with_state(network)
x = jax.random.normal(jax.random.PRNGKey(0), (64, 3))
y = jnp.sum(x, 1, keepdims=True)
params, state = f.init(jax.random.PRNGKey(1), x, True)


@jax.jit
def step(params, state, key):
    def loss(params):
        out, new = f.apply(params, state, key, x, True)
        return jnp.mean((out - y) ** 2), new

    (value, state_), slopes = jax.value_and_grad(loss, has_aux=True)(params)
    return value, jax.tree.map(lambda p, g: p - 0.05 * g, params, slopes), state_


values = []
for key in jax.random.split(jax.random.PRNGKey(2), 200):
    value, params, state = step(params, state, key)
    values.append(float(value))
assert values[-1] < 0.2 * values[0], values[::40]
out, _ = f.apply(params, state, None, x, False)
assert out.shape == (64, 1)

core = hk.without_apply_rng(
    hk.transform(lambda xs: hk.dynamic_unroll(hk.LSTM(4), xs, hk.LSTM(4).initial_state(2))[0])
)
xs = jnp.ones((5, 2, 3))
assert core.apply(core.init(jax.random.PRNGKey(3), xs), xs).shape == (5, 2, 4)
