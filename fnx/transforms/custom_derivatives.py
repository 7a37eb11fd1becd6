"""Derivative rules of the user's own: custom_jvp, custom_vjp, custom_gradient, closure_convert."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, as_array, boxed, kind_of, unboxed
from fnx.core.aval import ShapedArray
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.core.interpreter import Tracer
from fnx.core.jaxpr import eval_jaxpr
from fnx.core.primitive import family
from fnx.core.source import call_users
from fnx.interpreters.jvp import has_tangent
from fnx.interpreters.primitives.custom_derivatives import (
    CustomJVP,
    CustomVJP,
    call_with_rule,
    no_tangent,
)
from fnx.interpreters.trace import trace
from fnx.ops.structure.basic import convert, zeros
from fnx.pytree import operations
from fnx.pytree.flatten_fun import flatten_arrays, name_of, wraps
from fnx.transforms.custom_vmap import WithRule
from fnx.transforms.mutable_refs import Ref, check_distinct
from fnx.transforms.symbolic_zeros import (
    CustomVJPPrimal,
    SymbolicZero,
    custom_vjp_primal_tree_values,
    tangent_type,
    zero_from_primal,
)

__all__ = [
    "CustomVJPPrimal",
    "SymbolicZero",
    "closure_convert",
    "custom_gradient",
    "custom_jvp",
    "custom_jvp_call_p",
    "custom_vjp",
    "custom_vjp_call_p",
    "custom_vjp_primal_tree_values",
    "zero_from_primal",
]

# As jaxprs have them.
custom_jvp_call_p, custom_vjp_call_p = family(CustomJVP), family(CustomVJP)


class _Results:
    """The structure of a function's results, known once it, or its rule, ran."""

    def __init__(self, name: str):
        self.name = name
        self.structure: Any = None
        self.avals: list = []

    def flatten(self, tree: Any, what: str) -> list[Array]:
        leaves, structure = flatten_arrays(tree, f"{what} of {self.name}", boxed)
        self.structure, self.avals = structure, [x.aval for x in leaves]
        return leaves

    def __call__(self) -> int:
        return len(self.avals)


class custom_jvp(WithRule):
    """A function with a rule for its tangents, from which all its derivatives are made.

    `defjvp(rule)`, where `rule(primals, tangents)` gives result and tangent; arguments at
    `nondiff_argnums` come first. Or `defjvps(rule0, ...)` with one rule `(t, out, *primals)` or None
    for each argument. The rule must be linear in the tangents.

    >>> @fnx.custom_jvp
    ... def f(x):
    ...     return x * x
    >>> @f.defjvp
    ... def rule(primals, tangents):
    ...     return f(*primals), 10.0 * tangents[0]
    >>> fnx.grad(f)(3.0)
    Array(10., dtype=float64, weak_type=True)
    """

    rule: Callable | None = None
    symbolic = False

    def defjvp(self, jvp: Callable, symbolic_zeros: bool = False) -> Callable:
        """Set the rule; returns it, so that it can be used as a decorator.

        With `symbolic_zeros` the rule gets a `SymbolicZero` for each tangent that is zero.
        """
        self.rule, self.symbolic = jvp, symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable | None) -> None:
        """Set the rule by one function for each argument."""
        if self.nondiff_argnums:
            raise TypeMismatch("defjvps with nondiff_argnums; expected defjvp")

        def rule(primals: tuple, tangents: tuple) -> tuple:
            out = self(*primals)
            terms = [
                call_users(j, t, out, *primals) for j, t in zip(jvps, tangents) if j is not None
            ]
            add = lambda *xs: sum(xs[1:], xs[0])
            return out, operations.tree_map(add, *terms) if terms else _zero_tangents(out)

        self.rule = rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = self.positional(args, kwargs)
        name = name_of(self.fun)
        if self.rule is None:
            raise AttributeError(
                f"no rule is defined for the custom_jvp function {name}; use defjvp"
            )
        static, dynamic, join = self.split(args)
        leaves, treedef = flatten_arrays(dynamic, f"arguments of {name}")
        results = _Results(name)
        user_rule, symbolic = self.rule, self.symbolic

        def fun(*xs: Array) -> list[Array]:
            return results.flatten(call_users(self.fun, *join(treedef.unflatten(xs))), "results")

        def rule(*xs: Array | None) -> list[Array | None]:
            n = len(xs) // 2
            xs = tuple([unboxed(x) for x in xs])
            zero = SymbolicZero.from_primal_value if symbolic else no_tangent
            tangents = [zero(x) if t is None else t for x, t in zip(xs, xs[n:])]
            primals = treedef.unflatten(xs[:n])
            made = call_users(user_rule, *static, primals, treedef.unflatten(tangents))
            if not isinstance(made, (tuple, list)) or len(made) != 2:
                raise TypeMismatch(
                    f"the rule of {name} must return a pair, result and tangent, got {kind_of(made)}"
                )
            outs = results.flatten(made[0], "results")
            return [*outs, *_checked(made[1], results, outs, "the tangent", name)]

        outs = call_with_rule(CustomJVP(fun, name, rule=rule, symbolic=symbolic), leaves)
        return results.structure.unflatten(map(unboxed, outs))


