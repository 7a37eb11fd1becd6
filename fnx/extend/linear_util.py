"""Functions with transformations around them, as `jax.extend.linear_util` has them.

A transformation is a generator: it yields the arguments for the function inside, gets its result, and
yields the result for the outside.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from fnx.core.errors import InvalidValue
from fnx.interpreters.wrapped_fun import WrappedFun

__all__ = [
    "StoreException",
    "WrappedFun",
    "merge_linear_aux",
    "transformation",
    "transformation2",
    "transformation_with_aux",
    "wrap_init",
]


class StoreException(Exception):
    """Something is asked for that a call has not made yet.

    >>> issubclass(fnx.extend.linear_util.StoreException, Exception)
    True
    """


def wrap_init(f: Callable, params: dict | None = None, *, debug_info: Any = None) -> WrappedFun:
    """A function as transformations take it; `params` are further arguments by name.

    >>> fnx.extend.linear_util.wrap_init(lambda x: x + 1).call_wrapped(2)
    3
    """
    return WrappedFun(f, params, debug_info)


def _run(generator: Callable, extra: tuple, fun: WrappedFun, args: tuple, kwargs: dict) -> Any:
    steps = generator(*extra, *args, **kwargs)
    inner_args, inner_kwargs = next(steps)
    out = steps.send(fun.call_wrapped(*inner_args, **inner_kwargs))
    steps.close()
    return out


def transformation(generator: Callable) -> Callable[..., WrappedFun]:
    """A function of a WrappedFun, and of the generator's first arguments, that gives a WrappedFun.

    >>> from fnx.extend import linear_util
    >>> @linear_util.transformation
    ... def scaled(factor, x):
    ...     out = yield (x * factor,), {}
    ...     yield out + 1
    >>> scaled(linear_util.wrap_init(lambda x: x * x), 3).call_wrapped(2)
    37
    """

    def transform(fun: WrappedFun, *extra: Any) -> WrappedFun:
        call = lambda *args, **kwargs: _run(generator, extra, fun, args, kwargs)
        return WrappedFun(call, debug_info=fun.debug_info)

    return transform


def transformation2(function: Callable) -> Callable[..., WrappedFun]:
    """As `transformation`, of a function of the function inside, further arguments, and the call's.

    >>> from fnx.extend import linear_util
    >>> @linear_util.transformation2
    ... def scaled(f, factor, x):
    ...     return f(x * factor) + 1
    >>> scaled(linear_util.wrap_init(lambda x: x * x), 3).call_wrapped(2)
    37
    """

    def transform(fun: WrappedFun, *extra: Any) -> WrappedFun:
        return WrappedFun(partial(function, fun.call_wrapped, *extra), debug_info=fun.debug_info)

    return transform


def transformation_with_aux(generator: Callable) -> Callable[..., tuple[WrappedFun, Callable]]:
    """As `transformation`, of generators that yield a pair at last: the result, and what is kept.

    The second of the two results is a function, which gives what the last call kept; StoreException if
    there was none.

    >>> from fnx.extend import linear_util
    >>> @linear_util.transformation_with_aux
    ... def counted(*args):
    ...     out = yield args, {}
    ...     yield out, len(args)
    >>> fun, aux = counted(linear_util.wrap_init(max))
    >>> fun.call_wrapped(2, 3), aux()
    (3, 2)
    """

    def transform(fun: WrappedFun, *extra: Any) -> tuple[WrappedFun, Callable]:
        kept: list = []

        def call(*args: Any, **kwargs: Any) -> Any:
            out, aux = _run(generator, extra, fun, args, kwargs)
            kept[:] = [aux]
            return out

        def aux() -> Any:
            if not kept:
                raise StoreException("the function has not been called yet")
            return kept[0]

        return WrappedFun(call, debug_info=fun.debug_info), aux

    return transform


def merge_linear_aux(first: Callable, second: Callable) -> tuple[bool, Any]:
    """Whether the first of two functions was called, and what the one that was called kept.

    InvalidValue, a ValueError, if neither was.

    >>> from fnx.extend import linear_util
    >>> @linear_util.transformation_with_aux
    ... def counted(*args):
    ...     out = yield args, {}
    ...     yield out, len(args)
    >>> (_, first), (fun, second) = (counted(linear_util.wrap_init(f)) for f in (min, max))
    >>> fun.call_wrapped(2, 3), linear_util.merge_linear_aux(first, second)
    (3, (False, 2))
    """
    for one, thunk in ((True, first), (False, second)):
        try:
            return one, thunk()
        except StoreException:
            continue
    raise InvalidValue("neither of two functions has been called; expected one of them")
