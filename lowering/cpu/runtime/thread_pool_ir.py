"""The thread pool's code: native threads share the iterations of a parallel loop with its caller.

`void fnx_parallel_for(task, context, n, grain)` calls task(context, lo, hi) until [0, n) is covered. No
more than `grain` iterations are left to the caller; more are shared in pieces, as many for each thread,
of a quarter of a grain or more: the last ones decide how long threads wait for each other. Each thread
begins with a share of its own, the same in all loops of as many iterations, so that its cache has what it
worked on before; then it helps others with theirs. While the pool is busy, with another caller's loop or
the one that this loop is inside of, the caller runs all iterations itself. Threads start with the first
loop that can use them, sleep between loops, and are started anew after a fork.

`fnx_parallel_for_polled` takes the address of an int32 besides, at which the iterations look: while the
caller waits for others, it asks whether to stop, and says so there.
"""

import platform
from typing import Any

from fnx.lowering.cpu.llvm.ir_builder import NULL, Function, Module, Value, i32, i64
from fnx.lowering.cpu.processor import thresholds

_SYSTEM_CALL = {"x86_64": 202, "aarch64": 98}  # Linux's number of futex
_WAIT, _WAKE = 128, 129  # private futex operations
_EVERYONE = (1 << 31) - 1
_OPEN = 1 << 20  # bit of the gate while workers may join; below it, the number of those inside
_APART = 64  # bytes between what different threads write


def text() -> str:
    """The LLVM IR of the pool."""
    module = Module()
    module.variable("fnx_threads", "i64", "1", public=True)  # wanted, with the caller
    module.variable("fnx_started", "i64", public=True)  # workers that exist
    module.variable("fnx_pool_busy", "i32", public=True)
    for name in ("gate", "round", "sleepers", "caller_sleeps"):
        module.variable(name, "i32")
    module.variable("last_short", "i64")  # when a loop came that was too short to wake threads
    # task, context, n, piece, shares, whether to begin with the last pieces
    module.variable("job", "[6 x i64]", "zeroinitializer")
    # The next piece of each share.
    module.variable("next", f"[{thresholds.SHARES * _APART // 8} x i64]", "zeroinitializer")
    for write in (_sleep, _wake, _watch, _work, _worker, _start, _wait, _parallel_for, _reset):
        write(module)
    return str(module)


def _pause(f: Function) -> None:
    if platform.machine() == "x86_64":
        f.call("llvm.x86.sse2.pause", "void")
    elif platform.machine() == "aarch64":
        f.call("llvm.aarch64.hint", "void", i32(1))


def _system_call(
    f: Function, word: Value, operation: int, value: Value, span: Value = NULL
) -> None:
    number = i64(_SYSTEM_CALL.get(platform.machine(), 0))
    wide = f.convert("zext", value, "i64")
    f.call("syscall", "i64", number, word, i64(operation), wide, span, NULL, i64(0))


def _sleep(module: Module) -> None:
    """Sleep while a word has a value (or wake for no reason), no longer than a timespec says."""
    with Function(module, "sleep", "void", "ptr", "i32", "ptr") as f:
        _system_call(f, f.args[0], _WAIT, *f.args[1:])
        f.ret()


def _wake(module: Module) -> None:
    """Wake so many threads that sleep on a word."""
    with Function(module, "wake", "void", "ptr", "i32") as f:
        _system_call(f, f.args[0], _WAKE, f.args[1])
        f.ret()


def _watch(module: Module) -> None:
    """Wait a little until a word has changed; other threads of this CPU go first."""
    with Function(module, "watch", "void", "ptr", "i32") as f:
        with f.loop(i64(thresholds.OFFERS)):
            with f.loop(i64(thresholds.LOOKS)):
                with f.unless(f.same(f.atomic_load(f.args[0], "i32"), f.args[1])):
                    f.ret()
                _pause(f)
            f.call("sched_yield", "i32")
        f.ret()


def _work(module: Module) -> None:
    """Take pieces of the job until none is left, those of this thread's share first.

    Every other job goes backwards: it begins with what the cache got last. So does a caller alone.
    """
    with Function(module, "work", "void", "i64") as f:
        job = f.object("job")
        task, context = f.pointer(job), f.pointer(job, 8)
        n, piece, shares, turned = (f.load(job, 8 * k) for k in (2, 3, 4, 5))
        backwards = f.compare("ne", turned, 0)
        own = f.binary("urem", f.args[0], shares)
        with f.loop(f.add(own, shares), own) as k:
            share = f.choose(f.compare("slt", k, shares), k, f.sub(k, shares))
            place = f.index(f.object("next"), share, _APART)
            first, end = (f.call("first_piece", "i64", x) for x in (share, f.add(share, 1)))
            with f.forever() as done:
                with f.when(f.compare("sge", f.atomic_load(place, "i64"), end)):
                    f.leave(done)
                number = f.atomic("add", place, i64(1))
                with f.when(f.compare("sge", number, end)):
                    f.leave(done)
                mirrored = f.sub(f.sub(f.add(first, end), 1), number)
                low = f.mul(f.choose(backwards, mirrored, number), piece)
                high = f.add(low, piece)
                high = f.choose(f.compare("slt", high, n), high, n)
                f.call_at(task, "void", context, low, high)
        f.ret()
    with Function(module, "first_piece", "i64", "i64") as f:
        job = f.object("job")
        n, piece, shares = (f.load(job, 8 * k) for k in (2, 3, 4))
        pieces = f.binary("sdiv", f.sub(f.add(n, piece), 1), piece)
        f.ret(f.binary("sdiv", f.mul(f.args[0], pieces), shares))


