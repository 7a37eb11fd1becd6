"""Kernels as people see them: the printed Kernel IR and Numba Python of a few programs.

A change of the printers shows here as a difference to read. After reading it, run
`FNX_UPDATE_GOLDEN=1 pytest tests/lowering/test_golden.py` to take the new texts.
"""

import os

import numpy as np
import pytest
from kernels import arguments, loop, native, numba, python

from fnx.core.scalar import (
    Expr,
    add,
    apply,
    clamp,
    const,
    literal,
    load,
    mul,
    select,
    size,
    sub,
    var,
)
from fnx.lowering.ir import kernel, printer
from fnx.lowering.ir.kernel import Buffer, Nest, Program, Ref, Store
from fnx.lowering.numba import program_printer

F8 = "float64"


def get(b: Buffer, i: Expr) -> Expr:
    return load(b, i, b.dtype)


def stencil() -> Program:
    """One step of 2-D diffusion, edges repeated."""
    n = 24
    x, y = arguments(("x", F8, n * n), ("y", F8, n * n))

    def at(i, j):
        inside = [clamp(size(0), k, size(n - 1)) for k in (i, j)]
        return get(x, add(mul(inside[0], size(n)), inside[1]))

    def row(i):
        def cell(j):
            one = size(1)
            around = apply("add", at(sub(i, one), j), at(add(i, one), j))
            beside = apply("add", at(i, sub(j, one)), at(i, add(j, one)))
            laplace = apply(
                "sub", apply("add", around, beside), apply("mul", at(i, j), const(4, F8))
            )
            value = apply("add", at(i, j), apply("mul", literal(0.1, F8), laplace))
            return [Store(y, add(mul(i, size(n)), j), value)]

        return [loop(n, cell, kind=kernel.LoopKind.VECTORIZED)]

    return Program(
        "stencil", [x], [y], [Nest("diffuse", [loop(n, row, kind=kernel.LoopKind.PARALLEL)])]
    )


def normalize() -> Program:
    """(x - mean) / root of the mean square, two passes and a work buffer."""
    n = 50
    x, y = arguments(("x", "float32", n), ("y", "float32", n))
    w = Buffer("centred", "float32", n, "global", 0)
    i, j, total, squares = (
        var("int64", "i"),
        var("int64", "j"),
        var("float32", "total"),
        var("float32", "ss"),
    )
    count, zero = literal(n, "float32"), const(0, "float32")
    first = kernel.Loop(
        i, size(n), [], [total], [zero], [apply("add", total, get(x, i))], reassociate=True
    )
    mean = apply("div", total, count)
    centred = apply("sub", get(x, j), mean)
    second = kernel.Loop(
        j,
        size(n),
        [Store(w, j, centred)],
        [squares],
        [zero],
        [apply("add", squares, apply("square", centred))],
        reassociate=True,
    )
    scale = apply("rsqrt", apply("div", squares, count))
    last = loop(
        n, lambda k: [Store(y, k, apply("mul", get(w, k), scale))], kind=kernel.LoopKind.VECTORIZED
    )
    body = [
        Nest("mean", [first], [total]),
        Nest("centre", [second], [squares], "with its sum of squares"),
        Nest("scale", [last]),
    ]
    return Program("normalize", [x], [y], body, 256, ["3 kernels"])


def root() -> Program:
    """Newton's iteration for square roots, by while; negative arguments give NaN, by a branch."""
    n = 10
    x, y = arguments(("x", F8, n), ("y", F8, n))

    def body(i):
        v, guess, step, r = get(x, i), var(F8, "guess"), var("int32", "step"), var(F8, "r")
        half = const(0.5, F8)
        following = apply("mul", half, apply("add", guess, apply("div", v, guess)))
        far = apply(
            "gt", apply("abs", apply("sub", apply("mul", guess, guess), v)), const(1e-12, F8)
        )
        few = apply("lt", step, const(60, "int32"))
        steps = kernel.While(
            [],
            apply("and", far, few),
            [],
            [guess, step],
            [add(v, const(1, F8)), const(0, "int32")],
            [following, apply("add", step, const(1, "int32"))],
        )
        good = apply("ge", v, const(0, F8))
        bad = const(np.nan, F8)
        return [kernel.If(good, [steps], [], [r], [guess], [bad]), Store(y, i, r)]

    return Program("root", [x], [y], [Nest("newton", [loop(n, body)])])


def shuffle() -> Program:
    """Copies, fills, integers, and values kept over a write."""
    n = 12
    x, y, z = arguments(("x", "int32", n), ("y", "int32", n), ("z", "uint8", 4))
    kept = var("int32", "kept")
    ends = [get(y, size(0)), get(y, size(n - 1))]
    three = const(3, "int32")

    def cell(i):
        v = get(y, i)
        odd = apply("ne", apply("and", v, const(1, "int32")), const(0, "int32"))
        return [Store(y, i, select(odd, apply("mul", v, three), apply("div", v, three)))]

    body = [
        kernel.Copy(Ref(y, size(0)), Ref(x, size(0)), size(n)),
        kernel.Let([kept], [ends[0]]),
        Store(y, size(0), ends[1]),
        Store(y, size(n - 1), kept),
        kernel.Fill(Ref(z, size(0)), size(4), const(255, "uint8")),
        Nest("thirds", [loop(n, cell, reverse=True)]),
        Store(z, size(1), apply("shift_right_logical", get(z, size(0)), const(4, "uint8"))),
    ]
    return Program("shuffle", [x], [y, z], body)


PROGRAMS = {p.__name__: p for p in (stencil, normalize, root, shuffle)}


def data(program: Program) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [(rng.normal(size=b.size) * 5 + 3).astype(b.dtype) for b in program.inputs]


@pytest.mark.parametrize("name", PROGRAMS)
def test_texts(name, repository):
    program = PROGRAMS[name]()
    for suffix, text in (
        ("kernel", printer.show(program)),
        ("py", program_printer.emit(program).source),
    ):
        path = repository / "tests" / "golden" / f"{name}.{suffix}"
        if os.environ.get("FNX_UPDATE_GOLDEN"):
            path.write_text(text)
        assert text == path.read_text()


@pytest.mark.parametrize("name", PROGRAMS)
def test_printers_agree(name):
    program = PROGRAMS[name]()
    arrays = data(program)
    expected = native(program, arrays)
    for run in (python, numba):
        for got, want in zip(run(program, arrays), expected, strict=True):
            if want.dtype.kind == "f":
                epsilon = np.finfo(want.dtype).eps
                np.testing.assert_allclose(got, want, rtol=8 * epsilon, atol=8 * epsilon)
            else:
                np.testing.assert_array_equal(got, want)


def test_results():
    """The programs compute what they say."""
    x = np.array([4.0, 2.0, -1.0, 0.25, 9.0, 100.0, 1e4, 3.0, 5.0, 7.0])
    np.testing.assert_allclose(native(root(), [x])[0], np.where(x < 0, np.nan, np.sqrt(np.abs(x))))
    v = np.linspace(-3, 5, 50).astype("float32")
    c = v - v.mean()
    np.testing.assert_allclose(native(normalize(), [v])[0], c / np.sqrt(np.mean(c * c)), rtol=2e-6)
    grid = np.random.default_rng(0).normal(size=(24, 24))
    p = np.pad(grid, 1, mode="edge")
    laplace = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * grid
    np.testing.assert_allclose(
        native(stencil(), [grid.ravel()])[0].reshape(24, 24), grid + 0.1 * laplace, atol=1e-14
    )
