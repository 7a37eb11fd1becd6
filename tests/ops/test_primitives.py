"""Every primitive is put through the same checks, on the operands in `samples_*.py`."""

import inspect
import pkgutil
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import product

import numpy as np
import pytest
from samples import Sample, all_samples

import fnx.ops
from fnx.core import config, dtypes
from fnx.core.array import Array, ConcreteArray, as_array
from fnx.core.errors import FnxError
from fnx.core.jaxpr import check_jaxpr, eval_jaxpr
from fnx.core.primitive import Primitive
from fnx.interpreters.batching import batch, place_axis
from fnx.interpreters.jvp import jvp
from fnx.interpreters.linearize import linearize
from fnx.interpreters.trace import trace_closed

SAMPLES = all_samples()


def over(samples: list[Sample]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("sample", samples, ids=lambda s: s.id)


EACH = over(SAMPLES)
SMOOTH = over([s for s in SAMPLES if any(s.differentiated)])
EPS = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 3e-6, "complex64": 6e-6}


def arrays(values: Sequence[np.ndarray]) -> list[Array]:
    return [as_array(np.asarray(v)) for v in values]


def close(found: object, expected: object, tolerance: float = 1.0) -> None:
    """Equal, up to a tolerance by dtype for inexact ones; nan equals nan."""
    a, b = np.asarray(found), np.asarray(expected)
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    if not dtypes.is_inexact(a.dtype):
        np.testing.assert_array_equal(a, b)
        return
    eps = EPS.get(dtypes.NAME[a.dtype], 1e-12) * tolerance
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=eps, atol=eps)


# --- abstract agrees with impl, for each dtype -------------------------------------------------


def versions(sample: Sample, small: bool = False) -> list[tuple[np.dtype | None, list[np.ndarray]]]:
    """The operands, in each dtype that the primitive takes."""
    args = [np.asarray(a) for a in sample.args]
    if not sample.kinds:
        return [(None, args)]
    old = main_dtype(args)
    found = []
    for new in dtypes.ALL:
        if dtypes.kind(new) in sample.kinds and (small or new not in dtypes.SMALL):
            found.append((new, [_as(a, new) if a.dtype == old else a for a in args]))
    return found


def main_dtype(args: list[np.ndarray]) -> np.dtype:
    return next((a.dtype for a in args if dtypes.is_inexact(a.dtype)), args[0].dtype)


