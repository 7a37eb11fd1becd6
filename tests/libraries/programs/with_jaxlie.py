"""jaxlie: rotations and rigid motions, jitted, and gradients along their tangent spaces."""

import jax
import jax.numpy as jnp
import jax_dataclasses as jdc
import jaxlie

turn = jaxlie.SO3.exp(jnp.array([0.0, 0.0, jnp.pi / 2]))
assert jnp.allclose(turn @ jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 1.0, 0.0]), atol=1e-12)
assert jnp.allclose((turn @ turn.inverse()).as_matrix(), jnp.eye(3), atol=1e-12)


@jdc.pytree_dataclass
class Poses:
    """Two poses by name."""

    by_name: dict


@jdc.jit
def loss(poses: Poses, times: jdc.Static[int]) -> jax.Array:
    """How far apart the poses are."""
    return times * jnp.sum((poses.by_name["a"].inverse() @ poses.by_name["b"]).log() ** 2)


poses = Poses({"a": jaxlie.SE3.identity(), "b": jaxlie.SE3.exp(jnp.arange(6.0) / 10)})
before = loss(poses, 2)
slope = jaxlie.manifold.grad(lambda p: loss(p, 2))(poses)
moved = jaxlie.manifold.rplus(poses, jax.tree.map(lambda g: -0.05 * g, slope))
assert float(loss(moved, 2)) < float(before)
