"""Primitives that users make of functions, one for each transformation, as JAX's programs do.

`Primitive("name")` is what the user holds and binds; each binding is a `Foreign`, an operation with the
user's parameters, whose rules look for the user's functions when a transformation asks.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray, as_array, boxed, unboxed
from fnx.core.aval import ShapedArray
from fnx.core.axis_size import axis_name_of
from fnx.core.errors import MissingRule, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import current, evaluate, use
from fnx.core.jaxpr import Jaxpr
from fnx.core.primitive import Family, Undefined
from fnx.core.primitive import Primitive as Rules
from fnx.core.recipe import Call, Host, Operand, Recipe
from fnx.core.threads.fork_safety import cached_property
from fnx.interpreters.batching import AxisData, fancy_primitive_batchers
from fnx.interpreters.jvp import has_tangent
from fnx.interpreters.trace import trace_closed
from fnx.ops.structure.basic import zeros

primitive_jvps: dict[Any, Callable] = {}
primitive_transposes: dict[Any, Callable] = {}
lowerings: dict[Any, Any] = {}


class Zero:
    """A tangent or cotangent that is zero, without an array, in the rules of users' primitives."""

    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    @staticmethod
    def from_primal_value(x: Any) -> "Zero":
        """The zero tangent of a value."""
        return Zero(as_array(x).aval.to_tangent_aval())

    def instantiate(self) -> Any:
        """The zeros as an array."""
        if self.aval.dtype == dtypes.float0:
            return np.zeros(self.aval.shape, dtypes.float0)
        return zeros(self.aval)

    def __repr__(self) -> str:
        return f"Zero({self.aval.str_short()})"


class Params(dict):
    """Static parameters by name; compared by their values where these can be hashed, else by identity."""

    __slots__ = ()

    def _values(self) -> frozenset | None:
        try:
            items = frozenset(self.items())
            hash(items)
        except TypeError:
            return None
        return items

    def __hash__(self) -> int:  # type: ignore[override]
        values = self._values()
        return id(self) if values is None else hash(values)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        values = self._values()
        return values is not None and isinstance(other, Params) and values == other._values()


class LoweredFun:
    """A lowering that is a function of arrays: programs contain what it does."""

    def __init__(self, fun: Callable, multiple_results: bool):
        self.fun, self.multiple_results = fun, multiple_results

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise MissingRule(
            "the result of mlir.lower_fun is a rule for mlir.register_lowering, not a function: fnx has no "
            "MLIR to write to"
        )


class _AnyPrimitive(type):
    """Kinds of primitives, of which fnx's own are, too, although not made of functions."""

    def __instancecheck__(cls, x: Any) -> bool:
        return super().__instancecheck__(x) or (cls is Primitive and isinstance(x, (Family, Rules)))


