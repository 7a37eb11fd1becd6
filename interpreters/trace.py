"""Tracing: records the primitives that a function binds, as a jaxpr or as a tape.

`Stage()` records everything (jit). `Stage(parent)` records only what touches a recorded value and
runs the rest in `parent`: that is partial evaluation, and all there is of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from math import prod
from typing import Any

from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray, check_size
from fnx.core.config import checked_axes, rank_0_consts
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import Interpreter, Tracer, current, is_recorded, leaked, set_current
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from fnx.core.primitive import Primitive, Undefined
from fnx.core.source import Source, origin, scopes, set_scopes, user_source
from fnx.interpreters.operands import only
from fnx.ops.base.broadcast import Constant


class StageTracer(Tracer):
    """A variable of the jaxpr that is being recorded."""

    __slots__ = ("_var",)
    owner: "Stage"

    def __init__(self, owner: "Stage", var: Var):
        self.owner = owner
        self._var = var

    @property
    def aval(self) -> ShapedArray:  # type: ignore[override]
        return self._var.aval

    def made_at(self) -> Source | None:
        for eqn in self.owner.eqns:
            if self._var in eqn.outs:
                return eqn.source
        return self.owner.source


class Stage(Interpreter):
    """Records equations."""

    def __init__(self, what: str = "jit", parent: Interpreter | None = None):
        self.what = what
        self.parent = parent
        self.outer = current.get()  # where names of axes may be bound
        self.eqns: list[Eqn] = []
        self.consts: dict[int, tuple[Var, Array]] = {}  # by identity of the value
        self.source = user_source()
        self.parent_records = parent is not None and is_recorded(parent)
        self.rank_0_consts = rank_0_consts.get()
        self.checked_axes = checked_axes.get()
        self.refs: dict[Any, Array] = {}  # mutable references from outside, and what they hold now

    def new_input(self, aval: ShapedArray) -> StageTracer:
        return StageTracer(self, Var(aval))

    def process(self, prim: Primitive, args: tuple) -> tuple:
        if self.parent is None:
            source = user_source()
            inputs = tuple(
                [
                    a._var if type(a) is StageTracer and a.owner is self else self.lift(a, prim)
                    for a in args
                ]
            )
        else:
            source, mine, atoms = origin.get(), False, []
            for a in args:
                if type(a) is StageTracer and a.owner is self:
                    atoms.append(a._var)
                    mine = True
                else:
                    atoms.append(Literal(a))
            if not mine:
                return self.parent.process(prim, args)
            if source is None and self.parent_records:
                source = user_source()
            inputs = tuple(atoms)
        avals = prim.abstract(*[a.aval for a in inputs])
        if self.checked_axes:
            avals = self._varying(prim, inputs, avals)
        for aval in avals:
            if prod(aval.shape) >= 1 << 59:  # below it, elements of 16 bytes can be counted
                check_size(aval)
        if self.parent is not None and hasattr(prim, "independent"):
            return self._in_part(Eqn(prim, inputs, [Var(aval) for aval in avals], source))
        if len(avals) == 1:
            var = Var(avals[0])
            self.eqns.append(Eqn(prim, inputs, (var,), source))
            return (StageTracer(self, var),)
        outs = tuple([Var(aval) for aval in avals])
        self.eqns.append(Eqn(prim, inputs, outs, source))
        return tuple([StageTracer(self, v) for v in outs])

    def _varying(self, prim: Primitive, inputs: Sequence[Atom], avals: Sequence) -> Sequence:
        """The types of results, which say along which axes of a mesh these vary."""
        if prim.says_what_varies:
            return avals
        names = prim.vary(frozenset().union(*[a.aval.vma for a in inputs])) & self.checked_axes
        return tuple([a.varying(names) for a in avals])

    def _in_part(self, eqn: Eqn) -> tuple:
        """Record a call, loop or branch; results that do not depend on what is recorded are computed."""
        self.eqns.append(eqn)
        part = known_part(eqn, [type(a) is Var for a in eqn.inputs])
        if part is None:
            return tuple([StageTracer(self, v) for v in eqn.outs])
        args = tuple([a.value for a in part.inputs])  # type: ignore[union-attr]
        outs = self.parent.process(part.prim, args)  # type: ignore[union-attr]
        found = dict(zip(part.outs, outs, strict=True))
        return tuple([found[v] if v in found else StageTracer(self, v) for v in eqn.outs])

    def lift(self, value: Array, prim: Primitive | None = None) -> Atom:
        """What stands for a value from outside: a literal, or an input of its own."""
        if type(value) is Undefined:  # by a rule of what is not linear
            raise TypeMismatch(f"a value of type {value.aval.str_short()} has no numbers")
        if self.parent is not None:
            return Literal(value)
        if type(value) is ConcreteArray and value._value.ndim == 0:
            if not self.rank_0_consts or hasattr(value, "written"):
                return Literal(value)
        if isinstance(value, Tracer) and value.owner.ended:
            raise leaked(value, prim or _RETURN)
        found = self.consts.get(id(value))
        if found is None:
            found = self.consts[id(value)] = (Var(value.aval), value)
        return found[0]

    def atom(self, value: Array) -> Atom:
        """The atom of any value, this stage's own or not."""
        if type(value) is StageTracer and value.owner is self:
            return value._var
        return self.lift(value)

    def close(self, inputs: Sequence[Var], outs: Sequence[Atom], name: str = "") -> Jaxpr:
        """The jaxpr of what was recorded; constants become leading inputs."""
        consts = [var for var, _ in self.consts.values()]
        return Jaxpr([*consts, *inputs], self.eqns, outs, consts=len(consts), name=name)


