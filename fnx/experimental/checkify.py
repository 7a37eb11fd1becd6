"""checkify: checks of values inside of traced functions, whose failures come out as a value.

A function is traced; its jaxpr is evaluated again with the state of its checks beside it, which goes
through calls, branches and loops as further results and carries.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fnx import numpy
from fnx.core.array import Array, as_array, is_array_like
from fnx.core.aval import ShapedArray
from fnx.core.dtypes import is_inexact
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.core.jaxpr import Eqn, Jaxpr, Literal, Var, eval_jaxpr, made_once, subjaxprs
from fnx.core.source import at_line, members_of
from fnx.experimental.array_checks import ArrayChecks
from fnx.experimental.check_state import Checks, Found, Outcome
from fnx.experimental.checks import Check, CheckError, Error, Site, check, check_error, debug_check
from fnx.interpreters.primitives.cond import Cond
from fnx.interpreters.primitives.scan import Scan
from fnx.interpreters.primitives.while_loop import While
from fnx.interpreters.trace import trace, trace_closed
from fnx.process.watching.indices import INDEXED, bounds
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
mistaken_index_checks = frozenset({"mistaken index"})  # but those whose mode says what they do
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks


_PLACE = operations.tree_structure(((0, 0), {}))  # a message about an element, and a value


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
        or _looks_at_index(eqn, kinds)
    )


def _looks_at_index(eqn: Eqn, kinds: Kinds) -> bool:
    if not isinstance(eqn.prim, INDEXED):
        return False
    meant = eqn.source is not None and eqn.source.takes_any_index
    return "index" in kinds or ("mistaken index" in kinds and not meant)


@made_once
def functional(jaxpr: Jaxpr, kinds: Kinds) -> tuple[Jaxpr, Found]:
    """The jaxpr with the state of its checks as last results; and what that is of."""
    found: list[Found] = []

    def run(*args: Array) -> list[Array]:
        state = Checks()
        outs = _evaluate(jaxpr, args, state, kinds)
        outcome = state.outcome()
        found.append(outcome.found())
        return [*outs, *outcome.leaves()]

    made = trace_closed(run, jaxpr.in_avals, what="checkify", name=jaxpr.name)
    return made, found[0]


def _evaluate(jaxpr: Jaxpr, args: Sequence[Array], state: Checks, kinds: Kinds) -> list[Array]:
    env: dict[Var, Array] = dict(zip(jaxpr.inputs, args, strict=True))

    def read(a: Any) -> Array:
        return a.value if isinstance(a, Literal) else env[a]

    arrays = ArrayChecks(state)
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
            if _looks_at_index(eqn, kinds):
                _index(eqn, values, state)
            outs = list(eqn.prim.apply(*values))
            _floats(eqn, values, outs, arrays, kinds)
        env.update(zip(eqn.outs, outs, strict=True))
    arrays.close(jaxpr.eqns, read)
    return [read(a) for a in jaxpr.outs]


def _floats(eqn: Eqn, values: list, outs: list, arrays: ArrayChecks, kinds: Kinds) -> None:
    """Checks of a division's operands, and of results."""
    line = _line(eqn)
    if "div" in kinds and eqn.prim.name in ("div", "rem"):
        arrays.add("division by zero", line, eqn, _zero_divisor, values, outs)
    if "nan" not in kinds or next(subjaxprs(eqn.prim), None) is not None:
        return
    floats = [k for k, o in enumerate(outs) if is_inexact(o.dtype)]
    text = f"nan generated by primitive: {eqn.prim.name}."
    if len(floats) == 1:
        only = floats[0]
        arrays.add(text, line, eqn, lambda _, outs: outs[only] != outs[only], values, outs)
    elif floats:
        good = jnp.all(jnp.stack([jnp.all(outs[k] == outs[k]) for k in floats]))
        arrays.all_checks.add(Site(text + line), good, ())


def _zero_divisor(values: list, outs: list) -> Array:
    return values[1] == 0