def _zero_tangents(out: Any) -> Any:
    return operations.tree_map(lambda x: zeros(as_array(x).aval.tangent()), out)


def _checked(tree: Any, results: _Results, outs: list, what: str, name: str) -> list[Array | None]:
    """Tangents parallel to results: arrays of their types, None for values that have none."""
    leaves, structure = operations.tree_flatten(tree)
    if structure != results.structure:
        raise TypeMismatch(
            f"the rule of {name} gave as {what} {operations.shown(structure)}; expected the structure of "
            f"the result, {operations.shown(results.structure)}"
        )
    return [
        None if isinstance(t, SymbolicZero) else _like(t, o.aval, f"{what} from the rule of {name}")
        for t, o in zip(leaves, outs)
    ]


def _like(t: Any, aval: Any, what: str) -> Array | None:
    if not has_tangent(aval):
        return None
    t = boxed(t)
    if t.shape != aval.shape:
        raise ShapeError(
            f"{what} has the type {t.aval.str_short()}; expected {aval.tangent().str_short()}"
        )
    return convert(t, aval.dtype)


class custom_vjp(WithRule):
    """A function with a rule for its cotangents, for reverse mode.

    `defvjp(fwd, bwd)`: `fwd(*args)` gives the result and any residuals, `bwd(residuals, ct)` a tuple
    with a cotangent for each argument (None: zero). Arguments at `nondiff_argnums` come first in
    `bwd`. TypeError in forward mode.

    >>> @fnx.custom_vjp
    ... def clip_gradient(x):
    ...     return x
    >>> clip_gradient.defvjp(lambda x: (x, None), lambda _, ct: (ct * 0.5,))
    >>> fnx.grad(clip_gradient)(3.0)
    Array(0.5, dtype=float64, weak_type=True)
    """

    fwd: Callable | None = None
    bwd: Callable | None = None
    symbolic = False

    def defvjp(
        self,
        fwd: Callable,
        bwd: Callable,
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Set the two halves of the rule.

        With `symbolic_zeros` fwd gets a `CustomVJPPrimal` for each leaf of its arguments, and bwd a
        `SymbolicZero` for each cotangent that is zero.
        """
        del optimize_remat
        self.fwd, self.bwd, self.symbolic = fwd, bwd, symbolic_zeros

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = self.positional(args, kwargs)
        name = name_of(self.fun)
        if self.fwd is None or self.bwd is None:
            raise AttributeError(
                f"no rule is defined for the custom_vjp function {name}; use defvjp"
            )
        static, dynamic, join = self.split(args)
        given = _Arguments(dynamic, name)
        leaves = given.arrays
        rule = _Reverse(self, name, static, join, given)

        def fun(*xs: Array) -> list[Array]:
            return rule.results.flatten(call_users(self.fun, *join(given.tree(xs))), "results")

        prim = CustomVJP(
            fun, name, fwd=rule.forward, bwd=rule.backward, results=rule.results,
            symbolic=self.symbolic,
        )  # fmt: skip
        outs = call_with_rule(prim, leaves)
        return rule.results.structure.unflatten(map(unboxed, outs))


class _Arguments:
    """The arguments that a rule is of: arrays, and mutable references, which the rule gets as they are."""

    def __init__(self, dynamic: tuple, name: str):
        what = f"arguments of {name}"
        leaves, self.treedef = operations.tree_flatten(dynamic)
        self.refs = {k: x for k, x in enumerate(leaves) if type(x) is Ref}
        check_distinct([*self.refs.values()], name)
        if self.refs:
            self.arrays, _ = flatten_arrays([x for x in leaves if type(x) is not Ref], what)
        else:
            self.arrays, self.treedef = flatten_arrays(dynamic, what)

    def tree(self, xs: Sequence) -> Any:
        """The arguments, of these arrays."""
        it = iter(xs)
        n = len(xs) + len(self.refs)
        return self.treedef.unflatten(
            [self.refs[k] if k in self.refs else next(it) for k in range(n)]
        )

    def of_arrays(self, leaves: Sequence) -> list:
        """What goes with arrays, of what goes with all leaves."""
        return [x for k, x in enumerate(leaves) if k not in self.refs]


class _Reverse:
    """A user's fwd and bwd as functions of arrays."""

    def __init__(self, of: custom_vjp, name: str, static: tuple, join: Callable, given: _Arguments):
        assert of.fwd is not None
        assert of.bwd is not None
        self.name, self.fwd, self.bwd, self.symbolic = name, of.fwd, of.bwd, of.symbolic
        self.static, self.join, self.given = static, join, given
        self.avals = [x.aval for x in given.arrays]
        self.results = _Results(name)
        self.kept: Any = None  # the structure of the residuals, and those that are not arrays

    def forward(self, *xs: Any) -> list[Array]:
        if self.symbolic:
            n = len(xs) // 2
            xs = tuple([CustomVJPPrimal(x, flag is not None) for x, flag in zip(xs, xs[n:])])
        made = call_users(self.fwd, *self.join(self.given.tree(xs)))
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            raise TypeMismatch(
                f"fwd of {self.name} must return a pair, result and residuals, got {kind_of(made)}"
            )
        outs = self.results.flatten(made[0], "results")
        leaves, structure = operations.tree_flatten(made[1])
        arrays = [isinstance(x, (Array, np.ndarray)) for x in leaves]
        self.kept = structure, arrays, [None if a else x for x, a in zip(leaves, arrays)]
        return [*outs, *(as_array(x) for x, a in zip(leaves, arrays) if a)]

    def backward(self, *values: Array | None) -> list[Array | None]:
        structure, arrays, others = self.kept
        n = sum(arrays)
        it = iter(values[:n])
        residuals = structure.unflatten([next(it) if a else x for a, x in zip(arrays, others)])
        cts = [
            ct if ct is not None
            else SymbolicZero(tangent_type(a)) if self.symbolic
            else np.zeros(a.shape, dtypes.float0)
            for ct, a in zip(values[n:], self.results.avals)
        ]  # fmt: skip
        cotangents = self.results.structure.unflatten(cts)
        found = call_users(self.bwd, *self.static, residuals, cotangents)
        return self.flat_cotangents(found)

    def flat_cotangents(self, found: Any) -> list[Array | None]:
        """One cotangent per leaf of the arguments."""
        parts = operations.treedef_children(self.given.treedef)
        if not isinstance(found, (tuple, list)) or len(found) != len(parts):
            got = f"{len(found)}" if isinstance(found, (tuple, list)) else kind_of(found)
            raise TypeMismatch(
                f"bwd of {self.name} must return a tuple of {len(parts)} cotangents, one per argument, "
                f"got {got}"
            )
        flat = [ct for given, part in zip(found, parts) for ct in self._spread(given, part)]
        what = f"a cotangent from bwd of {self.name}"
        flat = self.given.of_arrays(flat)
        return [_cotangent(c, a, what) for c, a in zip(flat, self.avals)]

    def _spread(self, ct: Any, part: Any) -> list:
        """A cotangent per leaf of an argument; one for a whole container, or None, is that of each leaf."""
        leaves, structure = operations.tree_flatten(ct, is_leaf=lambda x: x is None)
        try:
            parts = structure.flatten_up_to(part.unflatten(range(part.num_leaves)))
        except ValueError as error:
            raise TypeMismatch(
                f"bwd of {self.name} gave a cotangent of structure "
                f"{operations.tree_structure(ct)}; expected that of the argument, {part}"
            ) from error
        return [x for x, p in zip(leaves, parts) for _ in operations.tree_leaves(p)]


def _cotangent(ct: Any, aval: ShapedArray, what: str) -> Array | None:
    if isinstance(ct, SymbolicZero) and ct.shape != aval.shape:
        raise ShapeError(
            f"{what} is {ct}; expected {tangent_type(aval).str_short()}. None is always right for zero."
        )
    return None if ct is None or isinstance(ct, SymbolicZero) else _like(ct, aval, what)


def custom_gradient(fun: Callable) -> Callable:
    """A function that returns its result and the function from its cotangent to those of arguments.

    >>> @fnx.custom_gradient
    ... def f(x):
    ...     return x * x, lambda ct: 10.0 * ct
    >>> fnx.grad(f)(3.0)
    Array(10., dtype=float64)
    """

    def fwd(*args: Any) -> tuple:
        out, pull = call_users(fun, *args)
        zero = operations.tree_map(lambda x: zeros(as_array(x).aval.tangent()), out)
        converted, consts = closure_convert(pull, zero)
        return out, (operations.Partial(converted), consts)

    def bwd(residuals: tuple, ct: Any) -> tuple:
        pull, consts = residuals
        found = pull(ct, *consts)
        return found if isinstance(found, tuple) else (found,)

    def primal(*args: Any) -> Any:
        return call_users(fun, *args)[0]

    wraps(fun)(primal)
    wrapped = custom_vjp(primal)
    wrapped.defvjp(fwd, bwd)
    return wrapped


def closure_convert(fun: Callable, *example_args: Any) -> tuple[Callable, list[Array]]:
    """A function that takes the traced values that `fun` closed over as further arguments; and those.

    The converted function raises TypeError for arguments of another structure.

    >>> f, consts = fnx.closure_convert(lambda x: 2.0 * x, 1.0)
    >>> float(f(3.0, *consts))
    6.0
    """
    leaves, treedef = flatten_arrays(example_args, f"arguments of {name_of(fun)}")
    results = _Results(name_of(fun))

    def flat(*xs: Array) -> list[Array]:
        return results.flatten(call_users(fun, *treedef.unflatten(xs)), "results")

    avals = [x.aval for x in leaves]
    jaxpr, consts = trace(flat, avals, what=f"closure_convert of {name_of(fun)}", name=name_of(fun))
    hoisted = [isinstance(c, Tracer) and has_tangent(c.aval) for c in consts]

    def converted(*args: Any) -> Any:
        n = len(args) - sum(hoisted)
        it = iter(args[n:])
        values = [next(it) if h else c for h, c in zip(hoisted, consts)]
        own, found = flatten_arrays(args[:n], f"arguments of {name_of(fun)}")
        if found != treedef:
            raise TypeMismatch(
                f"{name_of(fun)}, converted by closure_convert, got as arguments "
                f"{operations.shown(found)}; it was converted for {operations.shown(treedef)}, followed by "
                f"{sum(hoisted)} arrays"
            )
        own = [convert(x, a.dtype) for x, a in zip(own, avals)]
        return results.structure.unflatten(eval_jaxpr(jaxpr, [*values, *own]))

    return converted, [c for c, h in zip(consts, hoisted) if h]
