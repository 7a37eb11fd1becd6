"""checkify: checks of values inside of traced functions, whose failures come out as a value.

A function is traced; its jaxpr is evaluated again with the state of its checks beside it, which goes
through calls, branches and loops as further results and carries.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fnx import numpy
from fnx.core.array import Array, ConcreteArray, as_array, as_written
from fnx.core.aval import ShapedArray
from fnx.core.dtypes import is_inexact
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.core.jaxpr import Eqn, Jaxpr, Literal, Var, eval_jaxpr, made_once, subjaxprs
from fnx.core.source import at_line
from fnx.experimental.checks import Check, CheckError, Error, Site, check, check_error, debug_check
from fnx.interpreters.primitives.cond import Cond
from fnx.interpreters.primitives.scan import Scan
from fnx.interpreters.primitives.while_loop import While
from fnx.interpreters.trace import trace, trace_closed
from fnx.process.nan_checks import INDEXED, bounds
from fnx.pytree import operations
from fnx.pytree.flatten_fun import check_callable, flatten_arrays, name_of, wraps

jnp: Any = numpy  # arrays get their methods when it is imported, which type checkers do not see

__all__ = [
    "CheckError",
    "Error",
    "ErrorCategory",
    "all_checks",
    "automatic_checks",
    "check",
    "check_error",
    "checkify",
    "debug_check",
    "div_checks",
    "float_checks",
    "index_checks",
    "nan_checks",
    "user_checks",
]

JaxRuntimeError = CheckError  # JAX's name

ErrorCategory = str  # a kind of check, of those that follow
user_checks = frozenset({"check"})
nan_checks = frozenset({"nan"})
div_checks = frozenset({"div"})
index_checks = frozenset({"index"})
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks


_ONE = operations.tree_structure(((0,), {}))  # a message about one value


class _State:
    """What the checks so far have found: the first site that failed, and each site's values."""

    def __init__(self) -> None:
        self.code: Array = as_written(ConcreteArray(np.zeros((), np.int32)))
        self.sites: list[Site] = []
        self.values: list[tuple[Array, ...]] = []

    def add(self, site: Site, good: Any, values: Sequence[Array]) -> None:
        code = jnp.where(good, np.int32(0), np.int32(1))
        self.merge([site], code, [tuple(values)])

    def merge(self, sites: Sequence[Site], code: Any, values: Sequence) -> None:
        """Take over the state of a part of the program that ran after what is known."""
        offset = np.int32(len(self.sites))
        fresh = jnp.where(code == 0, np.int32(0), code + offset)
        self.code = jnp.where(self.code == 0, fresh, self.code)
        self.sites += sites
        self.values += values

    def leaves(self) -> list[Array]:
        return [self.code, *(v for site in self.values for v in site)]


Kinds = frozenset[str]


@made_once
def _has_checks(jaxpr: Jaxpr, kinds: Kinds) -> bool:
    return any(
        _checked(e, kinds) or any(_has_checks(j, kinds) for j in subjaxprs(e.prim))
        for e in jaxpr.eqns
    )


def _checked(eqn: Eqn, kinds: Kinds) -> bool:
    prim = eqn.prim
    return (
        (isinstance(prim, Check) and "check" in kinds)
        or ("nan" in kinds and any(is_inexact(v.aval.dtype) for v in eqn.outs))
        or ("div" in kinds and prim.name in ("div", "rem"))
        or ("index" in kinds and isinstance(prim, INDEXED))
    )


@made_once
def functional(jaxpr: Jaxpr, kinds: Kinds) -> tuple[Jaxpr, list[Site], list[int]]:
    """The jaxpr with the state of its checks as last results; the sites, and how many values each has."""
    found: list[_State] = []

    def run(*args: Array) -> list[Array]:
        state = _State()
        found.append(state)
        return [*_evaluate(jaxpr, args, state, kinds), *state.leaves()]

    made = trace_closed(run, jaxpr.in_avals, what="checkify", name=jaxpr.name)
    return made, found[0].sites, [len(v) for v in found[0].values]


