"""Machine code for GPUs is made where there is none, and kept on disk; errors say what to do."""

import importlib.util
import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from samples import all_samples
from stored_kernels import Stored, is_elementwise

import fnx
import fnx.numpy as jnp
from fnx.core.array import ConcreteArray
from fnx.core.errors import CompileError, InvalidValue
from fnx.interpreters.trace import trace_closed
from fnx.lowering.cuda.kernels.thresholds import LIMITS

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


@pytest.mark.parametrize("name", ["random_gamma", "random_gamma_of_keys"])
def test_a_thread_shares_out_no_loops(name):
    """What the threads of a CPU would share: `shared` is a function of Numba's other module."""
    from fnx.lowering.ir import traversal
    from fnx.lowering.ir.kernel import Loop
    from fnx.lowering.numba import sharing

    for sample in all_samples():
        if sample.prim.name == name:
            arrays = [ConcreteArray(np.asarray(a)) for a in sample.args]
            kernels = Stored(trace_closed(sample.prim.apply, [a.aval for a in arrays]), LIMITS)
            found = [x for k in kernels.plan.kernels() for x in traversal.statements(k.body)]
            assert any(sharing.can_be_shared(x) for x in found if isinstance(x, Loop))
            assert all(" in shared(" not in p.source for p in kernels.printed.values())


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
def test_loads_of_a_stencil(monkeypatch):
    from fnx.lowering.cuda import backend

    f = lambda u: u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
    found = []
    for limits in (replace(LIMITS, points=1 << 40), replace(LIMITS, points=1)):
        monkeypatch.setattr(backend, "limits", lambda limits=limits: limits)
        text = kernels(f, X).ptx_text()
        count = lambda what, text=text: len(re.findall(rf"\b{what}\b", text))
        found.append((count("ld.global") / count("st.global"), count("ld.shared")))
    assert found[0] == (5, 0)
    assert found[1] == (2, 5)  # a tile of 256 points and its surroundings have 340 elements


# Of each kind of code that is elementwise: long formulas, complex ones, integers, bits, random numbers.
ELEMENTWISE = (
    "lgamma acos div logistic rem pow erf_inv random_bits bessel_i0e digamma sqrt shift_right_arithmetic "
    "cast rsqrt atan2 select_n random_fold_in cbrt population_count expm1"
).split()


@needs_compiler
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_kernels_keep_all_in_registers(name):
    samples = [s for s in all_samples() if s.prim.name == name]
    found = 0
    for sample in samples[:3]:
        arrays = [ConcreteArray(np.asarray(a)) for a in sample.args]
        kernels = Stored(trace_closed(sample.prim.apply, [a.aval for a in arrays]))
        for kernel, code in zip(kernels.printed, kernels.ahead_of_time("sm_90"), strict=True):
            if is_elementwise(kernel):
                found += 1
                assert code.spills == 0
                assert code.registers <= 128  # two blocks of 256 threads have room
    assert found


@needs_compiler
def test_products_are_rounded_but_where_the_order_is_free():
    lowered = fnx.jit(lambda x: x * x - 1.5 * x).lower(X)
    text = lowered.as_text("ptx")
    assert "mul.rn.f64" in text
    assert "fma.rn.f64" not in text
    assert "mul.f64" not in text.replace("mul.rn.f64", "")
    assert "fma.rn.f64" in fnx.jit(lambda x: (x * x).sum()).lower(X).as_text("ptx")


def test_many_results_of_a_block_share_its_memory():
    """48 KiB is all that a block has: an array for each of them would not fit."""
    f = lambda x: jnp.stack([(x * (1 + 1j * k)).sum(1) for k in range(20)])
    made = kernels(f, np.ones((100, 1000)))
    for printed in made.printed.values():
        assert printed.source.count("cuda.shared.array") <= 1
    assert "cuda.shared.array(256, numba.complex128)" in made.cuda_text()


@needs_compiler
def test_kernels_take_the_words_that_launches_give():
    from cuda.core import LaunchConfig

    from fnx.lowering.cuda import device_code
    from fnx.lowering.cuda.launches import words

    f = lambda i, x: jnp.zeros(5000, "int64").at[i].add(x)
    made = kernels(f, np.arange(300), np.arange(300))
    arrays = 0
    for printed in made.printed.values():
        entry = re.search(r"\.entry [^(]*\(([^)]*)\)", device_code.ptx(printed, "sm_90"))
        given, where = words(
            [(8 * k, 5000, 8, is_array) for k, is_array in enumerate(printed.arrays)]
        )
        assert entry[1].count(".param") == entry[1].count(".param .u64") == len(given)
        arrays += sum(printed.arrays)
        assert [given[k] for k in where] == [8 * k for k in range(len(where))]
        assert LaunchConfig(grid=(3, 2), block=printed.threads).block[:2] == printed.threads
    assert arrays


