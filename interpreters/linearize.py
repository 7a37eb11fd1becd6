"""Reverse mode: linearize, then transpose.

`Linearize` is forward mode over a partial stage: results are computed at once, the linear equations
that tangents go through are recorded on a tape. `backward` walks a tape from its end.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.def_use import definitions
from fnx.core.interpreter import current, public_runner, set_current
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var, eval_jaxpr, made_once
from fnx.core.primitive import AddTo, Primitive, Undefined
from fnx.core.source import Source, origin, set_origin
from fnx.interpreters.jvp import JVP, JVPTracer
from fnx.interpreters.trace import Stage, StageTracer, known_part, trace_closed
from fnx.ops.base.broadcast import typed_zeros
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.structure.basic import add_any, zeros


class Linearize(JVP):
    """Forward mode in which results never depend on tangents; its parent is a partial stage."""

    def rule(self, prim: Primitive, primals: tuple, tangents: tuple) -> tuple:
        if prim.linearize is not None:
            return prim.linearize(primals, tangents)
        return prim.jvp(primals, tangents)


class Tape:
    """Linear equations from `inputs` to `outs` (None: zero); literals on it are residuals."""

    def __init__(self, inputs: list[Var | None], eqns: list[Eqn], outs: list[Atom | None]):
        self.inputs, self.eqns, self.outs = inputs, eqns, outs

    def push(self, tangents: Sequence[Array | None]) -> list[Array | None]:
        """Tangents of the results, under the current interpreter."""
        env: dict[Var, Array] = {}
        for var, t in zip(self.inputs, tangents, strict=True):
            if var is not None:
                env[var] = typed_zeros(var.aval) if t is None else t
        for eqn in self.eqns:
            values = [env[a] if type(a) is Var else a.value for a in eqn.inputs]
            env.update(zip(eqn.outs, _applied(eqn, values), strict=True))
        return [None if o is None else _read(env, o) for o in self.outs]

    def pull(
        self, cts: Sequence[Array | None], primals: Sequence[Array] | None = None
    ) -> list[Array | None]:
        """Cotangents of the inputs, under the current interpreter.

        Who looks at results takes this for one operation, if `primals` say at what.
        """
        run = None if primals is None else public_runner()
        return (
            self._pulled(cts) if run is None else run(Tape.pull, self._pulled, (cts, primals), {})
        )

    def _pulled(
        self, cts: Sequence[Array | None], primals: Sequence[Array] = ()
    ) -> list[Array | None]:
        env: dict[Var, Any] = {}
        for out, ct in zip(self.outs, cts, strict=True):
            if type(out) is Var and ct is not None:
                accumulate(env, out, ct)
        backward(self.eqns, env)
        return [None if v is None else take(env, v) for v in self.inputs]

    def close(self) -> tuple[Jaxpr, list[Array], tuple[bool, ...]]:
        """(residuals, tangents) -> nonzero tangents; the residuals; which results have tangents."""
        residuals: dict[int, tuple[Var, Array]] = {}

        def hoist(atom: Atom) -> Atom:
            if type(atom) is Var:
                return atom
            value = atom.value
            if type(value) is ConcreteArray and value.ndim == 0:
                return atom
            # Tracers of one variable are one value, whatever object stands for it.
            key = id(value._var) if type(value) is StageTracer else id(value)
            if key not in residuals:
                residuals[key] = (Var(value.aval), value)
            return residuals[key][0]

        eqns = [
            Eqn(e.prim, [hoist(a) for a in e.inputs], e.outs, e.source) for e in self._live_eqns()
        ]
        mask = tuple(o is not None for o in self.outs)
        outs = [hoist(o) for o in self.outs if o is not None]
        inputs = [v for v in self.inputs if v is not None]
        pairs = list(residuals.values())
        return Jaxpr([*(v for v, _ in pairs), *inputs], eqns, outs), [x for _, x in pairs], mask

    def _live_eqns(self) -> list[Eqn]:
        live = {o for o in self.outs if type(o) is Var}
        kept = []
        for eqn in reversed(self.eqns):
            if any(v in live for v in eqn.outs):
                kept.append(eqn)
                live.update(a for a in eqn.inputs if type(a) is Var)
        return kept[::-1]


def _read(env: dict[Var, Array], atom: Atom) -> Array:
    return env[atom] if type(atom) is Var else atom.value  # type: ignore[union-attr, index]


def linearize(
    fn: Callable[..., Sequence[Array]],
    primals: Sequence[Array],
    nonzero: Sequence[bool],
    what: str = "grad",
) -> tuple[list[Array], Tape]:
    """Results of a function of arrays, and the tape of its derivative at `primals`."""
    stage = Stage(what, parent=current.get())
    me = Linearize(stage, what)
    inputs, args = [], []
    for p, nz in zip(primals, nonzero, strict=True):
        tracer = stage.new_input(p.aval.tangent()) if nz else None
        inputs.append(None if tracer is None else tracer._var)
        args.append(p if tracer is None else JVPTracer(me, p, tracer))
    token = set_current[me]
    try:
        outs = fn(*args)
    finally:
        current.reset(token)
        me.ended = stage.ended = True
    pairs = [me.split(o) for o in outs]
    touts = [None if t is None else stage.atom(t) for _, t in pairs]
    return [p for p, _ in pairs], Tape(inputs, stage.eqns, touts)


# --- transposition -----------------------------------------------------------------------------


def accumulate(env: dict[Var, Any], var: Var, ct: Any) -> None:
    """Add a cotangent to a variable's; those that add themselves wait for an array to add to.

    What waits is a list: an array or None, then AddTos.
    """
    old = env.get(var)
    if old is None:
        env[var] = ct
    elif type(old) is list:
        if type(ct) is AddTo:
            old.append(ct)
        else:
            old[0] = _typed(ct, False) if old[0] is None else add_any(old[0], ct)
    elif type(old) is AddTo:
        env[var] = [None, old, ct] if type(ct) is AddTo else [_typed(ct, False), old]
    elif type(ct) is AddTo:
        env[var] = [old, ct]
    else:
        env[var] = add_any(old, ct)


def take(env: dict[Var, Any], var: Var) -> Array | None:
    """Remove and return a variable's cotangent, as an array."""
    ct = env.pop(var, None)
    kind = type(ct)
    if kind is AddTo:
        return _sum(None, [ct])
    return _sum(ct[0], ct[1:]) if kind is list else ct


