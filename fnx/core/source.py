"""The user's own names and lines: which frame outside fnx made a value, found cheaply, for errors."""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from functools import partial
from types import CodeType, FrameType
from typing import Any

from fnx.core.threads.atomic import during, setter

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_ROOT = os.path.dirname(os.path.dirname(_HERE)) + os.sep
# The three folders of the checkout, or fnx/ alone where it is installed. The demo is a user.
_INTERNAL = (_HERE, _ROOT + "interpreters" + os.sep, _ROOT + "lowering" + os.sep)
_USERS = (_HERE + "demo" + os.sep,)
_LIBRARIES = (os.sep + "optree" + os.sep, "functools.py", "contextlib.py")
_SURFACE = tuple(
    _HERE + room + os.sep for room in "numpy lax random nn scipy control_flow image".split()
)
# Who calls a public function, `fun` there; factories make some, in functions of other names.
_CALLERS = (
    _HERE + os.path.join("core", "errors.py"),
    _HERE + os.path.join("numpy", "arrays", "public_calls.py"),
)
_excluded: list[str] = []  # where libraries lie that call fnx for users
_known: dict[str, bool] = {}  # a cache: file name -> is it ours


def is_internal(filename: str) -> bool:
    """Whether a file is fnx's, or of the libraries through which it calls functions."""
    known = _known.get(filename)
    if known is None:
        path = os.path.abspath(filename) if not filename.startswith("<") else filename
        ours = path.startswith(_INTERNAL) and not path.startswith(_USERS)
        ours = ours or path.startswith(tuple(_excluded))
        known = _known[filename] = ours or any(part in path for part in _LIBRARIES)
    return known


def exclude(path: str) -> None:
    """Take files under a path for a library's, whose callers are the users."""
    _excluded.append(os.path.abspath(path))
    _known.clear()


def name_of(fun: Callable) -> str:
    """What messages call a user's function; partial ones, and many objects, have no __name__."""
    name = getattr(fun, "__name__", None)
    return name if name and isinstance(name, str) else type(fun).__name__


def brief(x: Any, most: int = 60) -> str:
    """What messages show of a user's object, which may have a long text for it, or none."""
    try:
        text = repr(x)
    except Exception:
        return f"<{type(x).__name__}, whose repr fails>"
    return text if len(text) <= most else f"{text[: most - 3]}..."


def cell_of(code: CodeType) -> str:
    """What IPython calls the cell of a notebook that code is from: "Cell In[3]"; "" for other code."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    named = getattr(getattr(shell, "compile", None), "format_code_name", None)
    found = None if named is None else named(code.co_filename)
    return "" if found is None else " ".join(found)


class Source:
    """A place in the user's code; the line number is worked out when it is printed."""

    __slots__ = ("code", "lasti", "mapped", "role", "scopes", "takes_any_index")

    def __init__(
        self,
        code: CodeType,
        lasti: int,
        role: str = "",
        mapped: "tuple[Mapped, ...]" = (),
        scopes: tuple[str, ...] = (),
        takes_any_index: bool = False,
    ):
        self.code, self.lasti, self.mapped = code, lasti, mapped
        self.scopes = scopes  # names that the user gave, outermost first
        self.takes_any_index = takes_any_index  # whether those out of bounds are meant
        self.role = (
            role  # what a derivative computes there: "the cotangent of the operands of sqrt"
        )

    def derived(self, role: str) -> "Source":
        """The same place, of what a derivative computes."""
        return Source(self.code, self.lasti, role, self.mapped, self.scopes, self.takes_any_index)

    def within(self, mapped: "Mapped") -> "Source":
        """The same place, of what vmap makes of it for all members."""
        mapped_by = mapped, *self.mapped
        return Source(
            self.code, self.lasti, self.role, mapped_by, self.scopes, self.takes_any_index
        )

    @property
    def line(self) -> int:
        for start, end, line in self.code.co_lines():
            if start <= self.lasti < end and line is not None:
                return line
        return self.code.co_firstlineno

    def __str__(self) -> str:
        return f"{cell_of(self.code) or self.code.co_filename}:{self.line} ({self.code.co_name})"

    @property
    def short(self) -> str:
        """The file without its folders, or the cell of a notebook, and the line."""
        return f"{cell_of(self.code) or os.path.basename(self.code.co_filename)}:{self.line}"


