"""A stiff reaction: the gradient of an implicit, adaptive solution, and an ensemble of solutions."""

import diffrax
import jax
import jax.numpy as jnp


def field(t, y, k):
    a, b, c = k[0] * y[0], k[1] * y[1] ** 2, k[2] * y[1] * y[2]
    return jnp.stack([-a + c, a - b - c, b])


def solved(log_k, y0):
    return diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Kvaerno5(),
        0.0,
        10.0,
        1e-3,
        y0,
        jnp.exp(log_k),
        saveat=diffrax.SaveAt(ts=jnp.linspace(1.0, 10.0, 5)),
        stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-9),
    ).ys


y0 = jnp.array([1.0, 0.0, 0.0])
truth = jnp.log(jnp.array([0.04, 3e3, 1e2]))
data = solved(truth, y0)
assert jnp.allclose(jnp.sum(data, 1), 1.0, atol=1e-6)  # mass is kept

loss = lambda log_k: jnp.sum((solved(log_k, y0) - data) ** 2)
start = truth + jnp.array([0.2, 0.0, 0.0])
value, slope = jax.jit(jax.value_and_grad(loss))(start)
for k in range(3):
    e = jnp.zeros(3).at[k].set(1e-4)
    assert abs(slope[k] - (loss(start + e) - loss(start - e)) / 2e-4) < 1e-3 * abs(slope).max()

many = jnp.stack([y0, y0 * 0.5, y0 * 2.0])
members = jax.vmap(lambda y: solved(truth, y))(many)
assert members.shape == (3, 5, 3)
assert jnp.allclose(members[0], data, rtol=1e-6)

exact = diffrax.diffeqsolve(
    diffrax.ODETerm(lambda t, y, args: -y),
    diffrax.Tsit5(),
    0.0,
    1.0,
    0.1,
    1.0,
    stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-8),
    adjoint=diffrax.DirectAdjoint(),
).ys[0]
assert abs(exact - jnp.exp(-1.0)) < 1e-7
