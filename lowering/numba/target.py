"""Numba as a target: plain loops, and NumPy's and SciPy's own functions where these are quicker."""

from fnx.lowering.portable import PortableTarget


class NumbaTarget(PortableTarget):
    """Plain loops, compiled by Numba for whatever machine it knows."""

    name = "numba"
