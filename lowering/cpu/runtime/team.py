"""The native run time of teams: one program run by a thread for each member, and their exchanges.

`int32 fnx_team_run(team)` is called with the GIL, which it gives away: it wakes the team's threads, runs
member 0 itself, and waits for all. `int32 fnx_exchange(record, input, output)` is what programs call:
1, or 0 where the exchange failed, and the program has to end.

An exchange is a superstep (Valiant 1990). A member writes into its slot what it does and where its input
lies (a copy, if that is small), and then the number of the exchange; it looks at the others' slots until
all have come so far, and computes its own result, in the order of members. Slots have two records, used
in turn: who writes one again knows that all have read it, since all have come to the exchange between.
Where results are made of inputs that were not copied, all meet once more.

Who waits looks at memory for a while, then sleeps. Before it sleeps, and every 50 ms, it looks whether the
team has failed, whether one that it waits for has left, whether all that have not left wait (a deadlock:
nobody moved between two such looks), and whether Python has a signal for it.
"""

from collections.abc import Callable

from fnx.lowering.cpu.llvm.ir_builder import NULL, Function, Module, Value, i32, i64
from fnx.lowering.cpu.processor import thresholds

from . import team_layout as at
from . import team_reductions, team_threads

EXCHANGE, SETUP = "fnx_exchange", "fnx_team_setup"


def exports() -> tuple[str, ...]:
    """The functions whose addresses are wanted."""
    return EXCHANGE, SETUP, *team_threads.EXPORTS, *team_reductions.functions()


def text() -> str:
    """The LLVM IR of the run time of teams."""
    module = Module()
    module.variable("member_key", "i64", "-1")
    combine = team_reductions.functions()
    module.functions |= combine
    module.declared |= team_reductions.declarations(combine)
    steps: list[Callable[[Module], None]] = [_setup, _sleep, _ring, _fail, _arrived, _stuck]
    for write in (*steps, _missing, _patience, _slow, _meet, _reduce, _compute, _exchange):
        write(module)
    team_threads.define(module)
    return str(module)


def _setup(module: Module) -> None:
    """Make the key by which a thread finds its member; returned."""
    with Function(module, SETUP, "i64", public=True) as f:
        key = f.slot("i32")
        f.call("pthread_key_create", "i32", key, NULL)
        wide = f.convert("zext", f.load(key, 0, "i32"), "i64")
        f.store(wide, f.object("member_key"))
        f.ret(wide)


def _sleep(module: Module) -> None:
    """Sleep while a word has a value, 50 ms at most."""
    with Function(module, "sleep", "void", "ptr", "i32") as f:
        span = f.slot("i64", 2)
        f.store(0, span)
        f.store(thresholds.BETWEEN_POLLS, span, 8)
        team_threads.futex(f, f.args[0], team_threads.WAIT, f.args[1], span)
        f.ret()


def _ring(module: Module) -> None:
    """Wake all who sleep."""
    with Function(module, "ring", "void", "ptr") as f:
        (team,) = f.args
        sleepers = f.atomic_load(f.at(team, at.SLEEPERS), "i32")
        with f.when(f.compare("ne", sleepers, 0), likely=False):
            bell = f.at(team, at.BELL)
            f.atomic("add", bell, i32(1))
            team_threads.futex(f, bell, team_threads.WAKE, i32(team_threads.EVERYONE), NULL)
        f.ret()


def _fail(module: Module) -> None:
    """Note why the team fails, unless it has failed already, and wake all who sleep."""
    with Function(module, "fail", "void", "ptr", *["i64"] * 5) as f:
        team, *why = f.args
        failed = f.at(team, at.FAILED)
        with f.when(f.exchange_if(failed, i32(0), i32(1))):
            for k, value in enumerate(why):
                f.store(value, team, at.WHY + 8 * k)
        f.call("ring", "void", team)
        f.ret()


# --- waiting -----------------------------------------------------------------------------------


def _slot(f: Function, group: Value, k: Value) -> Value:
    return f.index(f.pointer(group, at.SLOTS), k, at.SLOT_BYTES)


def _arrived(module: Module) -> None:
    """The first of a group who has not come to an exchange, or -1."""
    with Function(module, "absent", "i64", "ptr", "i64") as f:
        group, sequence = f.args
        with f.loop(f.load(group, at.GROUP_SIZE)) as k:
            there = f.atomic_load(_slot(f, group, k), "i64")
            with f.when(f.compare("slt", there, sequence)):
                f.ret(k)
        f.ret(i64(-1))


