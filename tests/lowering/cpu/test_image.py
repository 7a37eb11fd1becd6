"""Linked images: code on disk that a process loads without LLVM, and what happens where it cannot."""

import ctypes
import json
import os
import re
import struct
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from llvm_texts import Emitted, axpy, check_axpy

from fnx.lowering.cpu.jit import code_cache, compiler, disk_cache, image, linker
from fnx.lowering.cpu.loader import load
from fnx.lowering.cpu.processor import code_pages, cpuid
from fnx.lowering.cpu.processor import features as processor

pytestmark = pytest.mark.skipif(not code_pages.usable(), reason="images are for Linux on x86-64")

F8 = [((5,), "float64")]
KEY = disk_cache.key("code", code_cache.PIPELINE, "program", axpy(), sources=False)


def entries(folder):
    """The payloads of a cache's files."""
    files = [p for p in folder.rglob("*") if p.is_file()]
    return [file.read_bytes()[disk_cache._HEADER :] for file in files]


# --- a second process --------------------------------------------------------------------------

_PROGRAMS = """
import hashlib, json, os, sys
import numpy as np
import fnx
import fnx.numpy as jnp
from fnx import lax, random
from fnx.scipy import linalg, special

x = np.linspace(0.1, 2.0, 1003)
m = np.random.default_rng(0).normal(size=(24, 24))
s = m @ m.T + 24 * np.eye(24)
z = m + 1j * m.T
big = np.linspace(0.0, 1.0, 1 << 20)

def rounds(x):
    def body(c, t):
        c = jnp.sin(c) + t * x
        return c, c.sum()
    return lax.scan(body, x, jnp.arange(30.0))

def until(x):
    return lax.while_loop(lambda c: c[0] < 50, lambda c: (c[0] + 1, c[1] * 1.01), (0, x))

def seen(x):
    return fnx.pure_callback(lambda a: a * 2, fnx.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

PROGRAMS = {
    "elementwise": (lambda x: jnp.tanh(jnp.sin(x) * jnp.exp(x) + jnp.log(x) ** 1.5), x),
    "narrow": (lambda x: jnp.exp(x.astype("float32")) + x.astype("float16"), x),
    "reductions": (lambda x: (x.sum(), jnp.cumsum(x), x.argmax(), x.std()), x),
    "gradient": (fnx.grad(lambda x: jnp.sum(jnp.tanh(x @ x))), m),
    "vmap": (fnx.vmap(lambda r: jnp.outer(r, r).sum(0)), m),
    "solve": (lambda s: jnp.linalg.solve(s, s[0]), s),
    "factors": (lambda s: (jnp.linalg.cholesky(s), linalg.lu(s)), s),
    "eigenvalues": (lambda s: (jnp.linalg.eigh(s)[0], jnp.linalg.svd(s)[1]), s),
    "products": (lambda m: m @ m.T + (m @ m[0])[None], m),
    "complex": (lambda z: jnp.exp(z) @ z / abs(z), z),
    "fft": (lambda x: (jnp.fft.fft(x).real, jnp.fft.rfft(x[:1000]).imag, jnp.fft.fft(x[:997])), x),
    "rounds": (rounds, x),
    "until": (until, x),
    "branches": (lambda x: lax.cond(x[0] > 0, lambda x: x * 2, jnp.cos, x), x),
    "threads": (lambda x: jnp.sin(x) * x + jnp.sqrt(x), big),
    "random": (lambda x: random.normal(random.key(3), x.shape) + random.uniform(random.key(4)), x),
    "sorting": (lambda x: (jnp.sort(jnp.sin(9 * x)), jnp.argsort(jnp.cos(9 * x))), x),
    "special": (lambda x: special.gammaln(x) + special.i0(x) + special.erf(x) + special.zeta(x, 2.5), x),
    "integers": (lambda x: jnp.arange(1003) // (1 + (10 * x).astype(int)) % 7, x),
    "indexing": (lambda x: x.at[(x * 100).astype(int)].add(1.0)[::-1], x),
    "callback": (seen, x),
}
threads = int(os.environ["FNX_NUM_THREADS"])
found = {}
for name, (function, argument) in PROGRAMS.items():
    compiled = fnx.jit(function).lower(argument).compile()
    out = fnx.tree_util.tree_leaves(compiled(argument))
    bits = hashlib.sha256(b"".join([np.asarray(a).tobytes() for a in out])).hexdigest()
    found[name] = [bits, "llvmlite" in sys.modules]
from fnx.lowering.cpu.jit import code_cache
from fnx.lowering.cpu.runtime import thread_pool
print(json.dumps([found, code_cache.stats(), thread_pool.pool().workers()]))
"""


def in_new_process(folder, code=_PROGRAMS, **more):
    env = {**os.environ, "FNX_CACHE_DIR": str(folder), "FNX_NUM_THREADS": "2", **more}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_second_process_needs_no_llvm_and_gets_the_same_bits(tmp_path):
    first, compiled, _ = in_new_process(tmp_path)
    assert compiled["compiled"] > 15
    assert all(payload[:1] != code_cache._OBJECTS for payload in entries(tmp_path))
    second, recalled, workers = in_new_process(tmp_path)
    assert recalled["compiled"] == 0
    assert workers == 1  # two threads shared a loop
    assert {name for name, (_, llvm) in second.items() if llvm} == set()
    assert {k: bits for k, (bits, _) in first.items()} == {k: v for k, (v, _) in second.items()}


