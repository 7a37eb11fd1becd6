"""Primitives: a frozen dataclass whose fields are its static parameters and whose methods its rules."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import fields, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

from fnx.core.array import Array, as_array
from fnx.core.aval import ShapedArray
from fnx.core.cost import UNKNOWN, Cost
from fnx.core.dtypes import SMALL
from fnx.core.errors import MissingRule
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import Interpreter, current, use
from fnx.core.recipe import Operand, Recipe
from fnx.core.source import origin, set_origin

_NO_ALIASES: Mapping[int, int] = {}
_FIRST_OF_FIRST: Mapping[int, int] = {0: 0}


class Undefined:
    """Stands for a linear input in a `transpose` rule: only its aval is known."""

    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: len(self.aval.shape))


class AddTo:
    """A cotangent that knows how to add itself to an accumulator, without being an array first.

    `fn(accumulator)` returns the sum; a transpose rule of a slice returns it so that gradients of
    slices cost the slice and not the array. `into(numpy_array)` adds in place; there is one where the
    cotangent is concrete.
    """

    __slots__ = ("aval", "fn", "into", "source")

    def __init__(
        self,
        aval: ShapedArray,
        fn: Callable[[Array], Array],
        into: Callable[[np.ndarray], None] | None = None,
    ):
        self.aval = aval
        self.fn = fn
        self.into = into
        self.source = origin.get()  # what its equations come from, whenever they are made

    def added(self, total: Array) -> Array:
        """The sum of an accumulator and this."""
        if self.source is None:
            return self.fn(total)
        token = set_origin[self.source]
        try:
            return self.fn(total)
        finally:
            origin.reset(token)


def _closed(value: Any) -> Any:
    """A parameter as programs for JAX read it: its jaxprs are closed."""
    if type(value) is tuple:
        inner = any(hasattr(x, "as_closed") for x in value)
        return tuple([_closed(x) for x in value]) if inner else value
    return getattr(value, "as_closed", value)


_backend: ContextVar[Any] = ContextVar("backend", default=None)  # of what an interpreter was handed


class Family:
    """A primitive in JAX's sense, which gets its parameters when it is bound: a class of primitives here.

    There is one for each class, so that equations of jaxprs can be compared with `lax.dot_general_p`.

    >>> (eqn,) = fnx.make_jaxpr(lambda x: x @ x)(jnp.ones(3)).eqns
    >>> eqn.primitive is lax.dot_general_p
    True
    """

    call_primitive = map_primitive = False  # JAX's words for calls that jaxprs here do not have

    def __init__(self, kind: "type[Primitive]", name: str = ""):
        self.kind: Any = kind
        self._given = (name,) if name else ()
        self.name, self.multiple_results = name or kind.name, kind.multiple_results
        self._known = {f.name: f.name for f in fields(kind) if not (name and f.name == "name")}
        self._known |= {theirs: own for own, theirs in (kind.in_jax or {}).items()}

    def bind(self, *args: Any, **params: Any) -> Any:
        """The result, or a list of them with `multiple_results`, of arrays or numbers.

        Parameters of JAX that have no meaning here, `out_sharding` say, are passed over.
        """
        if "subfuns" in params and hasattr(self.kind, "bind_functions"):
            return self.kind.bind_functions(args, **params)
        known, opened = self._known, self.kind.opened
        own = {known[k]: opened(v) for k, v in params.items() if k in known}
        if "backend" in known and "backend" not in own:
            own["backend"] = _backend.get()
        return self(**own).bind(*args)

    def bind_with_trace(self, trace: Any, args: Sequence, avals: Any, params: dict) -> Any:
        """As `bind`, under an interpreter."""
        del avals
        with use(trace):
            return self.bind(*args, **params)

    def get_bind_params(self, params: dict) -> dict:
        """The parameters to bind it with, functions among them, of those of an equation."""
        return getattr(self.kind, "bind_params", lambda own: own)(params)

    def __call__(self, *args: Any, **params: Any) -> "Primitive":
        return self.kind(*self._given, *args, **params)

    def __instancecheck__(self, x: Any) -> bool:
        return x is self or (isinstance(x, self.kind) and x.name == self.name)

    def __repr__(self) -> str:
        return self.name


@cache
def family(kind: "type[Primitive]", name: str = "") -> Family:
    """A class of primitives, or those of it that have a name, as one primitive of JAX's."""
    return Family(kind, name)


