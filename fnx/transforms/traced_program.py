"""Programs: a traced function with its native code, and the backend that makes it."""

import gc
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FunctionType
from typing import Any

from fnx.core import config, dtypes, policy
from fnx.core.array import Array, ConcreteArray
from fnx.core.backend import Memory, donation
from fnx.core.errors import FnxError, JaxRuntimeError
from fnx.core.interpreter import Tracer, current, evaluate, use
from fnx.core.jaxpr import Jaxpr
from fnx.core.threads.fork_safety import PATIENCE, fork_safe
from fnx.interpreters.passes.compiled import compiled
from fnx.interpreters.primitives.jit import Jit
from fnx.lowering import backends
from fnx.process import placement
from fnx.pytree import flatten_codegen
from fnx.pytree.registry import registered
from fnx.pytree.surroundings import same, surroundings
from fnx.transforms.static_args import Static

# Lowering shares expressions between the parts of one program, so that one is made at a time.
_compiling = fork_safe(threading.RLock(), PATIENCE)


@contextmanager
def without_collections() -> Iterator[None]:
    """No search for cyclic garbage while a program is traced or compiled.

    Equations and expressions, and LLVM when it is imported, are many objects that stay; searching all
    that was there before at their pace takes a tenth to a third of the time.
    """
    if not gc.isenabled():
        yield
        return
    try:
        _collections["stopped"] = True
        gc.disable()
        yield
    finally:
        _collections["stopped"] = False
        gc.enable()


_collections = {"stopped": False}


def _collect_again() -> None:
    if _collections["stopped"]:
        _collections["stopped"] = False
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_collect_again)  # another thread may compile


class NamedBackend:
    """The backend of a name, or the one that the setting `backend` names, loaded when it is needed."""

    def __init__(self, name: str | None = None):
        self.name = None if name is None else backends.check(name)

    @property
    def memory(self) -> Memory:
        return backends.get(self._name()).memory

    def compile(self, jaxpr: Jaxpr, donated: Any = (), simplified: Any = None) -> Any:
        name = self._name()
        # A program may be compiled while another is traced, or by a callback of one that runs.
        start = time.perf_counter()
        with _compiling, use(evaluate), without_collections():
            found = backends.get(name).compile(jaxpr, donated, simplified)
        if config.log_compiles.value:
            seconds = time.perf_counter() - start
            import_module("fnx.process.compile_log").tell_compiled(jaxpr.name, seconds)
        return found

    def team(self, jaxpr: Jaxpr, *more: Any) -> Any:
        """One member's program for a team of members: of the CPU, whose devices they are."""
        name = self._name() if hasattr(backends.get(self._name()), "team") else "cpu"
        with _compiling, use(evaluate), without_collections():
            return backends.get(name).team(jaxpr, *more)

    def team_pays(self, size: int, work: float, exchanges: float) -> bool:
        """Whether members that do so much had better run at once."""
        pays = getattr(backends.get(self._name()), "team_pays", None)
        return pays is not None and pays(size, work, exchanges)

    def sharded(self, jaxpr: Jaxpr, donated: tuple[int, ...] = ()) -> Any:
        """The program of arrays that lie on a mesh: of all devices at once where that pays."""
        sharded = import_module("fnx.process.sharded_program")
        with _compiling, use(evaluate):
            return sharded.compiled_for_mesh(jaxpr, self, donated)

    def _name(self) -> str:
        return self.name or config.backend.value


BACKEND = NamedBackend()
_named: dict[str, NamedBackend] = {}

_shared: weakref.WeakKeyDictionary[Callable, dict[Any, tuple[list, dict]]] = (
    weakref.WeakKeyDictionary()
)
_sharing = fork_safe(threading.RLock(), PATIENCE)


def programs_of(fun: Callable, static: Static, donated: Static, options: dict) -> dict:
    """The programs of a function by signature, the same for all that is jitted of it with equal options.

    So `jit(f)(x)` in a loop traces f once, as long as its free names stand for the same objects. Of
    other callables nobody knows whether they would be met again, or what they would be equal to: those
    share nothing.
    """
    if type(fun) is not FunctionType or options["compiler"]:
        return {}
    around = surroundings(fun)
    key = static.key, donated.key, *[options[k] for k in ("inline", "keep_unused", "backend")]
    with _sharing:
        found = _shared.get(fun)
        if found is None:
            # A program may hold what holds its function.
            if len(_shared) >= policy.SHARED_FUNCTIONS:
                _shared.pop(next(iter(_shared.keys())), None)
            found = _shared[fun] = {}
        if key not in found or not same(found[key][0], around):
            found[key] = around, {}
        return found[key][1]


def forget_programs() -> None:
    """Let functions that are jitted from now on share nothing with those before."""
    with _sharing:
        _shared.clear()


def backend_of(name: str | None) -> NamedBackend:
    """What compiles for a backend; InvalidValue where there is none of this name."""
    if name is None:
        return BACKEND
    if name not in _named:
        _named[name] = NamedBackend(name)
    return _named[name]


def check_options(options: Any) -> None:
    """JaxRuntimeError for options of a compiler that are not XLA's, which mean nothing here."""
    unknown = [name for name in options or () if not name.startswith("xla_")]
    if unknown:
        raise JaxRuntimeError(
            f"No such compile option: {', '.join(map(repr, unknown))}. fnx has none; those of XLA "
            "(xla_...) are taken, and change nothing."
        )


class Forbidden(FnxError, RuntimeError):
    """A setting forbids what a call would do."""


