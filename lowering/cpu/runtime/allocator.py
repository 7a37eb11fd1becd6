"""Memory for outputs and for workspaces, as LLVM IR: freed blocks wait for their next use.

glibc gives large blocks back to the system, and the next call would pay for each page again. Smaller
ones are aligned to lines of the cache, as NumPy's are not: vectors that cross them are stored in twice
the time. All of this runs while the GIL is held.
"""

from fnx.lowering.cpu.llvm.ir_builder import NULL, Function, Module, Value, i32, i64
from fnx.lowering.cpu.processor import thresholds

from .abi import ALIGNMENT


def define(module: Module) -> None:
    """Add the variables and functions of blocks to a module."""
    module.variable(
        "blocks", f"[{2 * thresholds.KEPT_BLOCKS} x i64]", "zeroinitializer"
    )  # (bytes, address)
    module.variable("fnx_held", "[2 x i64]", "zeroinitializer", public=True)  # blocks, bytes
    module.variable("fnx_limit", "i64", public=True)
    module.variable("block_name", "[4 x i8]", 'c"fnx\\00"')
    for write in (_forget_block, _take, _give, _trim, _drop):
        write(module)


def _rounded(f: Function, size: Value) -> Value:
    """Bytes of the block for a size: one of eight sizes an octave.

    A block has the same size when it is given back as when it was taken, whoever has it meanwhile;
    or blocks would shrink by each use, and a program of two sizes would touch new pages at each call.
    """
    zeros = f.call("llvm.ctlz.i64", "i64", f.sub(size, 1), Value("i1", "false"))
    step = f.binary("lshr", i64(1 << 60), zeros)  # an eighth of the power of two below
    step = f.choose(f.compare("ugt", step, thresholds.BLOCK_STEP), step, i64(thresholds.BLOCK_STEP))
    return f.binary("and", f.sub(f.add(size, step), 1), f.sub(i64(0), step))


def _forget_block(module: Module) -> None:
    """Close the gap of slot k."""
    with Function(module, "forget_block", "void", "i64") as f:
        (k,) = f.args
        held, blocks = f.object("fnx_held"), f.object("blocks")
        count = f.sub(f.load(held), 1)
        f.store(count, held)
        f.store(f.sub(f.load(held, 8), f.load(f.index(blocks, k, 16))), held, 8)
        with f.loop(count, k) as j:
            slot = f.index(blocks, j, 16)
            f.store(f.load(slot, 16), slot)
            f.store(f.load(slot, 24), slot, 8)
        f.ret()


def _take(module: Module) -> None:
    """A block for so many bytes: the youngest of its size that waits, or a new one."""
    with Function(module, "take", "ptr", "i64") as f:
        held, blocks = f.object("fnx_held"), f.object("blocks")
        size = _rounded(f, f.args[0])
        count = f.load(held)
        with f.loop(count) as k:
            youngest = f.sub(f.sub(count, 1), k)
            slot = f.index(blocks, youngest, 16)
            with f.when(f.compare("eq", f.load(slot), size)):
                address = f.pointer(slot, 8)
                f.call("forget_block", "void", youngest)
                f.ret(address)
        place = f.slot("ptr")
        huge = f.compare("sge", size, thresholds.HUGE_BLOCK)
        alignment = f.choose(huge, i64(1 << 21), i64(ALIGNMENT))
        for attempt in range(2):
            status = f.call("posix_memalign", "i32", place, alignment, size)
            with f.when(f.compare("eq", status, 0)):
                with f.when(huge):
                    f.call("madvise", "i32", f.pointer(place), size, i32(14))  # MADV_HUGEPAGE
                f.ret(f.pointer(place))
            if attempt == 0:
                f.call("fnx_trim", "void")
        f.ret(NULL)


def _give(module: Module) -> None:
    """Keep a block for the next call; the oldest go as long as there is no room for a costly one."""
    with Function(module, "give", "void", "ptr", "i64") as f:
        held, blocks = f.object("fnx_held"), f.object("blocks")
        block, size = f.args[0], _rounded(f, f.args[1])
        limit = f.load(f.object("fnx_limit"))
        many = f.compare("sge", f.load(held), thresholds.KEPT_BLOCKS)
        unwanted = f.both(many, f.compare("slt", size, thresholds.COSTLY_BLOCK))
        with f.when(f.either(unwanted, f.compare("sgt", size, limit)), likely=False):
            f.call("free", "void", block)
            f.ret()
        with f.forever() as fits:
            total = f.add(f.load(held, 8), size)
            few = f.compare("slt", f.load(held), thresholds.KEPT_BLOCKS)
            with f.when(f.both(few, f.compare("sle", total, limit))):
                f.leave(fits)
            oldest = f.pointer(blocks, 8)
            f.call("forget_block", "void", i64(0))
            f.call("free", "void", oldest)
        slot = f.index(blocks, f.load(held), 16)
        f.store(size, slot)
        f.store(block, slot, 8)
        f.store(f.add(f.load(held), 1), held)
        f.store(f.add(f.load(held, 8), size), held, 8)
        f.ret()


def _trim(module: Module) -> None:
    """Give all waiting blocks back to the system."""
    with Function(module, "fnx_trim", "void", public=True) as f:
        held, blocks = f.object("fnx_held"), f.object("blocks")
        with f.loop(f.load(held)) as k:
            f.call("free", "void", f.pointer(f.index(blocks, k, 16), 8))
        f.store(0, held)
        f.store(0, held, 8)
        f.ret()


def _drop(module: Module) -> None:
    """Destructor of the capsule that owns the block of an output."""
    with Function(module, "drop", "void", "ptr") as f:
        (capsule,) = f.args
        size = f.call("PyCapsule_GetContext", "i64", capsule)
        block = f.call("PyCapsule_GetPointer", "ptr", capsule, f.object("block_name"))
        f.call("give", "void", block, size)
        f.ret()
