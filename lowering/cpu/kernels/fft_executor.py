"""The native code that walks through a plan of Fourier transforms, as LLVM IR.

`void fnx_fft(plan, input, output, work)`: a plan is a number of steps, then the steps, `WORDS` words
each: the function that does it, which of the three arrays it reads and which it writes, how many
bytes from their start, and numbers of its own. The function of a step is
`void (step, source, target, work)`.
"""

from fnx.lowering.cpu.jit import code_cache
from fnx.lowering.cpu.jit.session import once
from fnx.lowering.cpu.llvm.ir_builder import NULL, Function, Module, Value, i64
from fnx.lowering.cpu.runtime import thread_pool

from . import fft_butterflies

WORDS = 24  # of a step
FUNCTION, SOURCE, TARGET, SOURCE_AT, TARGET_AT = range(5)
INPUT, OUTPUT, WORK = range(3)
EXPORTS = ("fnx_fft", "by_loop", "by_passes")

# The words of a step after those: how often it is done, and how many bytes further on each time;
# then, by a loop of NumPy's, the loop, its last argument, the factor (its bits), dimensions, steps;
TIMES, SOURCE_JUMP, TARGET_JUMP, LOOP, DATA, LOOP_FACTOR, DIMS, STEPS = (5, 6, 7, 8, 9, 10, 11, 14)
# or by passes: how many blocks side by side, bytes from one to the next, the passes' number and
# records, the work memory's place, the bytes of its parts and of all of it; and how many blocks are
# worth a thread's while.
BLOCKS, BLOCK_JUMP, COUNT, PASSES, SCRATCH, SCRATCH_BYTES, OWN_BYTES, GRAIN = range(8, 16)


def text() -> str:
    """The LLVM IR of the driver."""
    module = Module()
    _driver(module)
    _by_loop(module)
    _items(module)
    _by_passes(module)
    return str(module)


def _driver(module: Module) -> None:
    with Function(module, "fnx_fft", "void", "ptr", "ptr", "ptr", "ptr", public=True) as f:
        plan, *arrays = f.args
        places = f.slot("ptr", 3)
        for k, array in enumerate(arrays):
            f.store(array, places, 8 * k)
        with f.loop(f.load(plan)) as k:
            step = f.at(plan, f.add(f.mul(k, 8 * WORDS), 8))
            source, target = (
                f.at(f.pointer(f.index(places, f.load(step, 8 * w))), f.load(step, 8 * at))
                for w, at in ((SOURCE, SOURCE_AT), (TARGET, TARGET_AT))
            )
            f.call_at(f.pointer(step, 8 * FUNCTION), "void", step, source, target, arrays[2])
        f.ret()


def _jumps(f: Function, k: Value) -> tuple[Value, Value]:
    """Where time k of a step reads and writes."""
    step, source, target, _ = f.args
    return (
        f.at(source, f.mul(k, f.load(step, 8 * SOURCE_JUMP))),
        f.at(target, f.mul(k, f.load(step, 8 * TARGET_JUMP))),
    )


def _by_loop(module: Module) -> None:
    """A step that is done by a loop of a universal function."""
    with Function(module, "by_loop", "void", "ptr", "ptr", "ptr", "ptr", public=True) as f:
        step = f.args[0]
        args, steps = f.slot("ptr", 3), f.slot("i64", 5)
        between, within = 8 * STEPS, 8 * STEPS + 16
        f.store(f.load(step, between), steps, 0)
        f.store(i64(0), steps, 8)  # one factor for all
        f.store(f.load(step, between + 8), steps, 16)
        f.store(f.load(step, within), steps, 24)
        f.store(f.load(step, within + 8), steps, 32)
        f.store(f.at(step, 8 * LOOP_FACTOR), args, 8)
        with f.loop(f.load(step, 8 * TIMES)) as k:
            source, target = _jumps(f, k)
            f.store(source, args, 0)
            f.store(target, args, 16)
            dims, data = f.at(step, 8 * DIMS), f.pointer(step, 8 * DATA)
            f.call_at(f.pointer(step, 8 * LOOP), "void", args, dims, steps, data)
        f.ret()