def _sum(total: Array | None, parts: list[AddTo]) -> Array:
    aval = parts[0].aval
    if (total is None or type(total) is ConcreteArray) and all([p.into for p in parts]):
        out = np.zeros(aval.shape, aval.dtype) if total is None else total._value.copy()
        for p in parts:
            p.into(out)  # type: ignore[misc]
        return ConcreteArray(out, total is not None and total.weak_type)
    total = zeros(aval) if total is None else total
    weak = total.weak_type
    for p in parts:
        total = p.added(total)
    return _typed(total, weak)


def _typed(x: Array, weak: bool) -> Array:
    """A sum is as weak as its first part; what adds itself is an array in JAX, and never weak."""
    return x if x.weak_type == weak else ConvertElementType(x.dtype, weak)(x)


class Known:
    """Values of variables, computed when they are asked for."""

    def __init__(self, values: dict[Var, Array], eqns: Sequence[Eqn] = ()):
        self.values = values
        self.maker = definitions(eqns)

    def add(self, eqns: Sequence[Eqn]) -> None:
        """More equations to compute values with."""
        self.maker |= definitions(eqns)

    def atom(self, v: Var) -> Atom:
        """What a variable is another name of."""
        return v

    def __contains__(self, v: Var) -> bool:
        at = self.atom(v)
        return type(at) is Literal or at in self.values or at in self.maker

    def __getitem__(self, v: Var) -> Array:
        todo = [v]
        while todo:
            at = self.atom(todo[-1])
            if type(at) is Literal or at in self.values:
                todo.pop()
                continue
            e = self.maker[at]  # type: ignore[index]
            missing = [a for a in e.inputs if type(a) is Var and not self._has(a)]
            todo += missing
            if not missing:
                outs = _applied(e, [self._value(a) for a in e.inputs])
                for out, value in zip(e.outs, outs, strict=True):
                    self.values.setdefault(out, value)
        return self._value(v)

    def _has(self, v: Var) -> bool:
        at = self.atom(v)
        return type(at) is Literal or at in self.values

    def _value(self, atom: Atom) -> Array:
        at = self.atom(atom) if type(atom) is Var else atom
        return self.values[at] if type(at) is Var else at.value  # type: ignore[union-attr]

    def learn(self, operands: Sequence[Atom], firsts: Sequence[Array]) -> None:
        """Take note of what the transpose of a loop restored of its last operands."""


