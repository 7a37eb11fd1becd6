"""Least squares, a minimum, a root, and the derivative of one by the implicit function theorem."""

import jax
import jax.numpy as jnp
import optimistix as optx

t = jnp.linspace(0.0, 2.0, 40)
data = 2.0 * jnp.exp(-1.5 * t)
residuals = lambda p, args: p[0] * jnp.exp(-p[1] * t) - data
solver = optx.LevenbergMarquardt(rtol=1e-10, atol=1e-10)
found = jax.jit(lambda p: optx.least_squares(residuals, solver, p).value)(jnp.array([1.0, 1.0]))
assert jnp.allclose(found, jnp.array([2.0, 1.5]), rtol=1e-6), found

rosenbrock = lambda x, args: (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
low = optx.minimise(rosenbrock, optx.BFGS(rtol=1e-9, atol=1e-9), jnp.array([-1.0, 1.0]))
assert jnp.allclose(low.value, 1.0, atol=1e-5), low.value


def root(a):
    newton = optx.Newton(rtol=1e-10, atol=1e-10)
    return optx.root_find(lambda x, a: x**3 + x - a, newton, jnp.array(1.0), a).value


x = root(2.0)
assert abs(x**3 + x - 2.0) < 1e-9
assert abs(jax.grad(root)(2.0) - 1 / (3 * x**2 + 1)) < 1e-8

steady = optx.fixed_point(
    lambda x, a: jnp.cos(a * x), optx.FixedPointIteration(1e-9, 1e-9), 0.5, 1.0
)
assert abs(steady.value - 0.7390851332) < 1e-8
