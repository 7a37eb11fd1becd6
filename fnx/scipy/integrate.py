"""Integrals of samples."""

from fnx.numpy.numerics.calculus import trapezoid as trapezoid

__all__ = ["trapezoid"]