def _items(module: Module) -> None:
    """Items lo to hi of a step by passes, which go from place to place: source, target, work."""
    kinds = ("ptr", "ptr", "ptr", "ptr", "i64", "i64")
    with Function(module, "items", "void", *kinds) as f:
        step, source, target, scratch, low, high = f.args
        passes, count = f.pointer(step, 8 * PASSES), f.load(step, 8 * COUNT)
        blocks = f.load(step, 8 * BLOCKS)
        places = f.slot("ptr", 5)
        for k in range(2, 5):
            f.store(scratch, places, 8 * k)
            scratch = f.at(scratch, f.load(step, 8 * SCRATCH_BYTES))
        with f.loop(high, low) as k:
            time = f.binary("sdiv", k, blocks)
            block = f.sub(k, f.mul(time, blocks))
            on = f.mul(block, f.load(step, 8 * BLOCK_JUMP))
            for place, array, jump in ((0, source, SOURCE_JUMP), (8, target, TARGET_JUMP)):
                offset = f.add(f.mul(time, f.load(step, 8 * jump)), on)
                f.store(f.at(array, offset), places, place)
            with f.loop(count) as j:
                record = f.at(passes, f.mul(j, 8 * fft_butterflies.WORDS))
                given = (
                    f.pointer(places, f.load(record, 8 * word))
                    for word in (fft_butterflies.FROM, fft_butterflies.TO)
                )
                f.call_at(f.pointer(record), "void", record, *given)
        f.ret()


def _count(f: Function) -> Value:
    step = f.args[0]
    return f.mul(f.load(step, 8 * TIMES), f.load(step, 8 * BLOCKS))


def _by_passes(module: Module) -> None:
    """A step that is done by passes."""
    with Function(module, "by_passes", "void", "ptr", "ptr", "ptr", "ptr", public=True) as f:
        scratch = f.at(f.args[3], f.load(f.args[0], 8 * SCRATCH))
        f.call("items", "void", *f.args[:3], scratch, i64(0), _count(f))
        f.ret()


def shared_text() -> str:
    """The LLVM IR of a step by passes, the items of which threads share."""
    module = Module()
    _items(module)
    with Function(module, "task", "void", "ptr", "i64", "i64") as f:
        context, low, high = f.args
        step, source, target, work = (f.pointer(context, 8 * k) for k in range(4))
        own = f.variable("ptr", NULL)
        scratch = f.variable("ptr", f.at(work, f.load(step, 8 * SCRATCH)))
        with f.unless(f.compare("eq", f.sub(high, low), f.load(context, 32))):
            f.call("posix_memalign", "i32", own.slot, i64(64), f.load(step, 8 * OWN_BYTES))
            scratch.set(own.get())
        f.call("items", "void", step, source, target, scratch.get(), low, high)
        f.call("free", "void", own.get())
        f.ret()
    with Function(module, "by_shared_passes", "void", "ptr", "ptr", "ptr", "ptr", public=True) as f:
        context, count = f.slot("i64", 5), _count(f)
        for k, value in enumerate((*f.args, count)):
            f.store(value, context, 8 * k)
        grain = f.load(f.args[0], 8 * GRAIN)
        task = f.routine("task")
        f.call("fnx_parallel_for", "void", task, context, count, grain)
        f.ret()
    return str(module)


@once
def addresses() -> dict[str, int]:
    """The addresses of the driver's functions."""
    code = code_cache.code(text, EXPORTS, kind="transform", name="fft_executor")
    code_cache.keep_forever(code.keep)
    return code.addresses


@once
def shared() -> int:
    """The address of the function of a step by passes that threads share."""
    name = "by_shared_passes"
    run = {"fnx_parallel_for": thread_pool.address()}
    code = code_cache.code(shared_text, (name,), run, "transform", name)
    code_cache.keep_forever(code.keep)
    return code.addresses[name]


def address() -> int:
    """The address of `fnx_fft`."""
    return addresses()["fnx_fft"]
