"""Loading: an emitted program, the code of which may be on disk, becomes a callable."""

from collections.abc import Sequence
from typing import Any

from . import invoke, library, machine

ENTRY = "entry"
stats = machine.stats
warm_up = machine.warm_up

# (shape, dtype) of an array, or (shape, dtype, weak_type)
Specs = Sequence[tuple]


def load(emitted: Any, inputs: Specs, outputs: Specs, workspace_bytes: int) -> "invoke.Executable":
    """The executable of an emitted program (`text`, `params`) on arrays of these shapes and dtypes.

    Programs of the same text share their code, whatever their sizes and numbers.
    """
    symbols = library.runtime_symbols(emitted.text)
    code, memory_hit = machine.program(emitted.text, (ENTRY,), symbols)
    return invoke.Executable(
        code,
        emitted.params,
        [invoke.Spec.of(*spec) for spec in inputs],
        [invoke.Spec.of(*spec) for spec in outputs],
        workspace_bytes,
        memory_hit=memory_hit,
        emit_seconds=getattr(emitted, "seconds", 0.0),
    )
