"""Loops that should become vectors do: in the assembly stand vectors, or calls of vector functions."""

import platform
import re

import numpy as np
import pytest

import fnx as jax
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config, scalar
from fnx.lowering.cpu.llvm import kernel_facts, loop_tails
from fnx.lowering.cpu.processor import features
from fnx.lowering.ir.kernel import Buffer, Loop, LoopKind, Store


def triads(x, y):
    """Costly functions of neighbours, which are read at several places of two axes."""
    n, m = x.shape[1] - 1, x.shape[2] - 2
    z = jnp.tanh(y[:, :, 1:] - y[:, :, :-1])
    rho = x[:, 1:] - x[:, :-1]
    total = jnp.zeros((*x.shape[:2], m + 1))
    flux = jnp.zeros_like(rho)
    for low in (0, 1):
        for k in (0, 1):
            cells = slice(None), slice(low, n + low), slice(k, m + k)
            slope = -rho[:, :, 1:-1] / jnp.minimum(z[cells], -1e-7)
            share = jnp.tanh(abs(slope))
            flux = flux.at[:, :, 1:-1].add(share * slope)
            total = total.at[cells].add(share * slope * slope)
    return flux, total


def neighbours(x, y):
    """One costly function of a sum of neighbours along the last axis."""
    return jnp.tanh(x[:, :-2] + x[:, 1:-1] * y[:, 1:-1] + x[:, 2:])


def rows(x, y):
    """A reduction of each row between costly functions."""
    e = jnp.tanh(x - jnp.max(x, axis=1, keepdims=True))
    return e / jnp.sum(e, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("f", "shape"), [(triads, (40, 40, 40)), (neighbours, (90, 70)), (rows, (90, 70))]
)
def test_costly_functions_are_called_on_vectors(f, shape, monkeypatch):
    monkeypatch.setattr(kernel_facts, "inlined_lines", lambda: 0)
    x, y = np.random.default_rng(0).normal(size=(2, *shape))
    asm = jax.jit(f).lower(x, y).as_text("asm")
    functions = re.split(r"^\w[\w.]*:", asm, flags=re.MULTILINE)
    calling = [text for text in functions if "fnx_v_tanh_float64" in text]
    assert calling
    for text in calling:
        assert "fnx_v_tanh_float64_w" in text


