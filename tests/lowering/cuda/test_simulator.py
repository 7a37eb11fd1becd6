"""Kernels give right numbers in Numba's CUDA simulator, which runs each thread as one of Python's.

The simulator is Numba's own, or numba-cuda's where that is installed. FNX_FUZZ=1 runs all samples of
primitives, too, which else only test_nvvm.py runs, and 100 random programs, not some of them.
"""

import importlib.util
import os

import pytest
from simulated import checked

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("numba.cuda") is None, reason="this Numba has no numba.cuda"
)


GROUPS = {"calls": 8, "programs": 65} | ({"samples": 900} if os.environ.get("FNX_FUZZ") else {})


@pytest.mark.parametrize(("group", "least"), GROUPS.items())
def test_all_programs_of_a_group_are_right(group, least):
    count, wrong = checked(group)
    assert not wrong
    assert count >= least