def _applied(eqn: Eqn, values: Sequence[Array]) -> tuple[Array, ...]:
    """The results of an equation; what is recorded of it comes from where it does."""
    before = None if eqn.source is None else set_origin[eqn.source]
    try:
        return eqn.prim.apply(*values)
    finally:
        if before is not None:
            origin.reset(before)


def _back(source: Source, prim: Primitive) -> Source:
    """Where the transpose of a linear equation comes from: what was differentiated to get it."""
    what = source.role.removeprefix("the derivative of ") or prim.name
    return source.derived(f"the cotangent of the operands of {what}")


def backward(
    eqns: Sequence[Eqn], env: dict[Var, Any], known: dict[Var, Array] | Known | None = None
) -> None:
    """Pull the cotangents in `env` back through linear equations; variables in `known` are values."""
    for eqn in reversed(eqns):
        cts = tuple([take(env, v) for v in eqn.outs])
        for ct in cts:
            if ct is not None:
                break
        else:
            continue
        args = []
        for a in eqn.inputs:
            if type(a) is not Var:
                args.append(a.value)
            elif known is not None and a in known:
                args.append(known[a])
            else:
                args.append(Undefined(a.aval))
        before = None if eqn.source is None else set_origin[_back(eqn.source, eqn.prim)]
        try:
            if type(known) is not dict and known is not None and eqn.prim.name == "rewound":
                back, firsts = eqn.prim.rewind(cts, *args)  # type: ignore[attr-defined]
                known.learn(eqn.prim.parts(eqn.inputs)[2], firsts)  # type: ignore
            else:
                back = eqn.prim.transpose(cts, *args)
        finally:
            if before is not None:
                origin.reset(before)
        for a, ct in zip(eqn.inputs, back, strict=True):
            if ct is not None and type(a) is Var:
                if a in env:
                    accumulate(env, a, ct)
                else:
                    env[a] = ct


def backward_jaxpr(
    jaxpr: Jaxpr,
    args: Sequence[Any],
    cts: Sequence[Array | None],
    seeds: Sequence[Array | None] | None = None,
    later: Known | None = None,
) -> list:
    """Cotangents of the `Undefined` among `args`; what does not depend on those is computed first.

    They are added to `seeds`, parallel to `args`, where there are any. With `later`, which may know
    more of the inputs, the rest is computed where it is needed.
    """
    known: Any = later
    if known is None:
        known = {v: x for v, x in zip(jaxpr.inputs, args) if not isinstance(x, Undefined)}
    linear = []
    for e in jaxpr.eqns:
        eqn: Eqn | None = e
        unknown = [type(a) is Var and a not in known for a in e.inputs]
        if any(unknown):
            linear.append(e)
            eqn = known_part(e, unknown) if hasattr(e.prim, "independent") else None
        if eqn is None:
            continue
        if later is not None:
            later.add([eqn])
        else:
            values = [known[a] if type(a) is Var else a.value for a in eqn.inputs]
            outs = _applied(eqn, values)
            known.update(zip(eqn.outs, outs, strict=True))
    env: dict[Var, Any] = {}
    for v, seed in zip(jaxpr.inputs, seeds or ()):
        if seed is not None:
            env[v] = seed
    for out, ct in zip(jaxpr.outs, cts, strict=True):
        if type(out) is Var and out not in known and ct is not None:
            accumulate(env, out, ct)
    backward(linear, env, known)
    return [None if v in known else take(env, v) for v in jaxpr.inputs]


