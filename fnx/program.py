"""Programs: a traced function with its native code, and the backend that makes it."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import config, treecode
from fnx.core.array import Array, ConcreteArray
from fnx.core.interpreter import Tracer, current, evaluate, use
from fnx.core.jaxpr import Jaxpr
from fnx.interpreters.call import Jit, compiled

# Lowering shares expressions between the parts of one program, so that one is made at a time.
_compiling = threading.RLock()


class NativeBackend:
    """The backend that the setting `backend` names, loaded when it is first needed."""

    name = "native"

    def compile(self, jaxpr: Jaxpr, donated: Any = ()) -> Any:
        if config.backend.value == "reference":
            from fnx.lowering import reference

            return reference.backend.compile(jaxpr, donated)
        from fnx.lowering import cpu

        # A program may be compiled while another is traced, or by a callback of one that runs.
        with _compiling, use(evaluate):
            return cpu.backend.compile(jaxpr, donated)


BACKEND = NativeBackend()


class Program:
    """One signature of a jitted function: its jaxpr, and, once it ran, its native code."""

    __slots__ = (
        "build",
        "consts",
        "inline",
        "jaxpr",
        "name",
        "run",
        "seconds",
        "structure",
        "take",
    )

    def __init__(
        self,
        jaxpr: Jaxpr,
        consts: list[Array],
        arguments: Any,
        structure: Any,
        name: str,
        inline: bool = False,
    ):
        self.jaxpr, self.consts, self.structure, self.name = jaxpr, consts, structure, name
        self.inline = inline
        # Arguments -> leaves; None, or KeyError, where their structure is another.
        self.take: Any = treecode.flattener(arguments)
        self.build = treecode.builder(structure) or structure.unflatten
        # Native: a list of leaves -> a list of arrays, or NotImplemented for leaves that do not fit.
        self.run: Any = None
        self.seconds: dict[str, float] = {}

    def compiled(self) -> Any:
        return compiled(self.jaxpr, BACKEND)

    @property
    def alive(self) -> bool:
        """Whether the traced values that the function closed over still stand for something."""
        return not any([isinstance(c, Tracer) and c.owner.ended for c in self.consts])

    def __call__(self, leaves: Sequence[Array]) -> list[Array]:
        """The results, by native code if all is concrete, else under the current interpreter."""
        args = [*self.consts, *leaves]
        if current.get() is evaluate and all([type(x) is ConcreteArray for x in args]):
            native = self.compiled()
            outs = native(args)
            if self.run is None:
                self.run = _runner(getattr(native, "fast", None), self.consts)
            return outs
        return list(Jit(self.jaxpr, self.name, BACKEND, self.inline).bind(*args))


def _runner(fast: Callable | None, consts: list[Array]) -> Callable | None:
    if fast is None or not consts:
        return fast
    return lambda leaves: fast((*consts, *leaves))