def _worker(module: Module) -> None:
    """The life of a thread: wait for a parallel loop, join if the gate is open, work, leave."""
    with Function(module, "worker", "ptr", "ptr") as f:
        # Its number, and the loop before its first.
        given = f.convert("ptrtoint", f.args[0], "i64")
        number = f.binary("lshr", given, 32)
        seen = f.variable("i32", f.convert("trunc", given, "i32"))
        round_, gate = f.object("round"), f.object("gate")
        with f.forever():
            _await_round(f, round_, seen)
            joined = f.call("join_round", "i32")
            with f.when(f.compare("ne", joined, 0)):
                f.call("work", "void", number)
                before = f.atomic("sub", gate, i32(1))
                # The last one out of a closed gate wakes the caller, if that sleeps.
                sleeps = f.atomic_load(f.object("caller_sleeps"), "i32")
                last = f.both(f.compare("eq", before, 1), f.compare("ne", sleeps, 0))
                with f.when(last):
                    f.call("wake", "void", gate, i32(_EVERYONE))
        f.do("unreachable")
    _join(module)


def _await_round(f: Function, round_: Value, seen: Any) -> None:
    f.call("watch", "void", round_, seen.get())
    sleepers = f.object("sleepers")
    with f.forever() as awake:
        with f.unless(f.same(f.atomic_load(round_, "i32"), seen.get())):
            f.leave(awake)
        f.atomic("add", sleepers, i32(1))
        f.call("sleep", "void", round_, seen.get(), NULL)
        f.atomic("sub", sleepers, i32(1))
    seen.set(f.atomic_load(round_, "i32"))


def _join(module: Module) -> None:
    """1 if this thread went through the open gate; not more may than threads are wanted."""
    with Function(module, "join_round", "i32") as f:
        gate = f.object("gate")
        most = f.convert("trunc", f.load(f.object("fnx_threads")), "i32")
        with f.forever():
            now = f.atomic_load(gate, "i32")
            inside = f.sub(now, _OPEN)
            closed = f.compare("slt", inside, 0)
            full = f.compare("sge", f.add(inside, 1), most)
            with f.when(f.either(closed, full)):
                f.ret(i32(0))
            with f.when(f.exchange_if(gate, now, f.add(now, 1))):
                f.ret(i32(1))
        f.do("unreachable")


def _start(module: Module) -> None:
    """Start threads until so many exist, or none can be had; they leave signals to Python's."""
    with Function(module, "start", "void", "i64") as f:
        started = f.object("fnx_started")
        everything, before, thread = f.slot("i64", 16), f.slot("i64", 16), f.slot("i64")
        f.call("sigfillset", "i32", everything)
        f.call("pthread_sigmask", "i32", i32(2), everything, before)  # SIG_SETMASK
        round_ = f.convert("zext", f.atomic_load(f.object("round"), "i32"), "i64")
        with f.forever() as enough:
            with f.when(f.compare("sge", f.load(started), f.args[0])):
                f.leave(enough)
            number = f.add(f.load(started), 1)  # 0 is the caller
            given = f.binary("or", f.binary("shl", number, 32), round_)
            argument = f.convert("inttoptr", given, "ptr")
            worker = f.routine("worker")
            status = f.call("pthread_create", "i32", thread, NULL, worker, argument)
            with f.when(f.compare("ne", status, 0)):
                f.leave(enough)
            f.call("pthread_detach", "i32", f.load(thread))
            f.store(f.add(f.load(started), 1), started)
        f.call("pthread_sigmask", "i32", i32(2), before, NULL)
        f.ret()


