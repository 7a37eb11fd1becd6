"""Integrals of samples."""

from fnx.numpy.numerics import trapezoid as trapezoid

__all__ = ["trapezoid"]
