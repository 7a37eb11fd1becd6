"""Checks of values inside of functions: a primitive, and the error that it leaves, as a value."""

import string
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fnx import numpy, tree_util
from fnx.core.array import ConcreteArray, as_array
from fnx.core.aval import ShapedArray
from fnx.core.dtypes import canonical
from fnx.core.errors import FnxError, InvalidValue, TypeMismatch
from fnx.core.primitive import Primitive
from fnx.core.recipe import Call, Host, Operand, Recipe
from fnx.interpreters.control import Cond
from fnx.ops.basic import move_axis
from fnx.ops.compose import Program
from fnx.ops.convert import ConvertElementType

jnp: Any = numpy  # arrays get their methods when it is imported, which type checkers do not see


class CheckError(FnxError, ValueError):
    """A check failed.

    >>> from fnx.experimental import checkify
    >>> issubclass(checkify.JaxRuntimeError, Exception)
    True
    """


@dataclass(frozen=True)
class Site:
    """A place where something is checked: what it says of its values, the first `args` by position."""

    message: str
    args: int = 0
    names: tuple[str, ...] = ()

    def text(self, values: Sequence) -> str:
        named = dict(zip(self.names, values[self.args :]))
        return self.message.format(*values[: self.args], **named)


# --- the error, as a value ---------------------------------------------------------------------


@tree_util.register_pytree_node_class
class Error:
    """Which check failed first, if any: `get()` is its message or None, `throw()` raises it.

    A pytree, so that transformed functions can return it; `code` is the number of the site, or 0.

    >>> from fnx.experimental import checkify
    >>> error, _ = checkify.checkify(jnp.log, errors=checkify.nan_checks)(-1.0)
    >>> error.get() is not None
    True
    """

    def __init__(self, code: Any, values: Sequence, sites: tuple[Site, ...]):
        self.code, self.values, self.sites = code, tuple(tuple(v) for v in values), sites

    def tree_flatten(self) -> tuple:
        return (self.code, self.values), self.sites

    @classmethod
    def tree_unflatten(cls, sites: tuple[Site, ...], children: Sequence) -> "Error":
        self = object.__new__(cls)
        (self.code, self.values), self.sites = children, sites
        return self

    def get(self) -> str | None:
        """What the first check that failed says, for each lane where one did; None if none failed."""
        codes = np.asarray(self.code)
        texts = []
        for lane in np.argwhere(codes):
            k = int(codes[tuple(lane)]) - 1
            values = [_lane(v, lane) for v in self.values[k]]
            where = f"at mapped index {', '.join(map(str, lane))}: " if codes.ndim else ""
            texts.append(where + self.sites[k].text(values))
        return "\n".join(texts) or None

    def get_exception(self) -> CheckError | None:
        """The error that `throw` raises, or None."""
        text = self.get()
        return None if text is None else CheckError(text)

    def throw(self) -> None:
        """Raise CheckError (a ValueError) if a check failed."""
        error = self.get_exception()
        if error is not None:
            raise error

    def __repr__(self) -> str:
        return f"Error({self.get() if isinstance(self.code, ConcreteArray) else self.code})"


def _lane(v: Any, lane: np.ndarray) -> Any:
    array = np.asarray(v)
    return array[tuple(lane)] if len(lane) and array.ndim >= len(lane) else array


# --- checks ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check(Primitive):
    """Operands: whether all is well, and the values that the message shows. Fails where it runs."""

    site: Site
    debug: bool = field(default=False)
    failed: bool = field(default=False)  # known to fail: compiled code calls the host then only
    name = "check"
    multiple_results = True
    effects = True

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        return ()

    def impl(self, good: np.ndarray, *values: np.ndarray) -> tuple:  # type: ignore[override]
        if not self.debug and not good:
            raise CheckError(self.site.text(values))
        return ()

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        return self.bind(*primals), ()

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        args = tuple([x if k is None else move_axis(x, k, 0) for x, k in zip(args, axes)])
        if axes[0] is None:
            lane: Any = 0
            good = args[0]
        else:
            lane, good = jnp.argmin(args[0]), jnp.all(args[0])
        values = [x if k is None else x[lane] for x, k in zip(args[1:], axes[1:])]
        return self.bind(good, *values), ()

    def lower(self, *operands: Operand) -> Recipe:
        if self.failed:
            return Host()
        p = Program([ShapedArray(x.shape, canonical(x.dtype)) for x in operands])
        if not self.debug:
            fail, fine = Program([v.aval for v in p.inputs]), Program([v.aval for v in p.inputs])
            fail(replace(self, failed=True), *fail.inputs)
            index = p(ConvertElementType(np.dtype(np.int32)), p.inputs[0])
            p(Cond((fail.jaxpr("failed"), fine.jaxpr("fine"))), index, *p.inputs)
        return Call(p.jaxpr(self.name))


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Raise, or under `checkify` note, an error with this message unless `pred`, a bool, is true.

    `msg` may show arrays, as `str.format` does. Without checkify it raises CheckError (a ValueError) when
    the program comes here, in compiled programs too; with `debug` it does nothing without checkify.

    >>> check(True, "never mind")
    """
    good = as_array(pred)
    if good.shape or good.dtype != np.dtype(bool):
        raise TypeMismatch(
            f"check needs one bool, got {good.aval.str_short()}; reduce it with jnp.all"
        )
    used = {f[1] for f in string.Formatter().parse(msg) if f[1] is not None}
    missing = {
        n for n in used if n and n[0].isalpha() and n.split(".")[0].split("[")[0] not in fmt_kwargs
    }
    if missing:
        raise InvalidValue(f"check: the message speaks of {sorted(missing)}, which are not given")
    values = [as_array(x) for x in (*fmt_args, *fmt_kwargs.values())]
    site = Site(f"{msg} (`check` failed)", len(fmt_args), tuple(fmt_kwargs))
    Check(site, debug)(good, *values)


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """As `check`, of which nothing is left without checkify.

    >>> from fnx.experimental import checkify
    >>> def root(x):
    ...     checkify.debug_check(x >= 0, "negative: {x}", x=x)
    ...     return jnp.sqrt(x)
    >>> error, y = checkify.checkify(root)(4.0)
    >>> error.get() is None, float(y), float(root(9.0))
    (True, 2.0, 3.0)
    """
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def check_error(error: Error) -> None:
    """`check` that `error` is none: passes it on to an outer checkify, or raises it.

    >>> from fnx.experimental.checkify import checkify
    >>> check_error(checkify(lambda x: x)(1.0)[0])
    """
    for k, (site, values) in enumerate(zip(error.sites, error.values)):
        good = jnp.all(as_array(error.code) != k + 1)
        Check(site)(good, *[as_array(v) for v in values])
