"""What tests of progress share."""

import contextlib

import pytest

import fnx.observe.progress  # noqa: F401  which adds who looks, once
from fnx.lowering.cpu.loader import progress as records


@pytest.fixture
def seen(monkeypatch):
    """The records of the programs that run, in order."""
    found = []

    @contextlib.contextmanager
    def watch(loops):
        yield
        found.extend(loops)

    monkeypatch.setattr(records, "watch", [watch])
    return found
