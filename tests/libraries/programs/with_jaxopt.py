"""A minimum with jaxopt's L-BFGS, and its derivative by a parameter."""

import jax
import jax.numpy as jnp
import jaxopt


@jax.jit
def least(shift):
    solver = jaxopt.LBFGS(lambda x, shift: jnp.sum((x - shift) ** 2 + x**4), tol=1e-9)
    return solver.run(jnp.zeros(2), shift).params[0]


x = least(1.0)
assert jnp.allclose(2 * (x - 1.0) + 4 * x**3, 0.0, atol=1e-7)
assert jnp.allclose(jax.grad(least)(1.0), 2 / (2 + 12 * x**2), atol=1e-6)
