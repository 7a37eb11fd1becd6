"""Kernel density estimates with Gaussian kernels."""

import math
from typing import Any

from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.nn.normalization import logsumexp
from fnx.numpy import linalg as np_linalg
from fnx.numpy.algebra import products
from fnx.numpy.arrays.creation import full
from fnx.numpy.arrays.util import to_array
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.numerics.statistics import cov
from fnx.numpy.reductions import reduce
from fnx.numpy.structure.shapes import atleast_2d
from fnx.pytree.operations import register_pytree_node_class
from fnx.scipy import special
from fnx.scipy.linalg.solvers import cho_solve, solve_triangular


@register_pytree_node_class
@dataclass(frozen=True, init=False)
class gaussian_kde:
    """A density of points `dataset`, (dimensions, points): a normal one around each, weighted.

    `bw_method`: 'scott' (default), 'silverman', a number, or a function of the estimate.

    >>> density = fnx.scipy.stats.gaussian_kde(jnp.array([-1.0, 0.0, 1.0]))
    >>> float(density.integrate_box_1d(-100.0, 0.0).round(6))
    0.5
    """

    neff: Any
    dataset: Any
    weights: Any
    covariance: Any
    inv_cov: Any

    def __init__(self, dataset, bw_method=None, weights=None):
        points = atleast_2d(dataset)
        if points.dtype.kind not in "fiu":
            raise TypeMismatch(f"gaussian_kde of dtype {points.dtype}; expected real numbers")
        points = points if points.dtype.kind == "f" else points.astype(float)
        _, n = points.shape
        if points.size <= 1:
            raise InvalidValue("gaussian_kde needs more than one element")
        if weights is None:
            weights = full(n, 1.0 / n, dtype=points.dtype)
        else:
            weights = to_array(weights, "gaussian_kde").astype(points.dtype)
            if weights.shape != (n,):
                raise ShapeError(
                    f"gaussian_kde with weights of shape {weights.shape}; expected ({n},)"
                )
            weights = weights / reduce.sum(weights)
        put = lambda name, value: object.__setattr__(self, name, value)
        put("dataset", points)
        put("weights", weights)
        put("neff", 1 / reduce.sum(weights**2))
        data = atleast_2d(cov(points, rowvar=True, bias=False, aweights=weights))
        factor = self._factor(bw_method)
        put("covariance", data * factor**2)
        put("inv_cov", np_linalg.inv(data) / factor**2)

    def _factor(self, bw_method: Any) -> Any:
        if bw_method is None or bw_method == "scott":
            return u.power(self.neff, -1.0 / (self.d + 4))
        if isinstance(bw_method, str):
            if bw_method == "silverman":
                return u.power(self.neff * (self.d + 2) / 4.0, -1.0 / (self.d + 4))
            raise InvalidValue(
                f"bw_method={bw_method!r}; expected 'scott', 'silverman' or a number"
            )
        return bw_method(self) if callable(bw_method) else bw_method

    def tree_flatten(self) -> tuple:
        """The arrays; nothing is static."""
        return (self.neff, self.dataset, self.weights, self.covariance, self.inv_cov), None

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> "gaussian_kde":
        """The estimate with these arrays."""
        del aux
        made = object.__new__(cls)
        for name, value in zip(("neff", "dataset", "weights", "covariance", "inv_cov"), children):
            object.__setattr__(made, name, value)
        return made

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """The number of points."""
        return self.dataset.shape[1]

    def _at(self, points: Any) -> Array:
        x = atleast_2d(points)
        if x.shape[0] != self.d:
            if x.shape[0] == 1 and x.shape[1] == self.d:
                return x.reshape(self.d, 1)
            raise ShapeError(f"points of shape {x.shape}; expected ({self.d}, number of points)")
        return x

    def evaluate(self, points):
        """The density at points, (dimensions, points)."""
        return u.exp(self.logpdf(points))

    def __call__(self, points):
        """The density at points."""
        return self.evaluate(points)

    def pdf(self, x):
        """The density at points."""
        return self.evaluate(x)

    def logpdf(self, x):
        """The logarithm of the density at points."""
        points = self._at(x)
        factor = np_linalg.cholesky(self.covariance)
        a = solve_triangular(factor, self.dataset, lower=True)
        b = solve_triangular(factor, points.astype(self.dataset.dtype), lower=True)
        squares = reduce.sum(u.square(a[:, :, None] - b[:, None, :]), axis=0)
        norm = 0.5 * self.d * math.log(2 * math.pi) + reduce.sum(u.log(factor.diagonal()))
        return logsumexp(-0.5 * squares, axis=0, b=self.weights[:, None]) - norm

    def _overlap(self, mean: Array, matrix: Array, points: Array, weights: Array) -> Array:
        factor = np_linalg.cholesky(matrix)
        diff = points - mean
        energy = 0.5 * reduce.sum(diff * cho_solve((factor, True), diff), axis=0)
        logs = -energy - 0.5 * self.d * math.log(2 * math.pi) - reduce.sum(u.log(factor.diagonal()))
        return reduce.sum(u.exp(logs) * weights)

    def integrate_gaussian(self, mean, cov):
        """The integral of the density times a normal density."""
        mean, matrix = to_array(mean).reshape(-1, 1), atleast_2d(cov)
        return self._overlap(mean, self.covariance + matrix, self.dataset, self.weights)

    def integrate_box_1d(self, low, high):
        """The integral over an interval, of a density in one dimension."""
        if self.d != 1:
            raise InvalidValue(f"integrate_box_1d in {self.d} dimensions; expected 1")
        sigma = u.sqrt(self.covariance[0, 0])
        ends = [special.ndtr((end - self.dataset[0]) / sigma) for end in (low, high)]
        return reduce.sum(self.weights * (ends[1] - ends[0]))

    def integrate_kde(self, other):
        """The integral of the product with another estimate."""
        if other.d != self.d:
            raise InvalidValue(
                f"estimates in {self.d} and {other.d} dimensions; expected equal ones"
            )
        total: Any = 0.0
        matrix = self.covariance + other.covariance
        for k in range(other.n):
            overlap = self._overlap(other.dataset[:, k : k + 1], matrix, self.dataset, self.weights)
            total = total + other.weights[k] * overlap
        return total

    def resample(self, key, shape=()):
        """Random points: shape (dimensions, *shape)."""
        from fnx import random

        which, noise = random.split(key)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        index = random.choice(which, self.n, shape, p=self.weights)
        factor = np_linalg.cholesky(self.covariance)
        steps = random.normal(noise, (self.d, *shape), self.dataset.dtype)
        return self.dataset[:, index] + products.tensordot(factor, steps, 1)


__all__ = ["gaussian_kde"]
