"""`jax.experimental.custom_partitioning`: functions with their author's rules of how to cut them.

What they compute does not depend on these rules, which save exchanges between devices. fnx cuts such a
function by the rules of the operations that it is made of.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.errors import InvalidValue

BATCHING = "…"  # in mappings: axes of batches, which come first


class CompoundFactor(tuple):
    """Factors of which one axis is made."""

    def __new__(cls, *factors: str) -> "CompoundFactor":
        if len(factors) < 2:
            raise InvalidValue(f"CompoundFactor of {factors}; expected at least two factors")
        return super().__new__(cls, factors)


class ArrayMapping(tuple):
    """The factor of each axis of an array."""

    def __new__(cls, *factors: "str | CompoundFactor") -> "ArrayMapping":
        return super().__new__(cls, factors)


class SdyShardingRule:
    """The factors of all axes of a function's operands and results."""

    def __init__(
        self,
        operand_mappings: tuple[ArrayMapping, ...],
        result_mappings: tuple[ArrayMapping, ...],
        *,
        reduction_factors: tuple[str, ...] = (),
        need_replication_factors: tuple[str, ...] = (),
        permutation_factors: tuple[str, ...] = (),
        **factor_sizes: int,
    ):
        self.operand_mappings, self.result_mappings = operand_mappings, result_mappings
        self.reduction_factors, self.factor_sizes = reduction_factors, factor_sizes
        self.need_replication_factors = need_replication_factors
        self.permutation_factors = permutation_factors


class custom_partitioning:
    """A function that calls `fun`, with rules that `def_partition` gives it.

    Positional arguments in `static_argnums` are handed on as they are, as all are that are no arrays.
    """

    def __init__(self, fun: Callable, static_argnums: Sequence[int] = ()):
        functools.update_wrapper(self, fun)
        self.fun, self.static_argnums = fun, tuple(static_argnums)
        self.rules: dict[str, Any] | None = None

    def def_partition(self, partition: Callable, *args: Any, **rules: Any) -> Callable:
        """Keep rules with the function; the rule of how to partition is returned."""
        self.rules = {"partition": partition, "others": args, **rules}
        return partition

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.rules is None:
            raise InvalidValue(
                f"custom_partitioning of {getattr(self.fun, '__name__', self.fun)} was called without "
                "rules; expected def_partition before"
            )
        bound = inspect.signature(self.fun).bind(*args, **kwargs)
        bound.apply_defaults()
        return self.fun(*bound.args, **bound.kwargs)
