"""Finding where nan and infinities come from: an interpreter that looks at every result."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import numpy as np

from fnx.core import config, dtypes
from fnx.core.array import Array, ConcreteArray
from fnx.core.errors import FnxError
from fnx.core.interpreter import Interpreter, current, evaluate
from fnx.core.jaxpr import subjaxprs
from fnx.core.primitive import Primitive
from fnx.core.source import Source, at_line
from fnx.process.watched import run_watched, running


class NanFound(FnxError, FloatingPointError):
    """An operation made a nan, or an infinity."""


class FindNans(Interpreter):
    """Evaluates, and raises NanFound where a result has a nan, or an infinity, that no operand has."""

    what = "debug_nans"
    parent = evaluate

    def process(self, prim: Primitive, args: tuple) -> tuple:
        token = current.set(evaluate)
        try:
            outs = evaluate.process(prim, args)
            what = _made(outs, args)
            if what:
                if any(subjaxprs(prim)):
                    run_watched(prim, args, _look)
                raise NanFound(_message(what, prim.name, args, outs))
        finally:
            current.reset(token)
        return outs


def _made(outs: Sequence[Array], args: Sequence[Array]) -> str:
    """What the settings look for that results have and operands have not: "nan", "infinity" or ""."""
    for setting, what, test in (
        (config.debug_nans, "nan", np.isnan),
        (config.debug_infs, "infinity", np.isinf),
    ):
        if setting.value and _any(test, outs) and not _any(test, args):
            return what
    return ""


def _any(test: Callable, values: Sequence[Array]) -> bool:
    return any(
        type(v) is ConcreteArray and dtypes.kind(v.dtype) in "fc" and bool(test(v._value).any())
        for v in values
    )


def _message(what: str, name: str, args: Sequence[Array], outs: Sequence[Array]) -> str:
    given = ", ".join(_short(a) for a in args)
    article = "an" if what == "infinity" else "a"
    return (
        f"the operation {name} made {article} {what}: of {given} it computed "
        f"{', '.join(map(_short, outs))}{_element(what, args, outs)}. "
        "Expected operands for which it is defined; look where they come from."
    )


def _element(what: str, args: Sequence[Array], outs: Sequence[Array]) -> str:
    """Which element it is first, and of which numbers, where there are many."""
    test = np.isnan if what == "nan" else np.isinf
    for out in outs:
        if out.ndim and _any(test, [out]):
            value = out._value  # type: ignore[attr-defined]
            index = tuple(map(int, np.argwhere(test(value))[0]))
            text = f"; first at {list(index)}, {value[index]}"
            same = [a._value[index] for a in args if a.shape == out.shape]  # type: ignore[attr-defined]
            return text + (f" of {', '.join(map(str, same))}" if same else "")
    return ""


def _short(x: Array) -> str:
    text = str(x).replace("\n", " ")
    return f"{x.aval.str_short()} {text if len(text) < 60 else text[:57] + '...'}"


def _look(name: str, source: Source | None, args: Sequence[Array], outs: Sequence[Array]) -> None:
    """Raise where an operation in a program made what is looked for."""
    what = _made(outs, args)
    if not what:
        return
    error = NanFound(_message(what, name, args, outs) + _where(name, source))
    if source is not None:
        error.source = source
    raise error


def _where(name: str, source: Source | None) -> str:
    """The user's line, whose derivative it is, and the iterations of the loops around."""
    text = at_line(source).replace("at", "made at", 1)
    if source is not None and source.role and not source.role.endswith(f" of {name}"):
        text += f", in {source.role}"
    return text + "".join([f"\n  in {loop}" for loop in reversed(running.get())])


_finder = FindNans()


def follow_setting() -> None:
    """Put the finder in place of plain evaluation, or take it away, in this thread."""
    now = current.get()
    looking = config.debug_nans.value or config.debug_infs.value
    if looking and now is evaluate:
        current.set(_finder)
    elif not looking and now is _finder:
        current.set(evaluate)


@contextmanager
def _within(setting: config.Setting, new_val: bool) -> Iterator[None]:
    with setting(new_val):
        now = current.get()
        wanted = _finder if config.debug_nans.value or config.debug_infs.value else evaluate
        token = current.set(wanted) if now in (evaluate, _finder) else None
        try:
            yield
        finally:
            if token is not None:
                current.reset(token)


def debug_nans(new_val: bool = True) -> AbstractContextManager[None]:
    """Within it, an operation that makes a nan raises FloatingPointError, which names its line.

    Compiled functions run as they are; if their results have nans, they run again step by step.

    >>> with fnx.debug_nans():  # doctest: +IGNORE_EXCEPTION_DETAIL
    ...     jnp.log(-1.0)
    Traceback (most recent call last):
    fnx.process.nan_checks.NanFound: the operation log made a nan
    """
    return _within(config.debug_nans, new_val)


def debug_infs(new_val: bool = True) -> AbstractContextManager[None]:
    """As `debug_nans`, of infinities.

    >>> with fnx.debug_infs():  # doctest: +IGNORE_EXCEPTION_DETAIL
    ...     jnp.log(0.0)
    Traceback (most recent call last):
    fnx.process.nan_checks.NanFound: the operation log made an infinity
    """
    return _within(config.debug_infs, new_val)
