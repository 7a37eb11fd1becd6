"""Jaxprs that look at the results of every operation as they run, bodies of loops and branches included.

So it is found which operation a nan in results comes from: nans are numbered where they are made. A nan
has bits that mean nothing, and that arithmetic, choices and copies hand on. Into these a number is written,
which counts the elements that were made nan. So what a result has names one element of one operation,
whatever other nans the program made and chose against.
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import field, replace
from typing import Any

import numpy as np

from fnx.core import config, dtypes
from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import evaluate, use
from fnx.core.jaxpr import Eqn, Jaxpr, Literal
from fnx.core.primitive import Primitive
from fnx.core.source import Source
from fnx.core.threads.atomic import setter
from fnx.interpreters.control_flow import ScanRecord, WhileRecord
from fnx.interpreters.rewrite import with_jaxprs

# Looks at an operation, its line, operands and results, and raises where it does not like them; and at
# which of the operands are numbers in the text of the program.
Look = Callable[[Primitive, Source | None, Sequence[Array], Sequence[Array], Sequence[bool]], None]


class Iteration:
    """A loop that runs, and the number of the iteration that it is in."""

    def __init__(self, loop: ScanRecord | WhileRecord):
        self.loop, self.number = loop, -1

    def __str__(self) -> str:
        loop, k = self.loop, self.number
        if isinstance(loop, ScanRecord) and loop.reverse:
            k = loop.length - 1 - k
        return f"iteration {k} of {loop.site or loop.name}"


running: ContextVar[tuple[Iteration, ...]] = ContextVar("fnx_running", default=())
_set_running = setter(running)


@dataclass(frozen=True, eq=False)
class Tick(Primitive):
    """An iteration of the innermost loop that runs begins."""

    name = "tick"
    multiple_results = True
    effects = True

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        return ()

    def impl(self, *values: np.ndarray) -> tuple:
        running.get()[-1].number += 1
        return ()

    def apply(self, *args: Array) -> tuple[Array, ...]:
        return self.impl()


@dataclass(frozen=True)
class Watched(Primitive):
    """An operation whose operands and results are looked at when it was computed."""

    inner: Primitive
    look: Look = field(repr=False)
    source: Source | None = field(default=None, repr=False)
    written: tuple[bool, ...] = field(default=(), repr=False)
    multiple_results = True

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.inner.name

    @property
    def typed_by(self) -> Any:  # type: ignore[override]
        return self.inner.typed_by

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        return self.inner.abstract(*avals)

    def impl(self, *values: np.ndarray) -> Any:
        outs = run_counting(self.inner, lambda: self._evaluated(values))
        results = outs if isinstance(outs, tuple) else (outs,)
        given = [ConcreteArray(v) for v in values]
        made = [None if isinstance(x, Array) else ConcreteArray(np.asarray(x)) for x in results]
        found = [x if a is None else a for x, a in zip(results, made)]
        self.look(self.inner, self.source, given, found, self.written)
        kept = tuple([x if a is None else a._value for x, a in zip(results, made)])
        return kept if isinstance(outs, tuple) else kept[0]  # what the look may have written to

    def _evaluated(self, values: tuple) -> Any:
        """The results, as who looks wants them computed."""
        evaluate = getattr(self.look, "evaluate", None)
        return self.inner.impl(*values) if evaluate is None else evaluate(self.inner, values)


def run_counting(prim: Primitive, run: Callable[[], Any]) -> Any:
    """What `run` gives, which runs a primitive whose iterations are counted if it is a loop."""
    if not isinstance(prim, (ScanRecord, WhileRecord)):
        return run()
    token = _set_running[(*running.get(), Iteration(prim))]
    try:
        return run()
    finally:
        running.reset(token)


def watched(jaxpr: Jaxpr, look: Look) -> Jaxpr:
    """The jaxpr, with each operation in it, at whatever depth, looked at."""
    eqns = []
    for e in jaxpr.eqns:
        written = tuple([isinstance(a, Literal) for a in e.inputs])
        prim = Watched(_within(e.prim, look), look, e.source, written)
        eqns.append(Eqn(prim, e.inputs, e.outs, e.source))
    return jaxpr.with_eqns(eqns)


def _within(prim: Primitive, look: Look) -> Primitive:
    """A primitive whose jaxprs are watched; of a program of members, the call that is the same."""
    as_call = getattr(prim, "as_call", None)
    new = with_jaxprs(prim if as_call is None else as_call(), lambda jaxpr: watched(jaxpr, look))
    if isinstance(new, ScanRecord):
        return replace(new, jaxpr=_ticking(new.jaxpr))
    if isinstance(new, WhileRecord):
        return replace(new, body_jaxpr=_ticking(new.body_jaxpr))
    return new


def _ticking(body: Jaxpr) -> Jaxpr:
    return body.with_eqns([Eqn(Tick(), (), ()), *body.eqns])


def run_watched(prim: Primitive, args: Sequence[Array], look: Look) -> tuple[Array, ...]:
    """The results of an operation with jaxprs, computed again step by step, each looked at."""
    with use(evaluate), config.disable_jit(True):
        inner = _within(prim, look)
        return run_counting(inner, lambda: evaluate.process(inner, tuple(args)))


# --- where nans come from -----------------------------------------------------------------------

# Where a number lies in the bits of a nan: those that are left in float32 of a float64 come first.
_SHORT, _REST = 22, 29
_WORDS: dict[np.dtype, np.dtype[Any]] = {
    np.dtype("f4"): np.dtype("u4"),
    np.dtype("f8"): np.dtype("u8"),
}
_NANS = {np.dtype("u4"): 0x7FC00000, np.dtype("u8"): 0x7FF8 << 48}
_MOST = 256  # arrays with infinities that are remembered

# What raises: an operation with its line, operands, results and numbers, and the element's index.
Found = Callable[
    [Primitive, Source | None, Sequence[Array], Sequence[Array], Sequence[bool], Any], None
]


class Infinities:
    """Which operations infinities come from, of which others then make nans."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, Primitive, Source | None]] = {}  # by the numbers

    def note(
        self, prim: Primitive, source: Source | None, args: Sequence[Array], outs: Sequence[Array]
    ) -> None:
        """Keep where those in the results of an operation come from."""
        for out in outs:
            if not _has_infinity(out):
                continue
            made = self._of(args)
            if made is None:
                slope = source is not None and source.role  # of which an infinity is a residual
                if not slope and any([_has_infinity(a) for a in args]):
                    continue
                made = prim, source
            if len(self.known) >= _MOST:
                del self.known[next(iter(self.known))]
            value = out._value  # type: ignore[attr-defined]
            self.known[id(value)] = (value, *made)

    def _of(self, args: Sequence[Array]) -> tuple[Primitive, Source | None] | None:
        for a in args:
            known = self.known.get(id(getattr(a, "_value", None)))
            if known is not None:
                return known[1:]
        return None

    def said(self, args: Sequence[Array]) -> str:
        """A sentence about those in operands; "" if nothing is known of them."""
        found = self._of(args)
        if found is None:
            return ""
        prim, source = found
        place = "" if source is None else f" at {source}"
        role = "" if source is None or not source.role else f", in {source.role}"
        return f"The infinity in an operand was made by {prim.name}{place}{role}. "


