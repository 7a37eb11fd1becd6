"""Interrupts at each moment of taking and giving back what threads share while they compile."""

import dis
import gc
import sys
import threading

import pytest

from fnx.lowering.cpu.jit import compile_threads, compiler, llvm_options

# Instructions after which the interpreter looks for signals. It does so at the start of functions, too.
LOOKING = ("CALL", "RESUME", "JUMP_BACKWARD", "SEND", "CALL_FUNCTION_EX", "CALL_KW")
TEXT = "define i64 @entry() {\n  ret i64 7\n}\n"


class Interrupt(BaseException):
    pass


class Interrupted:
    """Raises Interrupt in this thread at the `at`-th moment at which a signal could, in functions of fnx.

    Those of `contextlib` and `threading` count as well.
    """

    def __init__(self, at: int):
        self.left, self.names = at, ("lowering/cpu/jit", "contextlib", "threading.py", "/ffi.py")
        self.last: dict = {}
        self.moments: dict = {}

    def __enter__(self):
        sys.settrace(self.called)

    def __exit__(self, *_):
        sys.settrace(None)

    def called(self, frame, event, arg):
        if not any(name in frame.f_code.co_filename for name in self.names):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self.traced

    def traced(self, frame, event, arg):
        if event == "return":
            self.last.pop(id(frame), None)
        elif event == "opcode":
            code = frame.f_code
            if code not in self.moments:
                self.moments[code] = {i.offset: i.opname for i in dis.get_instructions(code)}
            before = self.last.get(id(frame))
            self.last[id(frame)] = self.moments[code].get(frame.f_lasti)
            if before in LOOKING:
                self.left -= 1
                if self.left == 0:
                    sys.settrace(None)
                    frame.f_trace = None
                    raise Interrupt
        return self.traced


def compiles() -> None:
    """A session with a helper, in which both make code."""
    with compiler.session(helpers=True) as crew:
        task = crew.start(compiler.compile_text, TEXT)
        compiler.compile_text(TEXT)
        with llvm_options.making_code(False):
            pass
        crew.work()
        task.result()


def interrupted(at: int) -> bool:
    """Whether an interrupt came, at this moment; what a user caught is forgotten."""
    try:
        with Interrupted(at):
            compiles()
    except Interrupt:
        return True
    return False


def goes_on() -> bool:
    """Whether this thread and another compile as if nothing had been, each way of making code."""
    done = []

    def work():
        compiles()
        with llvm_options.making_code(True):
            pass
        done.append(compiler.compile_text(TEXT))

    work()
    other = threading.Thread(target=work, daemon=True)
    other.start()
    other.join(20)
    return len(done) == 2 and done[0] == done[1] and compile_threads.current() is None


@pytest.fixture(scope="module", autouse=True)
def two_threads():
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(compile_threads, "size", lambda: 2)
    compiles()  # which imports LLVM
    yield
    monkeypatch.undo()


def test_an_interrupt_at_any_moment_leaves_no_lock_taken():
    at = 1
    while interrupted(at):
        gc.collect()
        assert goes_on(), f"after an interrupt at moment {at}"
        assert not llvm_options._makers
        at += 1
    assert at > 30  # or the interrupts were none
