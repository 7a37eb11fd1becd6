"""A fake GPU for a test."""

from collections.abc import Iterator

import fake_cupy
import fake_gpu
import pytest


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_gpu.Gpu]:
    """A GPU whose calls are recorded, gone after the test."""
    from fnx.core import config
    from fnx.lowering.cuda import backend

    for forget in config.hooks:  # operations that are compiled for another test's
        forget()
    yield fake_gpu.install(monkeypatch)
    backend.drivers.clear()


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch, gpu: fake_gpu.Gpu) -> fake_cupy.Cupy:
    """CuPy's calls on that GPU, recorded."""
    return fake_cupy.install(monkeypatch, gpu)