def _evaluate(jaxpr: Jaxpr, args: Sequence[Array], state: _State, kinds: Kinds) -> list[Array]:
    env: dict[Var, Array] = dict(zip(jaxpr.inputs, args, strict=True))

    def read(a: Any) -> Array:
        return a.value if isinstance(a, Literal) else env[a]

    for eqn in jaxpr.eqns:
        values = [read(a) for a in eqn.inputs]
        subs = list(subjaxprs(eqn.prim))
        if isinstance(eqn.prim, Check):
            if "check" in kinds:
                state.add(eqn.prim.site, values[0], values[1:])
            continue
        if any(_has_checks(j, kinds) for j in subs):
            outs = _control(eqn.prim, values, state, kinds)
        else:
            _before(eqn, values, state, kinds)
            outs = list(eqn.prim.apply(*values))
            if not subs:
                _after(eqn, outs, state, kinds)
        env.update(zip(eqn.outs, outs, strict=True))
    return [read(a) for a in jaxpr.outs]


def _before(eqn: Eqn, values: list[Any], state: _State, kinds: Kinds) -> None:
    """Checks of operands."""
    prim: Any = eqn.prim
    line = at_line(eqn.source)
    if "div" in kinds and prim.name in ("div", "rem"):
        state.add(Site(f"division by zero{_escape(line)}"), jnp.all(values[1] != 0), ())
    if "index" not in kinds or not isinstance(prim, INDEXED):
        return
    x = values[0]
    index, limits = bounds(prim, values)
    if not index or not index[0].size:
        return
    good = jnp.stack([jnp.ravel((k >= 0) & (k <= n)) for k, n in zip(index, limits)])
    worst = jnp.stack([jnp.ravel(k).astype(np.int64) for k in index]).reshape(-1)[jnp.argmin(good)]
    text = f"out-of-bounds indexing for array of shape {x.shape}: index {{}}{_escape(line)}"
    state.add(Site(text, _ONE), jnp.all(good), (worst,))


def _after(eqn: Eqn, outs: list[Array], state: _State, kinds: Kinds) -> None:
    """Checks of results."""
    floats = [o for o in outs if is_inexact(o.dtype)]
    if "nan" in kinds and floats:
        good = jnp.all(jnp.stack([jnp.all(o == o) for o in floats]))
        text = f"nan generated by primitive: {eqn.prim.name}.{_escape(at_line(eqn.source))}"
        state.add(Site(text), good, ())


