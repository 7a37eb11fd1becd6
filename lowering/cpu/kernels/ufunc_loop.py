"""A C loop of NumPy's universal functions around a kernel for blocks of a few elements.

The loop is `void (char **args, intptr *dims, intptr *steps, void *data)`. The kernel is the entry of a
program on arrays of BLOCK elements (`abi.py`). What lies side by side is handed to it as it is; strided
operands and the last elements go through buffers on the stack, as numbers beside arrays do, once.
"""

import platform

from fnx.lowering.cpu.jit import code_cache
from fnx.lowering.cpu.llvm.ir_builder import NULL, Function, Module, Value, i64

BLOCK = 32  # elements: more than programs unroll, so that loops of all kernels are of vectors
WIDEST = 16  # bytes of an element
WORKSPACE = 4 * BLOCK * WIDEST  # bytes: a kernel with loops of its own keeps a few blocks
ENTRY, PARAMS, SIZES = 0, 8, 16  # offsets in `data`: the kernel, its parameters, bytes of elements


def name(operands: int) -> str:
    return f"fnx_ufunc_loop_{operands}"


def address(operands: int) -> int:
    """The address of the loop for kernels of so many operands and one result."""
    own = name(operands)
    return code_cache.routine(own, lambda: text(operands), [own], {}).addresses[own]


def text(operands: int) -> str:
    module = Module()
    _copy(module)
    with Function(module, name(operands), "void", *["ptr"] * 4, public=True) as f:
        _loop(f, operands)
    return str(module)


def _copy(module: Module) -> None:
    """copy(to, its step, from, its step, bytes of an element, count)."""
    kinds = "ptr i64 ptr i64 i64 i64".split()
    with Function(module, "copy", "void", *kinds) as f:
        to, to_step, source, step, size, count = f.args
        with f.when(f.both(f.same(to_step, size), f.same(step, size))):
            f.call("memcpy", "ptr", to, source, f.mul(count, size))
            f.ret()
        for width in (8, 4, 2, 16):
            with f.when(f.compare("eq", size, width)):
                kind = f"i{8 * min(width, 8)}"
                with f.loop(count) as k:
                    for part in range(0, width, 8):
                        x = f.load(f.at(source, f.mul(k, step)), part, kind)
                        f.store(x, f.at(to, f.mul(k, to_step)), part)
                f.ret()
        f.ret()


def _loop(f: Function, operands: int) -> None:
    args, dims, steps, data = f.args
    count, entry, params = f.load(dims), f.pointer(data, ENTRY), f.pointer(data, PARAMS)
    places = range(operands + 1)
    arrays = [f.pointer(args, 8 * k) for k in places]
    step = [f.load(steps, 8 * k) for k in places]
    size = [f.load(data, SIZES + 8 * k) for k in places]
    buffers = [f.slot("i64", BLOCK * WIDEST // 8, align=64) for _ in places]
    given = f.slot("ptr", operands + 1)
    workspace = f.slot("i64", WORKSPACE // 8, align=64)
    for buffer in buffers:  # zeros, where there are no elements
        f.call("memset", "ptr", buffer, Value("i32", "0"), i64(BLOCK * WIDEST))
    number = [f.same(step[k], i64(0)) for k in range(operands)]
    for k in range(operands):  # a number beside arrays is repeated once for all blocks
        with f.when(number[k]):
            f.call("copy", "void", buffers[k], size[k], arrays[k], step[k], size[k], i64(BLOCK))
    before = _exceptions(f)
    at = f.variable("i64", 0)
    with f.forever() as done:
        i = at.get()
        left = f.sub(count, i)
        with f.when(f.compare("sle", left, 0)):
            f.leave(done)
        whole = f.compare("sge", left, BLOCK)
        m = f.choose(whole, i64(BLOCK), left)
        here = [f.at(arrays[k], f.mul(i, step[k])) for k in places]
        direct = [f.both(whole, f.same(step[k], size[k])) for k in places]
        for k in places:
            f.store(f.choose(direct[k], here[k], buffers[k]), given, 8 * k)
            if k < operands:
                with f.when(f.negate(f.either(direct[k], number[k]))):
                    f.call("copy", "void", buffers[k], size[k], here[k], step[k], size[k], m)
        f.call_at(entry, "i32", given, params, workspace, NULL)
        with f.when(f.negate(direct[operands])):
            f.call("copy", "void", here[-1], step[-1], buffers[-1], size[-1], size[-1], m)
        at.set(f.add(i, BLOCK))
    _forget_exceptions(f, before)
    f.ret()


# Formulas without branches raise floating-point exceptions that say nothing of results; NumPy sees none.


def _exceptions(f: Function) -> Value:
    """Memory that holds those that were raised before."""
    state = f.slot("i32")
    if _is_x86():
        f.call("llvm.x86.sse.stmxcsr", "void", state)
    return state


def _forget_exceptions(f: Function, before: Value) -> None:
    if _is_x86():
        f.call("llvm.x86.sse.ldmxcsr", "void", before)
    else:
        f.call("feclearexcept", "i32", Value("i32", "-1"))


def _is_x86() -> bool:
    return platform.machine() == "x86_64"
