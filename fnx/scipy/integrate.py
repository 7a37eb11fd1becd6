"""Integrals of samples."""

from fnx import numpy as _numpy  # noqa: F401  # the whole, before parts of it
from fnx.numpy.numerics.calculus import trapezoid as trapezoid

__all__ = ["trapezoid"]