def _wait(module: Module) -> None:
    """Close the gate and wait until all workers have left; tell them if they should stop."""
    with Function(module, "wait_for_workers", "void", "ptr") as f:
        gate, sleeps = f.object("gate"), f.object("caller_sleeps")
        f.atomic("sub", gate, i32(_OPEN))
        with f.forever() as patient:
            inside = f.atomic_load(gate, "i32")
            with f.when(f.compare("eq", inside, 0)):
                f.ret()
            f.call("watch", "void", gate, inside)
            with f.when(f.same(f.atomic_load(gate, "i32"), inside)):
                f.leave(patient)
        f.atomic_store(i32(1), sleeps)
        polled, span = f.compare("ne", f.args[0], NULL), f.slot("i64", 2)
        f.store(0, span)
        f.store(thresholds.BETWEEN_POLLS, span, 8)
        with f.forever() as done:
            inside = f.atomic_load(gate, "i32")
            with f.when(f.compare("eq", inside, 0)):
                f.leave(done)
            f.call("sleep", "void", gate, inside, f.choose(polled, span, NULL))
            with f.when(polled), f.unless(f.same(f.call("fnx_poll", "i32"), i32(0))):
                f.atomic_store(i32(1), f.args[0])
        f.atomic_store(i32(0), sleeps)
        f.ret()


def _parallel_for(module: Module) -> None:
    job = ("ptr", "ptr", "i64", "i64")
    with Function(module, "fnx_parallel_for", "void", *job, public=True) as f:
        f.call("share", "void", *f.args, NULL)
        f.ret()
    with Function(module, "fnx_parallel_for_polled", "void", *job, "ptr", public=True) as f:
        f.call("share", "void", *f.args)
        f.ret()
    with Function(module, "share", "void", *job, "ptr") as f:
        task, context, n, grain, stopped = f.args
        threads = f.load(f.object("fnx_threads"))
        with f.when(f.compare("sle", n, grain)):
            _alone(f)
        asleep = f.compare("sgt", f.atomic_load(f.object("sleepers"), "i32"), 0)
        short = f.compare("slt", n, f.mul(grain, thresholds.WORTH_WAKING))
        with f.when(f.both(asleep, short)), f.unless(_is_one_of_many(f)):
            _alone(f)
        with f.unless(f.exchange_if(f.object("fnx_pool_busy"), i32(0), i32(1))):
            _alone(f)
        least = f.binary("sdiv", f.add(grain, thresholds.FINER - 1), thresholds.FINER)
        least = f.choose(f.compare("sgt", threads, 1), least, grain)
        pieces, most = f.binary("sdiv", n, least), f.mul(threads, thresholds.PIECES_PER_THREAD)
        pieces = f.choose(f.compare("slt", pieces, most), pieces, most)
        even = f.sub(pieces, f.binary("urem", pieces, threads))
        pieces = f.choose(f.compare("sgt", even, 0), even, pieces)
        piece = f.binary("sdiv", f.sub(f.add(n, pieces), 1), pieces)
        helpers = f.binary("sdiv", f.sub(n, 1), piece)  # pieces but the caller's first
        helpers = f.choose(f.compare("slt", helpers, threads), helpers, f.sub(threads, 1))
        with f.when(f.compare("slt", f.load(f.object("fnx_started")), helpers), likely=False):
            f.call("start", "void", helpers)
        job = f.object("job")
        shares = f.add(helpers, 1)
        shares = f.choose(
            f.compare("slt", shares, thresholds.SHARES), shares, i64(thresholds.SHARES)
        )
        turned = f.sub(i64(1), f.load(job, 40))
        for k, value in enumerate((task, context, n, piece, shares, turned)):
            f.store(value, job, 8 * k)
        with f.loop(shares) as share:
            first = f.call("first_piece", "i64", share)
            f.atomic_store(first, f.index(f.object("next"), share, _APART))
        f.atomic_store(i32(_OPEN), f.object("gate"))
        round_ = f.object("round")
        f.atomic("add", round_, i32(1))
        asleep = f.compare("sgt", f.atomic_load(f.object("sleepers"), "i32"), 0)
        with f.when(f.both(asleep, f.compare("sgt", helpers, 0))):
            f.call("wake", "void", round_, f.convert("trunc", helpers, "i32"))
        f.call("work", "void", i64(0))
        f.call("wait_for_workers", "void", stopped)
        f.atomic_store(i32(0), f.object("fnx_pool_busy"))
        f.ret()


def _is_one_of_many(f: Function) -> Value:
    """Whether a short loop follows another at once: then a thread that is woken may still help."""
    clock, last = f.slot("i64", 2), f.object("last_short")
    f.call("clock_gettime", "i32", i32(1), clock)  # CLOCK_MONOTONIC
    now = f.add(f.mul(f.load(clock), 1_000_000_000), f.load(clock, 8))
    before = f.atomic_load(last, "i64")
    f.atomic_store(now, last)
    return f.compare("slt", f.sub(now, before), thresholds.SOON)


def _alone(f: Function) -> None:
    task, context, n, *_ = f.args
    with f.when(f.compare("sgt", n, 0)):
        f.call_at(task, "void", context, i64(0), n)
    f.ret()


def _reset(module: Module) -> None:
    """What a forked child does: none of the threads came with it."""
    with Function(module, "fnx_reset", "void", public=True) as f:
        f.store(0, f.object("fnx_started"))
        for name in ("fnx_pool_busy", "gate", "sleepers", "caller_sleeps"):
            f.atomic_store(i32(0), f.object(name))
        f.ret()
