"""Kernels' sources become NVVM's code without Numba: what they are translated to gives right numbers.

It runs on the CPU, whose LLVM takes it, too. FNX_FUZZ=1 runs all samples, not one of each primitive.
"""

import os

import numpy as np
import pytest
from cuda_programs import PROGRAMS
from samples import all_samples
from simulated import compare, run
from translated import TranslatedDriver

import fnx
from fnx.core.array import ConcreteArray
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.trace import trace_closed
from fnx.lowering.cuda import backend
from fnx.lowering.cuda.kernels.thresholds import SIMULATED
from fnx.lowering.cuda.nvvm import translation
from fnx.lowering.cuda.target import CudaTarget


@pytest.fixture
def driver(monkeypatch):
    found = TranslatedDriver()
    monkeypatch.setattr(backend, "driver", lambda: found)
    monkeypatch.setattr(backend, "limits", lambda: SIMULATED)
    return found


def chosen():
    """The last sample of each primitive, or all of them."""
    every = {s.id if os.environ.get("FNX_FUZZ") else s.prim.name: s for s in all_samples()}
    return list(every.values())


class Stored(CudaTarget):
    def is_small(self, shape):
        return shape == ()


@pytest.mark.slow
@pytest.mark.parametrize("sample", chosen(), ids=lambda s: s.id)
def test_samples(driver, sample):
    arrays = [ConcreteArray(np.asarray(a)) for a in sample.args]
    jaxpr = trace_closed(sample.prim.apply, [a.aval for a in arrays])
    found = run(jaxpr, [np.asarray(a) for a in arrays], Stored(SIMULATED))
    compare(found, list(sample.prim.apply(*arrays)), sample.tolerance)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(driver, name):
    f, args = PROGRAMS[name]
    args = [fnx.numpy.asarray(x) for x in args]
    closed = fnx.make_jaxpr(f)(*args)
    found = run(
        simplify(closed.jaxpr, final=True), [np.asarray(x) for x in (*closed.consts, *args)]
    )
    compare(found, fnx.tree.leaves(f(*args)), 10.0)
    assert driver.count


@pytest.mark.parametrize(
    ("first", "size", "wanted"),
    [
        ("np.int64(cuda.grid(1))", 91_000, "udiv i32"),
        ("np.int64(cuda.grid(1))", 1 << 32, "udiv i32"),
        ("np.int64(cuda.grid(1))", (1 << 32) + 1, "udiv i64"),
        ("-3", 91_000, "sdiv i64"),
        ("in0[0]", 91_000, "sdiv i64"),
    ],
)
def test_indices_are_divided_with_the_bits_that_they_have(first, size, wanted):
    loop = f"for i in range({first}, {size}, np.int64(cuda.gridsize(1))):"
    source = f"def k(in0):\n    {loop}\n        in0[i // 7] = i % 5\n"
    text = translation.module(source, [("int64", False)])
    assert wanted in text
    assert ("urem" if wanted[0] == "u" else "srem") in text


def test_what_an_index_becomes_after_its_loop_has_no_bound():
    source = "def k(in0):\n    for i in range(9):\n        in0[i] = i % 5\n    in0[i // 7] = 0\n"
    text = translation.module(source, [("int64", False)])
    assert "urem i32" in text
    assert "sdiv i64" in text
