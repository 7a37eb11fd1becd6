"""What Numba is given of a printed source: fewer calls, long functions in parts, the same results."""

import ast

import numpy as np
import pytest
from numba_programs import check

from fnx.lowering.numba import shortened, thresholds

SOURCE = """
def f(x, out):
    a = x[0] * 2
    b = a + 1
    total = 0
    for i in range(4):
        c = b * i
        if c > 3:
            d = c - 1
            e = d
        else:
            e = c
        total = total + e
    while True:
        g = total - 3
        if not g > 0:
            break
        h = g // 2
        if h == 1:
            out[1] = 7
            return 1
        total = h
    a = a + total
    out[0] = a
    return 0
"""


@pytest.mark.parametrize("size", [1, 2, 5, 20, 1000])
def test_parts_do_what_the_whole_does(monkeypatch, size):
    monkeypatch.setattr(thresholds, "WHOLE", 1)
    monkeypatch.setattr(thresholds, "PART", size)
    whole, space = {}, {}
    exec(SOURCE, whole)
    made, code = shortened.functions(SOURCE, "source", space)
    for part in made.values():
        exec(part, space)
    exec(code, space)
    assert len(made) >= (3 if size < 3 else 0)
    for x in range(-3, 12):
        pairs = [(f, [0, 0]) for f in (whole["f"], space["f"])]
        assert len({(f([x], out), *out) for f, out in pairs}) == 1


@pytest.mark.parametrize(
    "name", ["float16", "sort", "while", "gradient of a loop", "solve, on the host"]
)
def test_programs_in_parts(monkeypatch, name, no_code):
    from fnx.lowering.numba import load

    monkeypatch.setattr(load, "_loaded", type(load._loaded)())
    monkeypatch.setattr(thresholds, "WHOLE", 8)
    monkeypatch.setattr(thresholds, "PART", 6)
    check(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("np.uint32(13)", "number_uint32_0d000000"),
        ("np.int64(np.int64(-1))", "number_int64_ffffffffffffffff"),
        ("np.uint32(np.uint32(a + b) ^ c)", "np_uint32(a + b ^ c)"),
        ("np.uint32(np.uint32(a << b) | c)", "np_uint32(a << b | c)"),
        ("np.uint32(np.uint32(a + b) >> c)", "np_uint32(np_uint32(a + b) >> c)"),
        ("np.float32(np.float32(a + b) + c)", "np_float32(np_float32(a + b) + c)"),
        ("np.uint64(np.uint64(a + b) + c)", "np_uint64(np_uint64(a + b) + c)"),
        ("np.uint32(np.int32(a + b) + c)", "np_uint32(np_int32(a + b) + c)"),
        ("np.floor(2.5)", "np.floor(2.5)"),
        ("np.float32(1.0).view(np.int32)", "number_int32_0000803f"),
    ],
)
def test_casts_that_are_left_out(text, expected):
    space = {}
    tree = shortened._Shorter(space).visit(ast.parse(text))
    assert ast.unparse(tree) == expected


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_arithmetic_keeps_its_last_bits(name):
    import fnx

    info = np.iinfo(name)
    ends = [info.min, info.max, info.max - 1, 1, 3, info.max // 3]
    a, b = (np.array(x, name) for x in zip(*[(p, q) for p in ends for q in ends], strict=True))
    f = lambda a, b: ((a * b + a) ^ (a - b)) * ((a << 3) | b) - ((a + b) >> 2)
    np.testing.assert_array_equal(
        fnx.jit(f, backend="numba")(a, b), fnx.jit(f, backend="reference")(a, b)
    )


def test_memory_that_overlaps_is_one_region():
    from fnx.lowering.ir.kernel import Buffer
    from fnx.lowering.numba.memory import regions

    def part(place, size):
        made = Buffer("b", "float64", size, "global")
        made.place = place
        return made

    given = [
        Buffer("in0", "float64", 9, "argument", 0),
        Buffer("out0", "float64", 9, "argument", 1),
    ]
    work = [part(64, 8), part(0, 8), part(32, 2), part(128, 4), part(136, 1)]
    found = regions([*given, *work])
    assert len({found[0], found[1]} | {*found[2:]}) == 5
    assert found[3] == found[4]  # 0 to 64, and 32 to 48
    assert found[2] not in (found[3], found[5])
    assert found[5] == found[6]
