"""Rules of the user's own for vmap: custom_vmap."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.core.source import call_users
from fnx.interpreters.primitives.custom_derivatives import call_with_rule
from fnx.interpreters.primitives.custom_vmap import CustomVmap
from fnx.pytree import operations
from fnx.pytree.flatten_fun import flatten_arrays, name_of, wraps

__all__ = ["custom_vmap"]


class custom_vmap:
    """A function with a rule for vmap; derivatives are those of the function.

    `def_vmap(rule)`, where `rule(axis_size, in_batched, *args)` gives the result for the batch, and which
    of its leaves are batched: `in_batched` is a list with a pytree of bools for each argument, and batch
    axes are axis 0.

    >>> from fnx.custom_batching import custom_vmap
    >>> @custom_vmap
    ... def f(x):
    ...     return x + 1
    >>> @f.def_vmap
    ... def rule(axis_size, in_batched, x):
    ...     return x + 10, in_batched[0]
    >>> fnx.vmap(f)(jnp.array([1, 2]))
    Array([11, 12], dtype=int64)
    """

    def __init__(self, fun: Callable):
        wraps(fun)(self)
        self.fun = fun
        self.vmap_rule: Callable | None = None

    def def_vmap(self, vmap_rule: Callable) -> Callable:
        """Set the rule; returns it, so that it can be used as a decorator."""
        self.vmap_rule = vmap_rule
        return vmap_rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name, rule = name_of(self.fun), self.vmap_rule
        if rule is None:
            raise AttributeError(
                f"no rule is defined for the custom_vmap function {name}; use def_vmap"
            )
        if kwargs:
            bound = inspect.signature(self.fun).bind(*args, **kwargs)
            bound.apply_defaults()
            args = bound.args
        leaves, treedef = flatten_arrays(args, f"arguments of {name}")
        structures: list = []

        def flat(*xs: Array) -> list[Array]:
            out = call_users(self.fun, *operations.tree_unflatten(treedef, xs))
            arrays, structure = flatten_arrays(out, f"results of {name}")
            structures[:] = [structure]
            return arrays

        def flat_rule(size: int, batched: tuple[bool, ...], xs: Sequence[Array]) -> tuple:
            marks = list(operations.tree_unflatten(treedef, batched))
            operands = operations.tree_unflatten(treedef, xs)
            out, out_batched = call_users(rule, size, marks, *operands)
            arrays, structure = flatten_arrays(out, f"results of the rule of {name}")
            which, given = operations.tree_flatten(out_batched)
            if given != structure:
                raise InvalidValue(
                    f"the rule of {name} says which leaves of {operations.shown(given)} are batched; its "
                    f"result is {operations.shown(structure)}"
                )
            if structures and structures[0] != structure:
                raise InvalidValue(
                    f"the rule of {name} gives {operations.shown(structure)}; the function itself gives "
                    f"{operations.shown(structures[0])}"
                )
            structures[:] = [structure]
            return arrays, [bool(b) for b in which]

        outs = call_with_rule(CustomVmap(flat, name, rule=flat_rule), leaves)
        return operations.tree_unflatten(structures[0], outs)
