"""The threads of a team, as LLVM IR: they sleep between runs, and each runs the program of a member."""

import platform

from fnx.lowering.cpu.llvm.ir_builder import NULL, Function, Module, Value, i32, i64
from fnx.lowering.cpu.processor import thresholds

from . import team_layout as at

_FUTEX = {"x86_64": 202, "aarch64": 98}  # Linux's number of the system call
WAIT, WAKE, EVERYONE = 128, 129, (1 << 31) - 1  # private futex operations
EXPORTS = ("fnx_team_run", "fnx_team_start", "fnx_team_stop", "fnx_team_nothing")
RUN, START, STOP, NOTHING = EXPORTS


def define(module: Module) -> None:
    """Add the functions of threads to a module."""
    for write in (_member, _life, _start, _run, _stop, _nothing):
        write(module)


def pause(f: Function) -> None:
    if platform.machine() == "x86_64":
        f.call("llvm.x86.sse2.pause", "void")
    elif platform.machine() == "aarch64":
        f.call("llvm.aarch64.hint", "void", i32(1))


def member_key(f: Function) -> Value:
    return f.convert("trunc", f.load(f.object("member_key")), "i32")


def futex(f: Function, word: Value, operation: int, value: Value, span: Value) -> None:
    number, wide = i64(_FUTEX.get(platform.machine(), 0)), f.convert("zext", value, "i64")
    f.call("syscall", "i64", number, word, i64(operation), wide, span, NULL, i64(0))


def _member(module: Module) -> None:
    """Run the program of one member."""
    with Function(module, "run_member", "void", "ptr") as f:
        (member,) = f.args
        team, key = f.pointer(member, at.TEAM), member_key(f)
        before = f.call("pthread_getspecific", "ptr", key)
        f.call("pthread_setspecific", "i32", key, member)
        f.store(f.call("pthread_self", "i64"), member, at.THREAD)
        args = [f.pointer(member, place) for place in (at.ARGUMENTS, at.PARAMS, at.WORKSPACE)]
        status = f.call_at(f.pointer(member, at.ENTRY), "i32", *args, NULL)
        f.call("pthread_setspecific", "i32", key, before)
        f.store(f.convert("sext", status, "i64"), member, at.STATUS)
        with f.when(f.compare("ne", status, 0)):
            f.call("fail", "void", team, i64(at.MEMBER_FAILED), f.load(member, at.RANK), i64(-1),
                   i64(-1), i64(-1))  # fmt: skip
        f.atomic_store(i64(1), f.at(member, at.LEFT))
        f.call("ring", "void", team)
        f.ret()


def _life(module: Module) -> None:
    """A thread of a team: wait for a round, run, say so."""
    with Function(module, "life", "ptr", "ptr") as f:
        (member,) = f.args
        team = f.pointer(member, at.TEAM)
        round_, asleep = f.at(team, at.ROUND), f.at(team, at.ASLEEP)
        seen = f.variable("i32", 0)
        with f.forever():
            with f.once() as begun:
                with f.loop(f.load(team, at.LOOK)):
                    with f.loop(i64(thresholds.LOOKS)):
                        with f.unless(f.same(f.atomic_load(round_, "i32"), seen.get())):
                            f.leave(begun)
                        pause(f)
                    f.call("sched_yield", "i32")
                f.atomic("add", asleep, i32(1))
                with f.forever() as woken:
                    with f.unless(f.same(f.atomic_load(round_, "i32"), seen.get())):
                        f.leave(woken)
                    futex(f, round_, WAIT, seen.get(), NULL)
                f.atomic("sub", asleep, i32(1))
            seen.set(f.add(seen.get(), 1))
            with f.when(f.compare("ne", f.load(team, at.STOPPED), 0)):
                f.atomic("sub", f.at(team, at.LEFT_TO_DO), i32(1))
                f.ret(NULL)
            f.call("run_member", "void", member)
            left = f.at(team, at.LEFT_TO_DO)
            with f.when(f.compare("eq", f.atomic("sub", left, i32(1)), 1)):
                futex(f, left, WAKE, i32(EVERYONE), NULL)
        f.do("unreachable")