def _index(eqn: Eqn, values: list[Any], state: Checks) -> None:
    """A check of the places that an equation reads or writes."""
    prim: Any = eqn.prim
    x = values[0]
    index, limits, axes = bounds(prim, values)
    if not index or not index[0].size:
        return
    good = jnp.stack([jnp.ravel((k >= 0) & (k <= n)) for k, n in zip(index, limits)])
    at = jnp.argmin(good).astype(np.int64)
    worst = jnp.stack([jnp.ravel(k).astype(np.int64) for k in index]).reshape(-1)[at]
    text = f"out-of-bounds indexing for array of shape {x.shape}: index {{1}} is out of bounds for {{axis}}"
    shape = np.shape(index[0])
    members = members_of(eqn.source, np.shape(values[1])) or members_of(eqn.source, shape)
    # The first axis is that of the indices of one place.
    places = tuple([(k + 1, what) for k, what in members])
    named = tuple([f"axis {d} with size {x.shape[d]}" for d in axes])
    site = Site(text + _line(eqn), _PLACE, (len(index), *shape), False, places, axes=named)
    state.add(site, jnp.all(good), (at, worst))


def _line(eqn: Eqn) -> str:
    """The user's line, and whose derivative it is."""
    source = eqn.source
    text = at_line(source)
    if source is not None and source.role and not source.role.endswith(f" of {eqn.prim.name}"):
        text += f", in {source.role}"
    return _escape(text)


