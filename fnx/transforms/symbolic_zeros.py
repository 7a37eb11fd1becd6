"""What stands for tangents and gradients that are no arrays: zeros in rules, requests of `with_refs`."""

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


@dataclass(frozen=True)
class GradValue:
    """For an argument in `with_refs`: its gradient is returned.

    >>> _, pull = fnx.vjp(lambda x, y: x * y, 3.0, 5.0)
    >>> ref = fnx.new_ref(1.0)
    >>> pull.with_refs(ref, fnx.ad.GradValue())(1.0)
    (GradRef(), Array(3., dtype=float64, weak_type=True))
    >>> ref
    Ref(f64[], Array(6., dtype=float64))
    """


@dataclass(frozen=True)
class DontWant:
    """For an argument in `with_refs`: nobody asks for its gradient.

    >>> _, pull = fnx.vjp(lambda x, y: x * y, 3.0, 5.0)
    >>> pull.with_refs(fnx.ad.GradValue(), fnx.ad.DontWant())(1.0)
    (Array(5., dtype=float64, weak_type=True), DidntWant())
    """


@dataclass(frozen=True)
class GradRef:
    """In the place of a gradient that was added to a Ref; a pytree without leaves.

    >>> fnx.tree.leaves(fnx.ad.GradRef())
    []
    """


@dataclass(frozen=True)
class DidntWant:
    """In the place of a gradient that nobody asked for; a pytree without leaves.

    >>> fnx.tree.leaves(fnx.ad.DidntWant())
    []
    """


operations.register_static(GradRef)
operations.register_static(DidntWant)