class Numbered:
    """Looks at the operations of a program, and numbers the nans that they make.

    Those of arguments have numbers up to `given`. With `wanted`, a number that another run found in
    results, `found` is called with what made it.
    """

    def __init__(self, given: int = 0, wanted: int = 0, found: Found | None = None):
        self.count, self.wanted, self.found = given, wanted, found
        self.infinities = Infinities()

    def __call__(
        self,
        prim: Primitive,
        source: Source | None,
        args: Sequence[Array],
        outs: Sequence[Array],
        written: Sequence[bool],
    ) -> None:
        if self.wanted:
            self.infinities.note(prim, source, args, outs)
        known = [_bits(a) for a in args]
        given = any([b is not None and _is_nan(b).any() for b, w in zip(known, written) if not w])
        for out in outs:
            bits = _bits(out)
            if bits is None or not bits.flags.writeable:
                continue
            new = np.flatnonzero(_is_nan(bits) & (_numbers(bits) == 0))
            if len(new) and given:
                apart = prim.elementwise and not any([x.dtype.kind == "c" for x in (out, *args)])
                new = _inherit(apart, bits, new, [b for b in known if b is not None])
            if len(new):
                first, self.count = self.count + 1, self.count + len(new)
                bits[new] = _numbered(bits.dtype, np.arange(first, self.count + 1, dtype=np.uint64))
                if self.found is not None and first <= self.wanted <= self.count:
                    at = int(new[self.wanted - first]) // (2 if out.dtype.kind == "c" else 1)
                    index = tuple(map(int, np.unravel_index(at, out.shape)))
                    self.found(prim, source, args, outs, written, (out, index))