def _start(module: Module) -> None:
    """Start a team's threads, which leave signals to Python's; how many there are."""
    with Function(module, START, "i64", "ptr", public=True) as f:
        (team,) = f.args
        everything, before, thread = f.slot("i64", 16), f.slot("i64", 16), f.slot("i64")
        f.call("sigfillset", "i32", everything)
        f.call("pthread_sigmask", "i32", i32(2), everything, before)  # SIG_SETMASK
        started = f.variable("i64", 1)
        with f.once() as enough, f.loop(f.load(team, at.SIZE), 1) as k:
            member = f.index(f.pointer(team, at.MEMBERS), k, at.MEMBER_BYTES)
            status = f.call("pthread_create", "i32", thread, NULL, f.routine("life"), member)
            with f.when(f.compare("ne", status, 0)):
                f.leave(enough)
            f.store(f.load(thread), member, at.THREAD)
            f.call("pthread_detach", "i32", f.load(thread))
            started.set(f.add(started.get(), 1))
        f.call("pthread_sigmask", "i32", i32(2), before, NULL)
        f.ret(started.get())


def _begin(f: Function, team: Value) -> None:
    """Let the team's threads go."""
    others = f.convert("trunc", f.sub(f.load(team, at.SIZE), 1), "i32")
    f.atomic_store(others, f.at(team, at.LEFT_TO_DO))
    round_ = f.at(team, at.ROUND)
    f.atomic("add", round_, i32(1))
    asleep = f.atomic_load(f.at(team, at.ASLEEP), "i32")
    with f.when(f.compare("ne", asleep, 0)):
        futex(f, round_, WAKE, i32(EVERYONE), NULL)


def _run(module: Module) -> None:
    with Function(module, RUN, "i32", "ptr", public=True) as f:
        (team,) = f.args
        state = f.call("PyEval_SaveThread", "ptr")
        members, busy = f.pointer(team, at.MEMBERS), f.object("fnx_pool_busy")
        taken = f.variable("i32", 0)
        # Loops in members then run alone, as they do within each other: all processors are at work.
        alone = f.compare("ne", f.load(team, at.ALONE), 0)
        with f.when(alone), f.when(f.exchange_if(busy, i32(0), i32(1))):
            taken.set(1)
        f.atomic_store(i32(0), f.at(team, at.FAILED))
        with f.loop(f.load(team, at.SIZE)) as k:
            member = f.index(members, k, at.MEMBER_BYTES)
            for place in (at.LEFT, at.STATUS, at.BLOCKED):
                f.store(0, member, place)
        _begin(f, team)
        f.call("run_member", "void", members)
        left = f.at(team, at.LEFT_TO_DO)
        with f.forever() as done:
            with f.loop(f.load(team, at.LOOK)):
                with f.loop(i64(thresholds.LOOKS)):
                    with f.when(f.compare("eq", f.atomic_load(left, "i32"), 0)):
                        f.leave(done)
                    pause(f)
                f.call("sched_yield", "i32")
            now = f.atomic_load(left, "i32")
            with f.when(f.compare("eq", now, 0)):
                f.leave(done)
            f.call("sleep", "void", left, now)
            with f.when(f.compare("ne", f.call("fnx_poll", "i32"), 0)):
                f.call("fail", "void", team, i64(at.INTERRUPTED), *[i64(-1)] * 4)
        with f.when(f.compare("ne", taken.get(), 0)):
            f.atomic_store(i32(0), busy)
        f.call("PyEval_RestoreThread", "void", state)
        f.ret(f.atomic_load(f.at(team, at.FAILED), "i32"))


def _stop(module: Module) -> None:
    """Let a team's threads end, and wait until they no longer read its memory."""
    with Function(module, STOP, "void", "ptr", public=True) as f:
        (team,) = f.args
        f.store(1, team, at.STOPPED)
        _begin(f, team)
        left = f.at(team, at.LEFT_TO_DO)
        with f.forever() as done:
            with f.when(f.compare("eq", f.atomic_load(left, "i32"), 0)):
                f.leave(done)
            f.call("sched_yield", "i32")
        f.ret()


def _nothing(module: Module) -> None:
    """A program that leaves its results as they come: memory for those of a team."""
    with Function(module, NOTHING, "i32", "ptr", "ptr", "ptr", "ptr", public=True) as f:
        f.ret(i32(0))