_LATER = """
import json, sys
import numpy as np
import fnx
import fnx.numpy as jnp
x = np.linspace(0.0, 1.0, 100)
known = fnx.jit(lambda x: jnp.sin(x) * 2).lower(x)
a = known.compile()(x)
before = "llvmlite" in sys.modules
text = known.as_text("asm")
b = fnx.jit(lambda x: jnp.sin(x) * {factor} + 1)(x)
print(json.dumps([before, "fnx_v_sin_float64" in text, bool(np.allclose(b, np.sin(x) * {factor} + 1))]))
"""


@pytest.mark.slow
def test_a_process_may_compile_after_it_has_loaded(tmp_path):
    assert in_new_process(tmp_path, _LATER.format(factor="x")) == [True, True, True]
    assert in_new_process(tmp_path, _LATER.format(factor="x * x")) == [False, True, True]


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_read(tmp_path):
    in_new_process(tmp_path, _LATER.format(factor="x"))
    for path in [tmp_path, *tmp_path.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert in_new_process(tmp_path, _LATER.format(factor="x"))[0] is False
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


# --- where it cannot be loaded -----------------------------------------------------------------


def no_pages(size):
    raise PermissionError("code may not be written here")


def test_without_memory_for_code_of_ones_own_llvm_links(no_code, monkeypatch):
    check_axpy(load.load(Emitted(axpy(), [5]), F8 * 2, F8, 0))
    code_cache.forget()
    monkeypatch.setattr(image, "Pages", no_pages)
    # An image is of no use here: it is compiled anew.
    check_axpy(load.load(Emitted(axpy(), [5]), F8 * 2, F8, 0))
    assert load.stats()["compiled"] == 1
    assert disk_cache.get(KEY)[:1] == code_cache._OBJECTS
    code_cache.forget()
    check_axpy(load.load(Emitted(axpy(), [5]), F8 * 2, F8, 0))
    assert load.stats() == {"compiled": 0, "disk_hits": 1, "memory_hits": 0}
    monkeypatch.undo()


def test_objects_on_disk_are_linked_by_llvm(no_code, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(code_pages, "usable", lambda: False)
        check_axpy(load.load(Emitted(axpy(), [5]), F8 * 2, F8, 0))
    code_cache.forget()
    check_axpy(load.load(Emitted(axpy(), [5]), F8 * 2, F8, 0))
    assert load.stats() == {"compiled": 0, "disk_hits": 1, "memory_hits": 0}


def made(text=None):
    return linker.image([compiler.compile_text(text or axpy())], ("entry",))


def changed(found, **more):
    return found._replace(**more)


@pytest.mark.parametrize(
    "broken",
    [
        lambda found: b"I",
        lambda found: b"I" + found.packed()[:-5],
        lambda found: b"X" + found.packed(),
        lambda found: b"I" + found.packed()[1:],
        lambda found: b"I" + changed(found, exports={"other": 0}).packed(),
        lambda found: b"I" + changed(found, names=("no_such_routine",)).packed(),
        lambda found: b"I" + changed(found, size=1 << 60).packed(),
        lambda found: b"O" + b"\x10" + bytes(30),
    ],
    ids="empty cut kind shifted exports names size objects".split(),
)
def test_a_broken_image_is_a_miss(no_code, broken):
    disk_cache.put(KEY, broken(made()))
    check_axpy(load.load(Emitted(axpy(), [5]), F8 * 2, F8, 0))
    assert load.stats()["compiled"] == 1
    code_cache.forget()
    check_axpy(load.load(Emitted(axpy(), [5]), F8 * 2, F8, 0))
    assert load.stats()["disk_hits"] == 1


# --- linking -----------------------------------------------------------------------------------

_TABLES = """
@own = global i64 41, align 64
@zeros = internal global [5000 x i64] zeroinitializer, align 64
@here = internal constant [2 x ptr] [ptr @twice, ptr @thrice]
@there = internal constant [2 x ptr] [ptr @labs, ptr getelementptr (i8, ptr @own, i64 8)]
declare i64 @labs(i64)
declare i64 @other(i64)
declare i64 @far(i64)
define i64 @twice(i64 %x) noinline nounwind {
  %y = mul i64 %x, 2
  ret i64 %y
}
define i64 @thrice(i64 %x) noinline nounwind {
  %y = mul i64 %x, 3
  ret i64 %y
}
define i64 @entry(i64 %k, i64 %x) nounwind {
  %slot = getelementptr [2 x ptr], ptr @here, i64 0, i64 %k
  %f = load volatile ptr, ptr %slot
  %a = call i64 %f(i64 %x)
  %g = load volatile ptr, ptr @there
  %b = call i64 %g(i64 -1000)
  %c = load i64, ptr @own
  %d = add i64 %c, 1
  store i64 %d, ptr @own
  %z = getelementptr [5000 x i64], ptr @zeros, i64 0, i64 4999
  %e = load i64, ptr %z
  %o = call i64 @other(i64 %x)
  %far = call i64 @far(i64 %x)
  store i64 %far, ptr %z
  %s1 = add i64 %a, %b
  %s2 = add i64 %s1, %c
  %s3 = add i64 %s2, %e
  %s4 = add i64 %s3, %o
  ret i64 %s4
}
"""
_OTHER = """
@own = external global i64
define i64 @other(i64 %x) nounwind {
  %c = load i64, ptr @own
  %y = mul i64 %c, 1000000
  ret i64 %y
}
"""


@pytest.mark.parametrize("distance", ["near", "far"])
def test_tables_variables_and_calls(distance):
    objects = [compiler.compile_text(text, "glue") for text in (_TABLES, _OTHER)]
    found = linker.image(objects, ("entry", "own"))
    assert set(found.names) == {"labs", "far"}
    assert found.size > 5000 * 8 > len(found.code) - found.writable
    # A routine out of reach of a call: what is called is by itself a jump to the address in rax.
    target = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: x + 7)
    address = ctypes.cast(target, ctypes.c_void_p).value
    if distance == "far":
        found = changed(found, calls=())  # as if no call could reach it
    addresses, keep = found.place({"far": address})
    assert addresses["own"] % 64 == 0
    entry = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 2)(addresses["entry"])
    assert entry(0, 5) == 10 + 1000 + 41 + 0 + 42 * 1000000
    assert entry(1, 5) == 15 + 1000 + 42 + 12 + 43 * 1000000
    assert ctypes.c_int64.from_address(addresses["own"]).value == 43
    gone = weakref.ref(keep)
    # The system may show the pages as one with those beside them.
    maps = re.findall(r"^(\w+)-(\w+) (\S+)", Path("/proc/self/maps").read_text(), re.MULTILINE)
    modes = [mode for low, high, mode in maps if int(low, 16) <= addresses["entry"] < int(high, 16)]
    assert modes == ["r-xp"]
    del keep
    assert gone() is None