def _escape(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _unflatten(leaves: Sequence[Array], counts: Sequence[int]) -> list[tuple[Array, ...]]:
    it = iter(leaves)
    return [tuple([next(it) for _ in range(n)]) for n in counts]


def _control(prim: Any, values: list[Array], state: _State, kinds: Kinds) -> list[Array]:
    """Results of a primitive that carries jaxprs with checks."""
    if isinstance(prim, Cond):
        return _cond(prim, values, state, kinds)
    if isinstance(prim, Scan):
        return _scan(prim, values, state, kinds)
    if isinstance(prim, While):
        return _while(prim, values, state, kinds)
    if getattr(prim, "jaxpr", None) is None:
        raise TypeMismatch(f"checkify cannot look into {prim.name}, which has checks in it")
    if prim.transparent != "always":
        # Rules of users are dropped: the checks inside are more than they know of.
        return _evaluate(prim.jaxpr, values, state, kinds)
    jaxpr, sites, counts = functional(prim.jaxpr, kinds)
    outs = prim.with_jaxpr(jaxpr).apply(*values)
    n = len(prim.jaxpr.outs)
    state.merge(sites, outs[n], _unflatten(outs[n + 1 :], counts))
    return list(outs[:n])


def _cond(prim: Cond, values: list[Array], state: _State, kinds: Kinds) -> list[Array]:
    parts = [functional(b, kinds) for b in prim.branches]
    n = len(prim.branches[0].outs)
    sites = [s for _, own, _ in parts for s in own]
    counts = [c for _, _, own in parts for c in own]
    avals = [[v.aval for v in j.outs[n + 1 :]] for j, _, _ in parts]
    branches, offset = [], 0
    for k, (jaxpr, own, _) in enumerate(parts):

        def run(*args: Array, k: int = k, jaxpr: Jaxpr = jaxpr, offset: int = offset) -> list:
            outs: list[Any] = eval_jaxpr(jaxpr, args)
            code = jnp.where(outs[n] == 0, np.int32(0), outs[n] + np.int32(offset))
            rest = [
                outs[n + 1 :] if m == k else [jnp.zeros(a.shape, a.dtype) for a in avals[m]]
                for m in range(len(parts))
            ]
            return [*outs[:n], code, *(as_array(v) for part in rest for v in part)]

        branches.append(trace_closed(run, jaxpr.in_avals, what="checkify", name=jaxpr.name))
        offset += len(own)
    outs = prim.with_branches([_strong(b, n) for b in branches]).apply(*values)
    state.merge(sites, outs[n], _unflatten(outs[n + 1 :], counts))
    return list(outs[:n])


def _strong(jaxpr: Jaxpr, start: int) -> Jaxpr:
    """With results from `start` on that are not weakly typed, so that branches and carries agree."""

    def run(*args: Array) -> list[Array]:
        outs = eval_jaxpr(jaxpr, args)
        return [*outs[:start], *(jnp.asarray(o, dtype=o.dtype) for o in outs[start:])]

    return trace_closed(run, jaxpr.in_avals, what="checkify", name=jaxpr.name)


def _first(old: Sequence[Array], new: Sequence[Array]) -> list[Array]:
    """The state (code, then values) of two that follow each other."""
    take = old[0] == 0
    return [jnp.where(take, b, a).astype(a.dtype) for a, b in zip(old, new)]


def _zeros(avals: Sequence[ShapedArray]) -> list[Array]:
    return [as_array(jnp.zeros(a.shape, a.dtype)) for a in avals]


def _scan(prim: Scan, values: list[Array], state: _State, kinds: Kinds) -> list[Array]:
    body, sites, counts = functional(prim.jaxpr, kinds)
    n, m = len(prim.jaxpr.outs), prim.consts + prim.carry
    avals = [v.aval.strong() for v in body.outs[n:]]
    w = len(avals)

    def step(*args: Array) -> list[Array]:
        outs = eval_jaxpr(body, [*args[:m], *args[m + w :]])
        after = _first(args[m : m + w], outs[n:])
        return [*outs[: prim.carry], *after, *outs[prim.carry : n]]

    ins = body.in_avals
    jaxpr = trace_closed(step, [*ins[:m], *avals, *ins[m:]], what="checkify", name=body.name)
    loop = prim.with_jaxpr(jaxpr, prim.consts, prim.carry + w)
    outs = loop.apply(*values[:m], *_zeros(avals), *values[m:])
    k = prim.carry
    state.merge(sites, outs[k], _unflatten(outs[k + 1 : k + w], counts))
    return [*outs[:k], *outs[k + w :]]


def _while(prim: While, values: list[Array], state: _State, kinds: Kinds) -> list[Array]:
    """The condition's checks run before the loop and after each iteration."""
    c, b, carry = prim.parts(values)
    test, test_sites, test_counts = functional(prim.cond_jaxpr, kinds)
    body, body_sites, body_counts = functional(prim.body_jaxpr, kinds)
    nc, nb, n = len(c), len(b), len(carry)
    first = eval_jaxpr(test, [*c, *carry])
    state.merge(test_sites, first[1], _unflatten(first[2:], test_counts))
    avals = [v.aval.strong() for v in (*body.outs[n:], *test.outs[1:])]
    split = len(body.outs) - n

    def step(*args: Array) -> list[Array]:
        known, old, seen = args[: nb + nc], args[nb + nc : nb + nc + n], args[nb + nc + n :]
        outs = eval_jaxpr(body, [*known[:nb], *old])
        again = eval_jaxpr(test, [*known[nb:], *outs[:n]])
        done = (seen[0] != 0) | (seen[split] != 0)
        parts = _first(seen[:split], outs[n:]), _first(seen[split:], again[1:])
        # Of the two the first that fails counts.
        late = (parts[0][0] != 0) & (seen[split] == 0)
        parts[1][0] = jnp.where(late, np.int32(0), parts[1][0])
        kept = [jnp.where(done, a, b) for a, b in zip(seen, [*parts[0], *parts[1]])]
        return [*outs[:n], *(k.astype(a.dtype) for k, a in zip(kept, avals))]

    ins = body.in_avals
    jaxpr = trace_closed(
        step, [*ins[:nb], *test.in_avals[:nc], *ins[nb:], *avals], what="checkify", name=body.name
    )
    cond = prim.cond_jaxpr
    cond = Jaxpr([*cond.inputs, *map(Var, avals)], cond.eqns, cond.outs, name=cond.name)
    loop = replace(prim, cond_jaxpr=_silent(cond), body_jaxpr=jaxpr, body_consts=nb + nc)
    outs = loop.apply(*c, *b, *c, *carry, *_zeros(avals))
    found = outs[n:]
    state.merge(body_sites, found[0], _unflatten(found[1:split], body_counts))
    state.merge(test_sites, found[split], _unflatten(found[split + 1 :], test_counts))
    return list(outs[:n])


def _silent(jaxpr: Jaxpr) -> Jaxpr:
    """Without checks that would raise."""
    eqns = [e for e in jaxpr.eqns if not isinstance(e.prim, Check)]
    return Jaxpr(jaxpr.inputs, eqns, jaxpr.outs, name=jaxpr.name)


def checkify(f: Callable, errors: frozenset[str] = user_checks) -> Callable:
    """The function that gives an `Error`, and the result of `f`, in which checks do not raise.

    `errors` says what is checked: `user_checks` (calls of `check`), `nan_checks` (no operation gives a
    nan), `div_checks` (no division by zero), `index_checks` (no index out of bounds), or a union of them,
    `float_checks`, `automatic_checks`, `all_checks`. It can be compiled and batched.

    >>> def f(x):
    ...     fnx.experimental.checkify.check(x > 0, "x must be positive, got {x}", x=x)
    ...     return jnp.log(x)
    >>> error, y = fnx.experimental.checkify.checkify(f)(-1.0)
    >>> error.get()
    'x must be positive, got -1.0 (`check` failed)'
    """
    check_callable(f, "checkify")
    kinds = frozenset(errors)
    if kinds - all_checks:
        raise InvalidValue(
            f"checkify errors={errors}; expected unions of checkify.user_checks and the like"
        )

    @wraps(f)
    def checked(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        leaves, treedef = flatten_arrays((args, kwargs), f"arguments of {name_of(f)}")
        structures: list = []

        def flat(*xs: Array) -> list[Array]:
            given, named = treedef.unflatten(xs)
            outs, structure = flatten_arrays(f(*given, **named), f"results of {name_of(f)}")
            structures.append(structure)
            return outs

        jaxpr, consts = trace(flat, [x.aval for x in leaves], what="checkify", name=name_of(f))
        whole, sites, counts = functional(jaxpr, kinds)
        outs = eval_jaxpr(whole, [*consts, *leaves])
        n = len(jaxpr.outs)
        error = Error(outs[n], _unflatten(outs[n + 1 :], counts), tuple(sites))
        return error, structures[0].unflatten(outs[:n])

    return checked
