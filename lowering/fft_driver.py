"""The native code that walks through a plan of Fourier transforms, as LLVM IR.

`void fnx_fft(plan, input, output, work)`: a plan is a number of steps, then the steps, `WORDS` words
each: the function that does it, which of the three arrays it reads and which it writes, how many
bytes from their start, and numbers of its own. The function of a step is
`void (step, source, target, work)`.
"""

from functools import lru_cache

from . import fft_passes, machine
from .irtext import Function, Module, Value, i64

WORDS = 24  # of a step
FUNCTION, SOURCE, TARGET, SOURCE_AT, TARGET_AT = range(5)
INPUT, OUTPUT, WORK = range(3)
EXPORTS = ("fnx_fft", "by_loop", "by_passes")

# The words of a step after those: how often it is done, and how many bytes further on each time;
# then, by a loop of NumPy's, the loop, its last argument, the factor (its bits), dimensions, steps;
TIMES, SOURCE_JUMP, TARGET_JUMP, LOOP, DATA, LOOP_FACTOR, DIMS, STEPS = (5, 6, 7, 8, 9, 10, 11, 14)
# or by passes: how many blocks side by side, bytes from one to the next, the passes' number and
# records, the work memory's place and the bytes of its parts.
BLOCKS, BLOCK_JUMP, COUNT, PASSES, SCRATCH, SCRATCH_BYTES = range(8, 14)


def text() -> str:
    """The LLVM IR of the driver."""
    module = Module()
    _driver(module)
    _by_loop(module)
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


def _by_passes(module: Module) -> None:
    """A step that is done by passes between source, target and three parts of the work memory."""
    with Function(module, "by_passes", "void", "ptr", "ptr", "ptr", "ptr", public=True) as f:
        step = f.args[0]
        passes, count = f.pointer(step, 8 * PASSES), f.load(step, 8 * COUNT)
        places = f.slot("ptr", 5)
        part = f.at(f.args[3], f.load(step, 8 * SCRATCH))
        for k in range(2, 5):
            f.store(part, places, 8 * k)
            part = f.at(part, f.load(step, 8 * SCRATCH_BYTES))
        with f.loop(f.load(step, 8 * TIMES)) as k:
            first_source, first_target = _jumps(f, k)
            with f.loop(f.load(step, 8 * BLOCKS)) as block:
                on = f.mul(block, f.load(step, 8 * BLOCK_JUMP))
                f.store(f.at(first_source, on), places, 0)
                f.store(f.at(first_target, on), places, 8)
                with f.loop(count) as j:
                    record = f.at(passes, f.mul(j, 8 * fft_passes.WORDS))
                    given = (
                        f.pointer(places, f.load(record, 8 * word))
                        for word in (fft_passes.FROM, fft_passes.TO)
                    )
                    f.call_at(f.pointer(record), "void", record, *given)
        f.ret()


@lru_cache(maxsize=1)
def addresses() -> dict[str, int]:
    """The addresses of the driver's functions."""
    code = machine.code(text(), EXPORTS)
    machine.keep_forever(code.keep)
    return code.addresses


def address() -> int:
    """The address of `fnx_fft`."""
    return addresses()["fnx_fft"]
