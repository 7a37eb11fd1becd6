"""What tests of routines share."""

import pytest

from fnx.lowering.cpu.processor import features


@pytest.fixture(params=[256, 512])
def bits(request, monkeypatch):
    """The width of a vector; LLVM splits those that this CPU does not have."""
    monkeypatch.setattr(features, "vector_bits", lambda: request.param)
    return request.param
