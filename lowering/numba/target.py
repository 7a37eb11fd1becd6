"""Numba as a target: plain loops, and NumPy's own products of matrices where these are large."""

from dataclasses import replace
from math import prod
from typing import Any

from fnx.core import policy, recipe
from fnx.core.backend import PORTABLE, Machine
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.generate.values import Value
from fnx.lowering.portable import PortableRoutines, PortableTarget
from fnx.lowering.transform import loop_coalescing


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


class ThreadedTarget(NumbaTarget):
    """The same, where threads share what they share on the CPU's own path."""

    machine: Machine = replace(
        PORTABLE,
        nest_work=thresholds.CPU.nest_work,
        parallel_work=thresholds.CPU.parallel_work,
        parallel_reduction=thresholds.CPU.parallel_reduction,
        parts=thresholds.CPU.parts,
    )
    passes = (loop_coalescing.coalesce,)
