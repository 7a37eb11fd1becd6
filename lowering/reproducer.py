"""When native code cannot be made: what was being compiled is kept in a file, and named."""

import hashlib
import os
import tempfile

from fnx.core.errors import CompileError
from fnx.core.jaxpr import Jaxpr
from fnx.lowering.ir.kernel import Program


def failed(stage: str, jaxpr: Jaxpr, program: Program | None, error: Exception) -> CompileError:
    """The error to raise for a failure of a pass; the Kernel IR, or the jaxpr, is in its file."""
    kind, text = _text(jaxpr, program)
    name = f"fnx_{jaxpr.name or 'f'}_{hashlib.sha256(text.encode()).hexdigest()[:12]}.{kind}"
    path = os.path.join(
        tempfile.gettempdir(), "".join(c for c in name if c.isalnum() or c in "._-")
    )
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        where = f"its {kind} is in {path}"
    except OSError as problem:
        where = f"its {kind} could not be saved ({problem})"
    return CompileError(
        f"{jaxpr.name or 'a function'} could not be compiled: {stage} failed with "
        f"{type(error).__name__}: {error}\n{where}. This is a mistake in fnx. The function still runs, "
        "slowly, on the reference backend: fnx.config.update('backend', 'reference'), or "
        "FNX_BACKEND=reference in the environment."
    )


def _text(jaxpr: Jaxpr, program: Program | None) -> tuple[str, str]:
    if program is None:
        return "jaxpr", str(jaxpr)
    from fnx.lowering.ir import printer

    try:
        return "kernel", printer.show(program)
    except Exception:  # the program may be broken in any way
        return "jaxpr", str(jaxpr)