class Primitive(metaclass=_AnyPrimitive):
    """A new operation, `name`, with the rules that are registered for it.

    `def_impl` says what it computes, `def_abstract_eval` the types of its results;
    `mlir.register_lowering(p, mlir.lower_fun(fn))` how compiled programs compute it (without one they call
    `impl`); `ad.primitive_jvps[p]`, `ad.primitive_transposes[p]` and `batching.primitive_batchers[p]` are
    its derivatives and its rule for vmap. Names and signatures of the rules are JAX's.

    >>> from fnx.extend.core import Primitive
    >>> twice_p = Primitive("twice")
    >>> twice_p.def_impl(lambda x: x + x) and twice_p.bind(jnp.array(3.0))
    Array(6., dtype=float64, weak_type=True)
    """

    multiple_results = False
    call_primitive = False
    map_primitive = False

    def __init__(self, name: str):
        self.name = name
        self._impl: Callable | None = None
        self._abstract: Callable | None = None
        self._tells_effects = False

    def def_impl(self, impl: Callable) -> Callable:
        """Register what it computes: a function of arrays, and parameters by name."""
        self._impl = impl
        return impl

    def def_abstract_eval(self, rule: Callable) -> Callable:
        """Register the types of its results: a function of avals, and parameters by name."""
        self._abstract, self._tells_effects = rule, False
        return rule

    def def_effectful_abstract_eval(self, rule: Callable) -> Callable:
        """The same, where the function returns a pair: the types, and a set of effects."""
        self._abstract, self._tells_effects = rule, True
        return rule

    def impl(self, *args: Any, **params: Any) -> Any:
        """What was given to `def_impl`, called."""
        if self._impl is None:
            raise MissingRule(
                f"Evaluation rule for {self.name!r} not implemented: expected def_impl"
            )
        return self._impl(*args, **params)

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> tuple[Any, Any]:
        """Types of the results, and effects."""
        if self._abstract is None:
            raise MissingRule(
                f"Abstract evaluation for {self.name!r} not implemented: expected def_abstract_eval"
            )
        found = self._abstract(*avals, **params)
        return found if self._tells_effects else (found, frozenset())

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply it under the current transformations: an array, or a list with `multiple_results`."""
        arrays = tuple([as_array(x) for x in args])
        prim = Foreign(self, Params(params), tuple([a.aval for a in arrays]))
        outs = current.get().process(prim, arrays)
        return list(outs) if self.multiple_results else outs[0]

    bind_with_trace = Family.bind_with_trace

    def get_bind_params(self, params: dict) -> dict:
        """The parameters to bind it with, of those of an equation."""
        return params

    def __repr__(self) -> str:
        return self.name


def _aval(found: Any) -> ShapedArray:
    weak = bool(getattr(found, "weak_type", False))
    return ShapedArray(tuple(map(int, found.shape)), dtypes.canonical(found.dtype), weak)


def _tangent(found: Any) -> Array | None:
    """A tangent or cotangent that a rule of a user gave: None where it is zero."""
    if found is None or isinstance(found, Zero) or getattr(found, "dtype", None) == dtypes.float0:
        return None
    return boxed(found)


@dataclass(frozen=True)
class Foreign(Rules):
    """One binding of a user's primitive: its parameters, and the types of its operands."""

    of: Primitive
    given: Params
    avals: tuple[ShapedArray, ...]

    @property
    def public(self) -> Primitive:
        return self.of

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.of.name

    @property
    def multiple_results(self) -> bool:  # type: ignore[override]
        return self.of.multiple_results

    def params(self) -> dict[str, Any]:
        return dict(self.given)

    public_params = params

    def _many(self, found: Any, rule: str) -> tuple:
        if not self.multiple_results:
            return (found,)
        if not isinstance(found, (tuple, list)):
            raise TypeMismatch(
                f"{rule} of {self.name!r}, a primitive with multiple_results, gave a "
                f"{type(found).__name__}; expected a list or a tuple"
            )
        return tuple(found)

    def _rule(self, registry: dict, what: str) -> Callable:
        if self.of not in registry:
            raise MissingRule(f"{what} rule for {self.name!r} not implemented")
        return registry[self.of]

    @property
    def effects(self) -> bool:  # type: ignore[override]
        return bool(self._typed[1])

    @cached_property
    def _typed(self) -> tuple[tuple[ShapedArray, ...], Any]:
        found, effects = self.of.abstract_eval(*self.avals, **self.given)
        return tuple([_aval(a) for a in self._many(found, "def_abstract_eval")]), effects

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        return self._typed[0]

    def impl(self, *values: np.ndarray) -> tuple:
        args = [ConcreteArray(v, a.weak_type) for v, a in zip(values, self.avals, strict=True)]
        with use(evaluate):
            found = self._many(self.of.impl(*args, **self.given), "def_impl")
            return tuple([as_array(x) for x in found])

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        rule = self._rule(primitive_jvps, "Differentiation")
        filled = tuple(
            [
                Zero(p.aval.to_tangent_aval()) if t is None else unboxed(t)
                for p, t in zip(primals, tangents)
            ]
        )
        outs, touts = rule(tuple(map(unboxed, primals)), filled, **self.given)
        many, more = self._many(outs, "a jvp rule"), self._many(touts, "a jvp rule")
        return tuple([boxed(o) for o in many]), tuple([_tangent(t) for t in more])

    def transpose(self, cts: tuple, *args: Any) -> tuple:
        rule = self._rule(primitive_transposes, "Transpose")
        full = tuple(
            [Zero(a.to_tangent_aval()) if ct is None else ct for ct, a in zip(cts, self._typed[0])]
        )
        found = rule(full if self.multiple_results else full[0], *args, **self.given)
        if found is None:
            return (None,) * len(args)
        return tuple(
            [
                _tangent(ct) if isinstance(x, Undefined) else None
                for ct, x in zip(found, args, strict=True)
            ]
        )

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        rule = self._rule(fancy_primitive_batchers, "Batching")
        data = AxisData(axis_name_of(size), int(size))
        outs, where = rule(data, args, axes, **self.given)
        many = tuple([as_array(o) for o in self._many(outs, "a batching rule")])
        if not self.multiple_results:
            return many, (where,)
        return many, (where,) * len(many) if where is None or isinstance(where, int) else tuple(
            where
        )

    # --- programs ---------------------------------------------------------------------------------

    @property
    def transparent(self) -> str:
        return "final" if isinstance(lowerings.get(self.of), LoweredFun) else "never"

    @cached_property
    def jaxpr(self) -> Jaxpr:
        """What the lowering computes."""
        lowered = lowerings[self.of]

        def run(*args: Array) -> list[Array]:
            found = lowered.fun(*args, **self.given)
            many = tuple(found) if lowered.multiple_results else (found,)
            return [as_array(o) for o in many]

        jaxpr = trace_closed(run, self.avals, what=f"the lowering of {self.name}", name=self.name)
        expected = self._typed[0]
        found = jaxpr.out_avals
        if len(found) != len(expected) or not all(a.like(b) for a, b in zip(found, expected)):
            raise TypeMismatch(
                f"the lowering of {self.name!r} gives {[a.str_short() for a in found]}; its abstract "
                f"evaluation says {[a.str_short() for a in expected]}"
            )
        return jaxpr

    def lower(self, *operands: Operand) -> Recipe:
        return Call(self.jaxpr) if self.transparent == "final" else Host()


def apply_primitive(prim: Primitive, *args: Any, **params: Any) -> Any:
    """Results of a primitive on arrays by its lowering: an `impl` for those that have nothing else."""
    lowered = lowerings.get(prim)
    if not isinstance(lowered, LoweredFun):
        raise MissingRule(
            f"MLIR translation rule for primitive {prim.name!r} not found: expected "
            "mlir.register_lowering(p, mlir.lower_fun(fn)), or def_impl"
        )
    return lowered.fun(*args, **params)


__all__ = [
    "Foreign",
    "LoweredFun",
    "Primitive",
    "Zero",
    "apply_primitive",
    "has_tangent",
    "lowerings",
    "primitive_jvps",
    "primitive_transposes",
]
