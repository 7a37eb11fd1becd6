"""Finding where nan and infinities come from: an interpreter that looks at every result."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from fnx.core import config, dtypes
from fnx.core.array import Array, ConcreteArray
from fnx.core.errors import FnxError
from fnx.core.interpreter import Interpreter, current, evaluate, set_current, use
from fnx.core.jaxpr import subjaxprs
from fnx.core.primitive import Primitive
from fnx.core.source import (
    Source,
    origin,
    public_call,
    set_public_call,
)
from fnx.interpreters.batching import BatchTracer
from fnx.interpreters.jvp import JVPTracer
from fnx.process.watching.indices import look_at_index
from fnx.process.watching.places import members, places, short, where
from fnx.process.watching.traced_infinities import TracedInfinities, marked, number_of_infinity
from fnx.process.watching.watched import Infinities, Numbered, number_of, run_watched
from fnx.pytree.operations import tree_leaves


class NanFound(FnxError, FloatingPointError):
    """An operation made a nan, or an infinity."""


class FindNans(Interpreter):
    """Evaluates, and raises NanFound where an operation makes a nan, or an infinity, that no operand has.

    Of a program it is enough that results have one, as its arguments may hold what its operations make.
    With `debug_index`, OutOfBounds where an index is out of bounds.
    """

    what = "debug_nans"
    parent = evaluate
    looks = True

    def process(self, prim: Primitive, args: tuple) -> tuple:
        token = set_current[evaluate]
        try:
            outs = (
                evaluate.process(prim, args)
                if not config.debug_index.value
                else _indexed(prim, args)
            )
            call = public_call.get()
            if call is not None:
                call.note(prim, args, outs)
            elif what := _made(outs, () if any(subjaxprs(prim)) else args):
                raise _found(what, prim, args, outs)
        finally:
            current.reset(token)
        return outs


def _found(what: str, prim: Primitive, args: tuple, outs: tuple, said: str = "") -> NanFound:
    """The error that names an operation, or the one in its jaxprs."""
    if any(subjaxprs(prim)):
        try:
            number = _traced_back(what, prim, args)
            if not 0 < number <= len(args):
                run_watched(prim, args, _look)
                run_watched(prim, args, _look_at_numbers)
                test = _TESTS[what]
                number = next((k for k, a in enumerate(args, 1) if _any(test, [a])), 0)
        except NanFound as inner:
            return inner
        if number:
            return _came_in(what, prim, args, number - 1)
    text = _message(what, prim.name, args, outs) + (said if what == "nan" and said else _EXPECTED)
    return NanFound(text.strip() + _here(prim.name, what, outs))


def _traced_back(what: str, prim: Primitive, args: tuple) -> int:
    """Raise where what results of a program have was made; the number of an argument that held it, or 0."""
    kind, find, found = _WATCHES[what]
    given = marked(args, _TESTS[what])
    number = find(run_watched(prim, given, kind(len(args))), len(args))
    either = what == "nan" and config.debug_infs.value  # an infinity may have come first
    if number > len(args) and not either:
        run_watched(prim, given, found(len(args), number))
    return number


def _came_in(what: str, prim: Primitive, args: tuple, k: int) -> NanFound:
    """The error of a program whose results have what its arguments held already."""
    program = next(iter(subjaxprs(prim)))
    name = f"{prim.name} of {program.name}" if program.name else prim.name
    k -= program.consts
    which = f"argument {k}, counted from 0," if k >= 0 else "an array that it closes over"
    held = args[k + program.consts]
    at = list(map(int, np.argwhere(_TESTS[what](held._value))[0]))
    said = f"{short(held)}{f'; first at {at}' if at else ''}"
    return NanFound(
        f"a result of {name} has {_ARTICLE[what]} {what} that came in: {which} holds one, {said}. "
        f"Expected arguments without; look where they come from.{places()}"
    )


def _numbered(given: int, number: int) -> Numbered:
    """What raises where the nan of a number is made."""

    def found(
        prim: Primitive, source: Any, args: Sequence, outs: Sequence, written: Sequence, at: tuple
    ) -> None:
        in_text = any([w and _any(np.isnan, [a]) for w, a in zip(written, args)])
        said = _IN_TEXT if in_text else look.infinities.said(args) or _EXPECTED
        _blame("nan", prim.name, source, args, outs, said.rstrip(), at)

    look = Numbered(given, number, found)
    return look


_infinity_found: Callable = lambda prim, source, args, outs, written, at: _blame(
    "infinity", prim.name, source, args, outs, _EXPECTED, at
)
_TESTS: dict[str, Callable] = {"nan": np.isnan, "infinity": np.isinf}
_ARTICLE = {"nan": "a", "infinity": "an"}
# How each is traced back: what numbers it, how results tell the number, and what raises where it is made.
_WATCHES: dict[str, tuple[Callable, Callable, Callable]] = {
    "nan": (Numbered, number_of, _numbered),
    "infinity": (
        TracedInfinities,
        number_of_infinity,
        lambda given, number: TracedInfinities(given, number, _infinity_found),
    ),
}


def _here(name: str, what: str, outs: Sequence[Array]) -> str:
    """Whose derivative an operation is part of that runs now, and for which members."""
    source = origin.get()
    role = "" if source is None or source.role.endswith(f" of {name}") else source.role
    said = f"\n  in {role}" if role else ""
    return said + members(source, _first(what, outs)) + places()


class PublicCall:
    """A public function that runs at once: only what its results have is wrong, and is traced back.

    What a formula makes on its way, and chooses against in the end, is no mistake of the caller's.
    """

    def __init__(self) -> None:
        # By the numbers that are wrong: these, why, and of which members.
        self.blamed: dict[int, tuple[Any, NanFound | None, str]] = {}
        self.infinities = Infinities()

    def note(self, prim: Primitive, args: tuple, outs: tuple) -> None:
        """Keep which operation it comes from that results are wrong."""
        self.infinities.note(prim, origin.get(), args, outs)
        wrong = [o for o in outs if _any(_is_wrong, [o])]
        if not wrong:
            return
        error, told = self.of(args)
        if error is None and (what := _made(outs, args)):
            error = _found(what, prim, args, outs, self.infinities.said(args))
        if error is None and not told:  # a number in the function's text, or a slope that is one
            what = "nan" if config.debug_nans.value and _any(np.isnan, outs) else "infinity"
            told = members(origin.get(), _first(what, outs))
            if getattr(origin.get(), "role", ""):
                text = _message(what, prim.name, args, outs) + "An operand of it is one already."
                error = NanFound(text + _here(prim.name, what, outs))
        self.blamed.update({id(o._value): (o._value, error, told) for o in wrong})  # type: ignore[attr-defined]

    def of(self, arrays: Sequence[Array]) -> tuple[NanFound | None, str]:
        """Why arrays are wrong, if it is known, and to which members of vmaps that belongs."""
        known = [
            self.blamed[k] for x in arrays if (k := id(getattr(x, "_value", None))) in self.blamed
        ]
        for _, error, told in (*[k for k in known if k[1] is not None], *known):
            return error, told
        return None, ""


def _is_wrong(x: np.ndarray) -> np.ndarray:
    """What the settings look for."""
    infs = np.isinf(x) if config.debug_infs.value else np.False_
    return infs | np.isnan(x) if config.debug_nans.value else infs


def _call_public(fun: Callable, inner: Callable, args: tuple, kwargs: dict) -> Any:
    """Results of a public function, which are looked at when it is done."""
    if public_call.get() is not None:
        return inner(*args, **kwargs)
    call = PublicCall()
    token = set_public_call[call]
    try:
        result = inner(*args, **kwargs)
    finally:
        public_call.reset(token)
    given = _concrete((args, kwargs))
    outs = _concrete(result)
    if what := _made(outs, given):
        error, told = call.of([o for o in outs if _any(_is_wrong, [o])])
        text = _message(what, _name(fun), given, outs, "function") + _EXPECTED
        raise error or NanFound(text + told + places())
    return result


def _name(fun: Callable) -> str:
    """A public function with the module that users know it by."""
    module = fun.__module__.removeprefix("fnx.")
    inner = module.startswith("numpy.") and module not in ("numpy.linalg", "numpy.fft")
    return f"{'numpy' if inner else module}.{fun.__name__}"


def _concrete(tree: Any) -> list[Array]:
    """All that is known of the numbers in a tree, those that tracers carry included."""
    found: list[Array] = []
    for x in tree_leaves(tree):
        if isinstance(x, JVPTracer):
            found += _concrete((x.primal, x.tangent))
        elif isinstance(x, BatchTracer):
            found += _concrete(x.value)
        elif type(x) is ConcreteArray:
            found.append(x)
        elif isinstance(x, (float, complex, np.ndarray, np.generic)):
            found += [ConcreteArray(v) for v in [np.asarray(x)] if v.dtype.kind in "fc"]
    return found


def _indexed(prim: Primitive, args: tuple) -> tuple:
    """Results of a primitive; raises where an index is out of bounds."""
    if not any(subjaxprs(prim)):
        look_at_index(prim, None, args)
        return evaluate.process(prim, args)
    outs, out_of_bounds = index_checks[-1](prim, args)
    if out_of_bounds:
        run_watched(prim, args, _look)
    return outs


# What runs a primitive that carries jaxprs, and tells whether an index in them was out of bounds.
index_checks: list[Callable[[Primitive, tuple], tuple[tuple, bool]]] = []


def _made(outs: Sequence[Array], args: Sequence[Array]) -> str:
    """What the settings look for that results have and operands have not: "nan", "infinity" or ""."""
    if config.debug_nans.value and _any(np.isnan, outs) and not _any(np.isnan, args):
        return "nan"
    if config.debug_infs.value and _any(np.isinf, outs) and not _any(np.isinf, args):
        return "infinity"
    return ""


def _any(test: Callable, values: Sequence[Array]) -> bool:
    for v in values:
        if type(v) is ConcreteArray and dtypes.kind(v.dtype) in "fc" and test(v._value).any():
            return True
    return False


def _message(
    what: str,
    name: str,
    args: Sequence[Array],
    outs: Sequence[Array],
    kind: str = "operation",
    at: Any = None,
) -> str:
    given = ", ".join(short(a) for a in args)
    return (
        f"the {kind} {name} made {_ARTICLE[what]} {what}: of {given} it computed "
        f"{', '.join(map(short, outs))}{_element(args, at or _first(what, outs))}. "
    )


_EXPECTED = "Expected operands for which it is defined; look where they come from."
_IN_TEXT = "An operand of it is one, as a number in the program's text. Expected another there."


def _element(args: Sequence[Array], at: tuple[Array, tuple[int, ...]] | None) -> str:
    """Which element it is first, and of which numbers, where there are many."""
    if at is None or not at[0].ndim:
        return ""
    out, index = at
    text = f"; first at {list(index)}, {out._value[index]}"  # type: ignore[attr-defined]
    same = [a._value[index] for a in args if a.shape == out.shape]  # type: ignore[attr-defined]
    return text + (f" of {', '.join(map(str, same))}" if same else "")


def _first(what: str, outs: Sequence[Array]) -> tuple[Array, tuple[int, ...]] | None:
    """The first element that is wrong: in which result, and its index."""
    test = _TESTS[what]
    for out in outs:
        if _any(test, [out]):
            return out, tuple(map(int, np.argwhere(test(out._value))[0]))  # type: ignore[attr-defined]
    return None


def _look(
    prim: Primitive,
    source: Source | None,
    args: Sequence[Array],
    outs: Sequence[Array],
    written: Sequence[bool],
) -> None:
    """Raise where an operation in a program made what is looked for."""
    if config.debug_index.value:
        look_at_index(prim, source, args)
    what = _made(outs, args)
    if what:
        _blame(what, prim.name, source, args, outs, _EXPECTED)


def _look_at_numbers(
    prim: Primitive,
    source: Source | None,
    args: Sequence[Array],
    outs: Sequence[Array],
    written: Sequence[bool],
) -> None:
    """Raise where what is looked for came in as a number in the program's text, as no operation made it."""
    what = _made(outs, [a for a, w in zip(args, written) if not w])
    if what:
        _blame(what, prim.name, source, args, outs, _IN_TEXT)


