"""`%load_ext fnx`: magics of IPython, and notes of functions that are traced too often."""

import ast
import sys
from collections.abc import Callable
from typing import Any

from fnx.core import config
from fnx.core.errors import InvalidValue
from fnx.observe.benchmark import Benchmark, benchmark
from fnx.observe.profile import Profile, profile

_before: list[bool] = []  # the setting retrace_notes, before the extension was loaded


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext fnx` does: brings `%%fnx_profile`, `%fnx_profile` and `%fnx_benchmark`.

    It also switches the setting `retrace_notes` on, so that functions that are traced for the third
    time are noted under the cell, once each.

    >>> class Shell:
    ...     def register_magic_function(self, function, magic_kind, magic_name):
    ...         print(magic_kind, magic_name)
    >>> fnx.load_ipython_extension(Shell())
    line_cell fnx_profile
    line fnx_benchmark
    >>> fnx.unload_ipython_extension(Shell())
    """
    magics = (("line_cell", "fnx_profile", fnx_profile), ("line", "fnx_benchmark", fnx_benchmark))
    for kind, name, magic in magics:
        shell.register_magic_function(_bound(magic, shell), magic_kind=kind, magic_name=name)
    if not _before:
        _before.append(config.retrace_notes.value)
        config.retrace_notes.set(True)


def unload_ipython_extension(shell: Any) -> None:
    """What `%unload_ext fnx` does: the setting `retrace_notes` is as it was.

    >>> class Shell:
    ...     pass
    >>> fnx.unload_ipython_extension(Shell())
    """
    del shell
    if _before:
        config.retrace_notes.set(_before.pop())


def _bound(magic: Callable, shell: Any) -> Callable:
    def call(line: str, cell: str | None = None) -> Any:
        return magic(shell, line, cell)

    call.__name__, call.__doc__ = magic.__name__, magic.__doc__
    call._ipython_magic_no_var_expand = True  # type: ignore[attr-defined]  # braces are Python's
    return call


def fnx_profile(shell: Any, line: str, cell: str | None = None) -> Profile | None:
    """Run the cell, or the line, and show where time went.

    `%%fnx_profile name` keeps the profile under a name, `%%fnx_profile trace.json` saves it there.
    """
    target = line.strip() if cell is not None else ""
    if target and not (target.isidentifier() or target.endswith((".json", ".json.gz"))):
        raise InvalidValue(
            f"%%fnx_profile was given {target!r}; expected nothing, a variable's name, or a file's that "
            "ends with .json or .json.gz"
        )
    with profile() as found:
        shell.run_cell(line if cell is None else cell)
    if target.isidentifier():
        shell.user_ns[target] = found
    elif target:
        found.save(target)
    return found


def fnx_benchmark(shell: Any, line: str, cell: str | None = None) -> Benchmark:
    """Show what a call takes: `%fnx_benchmark f(x, y)`; its arguments are computed once, before."""
    del cell
    try:
        tree = ast.parse(line.strip(), mode="eval")
    except SyntaxError as error:
        raise InvalidValue(
            f"%fnx_benchmark was given {line.strip()!r}; expected a call, as in %fnx_benchmark f(x)"
        ) from error
    name = "__fnx_benchmark__"
    call = tree.body
    if isinstance(call, ast.Call):
        call.args.insert(0, call.func)
    else:  # an expression that is computed each time
        nothing = ast.arguments([], [], None, [], [], None, [])
        call = ast.Call(ast.Name(name, ast.Load()), [ast.Lambda(nothing, tree.body)], [])
        tree.body = call
    call.func = ast.Name(name, ast.Load())
    code = compile(ast.fix_missing_locations(tree), "<fnx_benchmark>", "eval")
    names = {**shell.user_ns, name: benchmark, "__builtins__": sys.modules["builtins"]}
    return eval(code, names)


__all__ = ["fnx_benchmark", "fnx_profile", "load_ipython_extension", "unload_ipython_extension"]
