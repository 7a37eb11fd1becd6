"""Samples of every primitive on the Numba backend, several in one program, beside their own `impl`.

One of each primitive and its operands' dtypes, by which Numba types a text; FNX_FUZZ=1 takes all. What all
print is run as plain Python elsewhere (tests/lowering/standalone/test_host_functions.py).
"""

import os
import re

import numpy as np
import pytest
from native_arrays import close
from samples import all_samples

from fnx.core import dtypes
from fnx.core.array import ConcreteArray
from fnx.core.jaxpr import eval_jaxpr
from fnx.interpreters.trace import trace_closed
from fnx.lowering.numba import backend

TOGETHER = 8  # samples of a program: Numba takes longer for more statements, and for more programs
# Small dtypes take Numba a second each, and have tests of their own for each backend.
_NATIVE = [
    s
    for s in all_samples()
    if s.native and not dtypes.COMPUTED.keys() & {*re.findall(r"\w+", s.id)}
]
_TYPES = {(s.prim.name, *[np.asarray(a).dtype for a in s.args]): s for s in reversed(_NATIVE)}
SAMPLES = _NATIVE if os.environ.get("FNX_FUZZ") else list(_TYPES.values())[::-1]
GROUPS = [SAMPLES[k : k + TOGETHER] for k in range(0, len(SAMPLES), TOGETHER)]
LONG = ("igamma",)  # code that takes Numba ten seconds


def case(group):
    marks = [pytest.mark.slow] if any(s.prim.name.startswith(LONG) for s in group) else []
    return pytest.param(group, id=group[0].id, marks=marks)


@pytest.mark.parametrize("samples", [case(group) for group in GROUPS])
def test_samples(samples):
    counts = [len(s.args) for s in samples]
    flat = [ConcreteArray(np.asarray(a)) for s in samples for a in s.args]

    def together(*xs):
        it = iter(xs)
        pairs = zip(samples, counts, strict=True)
        return [out for s, n in pairs for out in s.prim.apply(*[next(it) for _ in range(n)])]

    jaxpr = trace_closed(together, [x.aval for x in flat])
    found = backend.backend.compile(jaxpr)(flat)
    tolerance = 8 * max(s.tolerance for s in samples)
    for ours, theirs in zip(found, eval_jaxpr(jaxpr, flat), strict=True):
        close(ours, theirs, tolerance)