def _blame(
    what: str,
    name: str,
    source: Source | None,
    args: Sequence[Array],
    outs: Sequence[Array],
    expected: str,
    at: tuple[Array, tuple[int, ...]] | None = None,
) -> None:
    said = where(name, source, members(source, at or _first(what, outs)))
    error = NanFound(_message(what, name, args, outs, at=at) + expected + said)
    if source is not None:
        error.source = source
    raise error


FindNans.run_public = staticmethod(_call_public)
_finder = FindNans()


def _is_looking() -> bool:
    settings = config.debug_nans, config.debug_infs, config.debug_index
    return any(s.value for s in settings)


def follow_setting() -> None:
    """Put the finder in place of plain evaluation, or take it away, in this thread."""
    now = current.get()
    looking = _is_looking()
    if looking and now is evaluate:
        current.set(_finder)
    elif not looking and now is _finder:
        current.set(evaluate)


@contextmanager
def looking(setting: config.Setting, new_val: bool) -> Iterator[None]:
    with setting(new_val):
        now = current.get()
        wanted = _finder if _is_looking() else evaluate
        with use(wanted) if now in (evaluate, _finder) else nullcontext():
            yield


def debug_nans(new_val: bool = True) -> AbstractContextManager[None]:
    """Within it, an operation that makes a nan raises FloatingPointError, which names its line.

    Compiled functions run as they are; if their results have nans, they run again step by step.

    >>> with fnx.debug_nans():  # doctest: +IGNORE_EXCEPTION_DETAIL
    ...     jnp.log(-1.0)
    Traceback (most recent call last):
    fnx.process.nan_checks.NanFound: the operation log made a nan
    """
    return looking(config.debug_nans, new_val)


def debug_infs(new_val: bool = True) -> AbstractContextManager[None]:
    """As `debug_nans`, of infinities.

    >>> with fnx.debug_infs():  # doctest: +IGNORE_EXCEPTION_DETAIL
    ...     jnp.log(0.0)
    Traceback (most recent call last):
    fnx.process.nan_checks.NanFound: the operation log made an infinity
    """
    return looking(config.debug_infs, new_val)


follow_setting()  # the environment may have asked
