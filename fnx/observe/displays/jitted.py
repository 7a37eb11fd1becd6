"""Jitted functions in a notebook: what they were compiled for, what that took, and what came of it."""

from collections.abc import Callable, Iterator
from inspect import unwrap
from typing import Any

from fnx.core import policy
from fnx.core.source import brief, cell_of, name_of
from fnx.interpreters.passes.compiled import already_compiled
from fnx.observe.displays import jaxprs, markup
from fnx.pytree import operations
from fnx.transforms.traced_program import Empty, Program

_STAGES = {
    "trace": "trace", "recall": "recall from disk", "build": "simplify and build",
    "check": "check", "emit": "emit", "load": "compile and load",
}  # fmt: skip
_TEXTS = {
    "Kernel IR": "kernel_text",
    "Numba source": "numba_text",
    "LLVM IR": "llvm_text",
    "assembly": "asm",
}


def _programs(f: Any) -> list[tuple[tuple, Program]]:
    """The programs of a function with their keys, those of calls with mutable references included."""
    found = list(f._programs.items())
    for inner in f._with_refs.values():
        found += _programs(inner)
    return found


def _arguments(key: tuple, program: Program) -> list[tuple[str, str]]:
    """The names and types of arguments; of many, the first."""
    treedef, fixed = key[0], key[1]
    avals = Empty.within(program.empty.inputs, program.jaxpr.in_avals[len(program.consts) :])
    given = [getattr(a, "str_short", lambda a=a: f"{a.dtype}{list(a.shape)}")() for a in avals]
    args, kwargs = operations.tree_unflatten(treedef, given)
    static = {place for place, *_ in fixed}
    numbers = [k for k in range(len(args) + len(static)) if k not in static]
    rows = []
    for path, kind in operations.tree_leaves_with_path((dict(zip(numbers, args)), kwargs)):
        rows.append((_argument_name(path[1].key, path[2:]), kind))
    most = policy.DISPLAYED_ROWS
    if len(rows) > most:
        rows = [*rows[:most], ("…", f"{len(rows) - most:,} more")]
    for place, _, value in fixed:
        rows.append((_argument_name(place, ()), f"static: {brief(value, 200)}"))
    return rows


def _argument_name(place: int | str, within: Any) -> str:
    """An argument by its number or its name, and the path within."""
    start = place if isinstance(place, str) else f"argument {place}"
    return start + "".join(map(str, within))


def _seconds(program: Program, native: Any) -> dict[str, float]:
    spent = {**program.seconds, **getattr(native, "seconds", {})}
    return {_STAGES.get(k, k): spent[k] for k in sorted(spent, key=_order)}


def _order(stage: str) -> int:
    known = list(_STAGES)
    return known.index(stage) if stage in known else len(known)


def _origin(native: Any) -> str:
    """Where the machine code came from."""
    if native is None:
        return "not compiled yet"
    hit = getattr(getattr(native, "executable", None), "cache_hit", None)
    if hit is None:
        return f"run by {type(native).__module__.rpartition('.')[2]}"
    return "found in the cache" if hit else "compiled in this process"


def _texts(program: Program, native: Any, size: int) -> Iterator[str]:
    """The stages of a program, folded; those of large programs are not made for this."""
    lines = jaxprs.Printer().lines(program.jaxpr)
    yield markup.folded(f"jaxpr ({markup.counted(size, 'equation')})", jaxprs.listing(lines))
    if native is None:
        return
    if size > policy.DISPLAYED_LOWERINGS:
        said = f"Kernel IR and code of {size:,} equations are not made for this: f.lower(...).as_text(...)"
        yield markup.note(said)
        return
    for title, method in _TEXTS.items():
        make: Callable[[], str] | None = getattr(native, method, None)
        if make is None:
            continue
        try:
            yield markup.folded(title, markup.listing(make()))
        except Exception as error:  # a display ends no program
            yield markup.note(f"{title} cannot be shown: {type(error).__name__}: {error}", "bad")


def _specialisation(key: tuple, program: Program, number: int, shown: bool) -> str:
    native = already_compiled(program.jaxpr, program.backend, program.donated)
    spent = _seconds(program, native)
    types = _arguments(key, program)
    size = jaxprs.count(program.jaxpr)
    title = f"{number}: ({', '.join([kind for _, kind in types])})"
    rows: list[tuple[str, Any]] = [*types, ("machine code", _origin(native))]
    rows.append(("backend", key[4] if program.backend.name is None else program.backend.name))
    if program.donated:
        rows.append(
            (
                "donated",
                f"{len(program.donated)} of {markup.counted(len(program.jaxpr.inputs), 'input')}",
            )
        )
    rows += [(stage, markup.seconds_text(s)) for stage, s in spent.items()]
    rows.append(("all stages", markup.seconds_text(sum(spent.values()))))
    return markup.folded(title, markup.table(rows) + "".join(_texts(program, native, size)), shown)


def jitted(f: Any) -> str:
    """A jitted function."""
    found = _programs(f)
    code = getattr(unwrap(f.fun), "__code__", None)
    file = "" if code is None else cell_of(code) or code.co_filename
    where = "" if code is None else f"{file}:{code.co_firstlineno}"
    parts = [markup.head(f"jit of {name_of(f.fun)}", where)]
    if not found:
        return markup.page(
            *parts, markup.note("nothing is compiled yet: it is traced when it is called")
        )
    hits = [already_compiled(p.jaxpr, p.backend, p.donated) for _, p in found]
    cached = sum([_origin(n) == "found in the cache" for n in hits])
    made = sum([n is not None for n in hits])
    said = (
        f"{markup.counted(len(found), 'specialisation')}, {made} with code, {cached} from the cache"
    )
    parts.append(markup.note(said))
    most = policy.DISPLAYED_SPECIALISATIONS
    if len(found) > most:
        parts.append(markup.note(f"the last {most} are shown", "warn"))
    start = max(0, len(found) - most)
    for k, (key, program) in enumerate(found[start:], start + 1):
        parts.append(_specialisation(key, program, k, k == len(found)))
    return markup.page(*parts)


__all__ = ["jitted"]
