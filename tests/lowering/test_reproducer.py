"""What users get when compiling fails, or memory does not suffice: a file, a name, a way around."""

import re
import stat
import tempfile
from pathlib import Path

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core import config
from fnx.core.errors import CompileError
from fnx.lowering import pipeline as program
from fnx.lowering import reproducer
from fnx.lowering.cpu.llvm import module_printer
from fnx.lowering.cpu.loader import load as native_load


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch) -> Path:
    """The folder of temporary files, in which nothing is left; nothing is kept on disk."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(reproducer, "_made", {})
    with config.cache(False):
        yield tmp_path


@pytest.mark.slow
def test_a_failing_printer_is_reported_with_the_kernel_ir(monkeypatch):
    def broken(program):
        raise KeyError("no such thing")

    monkeypatch.setattr(module_printer, "emit", broken)
    x = np.arange(40.0)
    with pytest.warns(RuntimeWarning, match="compiled by Numba") as caught:
        found = fnx.jit(lambda x: jnp.sin(x) * 3.5)(x)
    np.testing.assert_allclose(found, np.sin(x) * 3.5, rtol=1e-14, atol=1e-14)
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "emit failed with KeyError" in text
    place = re.search(r"its kernel is in (\S+\.kernel)", text)
    assert "sin(" in Path(place[1]).read_text()


def test_where_no_native_code_can_be_loaded_numba_compiles(monkeypatch):
    def no_loader(*args):
        raise OSError("no executable memory")

    monkeypatch.setattr(native_load, "load", no_loader)
    f = fnx.jit(lambda x: jnp.cumsum(x * 7.5))
    with pytest.warns(RuntimeWarning, match="no executable memory"):
        found = f(np.arange(5.0))
    np.testing.assert_array_equal(found, np.cumsum(np.arange(5.0) * 7.5))
    assert f(np.arange(5.0)).shape == (5,)  # without another warning


def out_of_ideas(jaxpr, donated, target):
    raise RuntimeError("out of ideas")


def failure(function) -> str:
    with pytest.raises(
        CompileError, match="build failed with RuntimeError: out of ideas"
    ) as caught:
        fnx.jit(function)(np.arange(40.0))
    return str(caught.value)


def saved(text: str) -> Path:
    return Path(re.search(r"its jaxpr is in (\S+\.jaxpr)", text)[1])


def test_a_failing_builder_is_reported_with_the_jaxpr(monkeypatch):
    monkeypatch.setattr(program, "build", out_of_ideas)
    assert "cos" in saved(failure(jnp.cos)).read_text()


def test_what_failed_is_for_the_user_alone(monkeypatch, temporary):
    monkeypatch.setattr(program, "build", out_of_ideas)
    first = saved(failure(lambda x: jnp.cos(x) + 1))
    assert first.parent.parent == temporary
    assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
    assert saved(failure(lambda x: jnp.cos(x) + 2)).parent == first.parent
    assert len(list(temporary.iterdir())) == 1
    monkeypatch.setattr(reproducer, "_made", {})  # as in another process
    again = saved(failure(lambda x: jnp.cos(x) + 1))
    assert again.name == first.name
    assert again.parent != first.parent


def test_a_failure_is_told_where_nothing_can_be_saved(monkeypatch, temporary):
    monkeypatch.setattr(program, "build", out_of_ideas)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "gone"))
    assert "its jaxpr could not be saved" in failure(jnp.cos)


def test_a_folder_that_was_removed_is_made_again(monkeypatch):
    monkeypatch.setattr(program, "build", out_of_ideas)
    first = saved(failure(jnp.cos))
    first.unlink()
    first.parent.rmdir()
    assert saved(failure(jnp.sin)).exists()


def test_a_folder_that_another_put_in_its_place_is_left_alone(monkeypatch):
    monkeypatch.setattr(program, "build", out_of_ideas)
    first = saved(failure(jnp.cos))
    monkeypatch.setattr(reproducer.os, "geteuid", lambda: 54321)
    assert saved(failure(jnp.cos)).parent != first.parent


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
