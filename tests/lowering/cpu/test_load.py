"""Loading programs: compiled once, kept in memory and on disk, linked with what they call."""

import ctypes
import json
import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from llvm_texts import Emitted, axpy, check_axpy

from fnx.core.errors import CompileError
from fnx.lowering.cpu.jit import code_cache, compiler, disk_cache, session
from fnx.lowering.cpu.loader import load, symbols

F8 = [((5,), "float64")]

pytestmark = pytest.mark.usefixtures("no_code")


def test_compile_load_and_call():
    executable = load.load(Emitted(axpy(), [5]), F8 * 2, F8, 0)
    check_axpy(executable)
    assert not executable.cache_hit
    assert executable.llvm_seconds > 0
    assert executable.load_seconds > 0
    assert "entry:" in compiler.assembly(axpy())
    assert load.stats() == {"compiled": 1, "disk_hits": 0, "memory_hits": 0}


def test_sizes_share_code():
    for n in (5, 6, 1000):
        spec = [((n,), "float64")]
        executable = load.load(Emitted(axpy(), [n]), spec * 2, spec, 0)
        check_axpy(executable, n)
        assert executable.cache_hit == (n != 5)
    assert load.stats() == {"compiled": 1, "disk_hits": 0, "memory_hits": 2}
    assert executable.llvm_seconds == 0


def test_code_from_disk():
    check_axpy(load.load(Emitted(axpy(), [5]), F8 * 2, F8, 0))
    code_cache.forget()
    executable = load.load(Emitted(axpy(), [5]), F8 * 2, F8, 0)
    check_axpy(executable)
    assert executable.cache_hit
    assert executable.llvm_seconds == 0
    assert load.stats() == {"compiled": 0, "disk_hits": 1, "memory_hits": 0}


@pytest.mark.parametrize("data", [b"", b"not an object file", b"\x7fELF" + bytes(100)])
def test_a_wrong_object_on_disk_is_compiled_again(data):
    name = disk_cache.key("code", code_cache.PIPELINE, "program", axpy(), sources=False)
    disk_cache.put(name, data)
    check_axpy(load.load(Emitted(axpy(), [5]), F8 * 2, F8, 0))
    assert load.stats()["compiled"] == 1
    assert disk_cache.get(name) != data


def test_object_code_of_another_program_is_compiled_again():
    other = compiler.compile_text(axpy().replace("@entry", "@other"))
    name = disk_cache.key("code", code_cache.PIPELINE, "program", axpy(), sources=False)
    disk_cache.put(name, code_cache._packed([other]))
    check_axpy(load.load(Emitted(axpy(), [5]), F8 * 2, F8, 0))
    assert load.stats()["compiled"] == 1


def test_text_that_llvm_rejects():
    with pytest.raises(CompileError, match="LLVM rejects"):
        load.load(Emitted("define i32 @entry( {", []), [], [], 0)
    assert load.stats()["compiled"] == 0


def test_threads_compile_a_program_once():
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.append(load.load(Emitted(axpy(), [5]), F8 * 2, F8, 0))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert load.stats() == {"compiled": 1, "disk_hits": 0, "memory_hits": 7}
    check_axpy(found[3])


_PROGRAM = """
import json, sys
import numpy as np
from llvm_texts import Emitted, axpy
from fnx.lowering.cpu.loader import load
spec = [((5,), "float64")]
executable = load.load(Emitted(axpy(), [5]), spec * 2, spec, 0)
(out,) = executable([np.arange(5.0), np.ones(5)])
heavy = [name for name in ("numba", "scipy") if name in sys.modules]
print(json.dumps([out.tolist(), executable.cache_hit, load.stats()["compiled"], heavy]))
"""


def in_new_process(folder, tests):
    env = {**os.environ, "FNX_CACHE_DIR": str(folder), "PYTHONPATH": str(tests)}
    command = [sys.executable, "-W", "error", "-c", _PROGRAM]
    answer = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)


@pytest.mark.slow
def test_compiling_needs_llvm_alone_and_a_second_process_nothing(tmp_path, repository):
    expected = [1.0, 3.0, 5.0, 7.0, 9.0]
    out, hit, _, heavy = in_new_process(tmp_path, repository / "tests" / "support")
    assert (out, hit, heavy) == (expected, False, [])
    out, hit, compiled, heavy = in_new_process(tmp_path, repository / "tests" / "support")
    assert (out, hit, compiled, heavy) == (expected, True, 0, [])


def test_code_without_a_cache(monkeypatch):
    monkeypatch.setattr(disk_cache, "enabled", lambda: False)
    check_axpy(load.load(Emitted(axpy(), [5]), F8 * 2, F8, 0))
    code_cache.forget()
    check_axpy(load.load(Emitted(axpy(), [5]), F8 * 2, F8, 0))
    assert load.stats()["compiled"] == 1


def test_code_is_made_for_this_cpu():
    import llvmlite.binding as llvm

    if not llvm.get_host_cpu_features().get("avx2", False):
        pytest.skip("no vectors of 256 bits here")
    asm = compiler.assembly(axpy())
    assert "ymm" in asm or "zmm" in asm


