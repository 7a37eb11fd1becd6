"""Interrupts at chosen moments: after each instruction at which the interpreter looks for signals."""

import contextlib
import dis
import functools
import queue
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import fnx
import fnx.interpreters
import fnx.lowering

# Instructions after which the interpreter looks for signals. It does so at the start of functions, too.
LOOKING = ("CALL", "RESUME", "JUMP_BACKWARD", "SEND", "CALL_FUNCTION_EX", "CALL_KW")
_PACKAGES = (fnx, fnx.interpreters, fnx.lowering)
_HELPERS = (contextlib, functools, queue, threading, weakref)  # what fnx is in the middle of
OURS = (
    *(str(Path(folder).resolve()) for package in _PACKAGES for folder in package.__path__),
    *(module.__file__ for module in _HELPERS if module.__file__),
    "/llvmlite/binding/ffi.py",
    "/numba/core/compiler_lock.py",
)
Moment = tuple[
    CodeType, int, int
]  # a function, the instruction that ended, and the one that follows


class Interrupt(BaseException):
    """What a signal's handler raises."""


@functools.cache
def is_ours(name: str) -> bool:
    """Whether a file is fnx's, or one of those that it leans on."""
    return name.startswith(OURS) or name.endswith(OURS)


@functools.cache
def _looking(code: CodeType) -> frozenset[int]:
    """The instructions of a function after which signals are looked for."""
    return frozenset(i.offset for i in dis.get_instructions(code) if i.opname in LOOKING)


@functools.cache
def _handlers(code: CodeType) -> list[tuple[int, int, int]]:
    """The ranges of instructions whose exceptions are handled in the function, and where."""
    parse = getattr(dis, "_parse_exception_table", lambda _: [])
    return [(e.start, e.end, e.target) for e in parse(code)]


def _is_handled_alike(moment: Moment) -> bool:
    """Whether the instruction that follows has the handler of that which ended, whose interrupt it is.

    We can raise it only where that one follows.
    """
    code, *pair = moment
    found = [[end for a, b, end in _handlers(code) if a <= at < b] for at in pair]
    return found[0] == found[1]


class _Traced:
    """Looks at the instructions of functions of fnx in this thread."""

    def __init__(self) -> None:
        self.last: dict[int, int] = {}

    def __enter__(self) -> "_Traced":
        sys.settrace(self.called)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.settrace(None)

    def is_wanted(self, code: CodeType) -> bool:
        return is_ours(code.co_filename)

    def called(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not self.is_wanted(frame.f_code):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self.traced

    def traced(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "return":
            self.last.pop(id(frame), None)
        elif event == "opcode":
            before = self.last.get(id(frame), -1)
            self.last[id(frame)] = frame.f_lasti
            if before in _looking(frame.f_code):
                self.came((frame.f_code, before, frame.f_lasti), frame)
        return self.traced

    def came(self, moment: Moment, frame: FrameType) -> None:
        raise NotImplementedError


class Counted(_Traced):
    """Counts, within a `with`, how often each moment comes."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: Counter[Moment] = Counter()

    def came(self, moment: Moment, frame: FrameType) -> None:
        self.moments[moment] += 1


class Interrupted(_Traced):
    """Raises Interrupt when a moment comes for the `times`-th time."""

    def __init__(self, moment: Moment, times: int = 1):
        super().__init__()
        self.moment, self.left = moment, times

    def is_wanted(self, code: CodeType) -> bool:
        return code is self.moment[0]

    def came(self, moment: Moment, frame: FrameType) -> None:
        if moment != self.moment:
            return
        self.left -= 1
        if self.left == 0:
            sys.settrace(None)
            frame.f_trace = None
            raise Interrupt


def count(call: Callable[[], Any]) -> Counter[Moment]:
    """The moments of a call."""
    with Counted() as counted:
        call()
    return Counter({m: n for m, n in counted.moments.items() if _is_handled_alike(m)})


def interrupted(call: Callable[[], Any], moment: Moment, times: int = 1) -> bool:
    """Whether an interrupt at this moment ended a call; what the user caught is forgotten."""
    try:
        with Interrupted(moment, times):
            call()
    except Interrupt:
        return True
    return False


def told(moment: Moment) -> str:
    """Where a moment is, in words."""
    code, before, _ = moment
    line = next((n for a, b, n in code.co_lines() if a <= before < b), code.co_firstlineno)
    return f"{code.co_filename}:{line} in {code.co_name}, after instruction {before}"
