"""Packages that an interrupt comes upon while they are imported."""

import importlib
import signal
import sys

import pytest

from fnx.core.threads.whole_imports import whole

_PACKAGE = """
import os
import signal
import sys
import time
is_first = "{name}.first" not in sys.modules
import {name}.first
if is_first:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.05)  # for the interrupt, where it comes here
import {name}.second
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that is interrupted when one of its two modules is there."""
    name = f"package_of_{tmp_path.name}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text(_PACKAGE.format(name=name))
    for module in ("first", "second"):
        (folder / f"{module}.py").write_text("number = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    for module in [m for m in sys.modules if m.partition(".")[0] == name]:
        del sys.modules[module]


def test_an_interrupted_import_goes_on(package):
    # Background jobs of shells ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            whole(package)
    finally:
        signal.signal(signal.SIGINT, before)
    found = importlib.import_module(package)
    assert (found.first.number, found.second.number) == (1, 1)
    assert whole(package) is None


def test_what_cannot_be_imported_is_told_by_who_imports_it():
    whole("no_such_package")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_package")
