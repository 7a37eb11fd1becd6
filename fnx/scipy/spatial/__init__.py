"""Geometry under SciPy's names: rotations."""

from fnx.scipy.spatial import transform as transform
