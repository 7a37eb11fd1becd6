"""What the printed texts depend on, and what they say."""

import re

import numpy as np
import pytest
from kernels import arguments, loop, pointwise, sum_nest

from fnx.core.scalar import apply, const, literal, load, size, var
from fnx.lowering.cpu.llvm import module_printer
from fnx.lowering.ir import kernel
from fnx.lowering.ir.kernel import Buffer, Nest, Program, Ref, Store
from fnx.lowering.numba import program_printer

F8 = "float64"


def build(n, factor, order=(0, 1)):
    x, y, s = arguments(("x", F8, n), ("y", F8, n), ("s", F8, 1))
    w = Buffer("w", F8, n, "global", 64 * n)
    make = loop(n, lambda i: [Store(w, i, apply("mul", load(x, i, F8), literal(factor, F8)))])
    nest, acc = sum_nest(w, n)
    copy = kernel.Copy(Ref(y, size(0)), Ref(w, size(0)), size(n))
    stmts = [Nest("make", [make]), nest, copy, Store(s, size(0), acc)]
    return Program("test", [x], [y, s], stmts, 64 * n + 8 * n)


def test_text_depends_on_structure_only():
    one, two = module_printer.emit(build(100, 3.7)), module_printer.emit(build(1234, -8.25))
    assert one.text == two.text
    assert one.params != two.params
    small = module_printer.emit(build(16, 3.7))
    assert small.text != one.text
    assert module_printer.emit(build(100, 2.0)).text != one.text


def test_equal_numbers_share_a_parameter():
    ints = [p for p in module_printer.emit(build(100, 3.7)).params if p == 100]
    assert len(ints) == 1


def test_reductions_alone_may_be_reordered():
    text = module_printer.emit(build(100, 3.7)).text
    assert "fadd reassoc nsz contract double" in text
    assert "fmul contract double" in text
    assert "nnan" not in text
    assert "ninf" not in text


@pytest.mark.parametrize("signs", [False, True])
def test_which_zero_is_larger_does_not_matter_among_magnitudes(signs):
    x, y = arguments(("x", F8, 40), ("y", F8, 40))
    i = var("int64", "i")
    parts = load(x, i, F8), load(y, i, F8)
    larger = apply("max", *(parts if signs else [apply("abs", p) for p in parts]))
    make = kernel.Loop(i, size(40), [Store(y, i, larger)])
    text = module_printer.emit(Program("test", [x], [y], [Nest("largest", [make])])).text
    assert ("call nsz double @llvm.maximum" in text) is not signs


def test_long_chains_do_not_recurse():
    x, y = arguments(("x", F8, 40), ("y", F8, 40))
    i = var("int64", "i")
    e = load(x, i, F8)
    for k in range(5000):
        e = apply("add", apply("mul", e, literal(0.5, F8)), const(1 + k % 3, F8))
    p = Program("test", [x], [y], [Nest("chain", [kernel.Loop(i, size(40), [Store(y, i, e)])])])
    text = module_printer.emit(p).text
    assert text.count("fmul") == 5000
    assert program_printer.emit(p).source.count("* 0.5") == 5000


def test_equal_operations_are_printed_once():
    a = np.ones(3)
    p = pointwise([lambda v: apply("exp", v), lambda v: apply("mul", apply("exp", v), v)], [a])
    assert len(re.findall(r"call double @\S*exp\S*\(", module_printer.emit(p).text)) == 1


def test_unknown_variables_are_reported():
    (y,) = arguments(("y", F8, 1))
    p = Program("test", [], [y], [Store(y, size(0), var(F8, "lost"))])
    with pytest.raises(KeyError, match="lost"):
        module_printer.emit(p)
