"""Every primitive's sample as a source that stands alone, run as plain Python beside its own `impl`."""

import re

import numba
import numpy as np
import pytest
from native_arrays import close
from samples import all_samples

import fnx
from fnx.core import dtypes
from fnx.core.array import ConcreteArray
from fnx.core.errors import MissingRule

LACKING = {*dtypes.COMPUTED, "bfloat16"}  # NumPy has no such dtypes
SAMPLES = [
    s
    for s in all_samples()
    if s.native and "callback" not in s.id and not LACKING & {*re.findall(r"\w+", s.id)}
]
GROUPS = [SAMPLES[k : k + 40] for k in range(0, len(SAMPLES), 40)]


@pytest.mark.parametrize("samples", GROUPS, ids=[group[0].id for group in GROUPS])
def test_samples(samples, monkeypatch):
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)
    for s in samples:
        args = [np.asarray(a) for a in s.args]
        function = fnx.export.python(lambda *xs, s=s: s.prim.apply(*xs), *args).function()
        with np.errstate(all="ignore"):
            found = function(*args)
        wanted = s.prim.apply(*[ConcreteArray(a) for a in args])
        for ours, theirs in zip(found, wanted, strict=True):
            close(ours, theirs, 8 * s.tolerance)


def test_callbacks_are_refused_with_their_line():
    f = lambda x: fnx.pure_callback(np.sin, x, x)
    with pytest.raises(
        MissingRule, match=r"pure_callback cannot be taken along(.|\n)*test_host_func"
    ):
        fnx.export.python(f, 1.0)
