"""What a function's free names stand for: whether tracing it again could give something else."""

from collections.abc import Callable
from opcode import opmap
from types import CodeType, FunctionType


def surroundings(owner: Callable) -> list:
    """The objects that a function's free names stand for now; an object's attributes, and theirs."""
    if type(owner) is FunctionType:
        return _free(owner)
    found = [None if x is owner else x for x in vars(owner).values()]
    return [*found, *(x for f in found if type(f) is FunctionType for x in _free(f))]


def _assigned(code: CodeType) -> frozenset[str]:
    """The free names that a function itself gives values, as one does that counts its traces."""
    operations = code.co_code[::2]
    if not any(number in operations for number in _STORES.values()):
        return frozenset()
    import dis  # slow, and seldom needed

    return frozenset(i.argval for i in dis.get_instructions(code) if i.opname in _STORES)


_STORES = {name: opmap[name] for name in ("STORE_DEREF", "STORE_GLOBAL")}


def _free(fun: FunctionType) -> list:
    """The objects that a function's free names stand for now, but for itself and what it assigns."""
    code, assigned = fun.__code__, _assigned(fun.__code__)
    found = [fun.__globals__.get(n) for n in code.co_names if n not in assigned]
    for name, cell in zip(code.co_freevars, fun.__closure__ or ()):
        try:
            found.append(None if name in assigned else cell.cell_contents)
        except ValueError:  # not filled yet
            found.append(None)
    return [None if x is fun else x for x in found]


def same(a: list, b: list) -> bool:
    """Whether surroundings are the very same objects."""
    return len(a) == len(b) and all(x is y for x, y in zip(a, b))
