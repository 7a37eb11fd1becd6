"""Derivative rules that users give: custom_jvp and custom_vjp.

A call with a rule is a primitive that holds Python functions; where it is staged, its function
becomes a jaxpr, and the rules stay functions, which are traced when a transformation asks.
"""

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray, as_array, as_written
from fnx.core.aval import ShapedArray
from fnx.core.config import checked_axes
from fnx.core.errors import ClosedOverValue, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import Interpreter, Tracer, current, evaluate, use
from fnx.core.jaxpr import Jaxpr, eval_jaxpr
from fnx.core.primitive import Primitive
from fnx.core.recipe import Call, Operand, Recipe
from fnx.interpreters.batching import Batch, BatchTracer, axis_names, batch_jaxpr, place_axis
from fnx.interpreters.closure_conversion import HigherOrder, with_inputs
from fnx.interpreters.jvp import SymbolicZero, has_tangent, jvp
from fnx.interpreters.linearize import Linearize, transpose_jaxpr
from fnx.interpreters.operands import check_operands, given, only, spread, undefined
from fnx.interpreters.passes.compiled import run
from fnx.interpreters.spmd import Spmd
from fnx.interpreters.trace import Stage, trace
from fnx.interpreters.variation import moving, rules_of_members
from fnx.interpreters.wrapped_fun import WrappedFun
from fnx.ops.base.broadcast import typed_zeros
from fnx.ops.elementwise.arithmetic import stop_gradient
from fnx.ops.structure.basic import zeros

from .batched_rules import Flat, Zeros, batched_rule, for_once, pulled_once, summed
from .pullback import Pullback, no_forward_mode


def filled(values: Sequence[Array | None], like: Sequence[Array]) -> list[Array | None]:
    """Zeros for the tangents that are None; None for values that have no tangents."""
    return [
        (typed_zeros(x.aval.tangent()) if t is None else t) if has_tangent(x.aval) else None
        for t, x in zip(values, like)
    ]


def check_results(outs: Sequence[Array], expected: Sequence[ShapedArray], what: str) -> None:
    """Raise unless a rule gives results of the types that the function itself gave."""
    found = [o.aval for o in outs]
    if len(found) != len(expected) or not all(a.like(e) for a, e in zip(found, expected)):
        raise TypeMismatch(
            f"{what} gave results of types {[a.str_short() for a in found]}; the function itself gives "
            f"{[a.str_short() for a in expected]}, and both must agree"
        )


def no_tangent(x: Any) -> np.ndarray:
    """What rules get as the tangent of a value that has none."""
    return np.zeros(np.shape(x), dtypes.float0)


def _tangent(t: Any) -> Array | None:
    """A tangent from a program that is written for JAX; None where it is zero."""
    if t is None or isinstance(t, SymbolicZero) or getattr(t, "dtype", None) == dtypes.float0:
        return None
    return as_array(t)


_PERTURBED = as_written(ConcreteArray(np.array(True)))


def handler(args: Sequence[Any]) -> Interpreter:
    """The interpreter that will process these arguments: the innermost that owns one, or stages all."""
    it = current.get()
    owners = {id(a.owner) for a in args if isinstance(a, Tracer)}
    while it.parent is not None and id(it) not in owners:
        it = it.parent
    return it


def _with_names(it: Interpreter) -> Interpreter:
    """`it`, with the named axes that are bound right above it: functions with rules speak of them."""
    found, now = it, current.get()
    above: list[Interpreter] = []
    while now is not it and now is not None:
        above.append(now)
        now = now.parent
    for now in reversed(above):
        if not isinstance(now, Spmd):
            break
        found = now
    return found


def _batch_below(it: Interpreter) -> Batch | None:
    """The innermost interpreter with a batch, between the current one and `it`."""
    now: Interpreter | None = current.get()
    while now is not it and now is not None:
        if isinstance(now, Batch):
            return now
        now = now.parent
    return None


def call_with_rule(prim: "CustomRule", args: Sequence[Array]) -> Sequence[Array]:
    """Results of a function with a rule of its own, under the current interpreter.

    Where nothing asks for the rule the function runs as it is, so that Python may look at values.
    """
    it = handler(args)
    if it is evaluate or (isinstance(it, Stage) and it.parent is not None):
        return prim.fun(*args)
    home = _batch_below(it)
    if home is not None:
        # None of the arguments has this batch axis, but the function or its rule may know of them, by the
        # name of their axis or because they close over a value that has them.
        mask: list[bool] = []
        with use(home.parent):
            outs = call_with_rule(prim.once(home, mask), args)
        return [BatchTracer(home, o, 0) if m else o for o, m in zip(outs, mask, strict=True)]
    with use(_with_names(it)):
        if isinstance(it, Stage):
            jaxpr, consts = trace(prim.fun, [a.aval for a in args], what=prim.what, name=prim.of)
            staged = replace(prim, jaxpr=jaxpr, consts=len(consts))
            staged = staged.of_members([a.aval for a in args], jaxpr.out_avals)
            return staged.apply(*consts, *args)
        return it.process(replace(prim, home=it) if isinstance(it, Batch) else prim, tuple(args))


