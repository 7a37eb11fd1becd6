"""numpyro and blackjax: posteriors by Hamiltonian Monte Carlo; tinygp: a likelihood."""

from __future__ import annotations

import blackjax
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS
from program import Case
from tinygp import GaussianProcess, kernels

EFFECTS = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def eight_schools_model():
    """Rubin's eight schools, not centred."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", 8):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu + tau * z, ERRORS), obs=EFFECTS)


def logistic_data():
    """500 points with ten covariates."""
    keys = jax.random.split(jax.random.PRNGKey(1), 2)
    x = jax.random.normal(keys[0], (500, 10))
    p = jax.nn.sigmoid(x @ jnp.linspace(-1.0, 1.0, 10))
    return x, (jax.random.uniform(keys[1], (500,)) < p).astype(int)


def logistic_model(x, y):
    """Logistic regression."""
    w = numpyro.sample("w", dist.Normal(jnp.zeros(x.shape[1]), 1.0).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def numpyro_nuts(model, data=()):
    """Means of a chain; its program is compiled once and run again."""

    def make():
        mcmc = MCMC(NUTS(model), num_warmup=200, num_samples=200, progress_bar=False)

        def run(key, *data):
            mcmc.run(key, *data)
            return {k: jnp.mean(v, 0) for k, v in mcmc.get_samples().items()}

        return run, (jax.random.PRNGKey(0), *(data() if data else ()))

    return make


def log_density(x):
    """A banana in ten dimensions."""
    return -0.5 * jnp.sum(x**2 / jnp.linspace(0.5, 2.0, 10)) - 2.0 * (x[1] - x[0] ** 2) ** 2


def blackjax_sampler(build):
    """The mean of 1,000 states of a chain."""

    def make():
        sampler = build()

        def run(key, x):
            step = lambda state, key: (sampler.step(key, state)[0],) * 2
            _, states = jax.lax.scan(step, sampler.init(x), jax.random.split(key, 1000))
            return jnp.mean(states.position, 0)

        return jax.jit(run), (jax.random.PRNGKey(0), jnp.zeros(10))

    return make


def hmc():
    """Hamiltonian Monte Carlo of fixed length."""
    return blackjax.hmc(log_density, 0.2, jnp.ones(10), 10)


def nuts():
    """The no-U-turn sampler."""
    return blackjax.nuts(log_density, 0.2, jnp.ones(10))


def likelihood():
    """tinygp: the gradient of the likelihood of 1,000 points."""
    x = jnp.sort(jax.random.uniform(jax.random.PRNGKey(3), (1000,))) * 10.0
    y = jnp.sin(x) + 0.1 * jax.random.normal(jax.random.PRNGKey(4), (1000,))

    def loss(p, x, y):
        kernel = jnp.exp(p[0]) * kernels.Matern32(jnp.exp(p[1]))
        return -GaussianProcess(kernel, x, diag=jnp.exp(p[2])).log_probability(y)

    return jax.jit(jax.value_and_grad(loss)), (jnp.array([0.1, 0.2, -3.0]), x, y)


# Chains of two machines drift apart: that they agree is asked of their means, roughly.
CASES = [
    Case("numpyro NUTS, eight schools", numpyro_nuts(eight_schools_model), tolerance=1.0),
    Case("numpyro NUTS, logistic", numpyro_nuts(logistic_model, logistic_data), tolerance=0.1),
    Case("blackjax HMC", blackjax_sampler(hmc), tolerance=1.0),
    Case("blackjax NUTS", blackjax_sampler(nuts), tolerance=1.0),
    Case("tinygp likelihood, 1,000 points", likelihood, tolerance=1e-6),
]
