"""A fake GPU for a test."""

from collections.abc import Iterator

import fake_gpu
import pytest


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_gpu.Gpu]:
    """A GPU whose calls are recorded, gone after the test."""
    from fnx.lowering.cuda import backend, device

    yield fake_gpu.install(monkeypatch)
    for cached in (backend.driver, device._device):
        cached.cache_clear()
