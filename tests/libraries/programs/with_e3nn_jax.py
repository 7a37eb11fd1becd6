"""e3nn-jax: what it computes of a vector turns as the vector does."""

import e3nn_jax as e3nn
import jax
import jax.numpy as jnp

vector = e3nn.IrrepsArray("1o", jnp.array([0.3, 0.4, 0.5]))


@jax.jit
def features(x):
    """Spherical harmonics, and their products with one another."""
    harmonics = e3nn.spherical_harmonics([0, 1, 2], x, True)
    return e3nn.tensor_product(harmonics, harmonics)


turn = e3nn.rand_matrix(jax.random.key(0))
assert jnp.allclose(
    features(vector.transform_by_matrix(turn)).array,
    features(vector).transform_by_matrix(turn).array,
    atol=1e-6,
)
slope = jax.grad(lambda v: e3nn.norm(e3nn.spherical_harmonics(2, v, False)).array.sum())(vector)
assert jnp.allclose(jnp.cross(slope.array, vector.array), 0, atol=1e-6)
