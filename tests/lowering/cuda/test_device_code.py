"""Machine code for GPUs is made where there is none, and kept on disk; errors say what to do."""

import importlib.util

import numpy as np
import pytest
from samples import all_samples

import fnx
import fnx.numpy as jnp
from fnx.core.array import ConcreteArray
from fnx.core.errors import CompileError, InvalidValue
from fnx.interpreters.trace import trace_closed

MISSING = importlib.util.find_spec("numba_cuda") is None
needs_compiler = pytest.mark.skipif(MISSING, reason="numba-cuda is missing (fnx[cuda])")
X = np.random.default_rng(0).normal(size=(300, 90))


def is_usable():
    if MISSING:
        return False
    from numba import cuda

    return cuda.is_available()


def kernels(f, *args):
    from fnx.lowering.cuda.backend import Compiled

    jaxpr = fnx.make_jaxpr(f)(*args).jaxpr
    return Compiled(jaxpr)


PROGRAMS = {
    "elementwise": lambda x: jnp.exp(x) * jnp.sin(x) + jnp.tanh(x),
    "reductions": lambda x: (x.sum(0), x.sum(1), x.max(), fnx.nn.softmax(x)),
    "cumulative": lambda x: (jnp.cumsum(x, 1), jnp.cumsum(x, 0)),
    "masks": lambda x: ((x > 0).any(1), jnp.where(x > 0, x, 0)),
    "gradient": fnx.grad(lambda x: jnp.sum(jnp.log1p(x * x))),
    "half": lambda x: x.astype("float16") * 2,
}


@needs_compiler
@pytest.mark.parametrize("device", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_become_cubins_without_spills(name, device):
    found = kernels(PROGRAMS[name], X).ahead_of_time(device)
    assert found
    for code in found:
        assert code.cubin[:4] == b"\x7fELF"
        assert code.registers > 0
        assert code.spills == 0


@needs_compiler
@pytest.mark.slow
def test_all_samples_become_cubins():
    from fnx.lowering.cuda.backend import Compiled

    failed = []
    for sample in all_samples():
        arrays = [ConcreteArray(np.asarray(a)) for a in sample.args]
        jaxpr = trace_closed(lambda *xs, s=sample: s.prim.apply(*xs), [a.aval for a in arrays])
        try:
            Compiled(jaxpr).ahead_of_time("sm_90")
        except CompileError as error:
            failed.append((sample.id, str(error)[:200]))
    assert not failed


@needs_compiler
def test_a_second_process_would_find_them(monkeypatch):
    from fnx.lowering.cuda import device_code

    first = kernels(lambda x: x * 3 + 1, X).ahead_of_time("sm_90")
    monkeypatch.setattr(device_code, "_linked", lambda *_: pytest.fail("it was compiled again"))
    second = kernels(lambda x: x * 3 + 1, X).ahead_of_time("sm_90")
    assert [c.cubin for c in first] == [c.cubin for c in second]


@needs_compiler
def test_stages_show_and_compile_them():
    lowered = fnx.jit(lambda x: jnp.sin(x).sum(0)).lower(X)
    assert ".target sm_90" in lowered.as_text("ptx")
    compiled = lowered.compile(device="sm_80")
    np.testing.assert_allclose(compiled(X), np.sin(X).sum(0))


def test_sources_need_nothing_installed():
    text = fnx.jit(lambda x: jnp.sin(x).sum()).lower(X).as_text("cuda")
    assert "cuda.shfl_xor_sync" in text
    assert "# launch" in text


def test_names_of_devices_are_checked():
    with pytest.raises(InvalidValue, match="sm_90"):
        fnx.jit(jnp.sin).lower(X).compile(device="h100")


def test_calls_without_a_gpu_say_what_is_missing():
    from fnx.lowering.cuda.gpu_driver import GpuDriver, NoDevice

    if is_usable():
        pytest.skip("there is a GPU")
    wanted, text = (ImportError, "pip install 'fnx") if MISSING else (NoDevice, "nvidia-smi")
    with pytest.raises(wanted, match=text):
        GpuDriver()
    with pytest.raises(wanted, match=text):
        fnx.devices("gpu")


@needs_compiler
def test_kernels_that_do_not_compile_name_their_source(monkeypatch):
    from fnx.lowering.cuda import device_code
    from fnx.lowering.cuda.kernels import kernel_printer

    bad = kernel_printer.Printed("bad", "def bad():\n    undefined()\n", [], [], (1, 1))
    with pytest.raises(CompileError, match=r"its source is in .*bad\.py"):
        device_code.cubin(bad, "sm_90")
