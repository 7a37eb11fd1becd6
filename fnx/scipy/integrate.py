"""Integrals of samples, with scipy.integrate's names."""

from fnx.numpy.numerics import trapezoid as trapezoid

__all__ = ["trapezoid"]
