"""`fnx.debug.explore`: a function run by Python, with values, so that debuggers can stop in it.

Bodies of loops run iteration by iteration, and mapped functions member by member. What nobody wants to
see runs compiled, or all at once, and debuggers do not stop in it.
"""

import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fnx.core import config
from fnx.core.array import Array
from fnx.core.axis_size import axis_name_of
from fnx.core.errors import (
    ASKED_FOR_NUMBERS,
    InvalidValue,
    TracerArrayConversionError,
    TypeMismatch,
    entrance,
)
from fnx.core.interpreter import Tracer
from fnx.core.source import LoopSite, is_internal, name_of, user_source, warn_user
from fnx.core.threads.atomic import during
from fnx.numpy.structure.joining import concatenate, stack
from fnx.observe.lockstep import Quiet, run_in_lockstep
from fnx.ops.base.permute import Reshape, move_axis
from fnx.ops.structure.slice import slice_axis
from fnx.process.watching.watched import running
from fnx.pytree import operations
from fnx.pytree.flatten_fun import check_callable

Numbers = int | Collection[int]
Choice = Numbers | Mapping[str, Numbers] | None
Span = tuple[int, int | None, bool]  # from, to, and whether somebody looks


@entrance
def explore(
    f: Callable, *args: Any, iterations: Choice = None, members: Choice = None, **kwargs: Any
) -> Any:
    """`f(*args, **kwargs)` run by Python, so that breakpoints in it, and in what it calls, see values.

    Jitted functions, bodies of loops and branches, and functions under vmap, pmap and shard_map, which
    run member by member, all see numbers; under grad and jvp they see tracers that say which number they
    stand for. `iterations` and `members` choose where debuggers stop: a number, or a collection of them,
    for the outermost loops and mapped functions, or a dict of such by the names of the functions that
    are looped over or mapped. All else runs compiled, if it asks for no numbers.
    `breakpoint()`, pdb and what is based on it work.

    TypeError for choices of another kind, and for traced arguments; ValueError for members that there
    are not.

    >>> def step(total, x):
    ...     print("step sees", total, x)  # or breakpoint()
    ...     return total + x, None
    >>> f = fnx.jit(lambda xs: lax.scan(step, 0.0, xs)[0])
    >>> float(fnx.debug.explore(f, np.arange(3.0)))
    step sees 0.0 0.0
    step sees 0.0 1.0
    step sees 1.0 2.0
    3.0
    """
    check_callable(f, "debug.explore")
    for x in operations.tree_leaves((args, kwargs)):
        if isinstance(x, Tracer) and not _is_known(x):
            raise TracerArrayConversionError(
                f"debug.explore of {name_of(f)} got a traced value of type {x.aval.str_short()}, whose "
                f"numbers are not known inside {x.owner.what}. Expected arrays: call debug.explore from "
                "outside of jitted functions."
            )
    me = Exploration(_Choice(iterations, "iterations"), _Choice(members, "members"))
    with during(config.set_exploration, me), config.disable_jit(True):
        out = f(*args, **kwargs)
    me.check()
    return out


def _is_known(x: Array | None) -> bool:
    while isinstance(x, Tracer):
        x = x.owner.concrete(x)
    return x is not None


class _Choice:
    """Which iterations, or members, people want to see."""

    def __init__(self, given: Choice, what: str):
        self.what, self.given = what, given
        self.met: set[str] = set()
        self.by_name = isinstance(given, Mapping)
        parts = given.values() if isinstance(given, Mapping) else [given]
        self.parts = [None if p is None else _numbers(p, what) for p in parts]
        self.names = list(given) if isinstance(given, Mapping) else []

    def of(self, name: str, outermost: bool) -> Collection[int] | None:
        """The numbers of those of a function; None: all."""
        if not self.by_name:
            return self.parts[0] if outermost else None
        self.met.add(name)
        return self.parts[self.names.index(name)] if name in self.names else None


