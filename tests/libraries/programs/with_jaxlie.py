"""Rotations and poses with jaxlie: exponentials, inverses, derivatives of a distance."""

import jax
import jax.numpy as jnp
import jaxlie

turn = jaxlie.SO3.exp(jnp.array([0.0, 0.0, jnp.pi / 2]))
assert jnp.allclose(turn @ jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 1.0, 0.0]), atol=1e-6)
pose = jaxlie.SE3.from_rotation_and_translation(turn, jnp.array([1.0, 2.0, 3.0]))
assert jnp.allclose((pose @ pose.inverse()).as_matrix(), jnp.eye(4), atol=1e-6)


@jax.jit
def distance(tangent):
    return jnp.sum((jaxlie.SE3.exp(tangent).log() - pose.log()) ** 2)


slope = jax.grad(distance)(pose.log() + 0.1)
assert jnp.allclose(slope, 0.2, atol=1e-4)
