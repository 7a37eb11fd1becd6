"""Numba as a target: plain loops, and NumPy's own products of matrices where these are large."""

from math import prod
from typing import Any

from fnx.core import policy, recipe
from fnx.lowering.generate.values import Value
from fnx.lowering.portable import PortableRoutines, PortableTarget


class NumbaRoutines(PortableRoutines):
    """Loops, but for large products of matrices, which the host makes with BLAS."""

    def total(self, r: recipe.Library, outs: list[Value]) -> Any:
        if r.name == "dot_general":
            (contracted, _), _ = r.params
            left, right = r.operands
            summed = prod(left.shape[k] for k in contracted[0])
            if prod(left.shape) * prod(right.shape) >= policy.HOST_PRODUCT * max(summed, 1):
                return None
        return super().total(r, outs)


class NumbaTarget(PortableTarget):
    """Plain loops, compiled by Numba for whatever machine it knows."""

    name = "numba"
    routines = NumbaRoutines()
