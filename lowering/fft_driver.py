"""The native code that walks through a plan of Fourier transforms, as LLVM IR.

`void fnx_fft(plan, input, output, work)`: a plan is a number of steps, then the steps, `WORDS` words
each: the function that does it, which of the three arrays it reads and which it writes, and numbers
of its own. A function of a step is `void (step, source, target)`.
"""

from functools import lru_cache

from . import machine
from .irtext import Function, Module, i64

WORDS = 16  # of a step
FUNCTION, SOURCE, TARGET, OWN = range(4)
INPUT, OUTPUT, WORK = range(3)
EXPORTS = ("fnx_fft", "by_loop")

# The words of a step of `by_loop`: NumPy's loop, its last argument and the factor (its bits); how
# often to call it, and how many bytes further on each time; its dimensions and its steps.
LOOP, DATA, FACTOR, TIMES, SOURCE_JUMP, TARGET_JUMP, DIMS, STEPS = (3, 4, 5, 6, 7, 8, 9, 12)


def text() -> str:
    """The LLVM IR of the driver."""
    module = Module()
    _driver(module)
    _by_loop(module)
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
                f.pointer(f.index(places, f.load(step, 8 * w))) for w in (SOURCE, TARGET)
            )
            f.call_at(f.pointer(step, 8 * FUNCTION), "void", step, source, target)
        f.ret()


def _by_loop(module: Module) -> None:
    """A step that is done by a loop of a universal function."""
    with Function(module, "by_loop", "void", "ptr", "ptr", "ptr", public=True) as f:
        step, source, target = f.args
        args, steps = f.slot("ptr", 3), f.slot("i64", 5)
        between, within = 8 * STEPS, 8 * STEPS + 16
        f.store(f.load(step, between), steps, 0)
        f.store(i64(0), steps, 8)  # one factor for all
        f.store(f.load(step, between + 8), steps, 16)
        f.store(f.load(step, within), steps, 24)
        f.store(f.load(step, within + 8), steps, 32)
        f.store(f.at(step, 8 * FACTOR), args, 8)
        with f.loop(f.load(step, 8 * TIMES)) as k:
            f.store(f.at(source, f.mul(k, f.load(step, 8 * SOURCE_JUMP))), args, 0)
            f.store(f.at(target, f.mul(k, f.load(step, 8 * TARGET_JUMP))), args, 16)
            dims, data = f.at(step, 8 * DIMS), f.pointer(step, 8 * DATA)
            f.call_at(f.pointer(step, 8 * LOOP), "void", args, dims, steps, data)
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