def _numbers(given: Any, what: str) -> Collection[int]:
    single = isinstance(given, (int, np.integer)) and not isinstance(given, bool)
    found = [given] if single else given
    if isinstance(found, range):
        return found
    good = isinstance(found, Collection) and not isinstance(found, (str, bytes))
    if not good or not all(isinstance(k, (int, np.integer)) for k in found):
        raise TypeMismatch(
            f"debug.explore with {what}={given!r:.80}; expected an integer, a collection of integers, or "
            "a dict of such by the names of functions"
        )
    return frozenset(map(int, found))


class _Place:
    """An iteration or a member that is being run, for errors."""

    def __init__(self, kind: str, number: int, of: Any):
        self.kind, self.number, self.of = kind, number, of

    def __str__(self) -> str:
        return f"{self.kind} {self.number} of {self.of}"


@contextmanager
def _at(place: _Place) -> Iterator[None]:
    """Running there: exceptions get a note of it."""
    token = running.set((*running.get(), place))  # type: ignore[arg-type]
    try:
        yield
    except Exception as error:
        error.add_note(f"in {place}")
        raise
    finally:
        running.reset(token)


class Exploration:
    """What loops and mapped functions ask while somebody explores."""

    def __init__(self, iterations: _Choice, members: _Choice):
        self.iterations, self.members = iterations, members

    def check(self) -> None:
        """Warn of chosen names that were not met."""
        for choice in (self.iterations, self.members):
            missing = [n for n in choice.names if n not in choice.met]
            if missing:
                warn_user(
                    f"debug.explore with {choice.what} of {', '.join(missing)}: met were "
                    f"{', '.join(sorted(choice.met)) or 'none'}",
                    RuntimeWarning,
                )

    @contextmanager
    def compiled(self) -> Iterator[None]:
        """Within it nobody looks, and functions are compiled as always."""
        with during(config.set_exploration, None), self.quiet(), config.disable_jit(False):
            yield

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Within it debuggers do not stop, though Python runs all."""
        quiet = Quiet()
        quiet.begin()
        try:
            yield
        finally:
            quiet.end()

    def iteration(self, site: LoopSite, number: int) -> Any:
        return _at(_Place("iteration", number, site))

    def spans(self, name: str, site: LoopSite, count: int | None, reverse: bool) -> Iterator[Span]:
        """The iterations of a loop in the order in which they run, in pieces that are seen or are not.

        Without a count there may be any number of them, and the last piece has no end.
        """
        outermost = not any(getattr(p, "kind", "") == "iteration" for p in running.get())
        chosen = self.iterations.of(name, outermost)
        if chosen is None:
            return iter([(0, count, True)])
        found = _pieces(chosen, count, f"{name} in {site}")
        return reversed(found) if reverse else iter(found)  # type: ignore[return-value]

    def batch(self, fun: Callable, what: str, batch: Callable) -> Callable:
        """What runs a mapped function: member by member, if it is the user's; `batch` all at once."""
        if not _is_users(fun):
            return lambda *given: self._all_at_once(batch, *given)
        source = user_source()
        of = f"{what} of {name_of(fun)}" + ("" if source is None else f" at {source}")

        def by_member(
            fn: Callable, size: int, args: Sequence[Array], axes: Sequence[int | None]
        ) -> tuple[list[Array], list[int | None]]:
            outermost = not any(getattr(p, "kind", "") == "member" for p in running.get())
            seen = _members(self.members.of(name_of(fun), outermost), int(size), of)
            if not int(size):
                return self._all_at_once(batch, fn, size, args, axes)
            given = lambda k: [x if a is None else _element(x, a, k) for x, a in zip(args, axes)]
            at = lambda k: _at(_Place("member", k, of))
            if axis_name_of(size) is not None:
                return _combined(run_in_lockstep(fn, size, given, seen, at))
            outs = {}
            for k in seen:
                with at(k):
                    outs[k] = fn(*given(k))
            rest = [k for k in range(size) if k not in outs]
            if rest:
                others = [x if a is None else _elements(x, a, rest) for x, a in zip(args, axes)]
                try:
                    made = self._all_at_once(batch, fn, len(rest), others, axes)
                    return _in_order(outs, rest, *made) if outs else made
                except ASKED_FOR_NUMBERS:
                    for k in rest:
                        with at(k), self.quiet():
                            outs[k] = fn(*given(k))
            return _combined([outs[k] for k in range(size)])

        return by_member

    def _all_at_once(self, batch: Callable, *given: Any) -> Any:
        with self.compiled():
            return batch(*given)


