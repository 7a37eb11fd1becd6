"""Loading: a program, the code of which may be in memory or on disk, becomes a callable.

What a program is made of besides its code is kept under a name of its jaxpr (see `digest`), so that a
later process need not generate the code to find it.
"""

import contextlib
import marshal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fnx.core.errors import CompileError
from fnx.lowering.cpu.jit import code_cache, disk_cache
from fnx.lowering.cpu.jit.session import session as llvm_session
from fnx.lowering.cpu.runtime import call_wrapper_loader

from . import executable, symbols

ENTRY = "entry"
_KIND = "program"  # of an entry on disk, beside code
stats = code_cache.stats

# (shape, dtype) of an array, or (shape, dtype, weak_type)
Specs = Sequence[tuple]


class Image(NamedTuple):  # soon defined: a second process starts with this
    """A program on disk: the key of its code, the run time's routines that this calls, its numbers.

    `aliases`: the number of a result, and that of the input in whose memory it is left.
    """

    code: str
    imports: tuple[str, ...]
    params: tuple
    workspace: int
    aliases: tuple[tuple[int, int], ...]


@contextlib.contextmanager
def session() -> Iterator[None]:
    """A session of LLVM with helpers, who begin with the wrapper that each first call asks for."""
    with llvm_session(helpers=True):
        call_wrapper_loader.loaded.soon()
        yield


def load(
    emitted: Any,
    inputs: Specs,
    outputs: Specs,
    workspace_bytes: int,
    name: bytes | None = None,
    aliases: Mapping[int, int] | None = None,
) -> "executable.Executable":
    """The executable of an emitted program (`text`, `params`) on arrays of these shapes and dtypes.

    Programs of the same text share their code, whatever their sizes and numbers. It can be recalled
    by `name`. Results that `aliases` names are left in inputs.
    """
    with session():
        for param in emitted.params:
            if isinstance(param, tuple) and param[0] == "symbol":
                symbols.soon(param[1])
        runtime = symbols.Runtime(emitted.text)
        code, memory_hit = code_cache.program(emitted.text, (ENTRY,), runtime)
    pairs = tuple(sorted((aliases or {}).items()))
    image = Image(code.key, code.imports, tuple(emitted.params), workspace_bytes, pairs)
    if name is not None:
        with contextlib.suppress(ValueError):  # it calls back into this process
            disk_cache.put(_key(name), marshal.dumps(tuple(image)), _KIND)
    return _executable(code, memory_hit, image, inputs, outputs)


def recall(name: bytes | None, inputs: Specs, outputs: Specs) -> "executable.Executable | None":
    """The executable that was loaded under a name before, in any process; None if it is gone."""
    found = None if name is None else disk_cache.get(_key(name), _KIND)
    if found is None:
        return None
    image = Image(*marshal.loads(found))
    try:
        code, hit = code_cache.program("", (ENTRY,), symbols.addresses(image.imports), image.code)
        return _executable(code, hit, image, inputs, outputs)
    except (
        code_cache.CacheMiss,
        CompileError,
    ):  # or a routine is gone with an older NumPy or SciPy
        return None


def _key(name: bytes) -> str:
    return disk_cache.key(_KIND, code_cache.PIPELINE, name)


def _executable(
    code: code_cache.Code, hit: bool, image: Image, inputs: Specs, outputs: Specs
) -> "executable.Executable":
    aliases = dict(image.aliases)
    made = executable.Executable(
        code,
        image.params,
        [executable.Spec.of(*spec) for spec in inputs],
        [executable.Spec.of(*spec) for k, spec in enumerate(outputs) if k not in aliases],
        image.workspace,
        memory_hit=hit,
    )
    made.aliases = aliases
    return made