# --- libraries ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dgemm", "blas:dgemm"])
def test_blas_pointers(name):
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)
    gemm = kind(symbols.resolve(name))
    a, b, c = np.eye(3) + 2, np.arange(9.0).reshape(3, 3), np.zeros((3, 3))
    n, one, zero = ctypes.c_int(3), ctypes.c_double(1), ctypes.c_double(0)
    r = ctypes.byref
    letter = ctypes.c_char_p(b"N")
    gemm(letter, letter, *[r(n)] * 3, r(one), b.ctypes.data, r(n), a.ctypes.data, r(n), r(zero),
         c.ctypes.data, r(n))  # fmt: skip
    np.testing.assert_allclose(c, a @ b, rtol=1e-14)


def test_lapack_libm_and_runtime_pointers():
    sin = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(symbols.resolve("libm:sin"))
    assert sin(1.0) == np.sin(1.0)
    for name in ("lapack:dgetrf", "zheevd", "fnx_poll", "fnx:fnx_parallel_for", "memcpy"):
        assert symbols.resolve(name) > 0
    assert symbols.resolve("dpotrf") == symbols.resolve("lapack:dpotrf")


def test_unknown_routines():
    for name in ("blas:dgetrf", "no_such_routine", "fnx:dgemm"):
        with pytest.raises(CompileError, match=name):
            symbols.resolve(name)


def test_wide_integers_are_refused(monkeypatch):
    monkeypatch.setattr(symbols, "_capsule_name", lambda capsule: b"void (int64_t *, double *)")
    symbols._exported.values.clear()
    with pytest.raises(CompileError, match="32 bits"):
        symbols._exported("cython_blas")


def test_a_symbol_as_parameter():
    text = """
declare void @fnx_parallel_for(ptr, ptr, i64, i64)
define internal void @task(ptr %context, i64 %lo, i64 %hi) nounwind {
  %old = atomicrmw add ptr %context, i64 %hi seq_cst
  ret void
}
define i32 @entry(ptr %args, ptr %params, ptr %workspace, ptr %control) nounwind {
  %sine = load ptr, ptr %params
  %po = getelementptr ptr, ptr %args, i64 1
  %px = load ptr, ptr %args
  %out = load ptr, ptr %po
  %x = load double, ptr %px
  %y = call double %sine(double %x)
  store double %y, ptr %out
  %count = getelementptr i8, ptr %out, i64 8
  store i64 0, ptr %count
  call void @fnx_parallel_for(ptr @task, ptr %count, i64 7, i64 7)
  ret i32 0
}
"""
    spec = [((2,), "float64")]
    executable = load.load(Emitted(text, [("symbol", "sin")]), spec, spec, 0)
    (out,) = executable([np.array([0.5, 0.0])])
    assert out[0] == np.sin(0.5)
    assert out.view(np.int64)[1] == 7


def test_same_code_as_numbas_generator():
    """Numba itself is not imported to compile; what it would make of a program is the same."""
    from numba.core.codegen import JITCPUCodegen

    class Generator(JITCPUCodegen):
        def _customize_tm_options(self, options):
            super()._customize_tm_options(options)
            options.update(reloc="pic", codemodel="small")
            if "+avx512vbmi," in options["features"]:
                options["features"] += ",-prefer-256-bit"

    generator = Generator("theirs")
    ours = compiler.compile_text(axpy())
    with session.session(), compiler.target_machine():
        module = compiler.parse(axpy(), generator._tm)
        builder = generator._pass_builder(opt=2)
        builder.getModulePassManager().run(module, builder)
        assert generator._tm.emit_object(module) == ours


@pytest.mark.slow
def test_instructions_of_long_programs_without_loops_are_chosen_quickly(monkeypatch):
    """Choosing them well would take a time that grows with the square of the number of leaves."""
    import fnx

    chosen, choose = [], compiler.target_machine
    monkeypatch.setattr(
        compiler, "target_machine", lambda quick=False: chosen.append(quick) or choose(quick)
    )
    many = {f"k{i}": i / 8 for i in range(700)}
    fnx.jit(lambda x: x + 1)(1.0)  # the call wrapper is chosen quickly, too
    chosen.clear()
    doubled = fnx.jit(lambda tree: fnx.tree_util.tree_map(lambda x: x * 2, tree))(many)
    assert {k: float(v) for k, v in doubled.items()} == {k: 2 * v for k, v in many.items()}
    assert chosen.count(True) == 1
    chosen.clear()
    few = {k: many[k] for k in list(many)[:20]}
    fnx.jit(lambda tree: fnx.tree_util.tree_map(lambda x: x * 3, tree))(few)
    rounds = lambda x: fnx.lax.fori_loop(0, 9, lambda i, x: [v + 1.0 for v in x], x)
    fnx.jit(rounds)([float(i) for i in range(400)])
    assert chosen
    assert not any(chosen)


def test_arrays_that_programs_hold_go_with_them():
    array = np.arange(1000.0)
    name, gone = symbols.keep(array), weakref.ref(array)
    address, owner = symbols.owned(name)
    assert address == array.ctypes.data
    assert owner is array
    del array, owner, name
    assert gone() is None
