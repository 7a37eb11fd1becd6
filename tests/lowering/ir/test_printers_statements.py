"""Every statement of the Kernel IR, printed both ways, on hand-built programs."""

import numpy as np
import pytest
from kernels import arguments, loop, native, numba, python, sum_nest

from fnx.core import scalar
from fnx.core.scalar import apply, const, literal, load, size, var
from fnx.lowering.ir import kernel
from fnx.lowering.ir.kernel import Buffer, Nest, Program, Ref, Store

RUNS = pytest.mark.parametrize("run", [native, python, numba])
F8 = "float64"


@RUNS
@pytest.mark.parametrize("n", [1, 7, 16, 17, 1000])
def test_loops_nests_and_reductions(run, n):
    x, y, s = arguments(("x", F8, n), ("y", F8, n), ("s", F8, 1))
    w = Buffer("w", F8, n, "global", 64)
    square = loop(n, lambda i: [Store(w, i, apply("mul", load(x, i, F8), load(x, i, F8)))])
    back = loop(n, lambda i: [Store(y, i, load(w, i, F8))], kind=kernel.LoopKind.VECTORIZED)
    nest, acc = sum_nest(w, n)
    body = [Nest("square", [square]), nest, Nest("back", [back]), Store(s, size(0), acc)]
    a = np.random.default_rng(0).normal(size=n)
    squares, total = run(Program("test", [x], [y, s], body, 64 + 8 * n), [a])
    np.testing.assert_array_equal(squares, a * a)
    np.testing.assert_allclose(total, [np.sum(a * a)], rtol=1e-14)


@RUNS
def test_loops_without_rounds_leave_the_carries(run):
    n, y = arguments(("n", "int64", 3), ("y", "int64", 3))
    stmts = []
    for k in range(3):
        i, c = var("int64", "i"), var("int64", "c")
        step = apply("add", c, i)
        stmts.append(
            kernel.Loop(i, load(n, size(k), "int64"), [], [c], [const(10, "int64")], [step])
        )
        stmts.append(Store(y, size(k), c))
    (out,) = run(Program("test", [n], [y], stmts), [np.array([0, -3, 4])])
    np.testing.assert_array_equal(out, [10, 10, 16])
    i, c = var("int64", "i"), var("int64", "c")
    never = kernel.Loop(i, size(0), [Store(y, size(0), i)], [c], [const(7, "int64")], [i])
    (out,) = run(Program("test", [n], [y], [never, Store(y, size(1), c)]), [np.zeros(3, int)])
    np.testing.assert_array_equal(out, [0, 7, 0] if run is python else [out[0], 7, out[2]])


@RUNS
def test_reverse(run):
    n = 20
    x, y = arguments(("x", F8, n), ("y", F8, n))
    i, c = var("int64", "i"), var(F8, "c")
    step = apply("add", apply("mul", c, literal(0.5, F8)), load(x, i, F8))
    body = kernel.Loop(i, size(n), [Store(y, i, step)], [c], [const(0, F8)], [step], reverse=True)
    a = np.arange(n) * 1.0
    (out,) = run(Program("test", [x], [y], [body]), [a])
    expected, acc = np.zeros(n), 0.0
    for k in reversed(range(n)):
        acc = acc * 0.5 + a[k]
        expected[k] = acc
    np.testing.assert_allclose(out, expected, rtol=1e-15)


@RUNS
def test_carries_take_their_values_at_once(run):
    """Fibonacci: (a, b) = (b, a + b)."""
    (y,) = arguments(("y", "int64", 2))
    i, a, b = var("int64", "i"), var("int64", "a"), var("int64", "b")
    zero, one = const(0, "int64"), const(1, "int64")
    body = kernel.Loop(i, size(30), [], [a, b], [zero, one], [b, apply("add", a, b)])
    (out,) = run(Program("test", [], [y], [body, Store(y, size(0), a), Store(y, size(1), b)]), [])
    np.testing.assert_array_equal(out, [832040, 1346269])


