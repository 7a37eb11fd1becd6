"""Kernel IR printed as Python for Numba."""