def known_part(eqn: Eqn, unknown: Sequence[bool]) -> Eqn | None:
    """The same of the results that do not depend on `unknown` operands: a call, loop or branch has such."""
    prim: Any = eqn.prim
    known = () if prim.effects else prim.independent(tuple(unknown))
    if not any(known):
        return None
    part, ins, left = prim.prune(known)
    return Eqn(part, only(ins, eqn.inputs), only(left, eqn.outs), eqn.source)


class CapturedRefs(InvalidValue):
    """A traced function used mutable references that were made outside it."""

    def __init__(self, what: str, refs: tuple):
        super().__init__(
            f"{what} uses {len(refs)} mutable references (new_ref) that were made outside it, which only "
            "jit, checkpoint, loops and branches can do. Make them inside, or return arrays."
        )
        self.refs = refs


class _Return(Primitive):
    """Named by errors where a value is returned, and no primitive uses it."""

    name = "return"


_RETURN = _Return()


def trace(
    fn: Callable[..., Sequence[Array]],
    avals: Sequence[ShapedArray],
    what: str = "jit",
    name: str = "",
) -> tuple[Jaxpr, list[Array]]:
    """The jaxpr of `fn`, a function from arrays to a sequence of arrays, and what it closed over."""
    stage = Stage(what)
    inputs = [stage.new_input(aval) for aval in avals]
    token, named = set_current[stage], set_scopes[()]
    try:
        outs = [stage.atom(x) for x in fn(*inputs)]
        if stage.refs:
            raise CapturedRefs(what, tuple(stage.refs))
    finally:
        scopes.reset(named)
        current.reset(token)
        stage.ended = True
    jaxpr = stage.close([t._var for t in inputs], outs, name)
    return jaxpr, [value for _, value in stage.consts.values()]


@dataclass(frozen=True, eq=False)
class Captured(Primitive):
    """A traced value inside a jaxpr that has no input for it: a user's rule closed over it.

    What carries the jaxpr makes an operand of it when it is bound (`closure_conversion.py`).
    """

    value: Tracer = field(repr=False)
    name = "captured"
    __eq__, __hash__ = object.__eq__, object.__hash__  # Primitive's would compare no fields

    def apply(self, *args: Array) -> tuple[Array, ...]:
        return (self.value,)

    def abstract(self) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        return (self.value.aval,)


def trace_closed(
    fn: Callable[..., Sequence[Array]], avals: Sequence[ShapedArray], **kw: Any
) -> Jaxpr:
    """As `trace`, of a function that closes over nothing but values of users' rules."""
    return closed_over(*trace(fn, avals, **kw))


def closed_over(jaxpr: Jaxpr, consts: Sequence[Array]) -> Jaxpr:
    """A jaxpr without inputs for what it closed over: equations make that."""
    if not consts:
        return jaxpr
    n = len(consts)
    made = [
        Eqn(Captured(c) if isinstance(c, Tracer) else Constant(c), (), (v,))
        for c, v in zip(consts, jaxpr.inputs)
    ]
    return Jaxpr(jaxpr.inputs[n:], [*made, *jaxpr.eqns], jaxpr.outs, name=jaxpr.name)
