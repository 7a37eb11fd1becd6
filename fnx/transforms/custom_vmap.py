"""Functions with rules of the user's own: what all have in common, and rules for vmap, custom_vmap."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fnx.core.array import Array
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.core.source import call_users
from fnx.interpreters.primitives.custom_derivatives import call_with_rule
from fnx.interpreters.primitives.custom_vmap import CustomVmap
from fnx.interpreters.trace import trace
from fnx.pytree import operations
from fnx.pytree.flatten_fun import flatten_arrays, name_of, signature_of, wraps

__all__ = ["custom_vmap"]


class WithRule:
    """What custom_jvp, custom_vjp and custom_vmap have in common: a function, and arguments that are not
    traced.
    """

    def __init__(
        self,
        fun: Callable,
        nondiff_argnums: Sequence[int] = (),
        nondiff_argnames: Sequence[str] = (),
    ):
        if not callable(fun):
            raise TypeMismatch(
                f"a function with a rule was to be made, which needs a function, got {type(fun).__name__}"
            )
        wraps(fun)(self)
        self.fun, self.signature = fun, signature_of(fun)
        parameters = self.signature.parameters.values() if self.signature else ()
        self.positions = sum(p.kind <= p.POSITIONAL_OR_KEYWORD for p in parameters)
        numbers = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else nondiff_argnums
        names = list(self.signature.parameters) if self.signature and nondiff_argnames else []
        self.nondiff_argnums = (*numbers, *(names.index(n) for n in nondiff_argnames))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("def"):  # the rules of a function that has others, too
            return getattr(self.fun, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Results of the function, which has its rule."""
        raise NotImplementedError

    def positional(self, args: tuple, kwargs: dict) -> tuple:
        """All arguments by position, defaults filled in."""
        if self.signature is None or (not kwargs and len(args) >= self.positions):
            return args
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        named = [
            name for name in kwargs if name not in self.signature.parameters or name in bound.kwargs
        ]
        if named:
            raise TypeMismatch(
                f"{name_of(self.fun)} has a rule of its own and was called with the keyword-only arguments "
                f"{', '.join(named)}; expected arguments that can be passed by position"
            )
        return bound.args

    def split(self, args: tuple) -> tuple[tuple, tuple, Callable]:
        """The static arguments, the others, and a function that puts them together again."""
        count = len(args)
        static = sorted(k % count for k in self.nondiff_argnums if -count <= k < count)
        fixed = {k: args[k] for k in static}

        def join(dynamic: Sequence) -> list:
            rest = iter(dynamic)
            return [fixed[k] if k in fixed else next(rest) for k in range(count)]

        return tuple(fixed.values()), tuple(a for k, a in enumerate(args) if k not in fixed), join


class custom_vmap(WithRule):
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

    vmap_rule: Callable | None = None

    def __init__(self, fun: Callable):
        super().__init__(fun)

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
        args = self.positional(args, kwargs)
        leaves, treedef = flatten_arrays(args, f"arguments of {name}")
        structures: list = []
        avals = [x.aval for x in leaves]

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
            if not structures:  # the function itself has not run
                trace(flat, avals, what=f"the custom_vmap function {name}", name=name)
            if structures[0] != structure:
                raise InvalidValue(
                    f"the rule of {name} gives {operations.shown(structure)}; the function itself gives "
                    f"{operations.shown(structures[0])}"
                )
            return arrays, [bool(b) for b in which]

        outs = call_with_rule(CustomVmap(flat, name, rule=flat_rule), leaves)
        return operations.tree_unflatten(structures[0], outs)
