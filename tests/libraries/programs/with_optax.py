"""Optimisers with schedules and clipping, on a regression."""

import jax
import jax.numpy as jnp
import optax

x = jax.random.normal(jax.random.PRNGKey(0), (256, 5))
w = jnp.arange(1.0, 6.0)
y = x @ w
loss = lambda p: jnp.mean(optax.l2_loss(x @ p["w"] + p["b"], y))

for optimiser in (
    optax.adam(0.1),
    optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(optax.cosine_decay_schedule(0.5, 400))),
    optax.adamw(0.1, weight_decay=1e-5),
    optax.rmsprop(0.05),
):

    @jax.jit
    def step(params, state):
        slopes = jax.grad(loss)(params)
        updates, state = optimiser.update(slopes, state, params)
        return optax.apply_updates(params, updates), state

    params = {"w": jnp.zeros(5), "b": jnp.zeros(())}
    state = optimiser.init(params)
    for _ in range(400):
        params, state = step(params, state)
    assert jnp.allclose(params["w"], w, atol=0.1), params

solver = optax.lbfgs()
params = {"w": jnp.zeros(5), "b": jnp.zeros(())}
state = solver.init(params)
both = optax.value_and_grad_from_state(loss)
for _ in range(20):
    value, slopes = both(params, state=state)
    updates, state = solver.update(slopes, state, params, value=value, grad=slopes, value_fn=loss)
    params = optax.apply_updates(params, updates)
assert jnp.allclose(params["w"], w, atol=1e-4), params
