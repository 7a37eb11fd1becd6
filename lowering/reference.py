"""The reference backend: runs `impl` by `impl`; what compiled code is compared with."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from fnx.core import config
from fnx.core.array import Array
from fnx.core.backend import Memory
from fnx.core.interpreter import evaluate, use
from fnx.core.jaxpr import Jaxpr, eval_jaxpr

watch: list[Callable[[Jaxpr], AbstractContextManager]] = []  # who shows how far loops are


class Interpreted:
    """A jaxpr as a callable that evaluates its equations one by one."""

    def __init__(self, jaxpr: Jaxpr):
        self.jaxpr = jaxpr
        self.seconds: dict[str, float] = {}

    def __call__(self, args: Sequence[Array]) -> list[Array]:
        # Loops inside must not be compiled again.
        seen = watch[-1](self.jaxpr) if watch else nullcontext()
        with use(evaluate), config.disable_jit(True), seen:
            return eval_jaxpr(self.jaxpr, args)


class Backend:
    """Evaluates with NumPy; slow, and true by definition."""

    name = "reference"
    memory = Memory()

    def compile(self, jaxpr: Jaxpr, donated: Any = (), simplified: Any = None) -> Interpreted:
        return Interpreted(simplified() if simplified else jaxpr)


backend = Backend()
