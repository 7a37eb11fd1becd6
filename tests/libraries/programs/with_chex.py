"""Assertions of chex's, its variants of a function, and devices that it makes."""

import chex
import jax
import jax.numpy as jnp

chex.set_n_cpu_devices(4)
assert jax.device_count() == 4


@chex.dataclass
class State:
    place: chex.Array
    speed: chex.Array


@jax.jit
@chex.assert_max_traces(n=1)
def step(state):
    chex.assert_equal_shape([state.place, state.speed])
    return State(place=state.place + 0.1 * state.speed, speed=0.9 * state.speed)


state = State(place=jnp.zeros(3), speed=jnp.ones(3))
for _ in range(3):
    state = step(state)
chex.assert_trees_all_close(state, State(place=jnp.full(3, 0.271), speed=jnp.full(3, 0.729)))
with chex.fake_pmap_and_jit():
    assert jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")(jnp.ones(4)).sum() == 16