@needs_compiler
@pytest.mark.parametrize("dtype", ["complex128", "float32"])
def test_loads_ask_for_no_more_than_an_element_is_aligned_to(dtype):
    """Arrays of other libraries begin anywhere: loads of several numbers would fail there."""
    x = X.astype(dtype)
    text = fnx.jit(lambda x: x[:, 1:] * 2 + x[:, :-1]).lower(x).as_text("ptx")
    assert "ld.global" in text or "ld.f" in text or "ld.b" in text
    assert ".v2" not in text
    assert ".v4" not in text


NUMBERS = "int32 int64 uint8 uint32 uint64 float32 float64".split()
OPERATORS = {
    "arithmetic": ("+ - * /", NUMBERS),
    "bits": ("& | ^ << >>", NUMBERS[:-2]),
    "comparisons": ("< == != >=", [n for n in NUMBERS if n != "uint64"]),
}


def by_both(lines):
    """The PTX of a kernel by way of fnx's translation, and by Numba's; names aside."""
    from fnx.lowering.cuda import device_code
    from fnx.lowering.cuda.kernels.kernel_printer import Printed
    from fnx.lowering.ir.kernel import Buffer

    dtypes = [*NUMBERS, "float64"]
    head = f"def k({', '.join(NUMBERS)}, out):"
    buffers = [Buffer(n, n, 1, "argument") for n in dtypes]
    printed = Printed(
        "k", "\n    ".join([head, *lines]) + "\n", buffers, [False] * len(dtypes), (1, 1)
    )
    for make in (device_code._made, device_code._by_numba):
        text = b"".join(make(printed, (8, 0))).decode()
        text = re.sub(r"\.common[^\n]*", "", text)
        yield text.replace(re.search(r"\.entry (\w+)", text)[1], "k").split()


@needs_compiler
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_mean_what_they_mean_to_numba(name):
    symbols, kinds = OPERATORS[name]
    found = [f"{a}[0] {s} {b}[0]" for s in symbols.split() for a in kinds for b in kinds]
    own, numbas = by_both([f"out[{k}] = np.float64({e})" for k, e in enumerate(found)])
    assert own == numbas


@needs_compiler
def test_statements_mean_what_they_mean_to_numba():
    found = [
        f"out[{k}] = np.float64(np.{b}({a}[0]))"
        for k, (a, b) in enumerate(product(NUMBERS, NUMBERS))
    ]
    found += [f"out[{k}] = np.float64(-{a}[1])" for k, a in enumerate(NUMBERS, 100)]
    found += ["c = np.int32(16)", "x = 1.5", "while c > 0:", "    x = x + out[c]", "    c >>= 1"]
    found += ["out[98] = x", "for i in range(int64[1], 9, int64[2]):", "    if int64[i] % 7 > 2:"]
    found += ["        x, c = min(int64[i] // 5, max(i, 3)) * x, np.int32(i)", "out[97] = x + c"]
    own, numbas = by_both(found)
    assert own == numbas


def test_kernels_are_not_left_to_numba(monkeypatch):
    """What is not translated takes ten times as long."""
    from fnx.lowering.cuda.device_code import _types
    from fnx.lowering.cuda.nvvm import translation

    for f in PROGRAMS.values():
        for printed in kernels(f, X).printed.values():
            text = translation.module(printed.source, _types(printed))
            assert f"define void @{printed.name}(" in text


@needs_compiler
def test_what_is_not_translated_is_compiled_by_numba(monkeypatch):
    from fnx.lowering.cuda import device_code
    from fnx.lowering.cuda.nvvm import translation

    def unsupported(*_):
        raise translation.Unsupported

    monkeypatch.setattr(translation, "module", unsupported)
    (printed,) = kernels(lambda x: x + 2.125, X).printed.values()
    assert ".entry" in device_code.ptx(printed, "sm_80")


@needs_compiler
def test_devices_share_what_takes_long(monkeypatch):
    from fnx.lowering.cuda.nvvm import translation

    f = lambda x: jnp.sin(x) * 3.25
    kernels(f, X).ahead_of_time("sm_80")
    monkeypatch.setattr(translation, "module", lambda *_: pytest.fail("it was translated again"))
    for device in ("sm_90", "sm_120"):
        (code,) = kernels(f, X).ahead_of_time(device)
        assert code.cubin[:4] == b"\x7fELF"


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