@pytest.mark.parametrize("f", [neighbours, rows])
def test_short_functions_are_part_of_loops(f):
    x, y = np.random.default_rng(0).normal(size=(2, 90, 70))
    lowered = jax.jit(f).lower(x, y)
    assert "fnx_v_" not in lowered.as_text("llvm")
    if platform.machine() == "x86_64":
        # The quotient of tanh, in a loop of its own: one of numbers alone would be divsd.
        assert "divpd" in lowered.as_text("asm")
    wanted = f(x, y)
    np.testing.assert_allclose(lowered.compile()(x, y), wanted, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("f", [lambda x: x - x.mean(0), lambda x: x.T.sum(1), lambda x: x.T.max(1)])
def test_few_columns_are_read_as_they_lie(f):
    x = np.random.default_rng(0).normal(size=(5000, 10))
    lowered = jax.jit(f).lower(x)
    asm = lowered.as_text("asm")
    assert "gather" not in asm
    assert "scatter" not in asm
    np.testing.assert_allclose(lowered.compile()(x), f(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("axes", [(0, 1, 2), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
@pytest.mark.parametrize("kept", [0, 1, 2])
def test_few_results_along_any_axis(axes, kept):
    x = np.random.default_rng(1).normal(size=(70, 60, 50)).transpose(axes)
    x = x[tuple(slice(9) if k == kept else slice(None) for k in range(3))]
    reduced = tuple(k for k in range(3) if k != kept)

    def f(x):
        y = jnp.transpose(x, np.argsort(axes)).transpose(axes)
        return y.sum(reduced), (y * y).max(reduced), y[..., ::-1].min(reduced)

    wanted = x.sum(reduced), (x * x).max(reduced), x[..., ::-1].min(reduced)
    for got, want in zip(jax.jit(f)(x), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-10)


def test_columns_are_read_without_rounds_that_are_left(monkeypatch):
    """Of each row some numbers: no vector may be read beyond the last, and none is made of scalars."""
    monkeypatch.setattr(kernel_facts, "inlined_lines", lambda: 0)
    x = np.random.default_rng(0).normal(size=(2000, 5)).astype(np.float32)
    asm = jax.jit(lambda x: jnp.tanh(x[:, 1] - x[:, 3])).lower(x).as_text("asm")
    assert set(re.findall(r"fnx_v_tanh_float32(_w\d+)?\b", asm)) <= {"_w4", "_w8", "_w16"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of registers")
def test_vectors_on_the_stack_are_aligned():
    """More numbers than there are registers: across cache lines they would take twice as long."""

    def polynomials(x):
        y = x * x
        return [sum(np.sin(j + 4.0 * k) * y**j + j * x for j in range(8)) for k in range(8)]

    asm = jax.jit(polynomials).lower(np.linspace(0, 1, 2000)).as_text("asm")
    nest = asm[asm.index("\nk0:") : asm.index("\nentry:")]
    spilt = re.findall(r"vmov(\w)p[sd]\t%[yz]mm\d+, \d*\(%rsp\)", nest)
    assert set(spilt) == {"a"}
    assert re.search(r"andq\t\$-(64|32), %rsp", nest)


@pytest.mark.skipif(features.vector_bits() != 256, reason="one vector, or too few registers")
def test_a_few_vectors_are_no_loop():
    """Accumulators of a few results are in registers, not on the stack that a loop goes through."""
    x = np.random.default_rng(0).normal(size=(4096, 12))
    asm = jax.jit(lambda x: x.sum(0)).lower(x).as_text("asm")
    nest = asm[asm.index("\nk0:") : asm.index("\nentry:")]
    assert "(%rsp" not in nest


@pytest.mark.skipif(features.vector_bits() == 128, reason="LLVM has its way")
@pytest.mark.parametrize("f", [jnp.tanh, lambda x: jnp.sum(jnp.tanh(x))], ids=["map", "sum"])
def test_long_loops_with_the_text_of_a_function_have_several_vectors_under_way(f):
    def divisions(length):
        asm = jax.jit(f).lower(np.linspace(0, 1, length)).as_text("asm")
        loops = re.split(r"^\.?\w+:", asm, flags=re.MULTILINE)
        return max(len(re.findall(r"divpd\t.*%[yz]mm", text)) for text in loops)

    assert divisions(100_000) == features.functions_together(44, 0)


def a_chain(x):
    """Each operation waits for the one before."""
    y = x
    for k in range(30):
        y = y * x + float(k)
    return y


def a_crowd(x):
    """Operations that do not wait, for which there are not many registers."""
    terms = [x * float(k) + jnp.minimum(x, float(k)) for k in range(32)]
    while len(terms) > 1:
        terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=True)]
    return terms[0]


@pytest.mark.parametrize("f", [a_chain, a_crowd])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [17, 31, 100, 256, 1000, 5003])
def test_rounds_of_one_vector_and_of_several(f, dtype, n):
    x = np.random.default_rng(n).uniform(0, 1, n).astype(dtype)
    np.testing.assert_allclose(jax.jit(f)(x), f(x), rtol=1e-5 if dtype == np.float32 else 1e-13)


@pytest.mark.parametrize("f", [a_chain, a_crowd])
def test_the_bytes_of_a_round_follow_from_what_it_does(f, monkeypatch):
    seen, whole = [], loop_tails._iteration_bytes
    monkeypatch.setattr(
        loop_tails, "_iteration_bytes", lambda *args: seen.append(whole(*args)) or seen[-1]
    )
    llvm = jax.jit(f).lower(np.ones(5000)).as_text("llvm")
    sizes = features.iteration_bytes()
    assert (sizes.waiting if f is a_chain else sizes.crowded) in seen
    together = f is a_chain and sizes.vectors > 1
    assert (f'interleave.count", i32 {sizes.vectors}' in llvm) == together


def test_blocks_of_problems_with_many_operations_are_one_vector_at_a_time():
    """Several would not fit into registers."""

    def turned(q, v):
        u = jnp.cross(q[1:], v) + q[0] * v
        return jnp.sin(v) + jnp.cross(q[1:], u) / jnp.sum(q**2)

    q, v = np.ones((4096, 4)), np.ones((4096, 3))
    lowered = jax.jit(jax.vmap(jax.jacrev(turned))).lower(q, v)
    assert "transpose" in lowered.as_text("kernel")
    assert "interleave.count" not in lowered.as_text("llvm")


@pytest.mark.parametrize("halves", [False, True])
def test_vectors_beside_each_other_are_narrow_where_the_cpu_halves_wide_ones(halves, monkeypatch):
    monkeypatch.setattr("fnx.lowering.cpu.llvm.control_flow.halves_vectors", lambda: halves)

    def widths(f, *args):
        text = jax.jit(f).lower(*args).as_text("llvm")
        return set(re.findall(r'vectorize.width", i32 (\d+)', text))

    x = np.ones((40, 40))
    around = lambda x: x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
    assert widths(around, x) == ({"4"} if halves else set())
    assert widths(around, x.astype("float32")) == ({"8"} if halves else set())
    assert not widths(lambda x: jnp.tanh(x[1:] - x[:-1]), x)  # which takes more than to read it
    assert not widths(lambda x: x * 2.0 + 1.0, x)
    assert not widths(lambda x, y: x * y[0] + y[1], x, np.ones(2))  # the same for all
    assert not widths(lambda x: x[:, 0:38:2] + x[:, 1:39:2], x)  # apart from each other
    np.testing.assert_allclose(jax.jit(around)(x + 1.0), around(x + 1.0))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_results_of_kernels_stay_out_of_x87_registers(dtype, count):
    def sums(x):
        totals = [jnp.sum(x ** (k + 1)) for k in range(count)]
        return [total * 2 for total in totals]

    x = np.linspace(-1, 1, 1000).astype(dtype)
    lowered = jax.jit(sums).lower(x)
    assert "call void @k1(" not in lowered.as_text("llvm")  # all sums come from one kernel
    assert not re.search(r"\bf(st|ld)", lowered.as_text("asm"))
    for k, total in enumerate(jax.jit(sums)(x)):
        np.testing.assert_allclose(total, 2 * np.sum(x ** (k + 1)), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of instructions")
def test_bits_of_numbers_choose_without_branches():
    """The bits of a checksum are as good as random: a branch would be guessed wrong half the time."""

    def checksum(data, rule):
        def bit(carry, _):
            crc, b = carry
            odd = (crc & 1) ^ (b & 1)
            return (jnp.where(odd != 0, (crc >> 1) ^ rule, crc >> 1), b >> 1), None

        byte = lambda crc, b: (jax.lax.scan(bit, (crc, b), length=8)[0][0], None)
        return jax.lax.scan(byte, 0xFFFF, data)[0]

    data = np.random.default_rng(0).integers(0, 256, 1000).astype("uint8")
    crc = 0xFFFF
    for b in data.tolist():
        for k in range(8):
            crc = crc >> 1 ^ (0x8408 if (crc ^ b >> k) & 1 else 0)
    compiled = jax.jit(checksum)
    assert int(compiled(data, 0x8408)) == crc
    asm = compiled.lower(data, 0x8408).as_text("asm")
    assert len(re.findall(r"\tj[a-z]+\t", asm)) < 8


@pytest.mark.parametrize("columns", [8, 16])
def test_llvm_says_nothing_of_short_loops(columns, capfd):
    """Told how wide vectors are, it prints a remark where it makes none of a loop."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(9, columns)))
    with config.cache(False):
        jax.jit(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (3, 2), (1, 1), "SAME"))(x)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("stride", [64, 60])
@pytest.mark.parametrize("begin", [0, 1, 3, 8, 13])
@pytest.mark.parametrize("n", [17, 24, 47])
def test_vectors_behind_a_boundary_store_whole_lines(n, begin, stride):
    """All elements are computed; vectors but the first and the last begin where lines do, if rows do."""
    i, row = scalar.counter("i", n), scalar.counter("r", 9)
    place = scalar.add(scalar.mul(row, scalar.size(stride)), scalar.size(stride + begin))
    x, y = (Buffer(name, "float64", 40 * stride, "argument") for name in "xy")
    at = scalar.add(place, i)
    store = Store(y, at, scalar.load(x, at, "float64"))
    loop = Loop(i, scalar.size(n), [store], kind=LoopKind.VECTORIZED)
    made = loop_tails.whole(loop, {}, True)
    (inner,) = made.body
    lanes = inner.extent.attr
    first_of = lambda k: number(inner.body[0].index, {made.index: k, inner.index: 0, row: 0})
    starts = [first_of(k) for k in range(number(made.extent, {}))]
    first = stride + begin
    assert {s + k - first for s in starts for k in range(lanes)} == set(range(n))
    line = min(lanes, 64 // 8)
    if stride % line == 0 and begin:
        assert not any([s % line for s in starts[1:-1]])


def number(e, known):
    """What an expression of integers is."""
    if e in known:
        return known[e]
    if e.op in ("size", "const"):
        return e.attr
    a, b = (number(x, known) for x in e.args)
    made = {"add": a + b, "sub": a - b, "mul": a * b, "min": min(a, b), "max": max(a, b)}
    return made[e.op] if e.op in made else {"div": a // b}[e.op]


@pytest.mark.parametrize("chosen", [False, True])
def test_long_rows_beside_what_they_read_are_whole_vectors_but_for_choices(chosen):
    """Of which LLVM makes masks, and then several vectors side by side."""
    i, x = scalar.counter("i", 200), Buffer("x", "float64", 1000, "argument")
    value = scalar.load(x, scalar.add(i, scalar.size(500)), "float64")
    if chosen:
        positive = scalar.apply("gt", value, scalar.const(0.0, "float64"))
        value = scalar.apply("select", positive, value, scalar.const(1.0, "float64"))
    store = Store(x, scalar.add(i, scalar.size(1)), value)
    loop = Loop(i, scalar.size(200), [store], kind=LoopKind.VECTORIZED)
    made = loop_tails.whole(loop, {}, True)
    assert isinstance(made, loop_tails.Overlapped) == (not chosen)
