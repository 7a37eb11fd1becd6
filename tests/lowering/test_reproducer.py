"""What users get when compiling fails, or memory does not suffice: a file, a name, a way around."""

import re
from pathlib import Path

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core import config
from fnx.core.errors import CompileError
from fnx.lowering import pipeline as program
from fnx.lowering.cpu.llvm import module_printer


@pytest.fixture(autouse=True)
def _nothing_on_disk():
    with config.cache(False):
        yield


def test_a_failing_printer_is_reported_with_the_kernel_ir(monkeypatch):
    def broken(program):
        raise KeyError("no such thing")

    monkeypatch.setattr(module_printer, "emit", broken)
    with pytest.raises(CompileError) as caught:
        fnx.jit(lambda x: jnp.sin(x) * 3.5)(np.arange(40.0))
    text = str(caught.value)
    assert "emit failed with KeyError" in text
    assert "reference" in text
    found = re.search(r"its kernel is in (\S+\.kernel)", text)
    kernel = Path(found[1])
    assert "sin(" in kernel.read_text()
    kernel.unlink()


def test_a_failing_builder_is_reported_with_the_jaxpr(monkeypatch):
    def broken(jaxpr, donated, target):
        raise RuntimeError("out of ideas")

    monkeypatch.setattr(program, "build", broken)
    with pytest.raises(
        CompileError, match="build failed with RuntimeError: out of ideas"
    ) as caught:
        fnx.jit(jnp.cos)(np.arange(40.0))
    Path(re.search(r"its jaxpr is in (\S+\.jaxpr)", str(caught.value))[1]).unlink()


def test_the_reference_backend_runs_what_cannot_be_compiled():
    config.backend.set("reference")
    try:
        y = fnx.jit(lambda x: jnp.sum(jnp.sin(x)))(np.arange(40.0))
    finally:
        config.backend.set("cpu")
    np.testing.assert_allclose(y, np.sin(np.arange(40.0)).sum())


def test_too_large_a_workspace_names_bytes_and_buffers_and_breaks_nothing():
    n = 1 << 22

    def f(x):
        def step(u, _):
            return jnp.sin(u) + jnp.roll(u, 1), u

        last, all_of_it = fnx.lax.scan(step, jnp.broadcast_to(x, (n,)) * x, None, length=1 << 20)
        return jnp.sum(last) + jnp.sum(all_of_it[::100000, 5])

    with pytest.raises(MemoryError) as caught:
        fnx.jit(f)(2.0)
    text = str(caught.value)
    assert re.search(r"needs \d+ bytes", text)
    assert re.search(r"b\d+ of \d+ bytes", text)
    assert fnx.jit(lambda x: x + 1.0)(2.0) == 3.0


def test_too_large_results_name_bytes_and_shape():
    f = fnx.jit(lambda x: (x, jnp.zeros((10**7, 10**7)) + x))
    for _ in range(3):  # later calls take a shorter way
        with pytest.raises(MemoryError, match=r"8\d{14} bytes.*\(10000000, 10000000\).*float64"):
            f(2.0)
    assert fnx.jit(lambda x: x + 1.0)(2.0) == 3.0


def test_sizes_beyond_64_bits_are_a_matter_of_memory():
    def huge(x):
        return jnp.zeros((1 << 40, 1 << 40)) + x

    for f in (huge, lambda x: huge(x).sum(), lambda x: jnp.sort(huge(x)).sum()):
        jitted = fnx.jit(f)
        for _ in range(2):
            with pytest.raises(MemoryError, match=r"\d{20,}"):
                jitted(2.0)
