"""Shapes and dtypes in annotations, checked when a function is called, jitted or not."""

import beartype
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree, TypeCheckError, jaxtyped


@jaxtyped(typechecker=beartype.beartype)
def product(a: Float[Array, "m n"], b: Float[Array, "n k"]) -> Float[Array, "m k"]:
    return a @ b


assert product(jnp.ones((2, 3)), jnp.ones((3, 4))).shape == (2, 4)
assert jax.jit(product)(jnp.ones((2, 3)), jnp.ones((3, 4))).shape == (2, 4)
assert jax.vmap(product)(jnp.ones((5, 2, 3)), jnp.ones((5, 3, 4))).shape == (5, 2, 4)
for wrong in (jnp.ones((2, 4)), jnp.ones(3), jnp.ones((2, 3), int)):
    try:
        product(wrong, jnp.ones((3, 4)))
    except TypeCheckError as error:
        assert "product" in str(error)
    else:
        raise AssertionError(f"not refused: {wrong.shape}")

assert isinstance(jnp.arange(3), Int[Array, "3"])
assert not isinstance(jnp.arange(3), Float[Array, "3"])
assert isinstance(jax.random.key(0), Key[Array, ""])
assert isinstance({"w": jnp.ones(2), "b": [jnp.ones(2)]}, PyTree[Float[Array, "2"]])
