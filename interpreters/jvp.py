"""Forward mode: every value carries its tangent; a value without one has the tangent zero."""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import dtypes
from fnx.core.array import Array, as_array
from fnx.core.aval import ShapedArray
from fnx.core.interpreter import (
    Interpreter,
    Tracer,
    current,
    is_recorded,
    public_runner,
    set_current,
)
from fnx.core.jaxpr import Jaxpr, eval_jaxpr, made_once
from fnx.core.primitive import Primitive
from fnx.core.source import origin, set_origin, user_source
from fnx.interpreters.trace import trace_closed
from fnx.ops.elementwise.convert import ConvertElementType


class SymbolicZero:
    """A tangent or cotangent that is zero, without an array: rules with `symbolic_zeros` get them.

    `aval`, `shape`, `dtype`, `ndim` are those of the zeros that it stands for.

    >>> fnx.custom_derivatives.SymbolicZero.from_primal_value(jnp.ones(3)).shape
    (3,)
    """

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    @staticmethod
    def from_primal_value(x: Any) -> "SymbolicZero":
        """The zero tangent of a value."""
        return SymbolicZero(tangent_type(as_array(x).aval))

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: len(self.aval.shape))
    size = property(lambda self: self.aval.size)

    def __repr__(self) -> str:
        return f"SymbolicZero({self.aval.str_short()})"


class JVPTracer(Tracer):
    """A primal with its tangent."""

    __slots__ = ("primal", "tangent")

    def __init__(self, owner: "JVP", primal: Array, tangent: Array):
        self.owner = owner
        self.primal = primal
        self.tangent = tangent

    @property
    def aval(self) -> ShapedArray:  # type: ignore[override]
        return self.primal.aval

    @property
    def shape(self) -> tuple[int, ...]:
        return self.primal.shape

    @property
    def dtype(self):
        return self.primal.dtype

    @property
    def weak_type(self) -> bool:
        return self.primal.weak_type  # type: ignore[attr-defined]


class JVP(Interpreter):
    """Applies `jvp` rules to values that carry tangents."""

    what = "jvp"

    def __init__(self, parent: Interpreter, what: str = "jvp"):
        self.parent: Interpreter = parent
        self.what = what
        self.source = user_source()
        self.records = is_recorded(parent)  # whose derivative an operation belongs to

    def process(self, prim: Primitive, args: tuple) -> tuple:
        primals, tangents, touched, strong = [], [], False, False
        for a in args:
            if type(a) is JVPTracer and a.owner is self:
                p, t = a.primal, a.tangent
                primals.append(p)
                tangents.append(t)
                strong |= p.weak_type and not t.weak_type  # type: ignore[attr-defined]
                touched = True
            else:
                primals.append(a)
                tangents.append(None)
        if not touched:
            return self.parent.process(prim, args)
        source = user_source() if self.records else None
        if source is not None and not source.role:
            source = source.derived(f"the derivative of {prim.name}")
        token = set_current[self.parent]
        try:
            before = source and set_origin[source]
            try:
                if strong:
                    tangents = [_as_weak(t, p) for t, p in zip(tangents, primals, strict=True)]
                rule, given = self.rule, (prim, tuple(primals), tuple(tangents))
                run = None if source is None else public_runner()  # looks at what the rule returns
                outs, touts = rule(*given) if run is None else run(rule, rule, given, {})
            finally:
                if before is not None:
                    origin.reset(before)
        finally:
            current.reset(token)
        if len(outs) == 1:
            t = touts[0]
            return outs if t is None else (JVPTracer(self, outs[0], t),)
        return tuple(
            [o if t is None else JVPTracer(self, o, t) for o, t in zip(outs, touts, strict=True)]
        )

    def rule(self, prim: Primitive, primals: tuple, tangents: tuple) -> tuple:
        return prim.jvp(primals, tangents)

    def concrete(self, tracer: Tracer) -> Array | None:
        return tracer.primal  # type: ignore[attr-defined]  # its own owner says whether it is known

    def split(self, value: Array) -> tuple[Array, Array | None]:
        """Primal and tangent of any value."""
        if type(value) is JVPTracer and value.owner is self:
            return value.primal, value.tangent
        return value, None

    def join(self, primal: Array, tangent: Array | None) -> Array:
        return primal if tangent is None else JVPTracer(self, primal, tangent)


def _as_weak(tangent: Array | None, primal: Array) -> Array | None:
    """A tangent that is weak where its primal is, as JAX's functions take them."""
    if tangent is None or tangent.weak_type or not primal.weak_type:  # type: ignore[attr-defined]
        return tangent
    return ConvertElementType(tangent.dtype, True)(tangent)


def jvp(
    fn: Callable[..., Sequence[Array]],
    primals: Sequence[Array],
    tangents: Sequence[Array | None],
    interpreter: type[JVP] = JVP,
    what: str = "jvp",
) -> tuple[list[Array], list[Array | None]]:
    """Results of a function of arrays, and their tangents."""
    me = interpreter(current.get(), what)
    token = set_current[me]
    try:
        outs = fn(*[me.join(p, t) for p, t in zip(primals, tangents, strict=True)])
    finally:
        current.reset(token)
        me.ended = True
    pairs = [me.split(o) for o in outs]
    return [p for p, _ in pairs], [t for _, t in pairs]


def has_tangent(aval: ShapedArray) -> bool:
    """Whether values of this type have tangents: floats and complex numbers do."""
    return dtypes.is_inexact(aval.dtype)


def tangent_type(aval: ShapedArray) -> ShapedArray:
    """The type of the tangents of values of a type; float0 for values that have none."""
    return aval.tangent() if has_tangent(aval) else ShapedArray(aval.shape, dtypes.float0)


@made_once
def jvp_jaxpr(jaxpr: Jaxpr, nonzero: tuple[bool, ...]) -> tuple[Jaxpr, tuple[bool, ...]]:
    """(primals, nonzero tangents) -> (results, nonzero tangents); and which results have one."""
    n = len(jaxpr.inputs)
    mask: list[bool] = []

    def run(*args: Array) -> list[Array]:
        rest = iter(args[n:])
        tangents = [next(rest) if nz else None for nz in nonzero]
        outs, touts = jvp(lambda *xs: eval_jaxpr(jaxpr, xs), args[:n], tangents)
        mask.extend(t is not None for t in touts)
        return [*outs, *(t for t in touts if t is not None)]

    avals = [*jaxpr.in_avals]
    avals += [a.tangent() for a, nz in zip(jaxpr.in_avals, nonzero, strict=True) if nz]
    new = trace_closed(run, avals, what="jvp", name=jaxpr.name)
    return new, tuple(mask)
