"""What loops tell of how far they are: stores to records that a reader outside looks at while they run.

A record is iterations done, their number, and where the loop is (lowering/cpu/loader/progress.py).
"""

from collections.abc import Sequence
from typing import Any

from fnx.lowering.ir.kernel import Loop, Progress, While

DONE, TOTAL, STATE = 0, 8, 16  # bytes from the start of a record


def begin(code: Any, s: Loop | While, total: str) -> None:
    """Before the first iteration."""
    told = s.shown
    if told is None:
        return
    if told.tally is None or isinstance(s, Loop):
        total = total if told.total is None else code.value(told.total)
        _store(code, told, (DONE, "0"), (TOTAL, total), (STATE, "1"))
    elif told.tally in s.carries:
        first = code.value(s.init[s.carries.index(told.tally)])
        code.put(f"store i64 {first}, ptr {_counted(code, told)}, align 8")


def tell(code: Any, s: Loop | While, count: str, carried: Sequence[str] = ()) -> None:
    """In an iteration, where the loop asks whether to stop; `carried`: what it has begun with."""
    told = s.shown
    if told is None:
        return
    if told.tally is None:
        _store(code, told, (DONE, count))
        return
    own = told.tally in s.carries
    now = carried[s.carries.index(told.tally)] if own else code.value(told.tally)
    place = _counted(code, told)
    before, more = code.fresh(), code.fresh()
    code.put(f"{before} = load i64, ptr {place}, align 8")
    code.put(f"{more} = sub i64 {now}, {before}")
    code.put(f"store i64 {now}, ptr {place}, align 8")
    code.put(f"{code.fresh()} = atomicrmw add ptr {_record(code, told)}, i64 {more} monotonic")


def end(code: Any, s: Loop | While, total: str) -> None:
    """After the last iteration, when the carries are known."""
    told = s.shown
    if told is None:
        return
    if told.tally is None or isinstance(s, Loop):
        total = total if told.total is None else code.value(told.total)
        _store(code, told, (DONE, total), (STATE, "2"))
    elif told.tally in s.carries:
        tell(code, s, "", [code.value(c) for c in s.carries])


def _record(code: Any, told: Progress) -> str:
    return code.number(("progress", told), ("progress", told.site), "ptr")


def _counted(code: Any, told: Progress) -> str:
    """The address of what was added to the record, of this function's part."""
    return code.slot("alloca i64, align 8", ("counted", told))


def _store(code: Any, told: Progress, *values: tuple[int, str]) -> None:
    record = _record(code, told)
    for at, value in values:
        place = code.op(f"getelementptr inbounds i8, ptr {record}, i64 {at}") if at else record
        code.put(f"store atomic i64 {value}, ptr {place} monotonic, align 8")


__all__ = ["begin", "end", "tell"]
