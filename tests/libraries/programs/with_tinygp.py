"""The likelihood of a Gaussian process with tinygp, its gradient, and a prediction."""

import jax
import jax.numpy as jnp
import tinygp

x = jnp.linspace(0.0, 3.0, 12)
y = jnp.sin(x)


def process(log_scale):
    kernel = tinygp.kernels.ExpSquared(jnp.exp(log_scale))
    return tinygp.GaussianProcess(kernel, x, diag=1e-4)


@jax.jit
def likelihood(log_scale):
    return process(log_scale).log_probability(y)


numeric = (likelihood(1e-5) - likelihood(-1e-5)) / 2e-5
assert jnp.allclose(jax.grad(likelihood)(0.0), numeric, rtol=1e-5)
mean = process(0.0).condition(y, jnp.array([1.55])).gp.mean
assert jnp.allclose(mean, jnp.sin(1.55), atol=1e-3)
