"""The jit primitive: a jaxpr that is one operation, compiled when it is evaluated."""

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, Protocol
from weakref import ref

import numpy as np

from fnx.core import config
from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import evaluate, use
from fnx.core.jaxpr import Eqn, Jaxpr, Var, eval_jaxpr, made_once, subjaxprs
from fnx.core.primitive import Primitive
from fnx.core.recipe import Call, Operand, Recipe
from fnx.interpreters.batching import batch_jaxpr, place_axis
from fnx.interpreters.jvp import jvp_jaxpr
from fnx.interpreters.linearize import transpose_jaxpr
from fnx.interpreters.operands import check_operands, given, only, spread, typed, undefined
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.reverse.residuals import Split, split

Compiled = Callable[[Sequence[Array]], Sequence[Array]]


class Backend(Protocol):
    """Makes functions on concrete arrays of jaxprs."""

    def compile(
        self,
        jaxpr: Jaxpr,
        donated: tuple[int, ...] = (),
        simplified: Callable[[], Jaxpr] | None = None,
    ) -> Compiled:
        """`simplified` makes the jaxpr that is compiled, where the given one is not known already."""
        ...


def compiled(jaxpr: Jaxpr, backend: Backend, donated: tuple[int, ...] = ()) -> Compiled:
    """The native function of a jaxpr; it is made once. It may overwrite inputs that are donated."""
    key = ("compiled", backend, config.backend.value, donated)

    def make() -> Compiled:
        owner = ref(jaxpr)  # which keeps what is made here, not the other way round
        return backend.compile(jaxpr, donated, lambda: simplify(owner(), final=True))

    return jaxpr.once(key, make)


def run(jaxpr: Jaxpr, backend: Backend | None, args: Sequence[Array]) -> tuple[Array, ...]:
    """Results for concrete arguments: compiled, or equation by equation."""
    if backend is not None and not config.disable_jit.value:
        return tuple(compiled(jaxpr, backend)(args))
    with use(evaluate):
        return typed(eval_jaxpr(jaxpr, args), jaxpr.out_avals)


@made_once
def count_work(jaxpr: Jaxpr) -> int:
    """How many equations a run evaluates, where that is known; loops inside count in full."""
    inner = [
        getattr(e.prim, "length", 1) * sum(map(count_work, subjaxprs(e.prim))) for e in jaxpr.eqns
    ]
    return len(jaxpr.eqns) + sum(inner)


def run_primitive(prim: Primitive, owner: Jaxpr, backend: Backend, values: tuple) -> tuple:
    """Results of a primitive that carries jaxprs, compiled as a program of one equation.

    The program is remembered by `owner`, one of the jaxprs.
    """
    arrays = [ConcreteArray(v) for v in values]
    key = ("program", prim)

    def make() -> Jaxpr:
        inputs = [Var(a.aval) for a in arrays]
        outs = [Var(a) for a in prim.abstract(*[v.aval for v in inputs])]
        return Jaxpr(inputs, [Eqn(prim, inputs, outs)], outs, name=prim.name)

    return tuple(compiled(owner.once(key, make), backend)(arrays))


@made_once
def has_effects(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr must run although nobody uses its results."""
    return any(e.prim.effects for e in jaxpr.eqns)


@dataclass(frozen=True)
class Jit(Primitive):
    """Call of a jaxpr. `donated` lists the operands whose memory results may take."""

    jaxpr: Jaxpr
    of: str = "f"
    backend: Backend | None = field(default=None, compare=False, repr=False)
    inline: bool = field(default=False, repr=False)
    donated: tuple[int, ...] = field(default=(), repr=False)
    name = "jit"
    multiple_results = True
    jaxpr_fields = ("jaxpr",)
    transparent = "always"  # when an equation may be replaced with its jaxpr: never, final, always

    @property
    def effects(self) -> bool:  # type: ignore[override]
        return has_effects(self.jaxpr)

    def with_jaxpr(self, jaxpr: Jaxpr) -> "Jit":
        """The same call of another jaxpr, whose operands are not donated."""
        return replace(self, jaxpr=jaxpr, donated=())

    def params(self) -> dict[str, Any]:
        return {"fun": self.of, "jaxpr": self.jaxpr}

    def public_params(self) -> dict[str, Any]:
        return super().public_params() | {"name": self.of}

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        check_operands(f"jit of {self.of}", avals, self.jaxpr.in_avals)
        return self.jaxpr.out_avals

    def impl(self, *values: np.ndarray) -> tuple:
        return run(self.jaxpr, self.backend, [ConcreteArray(v) for v in values])

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        jaxpr, mask = jvp_jaxpr(self.jaxpr, given(tangents))
        outs = self.with_jaxpr(jaxpr)(*primals, *only(given(tangents), tangents))
        n = len(mask)
        return outs[:n], spread(mask, outs[n:])

    def linearize(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        parts = split_call(self.jaxpr, given(tangents))
        n = len(self.jaxpr.outs)
        outs = self.with_jaxpr(parts.forward)(*primals)
        kept = [primals[k] for k in parts.inputs]
        linear = self.with_jaxpr(parts.linear)
        touts = linear(*kept, *outs[n:], *only(given(tangents), tangents))
        return outs[:n], spread(parts.mask, touts)

    def transpose(self, cts: tuple, *args: Any) -> tuple:
        linear, nonzero = undefined(args), given(cts)
        jaxpr, mask = transpose_jaxpr(self.jaxpr, linear, nonzero)
        values = [a for a, lin in zip(args, linear) if not lin]
        outs = self.with_jaxpr(jaxpr)(*values, *only(nonzero, cts))
        return spread(linear, spread(mask, outs))

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        jaxpr, mask = batch_jaxpr(self.jaxpr, size, given(axes))
        args = [x if k is None else place_axis(size, x, k, 0) for x, k in zip(args, axes)]
        return self.with_jaxpr(jaxpr)(*args), spread(mask, [0] * sum(mask))

    def lower(self, *operands: Operand) -> Recipe:
        return Call(self.jaxpr)


@made_once
def split_call(jaxpr: Jaxpr, nonzero: tuple[bool, ...]) -> Split:
    """A jaxpr's derivative, where all inputs may be read again."""
    return split(jaxpr, nonzero, [0] * len(jaxpr.inputs))