def _escape(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _control(prim: Any, values: list[Array], state: Checks, kinds: Kinds) -> list[Array]:
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
    jaxpr, found = functional(prim.jaxpr, kinds)
    outs = prim.with_jaxpr(jaxpr).apply(*values)
    n = len(prim.jaxpr.outs)
    state.merge(found, outs[n:])
    return list(outs[:n])


def _cond(prim: Cond, values: list[Array], state: Checks, kinds: Kinds) -> list[Array]:
    parts = [functional(b, kinds) for b in prim.branches]
    n = len(prim.branches[0].outs)
    depth = max(own.depth for _, own in parts)
    whole = Found(
        [s for _, own in parts for s in own.sites],
        [c for _, own in parts for c in own.counts],
        depth,
    )
    ends = [len(j.outs) - own.depth for j, own in parts]
    avals = [[v.aval for v in j.outs[n + 1 : end]] for (j, _), end in zip(parts, ends)]
    branches, offset = [], 0
    for k, (jaxpr, own) in enumerate(parts):

        def run(*args: Array, k: int = k, jaxpr: Jaxpr = jaxpr, offset: int = offset) -> list:
            outs: list[Any] = eval_jaxpr(jaxpr, args)
            code = jnp.where(outs[n] == 0, np.int32(0), outs[n] + np.int32(offset))
            rest = [
                outs[n + 1 : ends[k]] if m == k else [jnp.zeros(a.shape, a.dtype) for a in avals[m]]
                for m in range(len(parts))
            ]
            numbers = [jnp.asarray(x, np.int64) for x in outs[ends[k] :]]
            numbers += [jnp.zeros((), np.int64)] * (depth - len(numbers))
            return [*outs[:n], code, *(as_array(v) for part in rest for v in part), *numbers]

        branches.append(trace_closed(run, jaxpr.in_avals, what="checkify", name=jaxpr.name))
        offset += len(own.sites)
    outs = prim.with_branches([_strong(b, n) for b in branches]).apply(*values)
    state.merge(whole, outs[n:])
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


def _scan(prim: Scan, values: list[Array], state: Checks, kinds: Kinds) -> list[Array]:
    body, found = functional(prim.jaxpr, kinds)
    n, m = len(prim.jaxpr.outs), prim.consts + prim.carry
    # The state, the iteration that failed, and the number of this one.
    avals = [*[v.aval.strong() for v in body.outs[n:]], _NUMBER, _NUMBER]
    w = len(avals)

    def step(*args: Array) -> list[Array]:
        outs = eval_jaxpr(body, [*args[:m], *args[m + w :]])
        number = args[m + w - 1]
        after = _first(args[m : m + w - 1], [*outs[n:], number])
        return [*outs[: prim.carry], *after, jnp.add(number, 1), *outs[prim.carry : n]]

    ins = body.in_avals
    jaxpr = trace_closed(step, [*ins[:m], *avals, *ins[m:]], what="checkify", name=body.name)
    loop = prim.with_jaxpr(jaxpr, prim.consts, prim.carry + w)
    outs = loop.apply(*values[:m], *_zeros(avals), *values[m:])
    k = prim.carry
    *leaves, failed, _ = outs[k : k + w]
    failed = prim.length - 1 - failed if prim.reverse else failed
    state.merge(found, [*leaves, failed], str(prim.site or prim.name))
    return [*outs[:k], *outs[k + w :]]


_NUMBER = ShapedArray((), np.dtype(np.int64))


def _while(prim: While, values: list[Array], state: Checks, kinds: Kinds) -> list[Array]:
    """The condition's checks run before the loop and after each iteration."""
    c, b, carry = prim.parts(values)
    test, test_found = functional(prim.cond_jaxpr, kinds)
    body, body_found = functional(prim.body_jaxpr, kinds)
    nc, nb, n = len(c), len(b), len(carry)
    first = eval_jaxpr(test, [*c, *carry])
    state.merge(test_found, first[1:])
    # The two states, each with the iteration that failed behind it; the number of this iteration.
    states = [*body.outs[n:], None, *test.outs[1:], None, None]
    avals = [_NUMBER if v is None else v.aval.strong() for v in states]
    split = len(body.outs) - n + 1

    def step(*args: Array) -> list[Array]:
        known, old, seen = args[: nb + nc], args[nb + nc : nb + nc + n], args[nb + nc + n : -1]
        number = args[-1]
        outs = eval_jaxpr(body, [*known[:nb], *old])
        again = eval_jaxpr(test, [*known[nb:], *outs[:n]])
        done = (seen[0] != 0) | (seen[split] != 0)
        parts = (
            _first(seen[:split], [*outs[n:], number]),
            _first(seen[split:], [*again[1:], number]),
        )
        # Of the two the first that fails counts.
        late = (parts[0][0] != 0) & (seen[split] == 0)
        parts[1][0] = jnp.where(late, np.int32(0), parts[1][0])
        kept = [jnp.where(done, a, b) for a, b in zip(seen, [*parts[0], *parts[1]])]
        kept.append(jnp.add(number, 1))
        return [*outs[:n], *(k.astype(a.dtype) for k, a in zip(kept, avals))]

    ins = body.in_avals
    jaxpr = trace_closed(
        step, [*ins[:nb], *test.in_avals[:nc], *ins[nb:], *avals], what="checkify", name=body.name
    )
    cond = prim.cond_jaxpr
    cond = Jaxpr([*cond.inputs, *map(Var, avals)], cond.eqns, cond.outs, name=cond.name)
    loop = replace(prim, cond_jaxpr=_silent(cond), body_jaxpr=jaxpr, body_consts=nb + nc)
    outs = loop.apply(*c, *b, *c, *carry, *_zeros(avals))
    loop = str(prim.site or prim.name)
    state.merge(body_found, outs[n : n + split], loop)
    state.merge(test_found, outs[n + split : -1], loop)
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
    >>> print(error.get().splitlines()[0])  # its lines, members and iterations follow
    x must be positive, got -1.0 (`check` failed)
    """
    check_callable(f, "checkify")
    kinds = frozenset(errors)
    if kinds - all_checks:
        raise InvalidValue(
            f"checkify errors={errors}; expected unions of checkify.user_checks and the like"
        )

    @wraps(f)
    def checked(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        every, treedef = operations.tree_flatten((args, kwargs))
        traced = [is_array_like(x) and not isinstance(x, bool) for x in every]
        leaves = [as_array(x) for x, t in zip(every, traced) if t]
        structures: list = []

        def flat(*xs: Array) -> list[Array]:
            it = iter(xs)  # Python may look at all else
            given, named = treedef.unflatten(next(it) if t else x for x, t in zip(every, traced))
            outs, structure = flatten_arrays(f(*given, **named), f"results of {name_of(f)}")
            structures.append(structure)
            return outs

        jaxpr, consts = trace(flat, [x.aval for x in leaves], what="checkify", name=name_of(f))
        whole, found = functional(jaxpr, kinds)
        outs = eval_jaxpr(whole, [*consts, *leaves])
        n = len(jaxpr.outs)
        outcome = Outcome()
        outcome.merge(found, outs[n:])
        return outcome.error(), structures[0].unflatten(outs[:n])

    return checked
