"""Zeros that are not arrays: what rules of users see of tangents and cotangents that are zero."""

from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import as_array
from fnx.core.fast_dataclasses import dataclass
from fnx.interpreters.jvp import SymbolicZero, tangent_type
from fnx.ops.structure.basic import zeros
from fnx.pytree import operations


@dataclass
class CustomVJPPrimal:
    """What fwd gets for a leaf with `symbolic_zeros`: the value, and whether it is differentiated.

    >>> fnx.custom_derivatives.CustomVJPPrimal(2.0, perturbed=True).value
    2.0
    """

    value: Any
    perturbed: bool


def custom_vjp_primal_tree_values(tree: Any) -> Any:
    """A pytree of CustomVJPPrimal with their values in their places.

    >>> from fnx.custom_derivatives import CustomVJPPrimal, custom_vjp_primal_tree_values
    >>> custom_vjp_primal_tree_values({"a": CustomVJPPrimal(2.0, True), "b": 1.0})
    {'a': 2.0, 'b': 1.0}
    """
    kind = lambda x: isinstance(x, CustomVJPPrimal)
    return operations.tree_map(lambda x: x.value if kind(x) else x, tree, is_leaf=kind)


def zero_from_primal(x: Any, symbolic_zeros: bool = False) -> Any:
    """The zero tangent of each leaf of a pytree, as an array or as a `SymbolicZero`.

    >>> fnx.custom_derivatives.zero_from_primal(3.0)
    Array(0., dtype=float64)
    """

    def zero(leaf: Any) -> Any:
        aval = tangent_type(as_array(leaf).aval)
        if symbolic_zeros:
            return SymbolicZero(aval)
        return np.zeros(aval.shape, aval.dtype) if aval.dtype == dtypes.float0 else zeros(aval)

    return operations.tree_map(zero, x)