def _stuck(module: Module) -> None:
    """-1 unless all members wait, or have left; else how often members have begun to wait."""
    with Function(module, "stuck", "i64", "ptr") as f:
        (team,) = f.args
        total = f.variable("i64", 0)
        with f.loop(f.load(team, at.SIZE)) as k:
            member = f.index(f.pointer(team, at.MEMBERS), k, at.MEMBER_BYTES)
            left = f.atomic_load(f.at(member, at.LEFT), "i64")
            with f.when(f.compare("eq", left, 0)):
                blocked = f.atomic_load(f.at(member, at.BLOCKED), "i64")
                with f.when(f.compare("eq", blocked, 0)):
                    f.ret(i64(-1))
                total.set(f.add(total.get(), f.atomic_load(f.at(member, at.EPISODES), "i64")))
                group = f.pointer(member, at.GROUP)
                absent = f.call("absent", "i64", group, f.load(member, at.SEQUENCE))
                with f.when(f.compare("slt", absent, 0)):
                    f.ret(i64(-1))
        f.ret(total.get())


def _member_of(f: Function, team: Value, group: Value, k: Value) -> Value:
    number = f.load(f.index(f.pointer(group, at.NUMBERS), k))
    return f.index(f.pointer(team, at.MEMBERS), number, at.MEMBER_BYTES)


def _missing(module: Module) -> None:
    """Fail if one who is waited for has left."""
    with Function(module, "look_for_absent", "void", "ptr", "ptr", "i64") as f:
        member, group, sequence = f.args
        team = f.pointer(member, at.TEAM)
        with f.loop(f.load(group, at.GROUP_SIZE)) as k:
            other = _member_of(f, team, group, k)
            left = f.atomic_load(f.at(other, at.LEFT), "i64")
            there = f.atomic_load(_slot(f, group, k), "i64")
            gone = f.both(f.compare("ne", left, 0), f.compare("slt", there, sequence))
            with f.when(gone):
                f.call("fail", "void", team, i64(at.LEFT_EARLY), f.load(member, at.RANK),
                       f.load(member, at.SITE), f.load(other, at.RANK), i64(-1))  # fmt: skip
                f.ret()
        f.ret()


def _patience(module: Module) -> None:
    """Fail with what one waits for and what the first who does not come waits for."""
    with Function(module, "give_up", "void", "ptr", "ptr", "i64") as f:
        member, group, sequence = f.args
        team = f.pointer(member, at.TEAM)
        k = f.call("absent", "i64", group, sequence)
        with f.when(f.compare("sge", k, 0)):
            other = _member_of(f, team, group, k)
            f.call("fail", "void", team, i64(at.DEADLOCK), f.load(member, at.RANK),
                   f.load(member, at.SITE), f.load(other, at.RANK), f.load(other, at.SITE))  # fmt: skip
        f.ret()


def _slow(module: Module) -> None:
    """Sleep until all of a group have come to an exchange: 1; or 0 if that will not be."""
    with Function(module, "wait_long", "i32", "ptr", "ptr", "i64", "i64") as f:
        member, group, sequence, site = f.args
        team = f.pointer(member, at.TEAM)
        f.store(site, member, at.SITE)
        f.store(group, member, at.GROUP)
        f.store(sequence, member, at.SEQUENCE)
        f.atomic("add", f.at(member, at.EPISODES), i64(1))
        blocked = f.at(member, at.BLOCKED)
        f.atomic_store(i64(1), blocked)
        answer, seen = f.variable("i32", 1), f.variable("i64", -1)
        with f.forever() as done:
            failed = f.atomic_load(f.at(team, at.FAILED), "i32")
            with f.when(f.compare("ne", failed, 0)):
                answer.set(0)
                f.leave(done)
            bell, sleepers = f.at(team, at.BELL), f.at(team, at.SLEEPERS)
            heard = f.atomic_load(bell, "i32")
            f.atomic("add", sleepers, i32(1))
            absent = f.call("absent", "i64", group, sequence)
            with f.when(f.compare("slt", absent, 0)):
                f.atomic("sub", sleepers, i32(1))
                f.leave(done)
            f.call("sleep", "void", bell, heard)
            f.atomic("sub", sleepers, i32(1))
            f.call("look_for_absent", "void", member, group, sequence)
            with f.when(f.compare("ne", f.call("fnx_poll", "i32"), 0)):
                f.call("fail", "void", team, i64(at.INTERRUPTED), f.load(member, at.RANK), site,
                       i64(-1), i64(-1))  # fmt: skip
            now = f.call("stuck", "i64", team)
            still = f.both(f.compare("sge", now, 0), f.same(now, seen.get()))
            with f.when(still):
                f.call("give_up", "void", member, group, sequence)
            seen.set(now)
        f.atomic_store(i64(0), blocked)
        f.ret(answer.get())


