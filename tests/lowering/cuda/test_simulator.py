"""Kernels give right numbers in Numba's CUDA simulator, which runs each thread as one of Python's."""

import importlib.util

import pytest
from simulated import checked

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is missing (fnx[cuda])"
)


@pytest.mark.parametrize(("group", "least"), [("samples", 400), ("programs", 130), ("calls", 8)])
def test_all_programs_of_a_group_are_right(group, least):
    count, wrong = checked(group)
    assert not wrong
    assert count >= least
