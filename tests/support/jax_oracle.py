"""What JAX says of a program without compiling it: types by its tracing, values equation by equation.

XLA compiles each loop, branch and jitted function of a program anew, which takes most of the time of
a comparison; single operations are compiled once a process.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("jax.ad_checkpoint")
core = pytest.importorskip("jax.extend.core")


def results(f: Callable) -> list[tuple[np.ndarray, bool]]:
    """The leaves of `f()`, each with its weak type."""
    closed = jax.make_jaxpr(f)()
    values = evaluate(closed)
    avals = closed.out_avals
    assert [(v.shape, v.dtype) for v in values] == [(a.shape, a.dtype) for a in avals]
    return [(np.asarray(v), a.weak_type) for v, a in zip(values, avals, strict=True)]


def evaluate(closed: Any, *args: Any) -> list:
    return _run(closed.jaxpr, closed.consts, args)


def _run(jaxpr: Any, consts: Any, args: Any) -> list:
    known: dict = dict(zip(jaxpr.constvars, map(np.asarray, consts), strict=True))
    known.update(zip(jaxpr.invars, args, strict=True))
    read = lambda v: np.asarray(v.val, v.aval.dtype) if isinstance(v, core.Literal) else known[v]
    for eqn in jaxpr.eqns:
        outs = _equation(eqn, [read(v) for v in eqn.invars])
        known.update(zip(eqn.outvars, outs, strict=True))
    return [
        np.asarray(read(v), v.aval.dtype) if isinstance(v, core.Literal) else read(v)
        for v in jaxpr.outvars
    ]


def _equation(eqn: Any, args: list) -> Any:
    rule = RULES.get(eqn.primitive.name)
    if rule is not None:
        return rule(eqn.params, *args)
    out = eqn.primitive.bind(*args, **eqn.params)
    return out if eqn.primitive.multiple_results else [out]


def _call(params: dict, *args: Any) -> list:
    inner = params.get("jaxpr") or params.get("call_jaxpr")
    return evaluate(inner, *args) if isinstance(inner, core.ClosedJaxpr) else _run(inner, [], args)


def _scan(params: dict, *args: Any) -> list:
    n, k = params["num_consts"], params["num_carry"]
    consts, carry, xs = args[:n], list(args[n : n + k]), args[n + k :]
    rows: list = []
    order = range(params["length"])
    for i in reversed(order) if params["reverse"] else order:
        outs = evaluate(params["jaxpr"], *consts, *carry, *[x[i] for x in map(np.asarray, xs)])
        carry = outs[:k]
        rows.append(outs[k:])
    rows = rows[::-1] if params["reverse"] else rows
    avals = params["jaxpr"].out_avals[k:]
    stacked = [
        np.stack([np.asarray(row[j]) for row in rows]) if rows else np.zeros((0, *a.shape), a.dtype)
        for j, a in enumerate(avals)
    ]
    return [*carry, *stacked]


def _while(params: dict, *args: Any) -> list:
    n, k = params["cond_nconsts"], params["body_nconsts"]
    cond, body, carry = args[:n], args[n : n + k], args[n + k :]
    while np.any(more := np.asarray(evaluate(params["cond_jaxpr"], *cond, *carry)[0])):
        new = evaluate(params["body_jaxpr"], *body, *carry)
        # Of a batch with one condition each, those that ended keep what they have.
        carry = [_kept(more, a, b) for a, b in zip(new, carry, strict=True)]
    return list(carry)


def _kept(more: np.ndarray, new: Any, old: Any) -> Any:
    if more.all():
        return new
    return np.where(more.reshape(more.shape + (1,) * (np.ndim(new) - more.ndim)), new, old)


def _cond(params: dict, at: Any, *args: Any) -> list:
    branches = params["branches"]
    return evaluate(branches[min(max(int(at), 0), len(branches) - 1)], *args)


def _linear_solve(params: dict, *args: Any) -> list:
    lengths, jaxprs = params["const_lengths"], params["jaxprs"]
    start = lengths.matvec + lengths.vecmat
    end = start + lengths.solve
    rest = end + lengths.transpose_solve
    return evaluate(jaxprs.solve, *args[start:end], *args[rest:])


RULES: dict[str, Callable] = {
    "jit": _call,
    "pjit": _call,
    "checkpoint": _call,
    "remat2": _call,
    "closed_call": _call,
    "custom_jvp_call": _call,
    "custom_vjp_call": _call,
    "custom_vjp_call_jaxpr": _call,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "linear_solve": _linear_solve,
    "custom_linear_solve": _linear_solve,
}