@dataclass(frozen=True)
class Primitive:
    """An operation on arrays. Calling it applies it: the current interpreter processes it.

    Rules get and return tuples with one entry per operand or result. `None` is the tangent or
    cotangent that is zero. A rule that is missing raises an error that names it.
    """

    name = "primitive"  # overridden by a class attribute or a field
    multiple_results = False  # whether calling it returns a tuple
    in_jax: ClassVar[Mapping[str, str] | None] = (
        None  # fields that JAX has too, by its names; None: all
    )
    call_primitive = map_primitive = False  # JAX's words for calls that jaxprs here do not have
    transparent = "never"  # when an equation may be replaced with its jaxpr: never, final, always
    says_what_varies = (
        False  # whether the types of results say along which axes of a mesh they vary
    )
    runs_apart = False  # whether its equations had better be programs of their own
    on_devices = (
        ""  # "values": says how arrays lie on several devices; "members": has their programs
    )

    def vary(self, names: frozenset) -> frozenset:
        """The axes of a mesh along which results vary, of those along which operands do."""
        return names

    def apply(self, *args: Array) -> tuple[Array, ...]:
        """All results, under the current interpreter."""
        return current.get().process(self, args)

    def __call__(self, *args: Array) -> Any:
        outs = current.get().process(self, args)
        return outs if self.multiple_results else outs[0]

    # --- for programs that read jaxprs, as they are written for JAX -----------------------------

    @property
    def public(self) -> Any:
        """What an equation says is its primitive: itself, if it has no parameters."""
        kind = type(self)
        if "name" not in [f.name for f in fields(self)]:
            return family(kind)  # type: ignore[arg-type]
        return self if kind.__eq__ is object.__eq__ else family(kind, self.name)  # type: ignore[arg-type]

    def bind(self, *args: Any, **params: Any) -> Any:
        """The result, or a list of them with `multiple_results`, of arrays or numbers.

        `params` may say again, or say otherwise, what its own parameters say.
        """
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "name"}
        other = {k: v for k, v in params.items() if k in own and own[k] is not v}
        outs = (replace(self, **other) if other else self).apply(*map(as_array, args))
        return list(outs) if self.multiple_results else outs[0]

    bind_with_trace = Family.bind_with_trace

    def get_bind_params(self, params: dict) -> dict:
        """The parameters to bind it with, of those of an equation."""
        return params

    @classmethod
    def opened(cls, param: Any) -> Any:
        """A parameter from an equation as primitives have it: without the closedness of its jaxprs."""
        return param

    def handed_to(self, trace: Interpreter, args: tuple) -> Any:
        """What an interpreter that is written for JAX makes of it: one result, or several."""
        params = self.closed_params()
        if self.in_jax is not None:
            params = {theirs: _closed(getattr(self, own)) for own, theirs in self.in_jax.items()}
        token = _backend.set(getattr(self, "backend", None))
        try:
            return trace.process_primitive(self.public, args, params)
        finally:
            _backend.reset(token)

    # --- rules ----------------------------------------------------------------------------------

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        """The avals of the results; raises a typed error for operands that do not fit."""
        raise self._missing("abstract", "tracing")

    def impl(self, *values: np.ndarray) -> Any:
        """The results as NumPy arrays (one, or a tuple): the definition of its meaning."""
        raise self._missing("impl", "eager evaluation")

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        """Results and their tangents; at least one of `tangents` is not None."""
        raise self._missing("jvp", "differentiation (grad, jvp, jacfwd)")

    def transpose(self, cts: tuple, *args: Any) -> Sequence:
        """Cotangents of the operands from those of the results.

        Linear operands are `Undefined`; the others are values and get None. A cotangent may be an
        `AddTo`. At least one of `cts` is not None.
        """
        raise self._missing("transpose", "reverse-mode differentiation (grad, vjp)")

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        """Results, and their batch axes (None: not batched), of operands with batch axes."""
        raise self._missing("batch", "vmap")

    def lower(self, *operands: Operand) -> Recipe | tuple[Recipe, ...]:
        """How the results are computed, for compilers."""
        raise self._missing("lower", "native code")

    linearize = None
    """For primitives that carry jaxprs, (primals, tangents) -> (results, tangents of results), as
    `jvp`, but with the results computed from primals alone: tangents enter linear equations only."""
    typed_by = None
    """The operands whose elements results are made of; the others choose. None: all of them."""
    elementwise = False
    """Whether each element of the result is computed from the operands' elements at its index."""
    exchanges = False
    """Whether its results come from other members, who need memory to write to."""
    any_dtype = False
    """Whether `impl` can do with small dtypes, although it does not only move elements."""
    effects = False
    """Whether it must run although nobody uses its results."""
    acts = False
    """Whether its effects are more than looking, so that only batch elements that come to it may run it."""
    cost = UNKNOWN
    """What an element of its result costs, for decisions on fusion and recomputation."""
    moves = False
    """Whether elements of the result are elements of operands, at other places, or constants."""
    update_operand: ClassVar[int | None] = None
    """The operand that is combined into a part of the first, which the result else is; None: no update."""
    update_kind = ""
    """How an update combines: "set", "add", "mul", "min" or "max"."""

    def cost_of(self, *operands: Any) -> Cost:
        """What an element costs of these operands, variables or literals."""
        return self.cost

    def input_output_aliases(self) -> Mapping[int, int]:
        """Results that may take over the memory of an operand, if it is dead by then, with that operand."""
        return _NO_ALIASES if self.update_operand is None else _FIRST_OF_FIRST

    def _missing(self, rule: str, feature: str) -> Exception:
        return MissingRule(
            f"primitive {self.name!r} has no {rule!r} rule, which {feature} needs. Expected: a method "
            f"{rule!r} of class {type(self).__name__}."
        )

    def is_computed_wider(self) -> bool:
        """Whether operands of small dtypes come to `impl` as the wider ones that they are computed in."""
        given = [v if type(v) is tuple else (v,) for v in self.params().values()]
        if any([hasattr(x, "eqns") for xs in given for x in xs]):
            return False  # equations of jaxprs are looked at one by one
        return not (self.any_dtype or self.moves or self.effects)

    def widened(self) -> "Primitive":
        """The same operation in the wider dtypes, where it has small ones as parameters."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        small = {k: SMALL[v] for k, v in own.items() if isinstance(v, np.dtype) and v in SMALL}
        return replace(self, **small) if small else self

    def params(self) -> dict[str, Any]:
        """The static parameters, for printing."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.repr}

    def closed_params(self) -> dict[str, Any]:
        """The parameters of an equation as programs for JAX read them."""
        return {k: _closed(v) for k, v in self.public_params().items()}

    def public_params(self) -> dict[str, Any]:
        """The parameters of an equation: all that `public` is bound with, and what readers look for."""
        if type(self.public) is not Family:
            return {k: v for k, v in self.params().items() if k != "name"}
        given = self.params()
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        return {k: v for k, v in (own | given).items() if k in self.public._known or k in given}