class NameStack:
    """Names of scopes around an equation, outermost first: those of `named_scope` in its jaxpr."""

    __slots__ = ("stack",)

    def __init__(self, stack: tuple[str, ...]):
        self.stack = stack

    def __str__(self) -> str:
        return "/".join(self.stack)


class SourceInfo:
    """Where an equation comes from, under JAX's names; the place stands for a traceback."""

    __slots__ = ("name_stack", "traceback")

    def __init__(self, source: Source | None):
        self.traceback = source
        self.name_stack = NameStack(() if source is None else source.scopes)


class Mapped:
    """That an operation is done for all members of a vmap at once, and along which axes these lie.

    `axes`: pairs of the shape of an operand or a result, and the members' axis in it. Where each member
    is a device, `devices` is the name of their axis.
    """

    __slots__ = ("axes", "devices", "source")

    def __init__(
        self,
        source: Source | None,
        axes: list[tuple[tuple[int, ...], int]],
        devices: Any = None,
    ):
        self.source, self.axes, self.devices = source, axes, devices

    def axis(self, shape: tuple[int, ...]) -> int | None:
        """The members' axis in arrays of a shape, if that is known for sure."""
        found = {k for s, k in self.axes if s == shape}
        return found.pop() if len(found) == 1 else None

    def __str__(self) -> str:
        """Where a member is, with `#` for its number."""
        place = "" if self.source is None else f" at {self.source}"
        if self.devices is None:
            return f"in member # of vmap{place}"
        named = isinstance(self.devices, str) and self.devices[0] != "<"  # by the user
        along = f" along {self.devices!r}" if named else ""
        return f"on device #{along}" + (f", mapped{place}" if place else "")


def numbered(where: str, k: int) -> str:
    """Where a member is, by its number."""
    return where.replace("#", str(k), 1)


def members_of(source: Source | None, shape: tuple[int, ...]) -> list[tuple[int, str]]:
    """Which axes of an array that was made somewhere are those of members, and of which vmap.

    Outermost first; each axis is counted without those before it.
    """
    found: list[tuple[int, str]] = []
    for mapped in () if source is None else source.mapped:
        k = mapped.axis(shape)
        if k is None:
            break
        found.append((k, str(mapped)))
        shape = shape[:k] + shape[k + 1 :]
    return found


def members_at(members: Sequence[tuple[int, str]], index: Sequence[int]) -> list[str]:
    """The members to which the element at an index belongs, innermost first."""
    rest, found = list(index), []
    for k, what in members:
        found.append(numbered(what, rest.pop(k)))
    return found[::-1]


class LoopSite:
    """A loop of the user's: the function that was called, where, and whether it is the reverse sweep."""

    __slots__ = ("backward", "kind", "source", "unit")

    def __init__(
        self, kind: str, source: Source | None, backward: bool = False, unit: str = "iteration"
    ):
        self.kind, self.source, self.backward, self.unit = kind, source, backward, unit

    def reversed(self) -> "LoopSite":
        """The site of the loop that goes back over this one's iterations."""
        return LoopSite(self.kind, self.source, not self.backward, self.unit)

    def counting(self, unit: str) -> "LoopSite":
        """The site of a loop each of whose iterations is one of so many's: blocks, strips."""
        return LoopSite(self.kind, self.source, self.backward, unit)

    def __str__(self) -> str:
        what = f"the reverse sweep of {self.kind}" if self.backward else self.kind
        return what if self.source is None else f"{what} at {self.source}"

    @property
    def short(self) -> str:
        """As a label: the file without its folders."""
        if self.source is None:
            return self.kind
        return f"{self.kind} {self.source.short}" + (" (reverse)" if self.backward else "")