@dataclass(frozen=True, eq=False)
class CustomRule(HigherOrder):
    """A function with rules of its own. Staged, `jaxpr` is the function, of `consts` and operands."""

    fun: Flat = field(repr=False)
    of: str = field(repr=False)
    jaxpr: Jaxpr | None = None
    consts: int = field(default=0, repr=False)
    home: Batch | None = field(
        default=None, repr=False
    )  # whose batch elements it may have closed over
    __eq__, __hash__ = object.__eq__, object.__hash__  # Primitive's would compare no fields
    what = "a function with a rule"
    rules: ClassVar[tuple[str, ...]] = ()  # the fields with functions that are rules
    transparent = "final"
    jaxpr_fields = ("jaxpr",)

    def converted(self, values: tuple, more: Sequence, operands: tuple) -> tuple[Primitive, tuple]:
        assert self.jaxpr is not None
        jaxpr = with_inputs(self.jaxpr, values, 0)
        return replace(self, jaxpr=jaxpr, consts=self.consts + len(values)), (*more, *operands)

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        if self.jaxpr is None:
            return trace(self.fun, avals, what=self.what, name=self.of)[0].out_avals
        check_operands(self.name, avals, self.jaxpr.in_avals)
        return self.jaxpr.out_avals

    def impl(self, *values: np.ndarray) -> tuple:
        args = [ConcreteArray(v) for v in values]
        if self.jaxpr is not None:
            return run(self.jaxpr, None, args)
        with use(evaluate):
            return tuple(self.fun(*args))

    def lower(self, *operands: Operand) -> Recipe:
        return Call(self.jaxpr)

    def public_params(self) -> dict[str, Any]:
        return super().public_params() | {"call_jaxpr": self.jaxpr, "num_consts": self.consts}

    def function(self) -> WrappedFun:
        """The function, of all operands, for programs that are written for JAX."""
        jaxpr = self.jaxpr
        call = self.fun if jaxpr is None else lambda *args: eval_jaxpr(jaxpr, args)
        return WrappedFun(lambda *args: list(call(*map(as_array, args))))

    @classmethod
    def bind_params(cls, params: dict) -> dict:
        """The parameters of an equation, and the function and its rules as functions of operands."""
        call = lambda *args: eval_jaxpr(params["jaxpr"].jaxpr, args)
        rules = [WrappedFun(params[name]) for name in cls.rules]
        return params | {"subfuns": (WrappedFun(call), *rules)}

    def of_members(self, ins: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> "CustomRule":
        """With rules for all members of a mesh, if types of operands and results say how they vary."""
        return self

    def check_consts(self, tangents: Sequence) -> None:
        """Raise if tangents come in by a value that the function closed over."""
        if any(t is not None for t in tangents[: self.consts]):
            raise ClosedOverValue(
                f"{self.what} {self.of} closed over a value that is being differentiated; its rule knows "
                "nothing of it. Pass the value as an argument."
            )

    def transpose(self, cts: tuple, *args: Any) -> tuple:
        """Of a call on tangents, in the derivative of something else: the function must be linear."""
        if self.jaxpr is None:
            raise self._missing("transpose", "reverse-mode differentiation (grad, vjp)")
        linear, nonzero = undefined(args), given(cts)
        jaxpr, mask = transpose_jaxpr(self.jaxpr, linear, nonzero)
        values = [a for a, lin in zip(args, linear) if not lin]
        outs = eval_jaxpr(jaxpr, [*values, *only(nonzero, cts)])
        return spread(linear, spread(mask, outs))

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        made = self.batched(size, axes[self.consts :])
        if self.jaxpr is None:
            outs = call_with_rule(made, args)
        else:
            jaxpr, _ = batch_jaxpr(self.jaxpr, size, given(axes), True)
            place = [x if k is None else place_axis(size, x, k, 0) for x, k in zip(args, axes)]
            # The rules of `made` want the axes where they were; staged operands have them in front.
            front = tuple([None if k is None else 0 for k in axes[self.consts :]])
            made = replace(self.batched(size, front), jaxpr=jaxpr)
            outs = made.apply(*place)
        return tuple(outs), (0,) * len(outs)

    def batched(self, size: int, axes: tuple) -> "CustomRule":
        """The function and its rules for all batch elements; results have them along axis 0."""
        raise NotImplementedError

    def once(self, home: Batch, mask: list[bool]) -> "CustomRule":
        """The function and its rules, of arguments that are the same for all batch elements.

        `mask`, empty at first, says which results have a batch axis, axis 0.
        """
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class CustomJVP(CustomRule):
    """`rule(*primals, *tangents)` gives results and their tangents, one after the other.

    With `symbolic` zero tangents are None in the rule, too.
    """

    rule: Flat = field(default=None, repr=False)  # type: ignore[assignment]
    symbolic: bool = field(default=False, repr=False)
    name = "custom_jvp_call"
    rules = ("rule",)
    what = "the custom_jvp function"

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        self.check_consts(tangents)
        primals, tangents = primals[self.consts :], tangents[self.consts :]
        outs = self.rule(*primals, *(tangents if self.symbolic else filled(tangents, primals)))
        n = len(outs) // 2
        if self.jaxpr is not None:
            check_results(outs[:n], self.jaxpr.out_avals, f"the rule of {self.of}")
        return tuple(outs[:n]), tuple(outs[n:])

    def handed_to(self, trace: Interpreter, args: tuple) -> Any:
        rule = WrappedFun(self.rule_in_jax)
        return trace.process_custom_jvp_call(
            self.public, self.function(), rule, args, symbolic_zeros=self.symbolic
        )

    def rule_in_jax(self, *values: Any) -> list:
        """The rule, of all operands and their tangents, for programs that are written for JAX."""
        n = len(values) // 2
        tangents = tuple(map(_tangent, values[n:]))
        if not self.symbolic:  # zeros that are arrays say nothing of what is differentiated
            tangents = (*(None for _ in range(self.consts)), *tangents[self.consts :])
        outs, touts = self.jvp(tuple(map(as_array, values[:n])), tangents)
        zero = SymbolicZero.from_primal_value
        return [*outs, *[zero(o) if t is None else t for o, t in zip(outs, touts)]]

    @classmethod
    def bind_params(cls, params: dict) -> dict:
        own = {k: params[k] for k in ("rule", "symbolic", "consts")}
        prim = cls(None, params["of"], params["jaxpr"].jaxpr, **own)
        subfuns = prim.function(), WrappedFun(prim.rule_in_jax)
        return params | {"subfuns": subfuns, "symbolic_zeros": prim.symbolic}

    @classmethod
    def bind_functions(
        cls, args: Sequence, subfuns: Sequence, symbolic_zeros: bool = False, **_: Any
    ) -> list[Array]:
        """Results of a function with a rule, both as programs that are written for JAX have them."""
        fun, jvp = subfuns

        def rule(*values: Array | None) -> list[Array | None]:
            n = len(values) // 2
            zero = SymbolicZero.from_primal_value if symbolic_zeros else no_tangent
            tangents = [zero(x) if t is None else t for x, t in zip(values, values[n:])]
            found = jvp.call_wrapped(*values[:n], *tangents)
            m = len(found) // 2
            return [*map(as_array, found[:m]), *map(_tangent, found[m:])]

        call = lambda *xs: [as_array(o) for o in fun.call_wrapped(*xs)]
        name = getattr(fun, "__name__", "f")
        prim = cls(call, name, rule=rule, symbolic=symbolic_zeros)
        return list(call_with_rule(prim, [as_array(x) for x in args]))

    def linearize(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:  # type: ignore
        """As `jvp`. Results may not depend on tangents, as they seem to where one loop makes both,
        and tangents may not pass by a `stop_gradient`, as batch elements of branches have it.

        Then the rule, which is linear in the tangents, is linearized itself, where they are zero.
        """
        stage = current.get()
        start = len(stage.eqns) if isinstance(stage, Stage) else 0
        outs, touts = self.jvp(primals, tangents)
        recorded = stage.eqns[start:] if isinstance(stage, Stage) else []
        mixed = any(isinstance(o, Tracer) and o.owner is stage for o in outs)
        if not mixed and all(e.prim is not stop_gradient for e in recorded):
            return outs, touts
        del stage.eqns[start:]  # type: ignore[attr-defined]
        moving, made = given(tangents), given(touts)

        def rule(*ts: Array) -> list[Array]:
            outs, touts = self.jvp(primals, tuple(spread(moving, ts)))
            return [*outs, *only(made, touts)]

        ts = only(moving, tangents)
        found, slopes = jvp(rule, [zeros(t.aval) for t in ts], ts, Linearize)
        return tuple(found[: len(outs)]), tuple(spread(made, slopes[len(outs) :]))

    def batched(self, size: int, axes: tuple) -> "CustomJVP":
        rule = batched_rule(self.rule, size, (*axes, *axes), self.home)
        return replace(
            self, fun=batched_rule(self.fun, size, axes, self.home), rule=rule, home=None
        )

    def once(self, home: Batch, mask: list[bool]) -> "CustomJVP":
        rule = for_once(self.rule, home, mask, lambda outs: len(outs) // 2, 2)
        return replace(self, fun=for_once(self.fun, home, mask), rule=rule)


@dataclass(frozen=True, eq=False)
class CustomVJP(CustomRule):
    """`fwd(*args)` gives `results` results, then residuals; `bwd(*residuals, *cotangents)` cotangents.

    With `symbolic` fwd gets further arguments, None for each operand that is not differentiated, and
    zero cotangents are None in bwd.
    """

    fwd: Flat = field(default=None, repr=False)  # type: ignore[assignment]
    bwd: Flat = field(default=None, repr=False)  # type: ignore[assignment]
    results: Callable[[], int] = field(default=None, repr=False)  # type: ignore[assignment]
    symbolic: bool = field(default=False, repr=False)
    members: frozenset | None = field(default=None, repr=False)  # axes of whose copies `bwd` is
    name = "custom_vjp_call"
    rules = ("fwd", "bwd")
    what = "the custom_vjp function"

    def handed_to(self, trace: Interpreter, args: tuple) -> Any:
        fwd, bwd = WrappedFun(self.fwd_in_jax), WrappedFun(self.bwd_in_jax)
        return trace.process_custom_vjp_call(
            self.public,
            self.function(),
            fwd,
            bwd,
            args,
            out_trees=None,
            symbolic_zeros=self.symbolic,
        )

    def fwd_in_jax(self, *values: Any) -> list[Array]:
        """Residuals and results, of each operand and whether it is differentiated."""
        primals = [as_array(x) for x in values[::2]][self.consts :]
        flags = [_PERTURBED if m else None for m in values[1::2]][self.consts :]
        found = self.fwd(*primals, *(flags if self.symbolic else ()))
        n = self.results()
        return [*found[n:], *found[:n]]

    def bwd_in_jax(self, *values: Any) -> list[Array | None]:
        """Cotangents of all operands, of residuals and the cotangents of results."""
        return [*(None for _ in range(self.consts)), *self.bwd(*map(_tangent, values))]

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        raise no_forward_mode(self.of)

    @property
    def axis_names(self) -> frozenset:
        """The named axes that the function, or its rule for cotangents, speaks of."""
        inside = () if self.jaxpr is None else [axis_names(e.prim) for e in self.jaxpr.eqns]
        return (self.members or frozenset()).union(*inside)

    def of_members(self, ins: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> "CustomVJP":
        names = checked_axes.get()
        if not names or self.members is not None:
            return self
        if self.jaxpr is not None:
            names &= moving(self.jaxpr.eqns).union(*[a.vma for a in (*ins, *outs)])
        what = f"a cotangent that bwd of {self.of} gives"
        rules = self.fwd, self.bwd, self.results, tuple(outs), tuple(ins)
        fwd, bwd = rules_of_members(*rules, names, what)
        return replace(self, fwd=fwd, bwd=bwd, members=names)

    def linearize(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:  # type: ignore
        self.check_consts(tangents)
        primals, tangents = primals[self.consts :], tangents[self.consts :]
        mask = given(tangents)
        flags = [_PERTURBED if m else None for m in mask] if self.symbolic else []
        found = self.fwd(*primals, *flags)
        n = self.results()
        outs, residuals = tuple(found[:n]), tuple(found[n:])
        if self.jaxpr is not None:
            check_results(outs, self.jaxpr.out_avals, f"fwd of {self.of}")
        avals = tuple([o.aval.tangent() for o in outs])
        bwd = self.of_members([x.aval for x in primals], avals).bwd
        pull = Pullback(bwd, self.of, len(residuals), mask, avals, self.symbolic)
        touts = pull.apply(*residuals, *only(mask, tangents))
        return outs, tuple([t if has_tangent(o.aval) else None for t, o in zip(touts, outs)])

    def batched(self, size: int, axes: tuple) -> "CustomVJP":
        fwd = batched_rule(self.fwd, size, (*axes, *(None for _ in axes)), self.home)
        return replace(
            self,
            fun=batched_rule(self.fun, size, axes, self.home),
            fwd=fwd,
            bwd=summed(batched_rule(self.bwd, size, Zeros(), self.home), axes),
            home=None,
        )

    def once(self, home: Batch, mask: list[bool]) -> "CustomVJP":
        kept: list[bool] = []  # which residuals have a batch axis
        return replace(
            self,
            fun=for_once(self.fun, home, mask),
            fwd=for_once(self.fwd, home, mask, lambda _: self.results(), rest=kept),
            bwd=pulled_once(self.bwd, home, mask, kept),
        )
