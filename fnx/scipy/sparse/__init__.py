"""Solvers for matrices that are known by their products."""

from fnx.scipy.sparse import linalg as linalg
