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
    name = "".join([c for c in jaxpr.name or "" if c.isalnum() or c in "_-"])[:100] or "f"
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    try:
        path = os.path.join(_folder(), f"{name}_{digest}.{kind}")
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


def _folder() -> str:
    """A folder of this process, which only its user may enter; its name is not to be guessed.

    Where all may write, as in /tmp, somebody could have made a file of a name that is known before,
    or a link of that name to a file of the user's, which would be written over.
    """
    made = _made.get(os.getpid(), "")
    try:  # it may have been cleaned away, and another's put in its place
        if os.lstat(made).st_uid == os.geteuid() and os.path.isdir(made):
            return made
    except OSError:
        pass
    made = _made[os.getpid()] = tempfile.mkdtemp(prefix="fnx-failed-")
    return made


_made: dict[int, str] = {}


def _text(jaxpr: Jaxpr, program: Program | None) -> tuple[str, str]:
    if program is None:
        return "jaxpr", str(jaxpr)
    from fnx.lowering.ir import printer

    try:
        return "kernel", printer.show(program)
    except Exception:  # the program may be broken in any way
        return "jaxpr", str(jaxpr)