def _pieces(chosen: Collection[int], count: int | None, what: str) -> list[Span]:
    if count is None and any(k < 0 for k in chosen):
        raise InvalidValue(
            f"debug.explore with iterations={sorted(chosen)} of {what}, which runs nobody knows how "
            "often; expected numbers from 0"
        )
    numbers = sorted({k + count if k < 0 and count is not None else k for k in chosen})
    found: list[Span] = []
    done = 0
    for k in numbers:
        if k < 0 or (count is not None and k >= count):
            continue
        if k > done:
            found.append((done, k, False))
        if found and found[-1][2]:
            found[-1] = found[-1][0], k + 1, True
        else:
            found.append((k, k + 1, True))
        done = k + 1
    if count is None or done < count:
        found.append((done, count, False))
    return found


def _members(chosen: Collection[int] | None, size: int, of: str) -> list[int]:
    if chosen is None:
        return list(range(size))
    wrong = [k for k in chosen if not -size <= k < size]
    if wrong:
        raise InvalidValue(
            f"debug.explore with members={sorted(chosen)}: {of} has {size} members; expected numbers "
            f"from {-size} to {size - 1}"
        )
    return sorted({k % size for k in chosen})


def _is_users(fun: Any) -> bool:
    """Whether a function is the user's, or a transformation of one."""
    while True:
        if isinstance(fun, functools.partial):
            fun = fun.func
        elif inspect.ismethod(fun):
            fun = fun.__func__
        elif hasattr(fun, "__wrapped__"):
            fun = fun.__wrapped__
        else:
            break
    code = getattr(fun, "__code__", None) or getattr(type(fun).__call__, "__code__", None)
    return code is None or not is_internal(code.co_filename)


def _element(x: Array, axis: int, k: int) -> Array:
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    return Reshape(shape)(slice_axis(x, k, k + 1, axis))


def _elements(x: Array, axis: int, ks: list[int]) -> Array:
    return x[(*[slice(None)] * axis, np.asarray(ks))]  # type: ignore[index]


def _combined(rows: Sequence[Sequence[Array]]) -> tuple[list[Array], list[int | None]]:
    """Results of all members, stacked, but for what is the same in all."""
    outs, axes = [], []
    for column in zip(*rows, strict=True):
        same = all(_is_same(x, column[0]) for x in column)
        outs.append(column[0] if same else stack(column))
        axes.append(None if same else 0)
    return outs, axes


def _is_same(x: Array, y: Array) -> bool:
    if x is y or isinstance(x, Tracer) or isinstance(y, Tracer) or x.aval != y.aval:
        return x is y
    return np.asarray(x).tobytes() == np.asarray(y).tobytes()


def _in_order(
    seen: Mapping[int, Sequence[Array]], rest: list[int], outs: list[Array], axes: list
) -> tuple[list[Array], list[int | None]]:
    """Results of members that ran one by one, and of the others, which ran at once."""
    places = np.argsort([*seen, *rest])
    found: list[Array] = []
    where: list[int | None] = []
    for j, (x, k) in enumerate(zip(outs, axes)):
        if k is None and all(_is_same(row[j], x) for row in seen.values()):
            found.append(x)
            where.append(None)
            continue
        where.append(0)
        many = stack([x] * len(rest)) if k is None else move_axis(x, k, 0)
        found.append(concatenate([stack([row[j] for row in seen.values()]), many])[places])
    return found, where


__all__ = ["explore"]