class Empty:
    """The leaves of arguments and of results, by number, that have no values: float0, of no bytes.

    They are no inputs and outputs of a program, which compiled code would not know to hold.
    """

    def __init__(self, inputs: dict[int, Any], outs: dict[int, Any]):
        self.inputs, self.outs = inputs, outs

    @staticmethod
    def among(leaves: Sequence[Any]) -> dict[int, Any]:
        return {k: x for k, x in enumerate(leaves) if x.dtype == dtypes.float0}

    @staticmethod
    def without(which: dict[int, Any], leaves: Sequence[Any]) -> list:
        return [x for k, x in enumerate(leaves) if k not in which] if which else list(leaves)

    @staticmethod
    def within(which: dict[int, Any], leaves: Sequence[Any]) -> list:
        it = iter(leaves)
        return [which[k] if k in which else next(it) for k in range(len(leaves) + len(which))]

    def building(self, build: Callable) -> Callable:
        return lambda outs: build(self.within(self.outs, outs))


class Program:
    """One signature of a jitted function: its jaxpr, and, once it ran, its native code."""

    __slots__ = (
        "backend",
        "build",
        "consts",
        "donated",
        "empty",
        "inline",
        "jaxpr",
        "lies",
        "name",
        "of_mesh",
        "run",
        "runs",
        "seconds",
        "structure",
        "take",
        "warned",
    )

    def __init__(
        self,
        jaxpr: Jaxpr,
        consts: list[Array],
        arguments: Any,
        structure: Any,
        name: str,
        inline: bool = False,
        empty: "Empty | None" = None,
        donated: tuple[int, ...] = (),
        backend: NamedBackend = BACKEND,
    ):
        self.backend = backend
        self.jaxpr, self.consts, self.structure, self.name = jaxpr, consts, structure, name
        self.inline = inline
        self.donated = tuple([len(consts) + k for k in donated])  # inputs of the jaxpr
        # Arguments -> leaves; None, or KeyError, where their structure is another.
        self.empty = empty or Empty({}, {})
        self.take: Any = (
            None if self.empty.inputs else flatten_codegen.flattener(arguments, registered)
        )
        build = flatten_codegen.builder(structure, registered) or structure.unflatten
        self.build = self.empty.building(build) if self.empty.outs else build
        # Native: a list of leaves -> a list of arrays, or NotImplemented for leaves that do not fit.
        self.run: Any = None
        self.runs: dict[str, Callable] = {}  # the same by backend
        self.seconds: dict[str, float] = {}
        self.warned = False  # of donations
        self.of_mesh = False  # whether it is another one where another mesh was set
        self.lies: tuple = ()  # how arguments lie on devices, if any is on several

    def compiled(self) -> Any:
        self._warn_of_useless_donations()
        return compiled(self.jaxpr, self.backend, self.donated)

    def mark(self, places: Sequence[Any]) -> None:
        """Let results say that they lie so."""
        build = self.build

        def built(outs: Sequence[Any]) -> Any:
            for x, place in zip(outs, places):
                if type(x) is ConcreteArray:
                    x.mapped = place
            return build(outs)

        self.build = built

    def on(self, name: str) -> Callable[[Sequence[Array]], Sequence[Array]]:
        """The same program on another backend, unless one was named for it."""
        if self.backend.name is not None:
            return self
        made = compiled(self.jaxpr, backend_of(name), self.donated)
        run = _runner(made, self.consts)

        def call(leaves: Sequence[Array]) -> list[Array]:
            outs = list(made([*self.consts, *leaves]))
            if not config.overridden.get():
                self._runs_by(name, run)
            return outs

        return call

    def _runs_by(self, name: str, run: Callable | None) -> None:
        """Remember what runs the program on a backend: arrays may lie here and there by turns."""
        if run is not None:
            self.runs[name] = run
        self.run = _first_of([*self.runs.values()])

    def _warn_of_useless_donations(self) -> None:
        """UserWarning, once, for donated arguments that no result can replace."""
        if not self.donated or self.warned:
            return
        self.warned = True
        useless = [self.jaxpr.in_avals[k] for k in donation(self.jaxpr, self.donated).useless]
        if useless:
            types = ", ".join([a.update(weak_type=False).str_short() for a in useless])
            warnings.warn(
                f"Some donated buffers were not usable: {types}, which {self.name} reads but has no "
                "result of the size of. Do not donate them.",
                stacklevel=3,
            )

    @property
    def alive(self) -> bool:
        """Whether the traced values that the function closed over still stand for something."""
        return not any([isinstance(c, Tracer) and c.owner.ended for c in self.consts])

    def __call__(self, leaves: Sequence[Array]) -> list[Array]:
        """The results, by native code if all is concrete, else under the current interpreter."""
        args = [*self.consts, *leaves]
        if current.get() is evaluate and all([type(x) is ConcreteArray for x in args]):
            if config.no_execution.value:
                raise Forbidden(f"{self.name} would run, and no_execution is set")
            native = self.compiled()
            outs = native(args)
            if not config.overridden.get():
                run = _runner(native, self.consts)
                if placement.used and run is not None:
                    run = placement.checked(run, self.lies)
                self._runs_by("", run)
            return outs
        return list(Jit(self.jaxpr, self.name, self.backend, self.inline).apply(*args))


def _runner(native: Any, consts: list[Array]) -> Callable | None:
    """What runs native code on the leaves of arguments that fit, without looking further."""
    fast = getattr(native, "fast", None)
    if fast is None or not consts:
        return fast
    placed = getattr(native, "placed", None)
    there = placed(consts) if placed else consts  # once, not with each call
    return lambda leaves: fast((*there, *leaves))


def _first_of(runs: list[Callable]) -> Callable | None:
    """The one of them that takes the leaves."""
    if len(runs) < 2:
        return runs[0] if runs else None

    def first(leaves: Sequence[Any]) -> Any:
        for run in runs:
            outs = run(leaves)
            if outs is not NotImplemented:
                return outs
        return NotImplemented

    return first