def _meet(module: Module) -> None:
    """Come to an exchange, and wait for the others: 1; or 0 if they do not come, or do something else."""
    with Function(module, "meet", "i32", "ptr", "ptr", "i64", "ptr", "i64") as f:
        member, group, sequence, own, site = f.args
        team = f.pointer(member, at.TEAM)
        f.atomic_store(sequence, own)
        f.call("ring", "void", team)
        turn = f.add(f.mul(f.binary("and", sequence, 1), at.RECORD_BYTES), at.RECORD)
        with f.loop(f.load(group, at.GROUP_SIZE)) as k:
            slot = _slot(f, group, k)
            with f.once() as came:
                offers, looks = f.load(team, at.LOOK), i64(thresholds.LOOKS)
                with f.loop(offers):
                    with f.loop(looks):
                        there = f.atomic_load(slot, "i64")
                        with f.when(f.compare("sge", there, sequence), likely=True):
                            f.leave(came)
                        team_threads.pause(f)
                    f.call("sched_yield", "i32")
                good = f.call("wait_long", "i32", member, group, sequence, site)
                with f.when(f.compare("eq", good, 0)):
                    f.ret(i32(0))
            said = f.load(f.at(slot, turn), at.RECORD_SITE)
            with f.unless(f.same(said, site)):
                other = f.load(f.index(f.pointer(group, at.NUMBERS), k))
                f.call("fail", "void", team, i64(at.DISAGREE), f.load(member, at.RANK), site,
                       other, said)  # fmt: skip
                f.ret(i32(0))
        f.ret(i32(1))


# --- exchanges ---------------------------------------------------------------------------------


def _reduce(module: Module) -> None:
    """Elements [first, first + count) of all inputs, from `skip` bytes on, combined in order."""
    with Function(module, "combine", "void", *["ptr"] * 4, *["i64"] * 4) as f:
        group, record, target, combine, turn, skip, first, count = f.args
        item = f.load(record, at.D_ITEM)
        shift = f.add(skip, f.mul(first, item))

        def source(k: Value) -> Value:
            place = f.at(_slot(f, group, k), turn)
            return f.at(f.pointer(place, at.RECORD_IN), shift)

        size = f.load(group, at.GROUP_SIZE)
        bytes_ = f.mul(count, item)
        with f.when(f.compare("eq", size, 1)):
            f.call("memcpy", "ptr", target, source(i64(0)), bytes_)
            f.ret()
        f.call_at(combine, "void", target, source(i64(0)), source(i64(1)), count)
        with f.loop(size, 2) as k:
            f.call_at(combine, "void", target, target, source(k), count)
        f.ret()


def _compute(module: Module) -> None:
    """A member's result of an exchange to which all have come."""
    with Function(module, "compute", "void", "ptr", "i64", "ptr", "ptr", "i64", "i64") as f:
        group, me, record, out, turn, small = f.args
        size, kind = f.load(group, at.GROUP_SIZE), f.load(record, at.D_KIND)
        count, item = f.load(record, at.D_COUNT), f.load(record, at.D_ITEM)
        bytes_ = f.mul(count, item)

        def source(k: Value) -> Value:
            return f.pointer(f.at(_slot(f, group, k), turn), at.RECORD_IN)

        combine = f.pointer(record, at.D_COMBINE)
        rest = (group, record, out, combine, turn)
        with f.when(f.compare("eq", kind, at.REDUCE)):
            with f.when(f.compare("ne", small, 0), likely=True):
                f.call("combine", "void", *rest, i64(0), i64(0), count)
                f.ret()
            _shared_reduction(f, group, me, record, turn, combine)
            f.ret()
        with f.when(f.compare("eq", kind, at.REDUCE_SCATTER)):
            f.call("combine", "void", *rest, f.mul(me, bytes_), i64(0), count)
            f.ret()
        with f.when(f.compare("eq", kind, at.PERMUTE)):
            chosen = f.load(f.index(f.at(record, at.D_SOURCES), me))
            with f.when(f.compare("slt", chosen, 0)):
                f.call("memset", "ptr", out, i32(0), bytes_)
                f.ret()
            f.call("memcpy", "ptr", out, source(chosen), bytes_)
            f.ret()
        mine = f.choose(f.compare("eq", kind, at.ALL_TO_ALL), f.mul(me, bytes_), i64(0))
        with f.loop(size) as k:
            target = f.at(out, f.mul(k, bytes_))
            f.call("memcpy", "ptr", target, f.at(source(k), mine), bytes_)
        f.ret()