def user_frame() -> FrameType | None:
    """The innermost frame that is not fnx's."""
    frame: FrameType | None = sys._getframe(1)
    known = _known.get  # asked for each frame of each equation: a call of is_internal would show
    while frame is not None:
        file = frame.f_code.co_filename
        ours = known(file)
        if not (is_internal(file) if ours is None else ours):
            return frame
        frame = frame.f_back
    return None


def public_function() -> str:
    """The name of the function of the public surface that the user called; "" if it was none."""
    name = ""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_internal(frame.f_code.co_filename):
        code = frame.f_code
        if code.co_name == "call" and code.co_filename.startswith(_CALLERS):
            called = frame.f_locals["fun"]
            ours = called.__code__.co_filename.startswith(_SURFACE) and called.__name__[0] != "_"
            name = called.__name__ if ours else name
        surface = code.co_filename.startswith(_SURFACE) and not code.co_filename.endswith("util.py")
        if surface and not code.co_name.startswith("_") and code.co_name in frame.f_globals:
            name = code.co_name
        frame = frame.f_back
    return name


def warn_user(text: str, category: type[Warning]) -> None:
    """A warning that points to the user's line, from whatever depth of fnx."""
    frame = user_frame()
    if frame is None:
        warnings.warn(text, category, stacklevel=2)
        return
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(
        text, category, frame.f_code.co_filename, frame.f_lineno, registry=registry
    )


# Where equations come from that are made of others, which the user's code wrote some time ago.
origin: ContextVar[Source | None] = ContextVar("fnx_origin", default=None)
set_origin = setter(origin)
# The public function that runs now, for who looks at its results as a whole; none in users' functions.
public_call: ContextVar[Any] = ContextVar("fnx_public_call", default=None)
set_public_call = setter(public_call)
# Names that users give to what they are writing now, outermost first, within the jaxpr that is traced.
scopes: ContextVar[tuple[str, ...]] = ContextVar("fnx_scopes", default=())
# Whether what is written now says what indices out of bounds do, so that these are no mistakes.
any_index: ContextVar[bool] = ContextVar("fnx_any_index", default=False)
set_scopes, set_any_index = setter(scopes), setter(any_index)


def call_users(fun: Callable, *args: Any, **kwargs: Any) -> Any:
    """Results of a function that a user gave, whose lines are its own, not those of what it is a rule of.

    A rule of fnx's own has no lines to show: it comes from where its function was called.
    """
    if origin.get() is None or not _has_lines(fun):
        return fun(*args, **kwargs)
    token = set_origin[None]
    try:
        call = set_public_call[None]
        try:
            return fun(*args, **kwargs)
        finally:
            public_call.reset(call)
    finally:
        origin.reset(token)


def _has_lines(fun: Any) -> bool:
    """Whether a callable is written in a file that is not fnx's."""
    while isinstance(fun, partial):
        fun = fun.func
    code = getattr(fun if hasattr(fun, "__code__") else type(fun).__call__, "__code__", None)
    return code is not None and not is_internal(code.co_filename)


def indexing_by(mode: Any) -> AbstractContextManager[None]:
    """Within it, a mode for indices out of bounds is the user's, or None: then they are mistakes.

    A promise that there are none is one that can be broken.
    """
    is_said = mode is not None and "PROMISE" not in str(mode).upper()
    return during(set_any_index, True) if is_said else _NO_MODE


_NO_MODE = nullcontext()


def user_source() -> Source | None:
    """Where the user's code is now, or was when it wrote what is being transformed."""
    found = origin.get()
    if found is not None:
        return found
    frame = user_frame()
    if frame is None:
        return None
    return Source(frame.f_code, frame.f_lasti, "", (), scopes.get(), any_index.get())


def at_line(source: Source | None) -> str:
    """A phrase for the end of an error message."""
    return "" if source is None else f"\n  at {source}"