def _as(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    kind = dtypes.kind(dtype)
    x = (
        x.real
        if x.dtype.kind == "c" and kind != "c"
        else np.where(np.isfinite(x), x, 1).astype(x.dtype)
    )
    if kind == "b":
        return x > 0
    if kind in "iu" and dtypes.is_inexact(x.dtype):
        x = np.ceil(np.abs(x) * 5) * (1 if kind == "u" else np.sign(x))
    return (np.abs(x) if kind == "u" else x).astype(dtype)


@EACH
def test_abstract_is_what_impl_gives(sample):
    for _, values in versions(sample, small=True):
        args = arrays(values)
        avals = sample.prim.abstract(*[a.aval for a in args])
        outs = sample.prim.apply(*args)
        assert [o.aval for o in outs] == list(avals)
        assert all(o._value.flags.c_contiguous for o in outs)


@over([s for s in SAMPLES if "f" in s.kinds])
def test_narrow_dtypes_agree_with_wide_ones(sample):
    for dtype, values in versions(sample):
        if dtypes.kind(dtype) != "f" or dtype.itemsize == 8:
            continue
        narrow = sample.prim.apply(*arrays(values))
        wide_dtype = np.float64
        wide = sample.prim.apply(
            *arrays([v.astype(wide_dtype) if v.dtype == dtype else v for v in values])
        )
        for a, b in zip(narrow, wide, strict=True):
            if a.dtype == dtype:
                expected = np.asarray(b).astype(np.float64)
                eps = EPS[dtypes.NAME[dtype]] * 8 * sample.tolerance
                if sample.prim.name == "nextafter":
                    continue
                found = np.asarray(a).astype(np.float64)
                np.testing.assert_allclose(found, expected, rtol=eps, atol=eps)


@over([s for s in SAMPLES if s.kinds])
def test_other_dtypes_are_refused(sample):
    args = [np.asarray(a) for a in sample.args]
    old = main_dtype(args)
    for new in dtypes.ALL:
        if dtypes.kind(new) not in sample.kinds:
            others = arrays([_as(a, new) if a.dtype == old else a for a in args])
            with pytest.raises(FnxError):
                sample.prim.abstract(*[a.aval for a in others])


# --- derivatives -------------------------------------------------------------------------------


def with_zeros(outs: Sequence[Array], touts: Sequence[Array | None]) -> list[np.ndarray]:
    """Tangents of the inexact results."""
    return [
        np.zeros(o.shape, o.dtype) if t is None else np.asarray(t)
        for o, t in zip(outs, touts, strict=True)
        if dtypes.is_inexact(o.dtype)
    ]


def direction(values: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    made = []
    for v in values:
        t = rng.uniform(-1, 1, v.shape)
        made.append(t + 1j * rng.uniform(-1, 1, v.shape) if v.dtype.kind == "c" else t)
    return [np.asarray(t, v.dtype) for t, v in zip(made, values, strict=True)]


def slope(fn: Callable, xs: list[np.ndarray], ts: list[np.ndarray]) -> list[np.ndarray]:
    """The derivative of fn at xs along ts, by central differences of order 4."""
    h = 1e-3
    at = [fn([x + k * h * t for x, t in zip(xs, ts, strict=True)]) for k in (-2, -1, 1, 2)]
    return [(a - 8 * b + 8 * c - d) / (12 * h) for a, b, c, d in zip(*at, strict=True)]


def inner(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> float:
    return sum(float(np.real(np.sum(x * y))) for x, y in zip(a, b, strict=True))


class Function:
    """A primitive as a function of its inexact operands, and its derivatives."""

    def __init__(self, sample: Sample):
        self.prim = sample.prim
        self.args = [np.asarray(a) for a in sample.args]
        self.mask = sample.differentiated
        self.xs = [a for a, d in zip(self.args, self.mask, strict=True) if d]

    def apply(self, *xs: Array) -> list[Array]:
        rest = iter(xs)
        full = [
            next(rest) if d else ConcreteArray(a) for a, d in zip(self.args, self.mask, strict=True)
        ]
        return [o for o in self.prim.apply(*full) if dtypes.is_inexact(o.dtype)]

    def value(self, xs: list[np.ndarray]) -> list[np.ndarray]:
        return [np.asarray(o) for o in self.apply(*arrays(xs))]

    def push(self, ts: list[np.ndarray]) -> Callable:
        """x -> the derivative at x along ts."""

        def at(*xs: Array) -> list[Array]:
            outs, touts = jvp(self.apply, xs, arrays(ts))
            return [o if t is None else t for o, t in zip(outs, touts, strict=True)], touts

        return at

    def push_value(self, xs: list[np.ndarray], ts: list[np.ndarray]) -> list[np.ndarray]:
        outs, touts = jvp(self.apply, arrays(xs), arrays(ts))
        return with_zeros(outs, touts)

    def pull(self, cts: list[np.ndarray]) -> Callable:
        """x -> the cotangents of x, those that are not zero, and which they are."""

        def at(*xs: Array) -> tuple[list[Array], list[bool]]:
            _, tape = linearize(self.apply, xs, [True] * len(xs))
            back = tape.pull(arrays(cts))
            return [g for g in back if g is not None], [g is not None for g in back]

        return at

    def pull_value(self, xs: list[np.ndarray], cts: list[np.ndarray]) -> list[np.ndarray]:
        found, mask = self.pull(cts)(*arrays(xs))
        rest = iter(found)
        return [np.asarray(next(rest)) if m else np.zeros_like(x) for x, m in zip(xs, mask)]


@SMOOTH
def test_jvp_is_the_slope(sample):
    f = Function(sample)
    ts = direction(f.xs, 1)
    expected = slope(f.value, f.xs, ts)
    found = f.push_value(f.xs, ts)
    assert [(a.shape, a.dtype) for a in found] == [(b.shape, b.dtype) for b in expected]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7 * sample.tolerance, atol=1e-8 * sample.tolerance)


@SMOOTH
def test_jvp_keeps_the_results(sample):
    f = Function(sample)
    outs, _ = jvp(f.apply, arrays(f.xs), arrays(direction(f.xs, 1)))
    for a, b in zip(outs, f.value(f.xs), strict=True):
        close(a, b)


@SMOOTH
def test_transpose_is_the_adjoint(sample):
    f = Function(sample)
    ts = direction(f.xs, 2)
    pushed = f.push_value(f.xs, ts)
    cts = direction(pushed, 3)
    pulled = f.pull_value(f.xs, cts)
    assert [(a.shape, a.dtype) for a in pulled] == [(x.shape, x.dtype) for x in f.xs]
    left, right = inner(cts, pushed), inner(pulled, ts)
    scale = 1 + sum(float(np.sum(np.abs(c * p))) for c, p in zip(cts, pushed, strict=True))
    assert abs(left - right) <= 1e-11 * sample.tolerance * scale


@over([s for s in SAMPLES if any(s.differentiated) and s.smooth > 1])
def test_second_derivatives(sample):
    """Forward over forward, forward over reverse, and reverse over reverse."""
    f = Function(sample)
    ts, us = direction(f.xs, 4), direction(f.xs, 5)
    tolerance = 1e-6 * sample.tolerance

    def pushed(*xs: Array) -> list[Array]:
        _, touts = jvp(f.apply, xs, arrays(ts))
        return [t for t in touts if t is not None]

    cts = direction(f.value(f.xs), 6)

    def pulled(*xs: Array) -> list[Array]:
        return f.pull(cts)(*xs)[0]

    for fn in (pushed, pulled):
        expected = slope(lambda xs: [np.asarray(o) for o in fn(*arrays(xs))], f.xs, us)  # noqa: B023
        outs, touts = jvp(fn, arrays(f.xs), arrays(us))
        found = with_zeros(outs, touts)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
        outs, tape = linearize(fn, arrays(f.xs), [True] * len(f.xs))
        weights = direction([np.asarray(o) for o in outs], 7)
        back = [
            np.zeros_like(x) if g is None else np.asarray(g)
            for x, g in zip(f.xs, tape.pull(arrays(weights)), strict=True)
        ]
        left, right = inner(back, us), inner(weights, expected)
        scale = 1 + sum(
            float(np.sum(np.abs(w * e))) for w, e in zip(weights, expected, strict=True)
        )
        assert abs(left - right) <= tolerance * scale


# --- batching ----------------------------------------------------------------------------------


def lanes_of(sample: Sample, value: np.ndarray) -> list[np.ndarray]:
    """Three operands that are valid in the place of one: itself and others with its values."""
    if sample.lane is not None:
        return [value, sample.lane(value), sample.lane(sample.lane(value))]
    flipped = np.flip(value) if value.ndim else np.asarray(value)
    rolled = (
        np.roll(value, 1, 0) if value.ndim == 1 else np.flip(flipped, 0) if value.ndim else value
    )
    return [value, np.ascontiguousarray(flipped).reshape(value.shape), np.asarray(rolled)]


def axes_of(args: list[np.ndarray]) -> list[tuple]:
    """Combinations of batch axes; of many, the first and some others."""
    combos = [c for c in product(*[[None, *range(a.ndim + 1)] for a in args]) if set(c) != {None}]
    return combos if len(combos) <= 16 else combos[:: len(combos) // 16 + 1]


@over([s for s in SAMPLES if s.args and s.batched])
def test_batch_is_a_loop(sample):
    args = [np.asarray(a) for a in sample.args]
    lanes = [lanes_of(sample, a) for a in args]
    for axes in axes_of(args):
        given = [
            a if k is None else np.stack(many, k)
            for a, many, k in zip(args, lanes, axes, strict=True)
        ]
        outs, out_axes = batch(sample.prim.apply, 3, arrays(given), axes)
        outs = [place_axis(3, o, k, 0) for o, k in zip(outs, out_axes, strict=True)]
        for lane in range(3):
            one = [a if k is None else m[lane] for a, m, k in zip(args, lanes, axes, strict=True)]
            for out, expected in zip(outs, sample.prim.apply(*arrays(one)), strict=True):
                close(np.asarray(out)[lane], expected, 8 * sample.tolerance)


# --- compiled code -----------------------------------------------------------------------------


def program(sample: Sample):
    """A jaxpr that applies the primitive to its operands in each dtype, and all the operands."""
    groups = [values for _, values in versions(sample)]
    flat = arrays([v for values in groups for v in values])
    n = len(groups[0])

    def fn(*xs: Array) -> list[Array]:
        outs: list[Array] = []
        for k in range(len(groups)):
            outs += sample.prim.apply(*xs[k * n : (k + 1) * n])
        return outs

    jaxpr = trace_closed(fn, [a.aval for a in flat])
    check_jaxpr(jaxpr)
    return jaxpr, flat


@over([s for s in SAMPLES if s.native])
def test_backends_agree_with_impl(sample):
    from fnx.lowering import reference
    from fnx.lowering.cpu import backend as cpu

    jaxpr, args = program(sample)
    expected = eval_jaxpr(jaxpr, args)
    for backend in (reference, cpu):
        compiled = backend.backend.compile(jaxpr)
        found = compiled(args)
        for a, b in zip(found, expected, strict=True):
            close(a, b, 8 * sample.tolerance)
    again = cpu.backend.compile(jaxpr)  # by its name, from disk, where it has one
    calls = host_calls(compiled.program)
    assert calls == {sample.prim.name} & CALLS_THE_HOST
    assert config.check.value or ("recall" in again.seconds) == cacheable(jaxpr, calls)
    for a, b in zip(again(args), found, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


# Primitives that compiled programs call Python for: users' functions, and nothing else.
CALLS_THE_HOST = {"pure_callback"}


def host_calls(program) -> set[str]:
    from fnx.lowering.ir.kernel import CallHost
    from fnx.lowering.ir.traversal import statements

    return {s.name for s in statements(program.body) if isinstance(s, CallHost)}


def cacheable(jaxpr, calls) -> bool:
    from fnx.lowering import fingerprint

    return fingerprint.of(jaxpr) is not None and not calls


# --- no primitive is left out ------------------------------------------------------------------


def concrete_subclasses(cls: type) -> set[type]:
    below = {c for sub in cls.__subclasses__() for c in concrete_subclasses(sub)}
    return below or {cls}


def test_every_primitive_has_a_sample():
    classes, members = set(), {}
    for info in pkgutil.iter_modules(fnx.ops.__path__):
        module = import_module(f"fnx.ops.{info.name}")
        for value in vars(module).values():
            if isinstance(value, Primitive):
                members[value.name] = value
            elif inspect.isclass(value) and issubclass(value, Primitive):
                classes |= concrete_subclasses(value)
    ours = {c for c in classes if c.__module__.startswith("fnx.ops.") and c.name != "primitive"}
    sampled = {type(s.prim) for s in SAMPLES}
    names = {s.prim.name for s in SAMPLES}
    missing = {c.__name__ for c in ours - sampled} | (set(members) - names)
    assert not missing, f"without samples: {', '.join(sorted(missing))}"


def test_members_of_a_family_are_not_equal():
    from fnx.ops.elementwise.arithmetic import add, cos, mul, sin

    assert len({add, mul, sin, cos}) == 4
    assert add != mul


@pytest.mark.parametrize(("name", "count"), [("abs_p", 2), ("add_p", 1), ("add_p", 3)])
def test_wrong_numbers_of_operands_are_refused(name, count):
    prim = getattr(fnx.lax, name)
    with pytest.raises(TypeError, match=f"of {count} operands; expected"):
        fnx.jit(prim)(*[1.0] * count)