def test_a_copy_has_variables_of_its_own():
    found = linker.image([compiler.compile_text(t, "glue") for t in (_TABLES, _OTHER)], ("own",))
    first, keep = found.place({"far": 1})
    second, keep_too = found.place({"far": 1})
    ctypes.c_int64.from_address(first["own"]).value = 5
    assert ctypes.c_int64.from_address(second["own"]).value == 41
    assert keep.address != keep_too.address


def relocations(data):
    """Where the types of an object's relocations are written."""
    table, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    for k in range(count):
        kind, _, _, offset, size = struct.unpack_from("<IQQQQ", data, table + 64 * k + 4)
        if kind == 4:
            yield from range(offset + 8, offset + size, 24)


def test_what_is_not_known_is_left_to_llvm():
    data = compiler.compile_text(_TABLES, "glue")
    for at in relocations(data):
        other = bytearray(data)
        struct.pack_into("<I", other, at, 24)  # PC64
        with pytest.raises(linker.Unlinked, match="type 24"):
            linker.image([bytes(other)], ("entry",))
    for text, why in (
        ("@t = thread_local global i64 1", "section|symbol"),
        ("@w = weak global i64 1", "symbol"),
        ("@c = common global i64 0", "symbol"),
        ('@s = global i64 1, section ".init_array"', "section"),
    ):
        with pytest.raises(linker.Unlinked, match=why):
            linker.image([compiler.compile_text(text)], ())
    with pytest.raises(linker.Unlinked, match="twice"):
        linker.image([data, data], ("entry",))
    with pytest.raises(linker.Unlinked):
        linker.image([data[: len(data) // 2]], ("entry",))
    with pytest.raises(linker.Unlinked, match="KeyError"):
        linker.image([data], ("no such function",))


# --- the CPU -----------------------------------------------------------------------------------


def test_the_cpu_is_the_one_that_llvm_sees(monkeypatch):
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    known = {f"+{name}" for name in ("avx2", "avx512f", "f16c", "fma") if features.get(name)}
    assert cpuid.features() == known
    assert processor.identity() == processor.identity()
    before = processor.identity()
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "+sse2")
    assert processor.identity() != before


def test_each_core_answers_the_same():
    cores = sorted(os.sched_getaffinity(0))
    found = []
    try:
        for core in cores[:8]:
            os.sched_setaffinity(0, {core})
            cpuid.answers.cache_clear()
            found.append(cpuid.answers())
    finally:
        os.sched_setaffinity(0, cores)
    assert all(one == found[0] for one in found)


def test_a_cpu_that_may_not_be_asked_is_named_by_llvm(monkeypatch):
    import llvmlite.binding as llvm

    monkeypatch.setattr(code_pages, "Pages", no_pages)
    cpuid.answers.cache_clear()
    try:
        assert llvm.get_host_cpu_name() in processor.identity()
    finally:
        monkeypatch.undo()
        cpuid.answers.cache_clear()
