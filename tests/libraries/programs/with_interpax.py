"""Interpolation with interpax: cubic splines in one and two dimensions, and their derivatives."""

import interpax
import jax
import jax.numpy as jnp

x = jnp.linspace(0.0, jnp.pi, 40)
q = jnp.linspace(0.3, 2.8, 7)
spline = interpax.Interpolator1D(x, jnp.sin(x), method="cubic2")
assert jnp.allclose(jax.jit(spline)(q), jnp.sin(q), atol=1e-5)
assert jnp.allclose(spline(q, dx=1), jnp.cos(q), atol=1e-3)
assert jnp.allclose(jax.vmap(jax.grad(spline))(q), spline(q, dx=1), atol=1e-6)

plane = jnp.sin(x)[:, None] * jnp.cos(x)
found = interpax.interp2d(q, q, x, x, plane, method="cubic")
assert jnp.allclose(found, jnp.sin(q) * jnp.cos(q), atol=1e-3)
