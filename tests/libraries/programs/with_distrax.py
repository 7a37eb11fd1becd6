"""Distributions, bijectors and a hidden Markov model."""

import distrax
import jax
import jax.numpy as jnp

normal = distrax.Normal(1.0, 2.0)
samples = normal.sample(seed=jax.random.PRNGKey(0), sample_shape=(20_000,))
assert abs(samples.mean() - 1.0) < 0.1
assert abs(normal.log_prob(0.5) - jax.scipy.stats.norm.logpdf(0.5, 1.0, 2.0)) < 1e-6

log_normal = distrax.Transformed(normal, distrax.Lambda(jnp.exp))
assert abs(log_normal.log_prob(2.0) - (normal.log_prob(jnp.log(2.0)) - jnp.log(2.0))) < 1e-6
slope = jax.grad(lambda mu: distrax.Normal(mu, 1.0).log_prob(0.3))(0.1)
assert abs(slope - 0.2) < 1e-6

p, q = distrax.Categorical(jnp.array([0.0, 1.0, 2.0])), distrax.Categorical(jnp.zeros(3))
assert abs(p.kl_divergence(q) - jnp.sum(p.probs * jnp.log(p.probs * 3))) < 1e-6

chain = distrax.HMM(
    trans_dist=distrax.Categorical(probs=jnp.array([[0.9, 0.1], [0.2, 0.8]])),
    init_dist=distrax.Categorical(probs=jnp.array([0.5, 0.5])),
    obs_dist=distrax.Normal(jnp.array([-1.0, 1.0]), jnp.array([0.5, 0.5])),
)
seen = jnp.array([-1.0, -0.8, 0.9, 1.1, 1.0])
assert list(chain.viterbi(seen)) == [0, 0, 1, 1, 1]
