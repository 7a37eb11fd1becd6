"""The statistical model: Lotka-Volterra populations, observed with log-normal errors.

The equations d hare/dt = (alpha - beta lynx) hare and d lynx/dt = (delta hare - gamma) lynx, the
likelihood and the priors are those of B. Carpenter, "Predator-Prey Population Dynamics: the
Lotka-Volterra model in Stan" (2018). A point is the vector of the logarithms of the parameters,
so that all of the space is allowed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import fnx.numpy as jnp
from fnx import lax

NAMES = ("alpha", "beta", "gamma", "delta", "hare0", "lynx0", "sigma_hare", "sigma_lynx")
# Posterior means published with the case study.
PUBLISHED = (0.545, 0.028, 0.803, 0.024, 33.96, 5.93, 0.25, 0.25)
# normal(mean, sd) for the rates, and normal(mean, sd) for the logarithms of the rest.
RATE_MEAN, RATE_SD = np.array([1.0, 0.05, 1.0, 0.05]), np.array([0.5, 0.05, 0.5, 0.05])
LOG_MEAN, LOG_SD = np.array([np.log(10.0)] * 2 + [-1.0] * 2), np.ones(4)
STEPS_PER_YEAR = 10


class Populations(NamedTuple):
    """Hares and lynx at one time, in thousands of pelts; also their rates, per year."""

    hare: jnp.ndarray
    lynx: jnp.ndarray

    def shifted(self, rate: Populations, time: float) -> Populations:
        """The populations after ``time`` years of a constant ``rate``."""
        return Populations(self.hare + time * rate.hare, self.lynx + time * rate.lynx)


def rk4_step(theta, now: Populations, h: float) -> Populations:
    """One step of the classical Runge-Kutta method, ``h`` years long."""

    def rate(at: Populations) -> Populations:
        return Populations(
            (theta[0] - theta[1] * at.lynx) * at.hare, (theta[3] * at.hare - theta[2]) * at.lynx
        )

    k1 = rate(now)
    k2 = rate(now.shifted(k1, h / 2))
    k3 = rate(now.shifted(k2, h / 2))
    k4 = rate(now.shifted(k3, h))
    hare, lynx = (a + 2 * (b + c) + d for a, b, c, d in zip(k1, k2, k3, k4, strict=True))
    return now.shifted(Populations(hare, lynx), h / 6)


def log_trajectory(point, years: int):
    """Logarithms of the populations at every step, of shape ``(STEPS_PER_YEAR * years + 1, 2)``."""
    theta = jnp.exp(point)

    def step(now: Populations, _):
        later = rk4_step(theta, now, 1 / STEPS_PER_YEAR)
        return later, later

    first = Populations(theta[4], theta[5])
    _, later = lax.scan(step, first, None, length=STEPS_PER_YEAR * years)
    logs = jnp.log(jnp.stack(later, axis=1))
    return jnp.concatenate([point[None, 4:6], logs])


def negative_log_posterior(point, log_pelts):
    """Minus the logarithm of the posterior density of ``point``, up to a constant.

    ``log_pelts`` has shape ``(n, 2)``: hare and lynx in n years that follow one another. The density
    is that of the logarithms of the parameters: hence the term ``sum(point[:4])``.
    """
    years = log_pelts.shape[0] - 1
    expected = log_trajectory(point, years)[::STEPS_PER_YEAR]
    log_sigma = point[6:]
    misfit = (log_pelts - expected) * jnp.exp(-log_sigma)
    likelihood = 0.5 * jnp.sum(misfit**2) + (years + 1) * jnp.sum(log_sigma)
    rates = 0.5 * jnp.sum(((jnp.exp(point[:4]) - RATE_MEAN) / RATE_SD) ** 2) - jnp.sum(point[:4])
    return likelihood + rates + 0.5 * jnp.sum(((point[4:] - LOG_MEAN) / LOG_SD) ** 2)