def _shared_reduction(f: Function, group: Value, me: Value, record: Value, turn: Value,
                      combine: Value) -> None:  # fmt: skip
    """Each member combines its share of the elements, and writes it to all members' results."""
    size, count = f.load(group, at.GROUP_SIZE), f.load(record, at.D_COUNT)
    item = f.load(record, at.D_ITEM)
    share = f.binary("sdiv", f.sub(f.add(count, size), 1), size)
    share = f.binary("and", f.add(share, 63), -64)
    first = f.mul(share, me)
    first = f.choose(f.compare("slt", first, count), first, count)
    end = f.add(first, share)
    end = f.choose(f.compare("slt", end, count), end, count)
    block, scratch = f.variable("i64", first), f.slot("i64", thresholds.COMBINED)
    with f.forever() as done:
        begin = block.get()
        with f.when(f.compare("sge", begin, end)):
            f.leave(done)
        left = f.sub(end, begin)
        part = f.choose(f.compare("slt", left, thresholds.COMBINED), left, i64(thresholds.COMBINED))
        args = (group, record, scratch, combine, turn, i64(0), begin, part)
        f.call("combine", "void", *args)
        shift, length = f.mul(begin, item), f.mul(part, item)
        with f.loop(size) as k:
            result = f.pointer(f.at(_slot(f, group, k), turn), at.RECORD_OUT)
            f.call("memcpy", "ptr", f.at(result, shift), scratch, length)
        block.set(f.add(begin, part))


def _exchange(module: Module) -> None:
    with Function(module, EXCHANGE, "i32", "ptr", "ptr", "ptr", public=True) as f:
        record, given, out = f.args
        member = f.call("pthread_getspecific", "ptr", team_threads.member_key(f))
        with f.when(f.same(member, NULL), likely=False):
            f.ret(i32(0))
        pair = f.index(f.pointer(member, at.COMMS), f.load(record, at.D_COMM), 16)
        group, me = f.pointer(pair), f.load(pair, 8)
        with f.when(f.compare("eq", f.load(record, at.D_KIND), at.INDEX)):
            f.store(f.convert("trunc", me, "i32"), out)
            f.ret(i32(1))
        own, site = _slot(f, group, me), f.load(record, at.D_SITE)
        sequence = f.add(f.atomic_load(own, "i64"), 1)
        turn = f.add(f.mul(f.binary("and", sequence, 1), at.RECORD_BYTES), at.RECORD)
        place, bytes_ = f.at(own, turn), f.load(record, at.D_BYTES)
        small = f.compare("sle", bytes_, at.SMALL)
        f.store(site, place, at.RECORD_SITE)
        f.store(out, place, at.RECORD_OUT)
        with f.choice(small) as (copied, pointed):
            with copied:
                data = f.at(place, at.RECORD_DATA)
                f.call("memcpy", "ptr", data, given, bytes_)
                f.store(data, place, at.RECORD_IN)
            with pointed:
                f.store(given, place, at.RECORD_IN)
        good = f.call("meet", "i32", member, group, sequence, own, site)
        with f.when(f.compare("eq", good, 0), likely=False):
            f.ret(i32(0))
        wide = f.convert("zext", small, "i64")
        f.call("compute", "void", group, me, record, out, turn, wide)
        with f.when(small):
            f.ret(i32(1))
        again = f.add(sequence, 1)
        turn = f.add(f.mul(f.binary("and", again, 1), at.RECORD_BYTES), at.RECORD)
        f.store(site, f.at(own, turn), at.RECORD_SITE)
        f.ret(f.call("meet", "i32", member, group, again, own, site))