def _has_infinity(x: Array) -> bool:
    return type(x) is ConcreteArray and x.dtype.kind in "fc" and bool(np.isinf(x._value).any())


def number_of(outs: Sequence[Array], given: int = 0) -> int:
    """The least number of nans in results, rather of those made than given; 0 if none has one."""
    words = [b for b in map(_bits, outs) if b is not None]
    return earliest([_numbers(b)[_is_nan(b)] for b in words], given)


def earliest(numbers: Sequence[np.ndarray], given: int) -> int:
    """The least number greater than `given`, or else greater than 0; 0 if there is none."""
    for least in (given, 0):
        found = [int(n[n > least].min()) for n in numbers if (n > least).any()]
        if found:
            return min(found)
    return 0


def _bits(x: Array) -> np.ndarray | None:
    """An array's floats as words, in its memory; None if it has none, or they are too short for numbers."""
    value = x._value if type(x) is ConcreteArray else None
    if type(value) is not np.ndarray or not value.flags.c_contiguous or value.dtype in dtypes.SMALL:
        return None
    part = np.dtype(f"f{value.itemsize // 2}") if value.dtype.kind == "c" else value.dtype
    words = _WORDS.get(part)
    return None if words is None else value.reshape(-1).view(words)


def _is_nan(bits: np.ndarray) -> np.ndarray:
    return np.isnan(bits.view(f"f{bits.itemsize}"))


def _numbers(bits: np.ndarray) -> np.ndarray:
    """The numbers in what may be nans."""
    if bits.itemsize == 4:
        return (bits & np.uint32((1 << _SHORT) - 1)).astype(np.uint64)
    rest = bits & np.uint64((1 << _REST) - 1)
    return (bits >> np.uint64(_REST)) & np.uint64((1 << _SHORT) - 1) | rest << np.uint64(_SHORT)


def _numbered(dtype: np.dtype, numbers: np.ndarray) -> np.ndarray:
    """Nans with these numbers, of which float32 has the low bits only."""
    short = numbers & np.uint64((1 << _SHORT) - 1)
    if dtype.itemsize == 4:
        return short.astype(np.uint32) | np.uint32(_NANS[dtype])
    return np.uint64(_NANS[dtype]) | short << np.uint64(_REST) | numbers >> np.uint64(_SHORT)


def _inherit(
    apart: bool, bits: np.ndarray, new: np.ndarray, args: Sequence[np.ndarray]
) -> np.ndarray:
    """Give nans without a number those of operands: of the same element, or, if not `apart`, of any.

    What is left has none: the operation made it, of an element's operands that are no nans.
    """
    for a in args:
        numbers = np.where(_is_nan(a), _numbers(a), np.uint64(0))
        if not len(new) or not numbers.any():
            continue
        of = numbers[new] if numbers.shape == bits.shape else np.zeros(len(new), np.uint64)
        if not apart or len(numbers) == 1:
            of = np.where(of > 0, of, numbers[np.flatnonzero(numbers)[0]])
        bits[new[of > 0]] = _numbered(bits.dtype, of[of > 0])
        new = new[of == 0]
    return new


__all__ = ["Infinities", "Numbered", "Watched", "number_of", "run_watched", "running", "watched"]