# --- the same, of jaxprs -----------------------------------------------------------------------


@made_once
def linearize_jaxpr(
    jaxpr: Jaxpr, nonzero: tuple[bool, ...]
) -> tuple[Jaxpr, Jaxpr, int, tuple[bool, ...]]:
    """(forward, linear, residuals, nonzero results).

    forward: inputs -> (results, residuals); linear: (residuals, nonzero tangents) -> nonzero
    tangents of results. A residual that is an input of the jaxpr is that very output atom.
    """
    made: list = []

    def run(*primals: Array) -> list[Array]:
        outs, tape = linearize(lambda *xs: eval_jaxpr(jaxpr, xs), primals, nonzero)
        linear, residuals, mask = tape.close()
        made.extend((linear, len(residuals), mask))
        return [*outs, *residuals]

    forward = trace_closed(run, jaxpr.in_avals, what="grad", name=jaxpr.name)
    return (forward, *made)


def transpose_jaxpr(
    jaxpr: Jaxpr,
    linear: tuple[bool, ...],
    nonzero: tuple[bool, ...],
    summed: tuple[bool, ...] | None = None,
) -> tuple[Jaxpr, tuple[bool, ...]]:
    """(values of the nonlinear inputs, nonzero cotangents) -> nonzero cotangents of linear inputs.

    Also says which of the linear inputs have a cotangent. Those of linear inputs that are `summed`
    are added to further inputs, which follow the values.
    """
    summed = (False,) * sum(linear) if summed is None else summed
    return _transposed(jaxpr, linear, nonzero, summed)


@made_once
def _transposed(
    jaxpr: Jaxpr, linear: tuple[bool, ...], nonzero: tuple[bool, ...], summed: tuple[bool, ...]
) -> tuple[Jaxpr, tuple[bool, ...]]:
    n = linear.count(False)
    m = n + sum(summed)
    mask: list[bool] = []

    def run(*args: Array) -> list[Array]:
        values, totals, cts = iter(args[:n]), iter(args[n:m]), iter(args[m:])
        seeds = iter([next(totals) if s else None for s in summed])
        full = [
            Undefined(a) if lin else next(values)
            for a, lin in zip(jaxpr.in_avals, linear, strict=True)
        ]
        starts = [next(seeds) if lin else None for lin in linear]
        back = backward_jaxpr(jaxpr, full, [next(cts) if nz else None for nz in nonzero], starts)
        back = [ct for ct, lin in zip(back, linear, strict=True) if lin]
        mask.extend(ct is not None for ct in back)
        return [ct for ct in back if ct is not None]

    avals: list[ShapedArray] = [a for a, lin in zip(jaxpr.in_avals, linear, strict=True) if not lin]
    own = [a for a, lin in zip(jaxpr.in_avals, linear, strict=True) if lin]
    avals += [a.tangent() for a, s in zip(own, summed, strict=True) if s]
    avals += [a for a, nz in zip(jaxpr.out_avals, nonzero, strict=True) if nz]
    new = trace_closed(run, avals, what="transpose", name=jaxpr.name)
    return new, tuple(mask)


__all__ = [
    "Linearize",
    "Tape",
    "backward_jaxpr",
    "linearize",
    "linearize_jaxpr",
    "transpose_jaxpr",
]
