"""The checker of the Kernel IR: good programs pass, each broken rule is found and named."""

import pytest
from kernels import arguments, loop

from fnx.core import scalar
from fnx.core.scalar import Expr, apply, const, load, size, var
from fnx.lowering.ir import kernel, printer, verifier
from fnx.lowering.ir.kernel import Buffer, Nest, Program, Ref, Store
from fnx.lowering.ir.verifier import KernelError, check

VECTORIZED = kernel.LoopKind.VECTORIZED
F8, I8 = "float64", "int64"


def x_and_y(n=4):
    return arguments(("x", F8, n), ("y", F8, n))


def broken(body, message, inputs=None, outputs=None, workspace=0):
    program = Program("bad", inputs or [], outputs or [], body, workspace)
    with pytest.raises(KernelError, match=message) as caught:
        check(program)
    assert "program 'bad'" in str(caught.value)
    return str(caught.value)


def test_a_good_program_passes_and_is_printed():
    x, y = x_and_y()
    w = Buffer("w", F8, 4, "global", 0)
    i, acc = var(I8, "i"), var(F8, "acc")
    r, kept = var(F8, "r"), var(F8, "kept")
    more = apply("lt", acc, const(3, F8))
    body = [
        Nest(
            "copy",
            [loop(4, lambda k: [Store(w, k, load(x, k, F8))], kind=kernel.LoopKind.VECTORIZED)],
            note="why",
        ),
        kernel.Let([kept], [load(w, size(0), F8)]),
        kernel.Eval([apply("add", kept, const(1, F8))]),
        kernel.Loop(i, size(4), [], [acc], [const(0, F8)], [apply("add", acc, kept)]),
        kernel.If(more, [Store(y, size(1), acc)], [], [r], [acc], [kept]),
        kernel.While([], more, [], [acc2 := var(F8, "a")], [r], [apply("mul", acc2, acc2)]),
        kernel.Copy(Ref(y, size(0)), Ref(w, size(0)), size(4)),
        kernel.Transpose(Ref(y, size(0)), Ref(w, size(0)), 2, 2, (size(2), size(2))),
        kernel.Fill(Ref(y, size(2)), size(2), acc2),
        kernel.CallLibrary("libm:cos", [acc2], [], result=var(F8, "c")),
        kernel.CallHost(len, [(Ref(x, size(0)), (4,), F8)], [(Ref(y, size(0)), (2, 2), F8)], "len"),
    ]
    program = Program("good", [x], [y], body, 64, ["a note"])
    check(program)
    text = printer.show(program)
    assert text.splitlines()[0] == "program good"
    for part in (
        "kernel copy:  # why",
        "# vector",
        "yield",
        "while",
        "transpose 2 x 2",
        "libm:cos",
        "# a note",
    ):
        assert part in text


def test_undefined_variable():
    _, y = x_and_y()
    (out,) = arguments(("y", F8, 4))
    message = broken(
        [Store(out, size(0), var(F8, "lost"))], "used where it is not defined", [], [out]
    )
    assert "in Store to y" in message
    assert y.place == 1


def test_variables_end_with_their_block():
    (y,) = arguments(("y", I8, 4))
    index = var(I8, "i")
    body = [kernel.Loop(index, size(4), []), Store(y, size(0), index)]
    broken(body, "used where it is not defined", [], [y])
    # known expressions of an inner block say nothing about the outer one
    inner = apply("add", index, const(1, I8))
    body = [
        kernel.Loop(index, size(4), [Store(y, size(1), inner)]),
        Store(y, size(0), inner),
    ]
    broken(body, "used where it is not defined", [], [y])


