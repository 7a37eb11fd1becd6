"""Jaxprs as native functions: all passes, then the backend; each is made once."""

from collections.abc import Sequence
from typing import Any
from weakref import ref

from fnx.core import config
from fnx.core.array import Array, ConcreteArray
from fnx.core.backend import Backend, Compiled, donation
from fnx.core.interpreter import evaluate, use
from fnx.core.jaxpr import Eqn, Jaxpr, Var, eval_jaxpr, made_once, subjaxprs
from fnx.core.primitive import Primitive
from fnx.interpreters.closure_conversion import carriers
from fnx.interpreters.control_flow import ScanRecord, WhileRecord
from fnx.interpreters.operands import typed
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.pieces import in_pieces, may_run_apart


def compiled(jaxpr: Jaxpr, backend: Backend, donated: tuple[int, ...] = ()) -> Compiled:
    """The native function of a jaxpr; it is made once. It may overwrite inputs that are donated."""

    def make() -> Compiled:
        devices = concerns_devices(jaxpr)
        sharded = (
            getattr(backend, "sharded", None) if devices and is_sharded(jaxpr, False) else None
        )
        if sharded is not None:
            return sharded(jaxpr, donated)
        owner = ref(jaxpr)  # which keeps what is made here, not the other way round
        if devices and may_run_apart(jaxpr):
            whole = lambda: backend.compile(owner(), (), lambda: simplify(owner(), final=True))
            gone = tuple(donation(jaxpr, donated).replaced)
            found = in_pieces(simplify(jaxpr), lambda piece: compiled(piece, backend), whole, gone)
            if found is not None:
                return found
        return backend.compile(jaxpr, donated, lambda: simplify(owner(), final=True))

    return jaxpr.once(_key(backend, donated), make)


@made_once
def concerns_devices(jaxpr: Jaxpr) -> bool:
    """Whether anything in a jaxpr is of several devices: what most programs need not be looked at for."""
    return any(p.on_devices or any(map(concerns_devices, subjaxprs(p))) for p in carriers(jaxpr))


@made_once
def is_sharded(jaxpr: Jaxpr, in_loop: bool) -> bool:
    """Whether a jaxpr says how values lie on devices, or a loop in it is around members' programs."""
    return any(
        e.prim.on_devices == "values"
        or (in_loop and e.prim.on_devices == "members")
        or any(
            is_sharded(j, in_loop or isinstance(e.prim, (ScanRecord, WhileRecord)))
            for j in subjaxprs(e.prim)
        )
        for e in jaxpr.eqns
    )


def _key(backend: Backend, donated: tuple[int, ...]) -> tuple:
    return "compiled", backend, config.backend.value, donated, config.progress.value


def already_compiled(jaxpr: Jaxpr, backend: Backend, donated: tuple[int, ...] = ()) -> Any:
    """The native function of a jaxpr if it was made, else None."""
    return jaxpr._made.get(_key(backend, donated))


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
