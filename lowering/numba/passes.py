"""Numba's passes that printed programs need, which are fewer than those that people's functions do.

No printed function closes over others, unrolls a tuple, or has branches that are known beforehand. Its
names have one type each, so that static single assignment tells Numba nothing, and LLVM makes it anyway.
What is left out took a third of the time.
"""

from typing import Any

from numba.core import compiler
from numba.core.compiler_machinery import PassManager


class Printed(compiler.CompilerBase):
    """Numba's compiler with these passes."""

    ends: tuple[Any, ...] = ()  # passes that end values' lives: numbers and pointers own nothing

    def define_pipelines(self) -> list[Any]:
        manager = PassManager("printed")
        for each in (
            compiler.TranslateByteCode,
            compiler.FixupArgs,
            compiler.IRProcessing,
            compiler.NopythonTypeInference,
            *self.ends,
            compiler.AnnotateTypes,
            compiler.NativeLowering,
            compiler.NoPythonBackend,
        ):
            manager.add_pass(each, each.__name__)
        manager.finalize()
        return [manager]


class Allocating(Printed):
    """The same of functions that make arrays."""

    ends = (compiler.IRLegalization,)


def of(text: str) -> type[Printed]:
    """What compiles a text."""
    return Allocating if "np.empty(" in text else Printed