@RUNS
def test_complex_and_bool_carries(run):
    (y, z) = arguments(("y", "complex128", 1), ("z", "bool", 1))
    i, c, flag = var("int64", "i"), var("complex128", "c"), var("bool", "flag")
    step = apply("add", apply("mul", c, c), const(0.3 + 0.5j, "complex128"))
    far = apply("gt", apply("abs", step), const(1.0, F8))
    body = kernel.Loop(
        i,
        size(25),
        [],
        [c, flag],
        [const(0, "complex128"), const(False, "bool")],
        [step, apply("or", flag, far)],
    )
    stmts = [body, Store(y, size(0), c), Store(z, size(0), flag)]
    point, escaped = run(Program("test", [], [y, z], stmts), [])
    value = 0j
    for _ in range(25):
        value = value * value + (0.3 + 0.5j)
    np.testing.assert_allclose(point, [value], rtol=1e-12)
    np.testing.assert_array_equal(escaped, [False])


@RUNS
def test_while(run):
    """Collatz: steps until 1, for several starts, with a statement in `before`."""
    n = 40
    x, y = arguments(("x", "int64", n), ("y", "int64", n))
    one, two, three = (const(k, "int64") for k in (1, 2, 3))

    def body(i):
        v, count = var("int64", "v"), var("int64", "count")
        odd = apply("eq", apply("rem", v, two), one)
        following = scalar.select(
            odd, apply("add", apply("mul", three, v), one), apply("div", v, two)
        )
        more = apply("ne", v, one)
        w = kernel.While(
            [kernel.Eval([more])],
            more,
            [],
            [v, count],
            [load(x, i, "int64"), const(0, "int64")],
            [following, apply("add", count, one)],
        )
        return [w, Store(y, i, count)]

    starts = np.arange(1, n + 1)
    (out,) = run(Program("test", [x], [y], [loop(n, body)]), [starts])

    def steps(v):
        count = 0
        while v != 1:
            v, count = (3 * v + 1 if v % 2 else v // 2), count + 1
        return count

    np.testing.assert_array_equal(out, [steps(v) for v in starts.tolist()])


@RUNS
def test_if_with_results_and_stores(run):
    n = 9
    x, y, z = arguments(("x", F8, n), ("y", F8, n), ("z", F8, n))

    def body(i):
        v, result = load(x, i, F8), var(F8, "r")
        negative = apply("lt", v, const(0, F8))
        return [
            Store(z, i, const(0, F8)),
            kernel.If(
                negative,
                [Store(z, i, apply("neg", v))],
                [],
                [result],
                [apply("neg", v)],
                [apply("mul", v, const(2, F8))],
            ),
            Store(y, i, result),
        ]

    a = np.linspace(-2, 2, n)
    out, side = run(Program("test", [x], [y, z], [Nest("if", [loop(n, body)])]), [a])
    np.testing.assert_array_equal(out, np.where(a < 0, -a, 2 * a))
    np.testing.assert_array_equal(side, np.where(a < 0, -a, 0))


# --- what is known where -----------------------------------------------------------------------


@RUNS
def test_loads_are_renewed_after_a_write(run):
    x, y = arguments(("x", F8, 2), ("y", F8, 3))
    first = load(x, size(0), F8)
    w = Buffer("w", F8, 1, "private")
    held = load(w, size(0), F8)
    doubled = apply("mul", held, const(2, F8))
    body = [
        Store(w, size(0), first),
        Store(y, size(0), doubled),
        Store(w, size(0), doubled),
        Store(y, size(1), doubled),
        loop(3, lambda i: [Store(w, size(0), doubled)]),
        Store(y, size(2), doubled),
    ]
    (out,) = run(Program("test", [x], [y], body), [np.array([1.0, 0.0])])
    np.testing.assert_array_equal(out, [2, 4, 32])


@RUNS
def test_let_and_eval_keep_values(run):
    x, y = arguments(("x", F8, 2), ("y", F8, 4))
    w = Buffer("w", F8, 2, "global", 0)
    a, b = load(w, size(0), F8), load(w, size(1), F8)
    kept, early = var(F8, "kept"), apply("add", a, const(100, F8))
    body = [
        kernel.Copy(Ref(w, size(0)), Ref(x, size(0)), size(2)),
        kernel.Let([kept], [a]),
        kernel.Eval([early]),
        Store(w, size(0), b),
        Store(w, size(1), kept),
        Store(y, size(0), a),
        Store(y, size(1), b),
        Store(y, size(2), early),
        kernel.Eval([early]),
        Store(y, size(3), early),
    ]
    (out,) = run(Program("test", [x], [y], body, 64), [np.array([1.0, 2.0])])
    np.testing.assert_array_equal(out, [2, 1, 101, 102])


@RUNS
def test_values_of_the_entry_reach_nests(run):
    """A nest captures a scalar, a carry and a value that is older than a write."""
    n = 30
    x, y = arguments(("x", F8, n), ("y", F8, n))
    w = Buffer("w", F8, 1, "private")
    old = load(w, size(0), F8)
    k, c = var("int64", "k"), var(F8, "c")
    inner = Nest(
        "inner",
        [loop(n, lambda i: [Store(y, i, apply("add", apply("mul", load(x, i, F8), c), old))])],
    )
    body = [
        Store(w, size(0), const(5, F8)),
        kernel.Eval([old]),
        Store(w, size(0), const(7, F8)),
        kernel.Loop(k, size(4), [inner], [c], [const(1, F8)], [apply("add", c, const(1, F8))]),
    ]
    a = np.random.default_rng(1).normal(size=n)
    (out,) = run(Program("test", [x], [y], body), [a])
    np.testing.assert_allclose(out, a * 4 + 5, rtol=1e-15)


@RUNS
@pytest.mark.parametrize("dtype", ["float64", "complex64", "float16", "bool", "int8"])
def test_copy_and_fill(run, dtype):
    from fnx.core import dtypes

    n = 40
    x, y, z = arguments(("x", dtype, n), ("y", dtype, n), ("z", dtype, n))
    value = 3 if dtype != "bool" else True
    body = [
        kernel.Fill(Ref(y, size(0)), size(n), const(0, dtype)),
        kernel.Copy(Ref(y, size(3)), Ref(x, size(20)), size(10)),
        kernel.Fill(Ref(z, size(0)), size(n), const(0, dtype)),
        kernel.Fill(Ref(z, size(4)), size(30), const(value, dtype)),
        kernel.Fill(Ref(z, size(5)), size(0), const(0, dtype)),
    ]
    a = (np.random.default_rng(2).normal(size=n) * 10).astype(dtypes.canonical(dtype))
    copied, filled = run(Program("test", [x], [y, z], body), [a])
    expected = np.zeros_like(a)
    expected[3:13] = a[20:30]
    np.testing.assert_array_equal(copied, expected)
    expected[:] = 0
    expected[4:34] = value
    np.testing.assert_array_equal(filled, expected)


@RUNS
def test_stack_buffers(run):
    """One in a nest (it could be registers), one that a nest shares with the entry."""
    n = 3
    x, y = arguments(("x", F8, n), ("y", F8, n))
    inner, shared = Buffer("inner", F8, n, "private"), Buffer("shared", F8, n, "private")
    body = [
        loop(n, lambda i: [Store(shared, i, apply("mul", load(x, i, F8), const(2, F8)))]),
        Nest(
            "reverse",
            [
                loop(n, lambda i: [Store(inner, i, load(shared, i, F8))]),
                loop(n, lambda i: [Store(shared, apply("sub", size(2), i), load(inner, i, F8))]),
            ],
        ),
        loop(n, lambda i: [Store(y, i, load(shared, i, F8))]),
    ]
    (out,) = run(Program("test", [x], [y], body), [np.array([1.0, 2.0, 3.0])])
    np.testing.assert_array_equal(out, [6, 4, 2])


@RUNS
@pytest.mark.parametrize(
    ("dtype", "rows", "columns"),
    [(F8, 8, 33), ("float32", 16, 5), ("int32", 33, 16), ("int64", 3, 2)],
)
def test_transposed_blocks(run, dtype, rows, columns):
    """From the middle of one matrix into the middle of another, between whose rows are gaps."""
    down, across = columns + 2, rows + 5
    x, y = arguments(("x", dtype, columns * across + 9), ("y", dtype, rows * down + 9))
    fill = kernel.Fill(Ref(y, size(0)), size(y.size), const(0, dtype))
    apart = const(down, "int64"), size(across)
    block = kernel.Transpose(Ref(y, size(4)), Ref(x, size(3)), rows, columns, apart)
    a = np.arange(x.size).astype(dtype)
    (out,) = run(Program("test", [x], [y], [fill, Nest("turn", [block])]), [a])
    expected = np.zeros(y.size, dtype)
    for i in range(rows):
        for j in range(columns):
            expected[4 + i * down + j] = a[3 + j * across + i]
    np.testing.assert_array_equal(out, expected)
