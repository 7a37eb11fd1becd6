"""The fit: many starting points minimised at once, then the curvature at the best of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

import fnx
import fnx.numpy as jnp

from .model import LOG_MEAN, RATE_MEAN, log_trajectory, negative_log_posterior

STARTS = 64
SPREAD = 0.5  # standard deviation of the starting points' logarithms
MOST_STEPS = 300
LEAST_GAIN = 1e-9  # a start is done when a quasi-Newton step promises less than this
LONGEST_MOVE = 1.0  # one e-fold: rules out leaps to where the equations overflow


class FitError(RuntimeError):
    """No starting point led to a minimum."""


@dataclass
class Clock:
    """Seconds spent in each phase."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[phase] = self.seconds.get(phase, 0.0) + spent


class Descent(NamedTuple):
    """One start's way down: where it is, and what the next trial needs."""

    point: Any
    value: Any
    gradient: Any
    inverse_hessian: Any
    length: Any  # of the next trial, as a part of the quasi-Newton step


@dataclass(frozen=True)
class Fit:
    """The best point, its covariance (both of logarithms), and the band around the trajectory."""

    point: np.ndarray
    covariance: np.ndarray
    log_trajectory: np.ndarray  # (times, 2)
    log_errors: np.ndarray  # (times, 2): standard errors of log_trajectory
    minima: int  # how many starts found this minimum
    steps: int

    @property
    def estimates(self) -> np.ndarray:
        return np.exp(self.point)

    @property
    def standard_errors(self) -> np.ndarray:
        """By the delta method, from the errors of the logarithms."""
        return self.estimates * np.sqrt(np.diag(self.covariance))


def bfgs_step(objective: Callable[[Any], Any], at: Descent) -> Descent:
    """One trial of the BFGS method with backtracking (Nocedal and Wright, 2006, sections 3.1, 6.1)."""
    direction = -at.inverse_hessian @ at.gradient
    size = jnp.sqrt(direction @ direction)
    direction = direction * jnp.minimum(1.0, LONGEST_MOVE / jnp.maximum(size, 1e-30))
    move = at.length * direction
    trial = at.point + move
    value, gradient = fnx.value_and_grad(objective)(trial)

    taken = value <= at.value + 1e-4 * (at.gradient @ move)  # False where value is not a number
    change = gradient - at.gradient
    updated = bfgs_update(at.inverse_hessian, move, change)
    curved = taken & (move @ change > 1e-12)
    stuck = ~taken & (at.length < 1e-6)
    hessian = jnp.where(curved, updated, jnp.where(stuck, jnp.eye(len(move)), at.inverse_hessian))
    return Descent(
        point=jnp.where(taken, trial, at.point),
        value=jnp.where(taken, value, at.value),
        gradient=jnp.where(taken, gradient, at.gradient),
        inverse_hessian=hessian,
        length=jnp.where(taken | stuck, 1.0, 0.3 * at.length),
    )


def bfgs_update(inverse_hessian, move, change):
    """The inverse Hessian that maps ``change`` of the gradient to ``move`` and changes least."""
    turned = inverse_hessian @ change
    curvature = jnp.maximum(move @ change, 1e-30)
    outer = move[:, None] * turned[None, :]
    scale = (1 + (change @ turned) / curvature) / curvature
    return inverse_hessian + scale * move[:, None] * move[None, :] - (outer + outer.T) / curvature


def promised_gain(state: Descent) -> np.ndarray:
    """By how much the next step of each start would lower a quadratic function, twice over."""
    gradient, inverse_hessian = np.asarray(state.gradient), np.asarray(state.inverse_hessian)
    return np.einsum("si,sij,sj->s", gradient, inverse_hessian, gradient)


def starting_points() -> np.ndarray:
    """Points scattered around the centre of the priors, of shape ``(STARTS, 8)``."""
    centre = np.concatenate([np.log(RATE_MEAN), LOG_MEAN])
    return centre + SPREAD * fnx.random.normal(fnx.random.key(0), (STARTS, centre.size))


def compiled(clock: Clock, function: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    """``function`` compiled for ``args``, with the two phases timed."""
    with clock("trace"):
        lowered = fnx.jit(function).lower(*args)
    with clock("compile"):
        return lowered.compile()


def minimise(
    clock: Clock, log_pelts: np.ndarray, progress: Callable[[int, float], None]
) -> tuple[np.ndarray, int, int]:
    """The best point, how many starts found it, and the number of trials."""

    def advance(state: Descent, log_pelts):
        step = lambda at: bfgs_step(lambda point: negative_log_posterior(point, log_pelts), at)
        return fnx.vmap(step)(state)

    with clock("run"):
        points = starting_points()
        size = points.shape[1]
        state = Descent(
            point=points,
            value=np.full(STARTS, np.inf),
            gradient=np.zeros((STARTS, size)),
            inverse_hessian=np.tile(np.eye(size), (STARTS, 1, 1)),
            length=np.ones(STARTS),
        )
    advance = compiled(clock, advance, state, log_pelts)
    done = np.zeros(STARTS, bool)  # which stays: next to a minimum steps are rounding errors
    with clock("run"):
        for steps in range(1, MOST_STEPS + 1):
            state = advance(state, log_pelts)
            values = np.asarray(state.value)
            best = int(np.argmin(values))
            progress(steps, float(values[best]))
            done |= np.isfinite(values) & (promised_gain(state) < LEAST_GAIN)
            if np.all(done | ~np.isfinite(values)):
                break
    if not (np.isfinite(values[best]) and done[best]):
        raise FitError(f"none of {STARTS} starting points came to a minimum in {steps} steps")
    minima = int(np.sum(done & (values < values[best] + 1e-6)))
    return np.asarray(state.point[best]), minima, steps


def fit(clock: Clock, pelts: np.ndarray, progress: Callable[[int, float], None]) -> Fit:
    """Fit the model to ``pelts`` of shape ``(n, 2)``; ``progress`` hears of each step.

    Raises `FitError` if no start comes to a proper minimum.
    """
    log_pelts = np.log(pelts)
    years = len(pelts) - 1

    def curvature(point, log_pelts):
        hessian = fnx.hessian(negative_log_posterior)(point, log_pelts)
        trajectory = lambda point: log_trajectory(point, years)
        return hessian, trajectory(point), fnx.jacfwd(trajectory)(point)

    point, minima, steps = minimise(clock, log_pelts, progress)
    curvature = compiled(clock, curvature, point, log_pelts)
    with clock("run"):
        hessian, trajectory, slope = map(np.asarray, curvature(point, log_pelts))
        if np.min(np.linalg.eigvalsh(hessian)) <= 0:
            raise FitError(
                "the posterior is not curved upwards at the best point: no standard errors"
            )
        covariance = np.linalg.inv(hessian)
        variance = np.einsum("tsi,ij,tsj->ts", slope, covariance, slope)
    return Fit(point, covariance, trajectory, np.sqrt(variance), minima, steps)