def test_values_of_a_nest_stay_inside():
    (y,) = arguments(("y", F8, 4))
    i, acc = var(I8, "i"), var(F8, "acc")
    step = apply("add", acc, const(1, F8))
    inside = kernel.Loop(i, size(4), [], [acc], [const(0, F8)], [step])
    broken([Nest("n", [inside]), Store(y, size(0), acc)], "not defined", [], [y])
    check(Program("ok", [], [y], [Nest("n", [inside], [acc]), Store(y, size(0), acc)]))
    broken([Nest("n", [], [acc])], "no variable that an outermost statement")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda x, y: Store(y, size(0), const(1, "float32")),
            "a float32 is stored in y of float64",
        ),
        (lambda x, y: Store(y, const(0, "int32"), const(1, F8)), "is of int32, expected int64"),
        (lambda x, y: Store(x, size(0), const(1, F8)), "input x is written"),
        (
            lambda x, y: kernel.Loop(var(I8), size(3), [], [var(F8)], [const(0, F8)], []),
            "have 1 and 1 and 0 entries",
        ),
        (
            lambda x, y: kernel.Loop(
                var(I8), size(3), [], [var(F8)], [const(0, F8)], [const(0, I8)]
            ),
            "have the dtypes",
        ),
        (lambda x, y: kernel.Loop(var("int32"), size(3), []), "is of int32, expected int64"),
        (lambda x, y: kernel.While([], const(1, I8), []), "is of int64, expected bool"),
        (lambda x, y: kernel.If(const(1, F8), [], []), "is of float64, expected bool"),
        (
            lambda x, y: kernel.If(const(True, "bool"), [], [], [var(F8)], [const(1, F8)], []),
            "have 1 and 1 and 0 entries",
        ),
        (lambda x, y: kernel.Fill(Ref(y, size(0)), size(2), const(1, I8)), "gets a int64"),
        (
            lambda x, y: kernel.CallLibrary("blas:dcopy", [Ref(x, size(0))], [y]),
            "not among its arguments",
        ),
        (
            lambda x, y: kernel.CallHost(len, [(Ref(x, size(0)), (5,), F8)], []),
            "has 5 elements, x has 4",
        ),
        (lambda x, y: kernel.CallHost(3, [], []), "cannot be called"),
        (lambda x, y: "text", "not a statement"),
        (
            lambda x, y: kernel.Eval([Expr("add", F8, (const(1, F8), const(1, I8)), None)]),
            "they should be equal",
        ),
        (
            lambda x, y: kernel.Eval([Expr("add", F8, (const(1, F8),), None)]),
            "1 operands, expected 2",
        ),
        (lambda x, y: kernel.Eval([Expr("frob", F8, (), None)]), "no operation 'frob'"),
        (
            lambda x, y: kernel.Eval([Expr("lt", F8, (const(1, F8), const(1, F8)), None)]),
            "give bool, not float64",
        ),
        (
            lambda x, y: kernel.Eval([Expr("and", F8, (const(1, F8), const(1, F8)), None)]),
            "no such operation on float64",
        ),
        (
            lambda x, y: kernel.Eval([Expr("load", "float32", (size(0),), x)]),
            "a load of float32 from a buffer of float64",
        ),
        (lambda x, y: kernel.Eval([scalar.bitcast(const(1, F8), "int32")]), "widths differ"),
        (
            lambda x, y: kernel.Eval([Expr("select", F8, (const(1, F8),) * 3, None)]),
            "operands of",
        ),
    ],
)
def test_broken_statements(make, message):
    x, y = x_and_y()
    broken([make(x, y)], message, [x], [y])


def test_variable_defined_twice():
    i = var(I8, "i")
    broken([kernel.Loop(i, size(2), [kernel.Loop(i, size(2), [])])], "a scope that knows it")
    a = var(F8, "a")
    branch = kernel.If(const(True, "bool"), [], [], [a], [const(1, F8)], [const(2, F8)])
    broken([branch, branch], "a second time")


def test_buffers_are_checked():
    x, y = x_and_y()
    broken([], "in order", [y])
    w = Buffer("w", F8, 4, "global", 0)
    broken([Store(w, size(0), const(1, F8))], "ends at byte 32 of a workspace of 31", workspace=31)
    w = Buffer("w", F8, 4, "global", 8)
    broken([Store(w, size(0), const(1, F8))], "no multiple of 64", workspace=64)
    other = Buffer("x", F8, 4, "private")
    broken([Store(other, size(0), const(1, F8))], "two buffers are named 'x'", [x])
    stranger = Buffer("z", F8, 4, "argument", 2)
    broken([Store(stranger, size(0), const(1, F8))], "neither an input nor an output", [x], [y])
    odd = Buffer("odd", "float128", 4, "private")
    broken([kernel.Fill(Ref(odd, size(0)), size(1), const(0, F8))], "unknown dtype")


def test_what_a_target_lacks_is_refused():
    x, y = x_and_y()
    grid = loop(4, lambda k: [Store(y, k, load(x, k, F8))], kind=kernel.LoopKind.GRID_BLOCK)
    p = Program("grid", [x], [y], [grid])
    check(p, verifier.GPU)
    assert "# grid block" in printer.show(p)
    broken([grid], "is of the kind 'grid block', not for the CPU", [x], [y])
    tile = Buffer("tile", F8, 4, "shared")
    p = Program("tile", [x], [y], [Store(tile, size(0), const(1, F8))])
    check(p, verifier.GPU)
    broken(p.body, "in the space 'shared', not for the CPU", [x], [y])
    square = kernel.Transpose(Ref(y, size(0)), Ref(x, size(0)), 2, 2, (size(2), size(2)))
    p = Program("square", [x], [y], [square])
    check(p)
    with pytest.raises(KernelError, match="Transpose to y is no statement of programs for GPUs"):
        check(p, verifier.GPU)
    broken([kernel.Barrier()], "Barrier is no statement of programs for the CPU", [x], [y])
