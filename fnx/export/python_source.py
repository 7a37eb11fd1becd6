"""`fnx.export.python`: a function as one file of Python that needs NumPy and Numba, and no fnx."""

import base64
import inspect
import itertools
import keyword
import linecache
import os
import sys
import textwrap
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from fnx.core import __version__, dtypes
from fnx.core.errors import InvalidValue, entrance
from fnx.core.interpreter import Tracer
from fnx.interpreters.passes.simplify import simplify
from fnx.lowering.standalone import printer
from fnx.pytree import operations
from fnx.pytree.flatten_fun import check_callable, name_of, signature_of
from fnx.transforms.jit import Jitted, jit

_WRITTEN = 16  # numbers of an array that stand in the source as they are
_count = itertools.count()
_TAKEN = frozenset("np numba math scipy jit types base64 zlib found doctest".split())
_NUMBERED = frozenset(("out", "constant"))


class Source(str):
    """The text of a file of Python; `save(path)` writes it, `function()` gives the function in it."""

    name: str

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))  # in IPython; elsewhere it is shown as any text

    def save(self, path: str | os.PathLike) -> None:
        """Write the file.

        >>> fnx.export.python(jnp.sin, 1.0).save("/tmp/sin.py")
        """
        with open(path, "w", encoding="utf-8") as file:
            file.write(self)

    def function(self) -> Callable:
        """The function, of whose lines debuggers and tracebacks know.

        >>> f = fnx.export.python(lambda x: 2.0 * x, np.ones(3)).function()
        >>> f(np.arange(3.0))
        array([0., 2., 4.])
        """
        number = next(_count)
        file = f"<fnx.export.python {self.name} {number}>"
        linecache.cache[file] = (len(self), None, self.splitlines(True), file)
        module = ModuleType(f"fnx_exported_{self.name}_{number}")
        sys.modules[module.__name__] = module  # where Numba looks for what its functions use
        exec(compile(self, file, "exec"), vars(module))
        return getattr(module, self.name)


@entrance
def python(f: Callable, *args: Any, **kwargs: Any) -> Source:
    """The source of `f` for arguments like these, as one file that needs NumPy and Numba only.

    `f` may be a derivative, jitted or not. Arguments and results are trees of NumPy's arrays as they are
    of fnx's; shapes and dtypes are fixed. Functions of `scipy.special`, and a few of linear algebra, need
    SciPy besides; the file says so. Callbacks of Python's cannot be taken along (NotImplementedError);
    what only prints is left out. TypeError for traced arguments.

    >>> source = fnx.export.python(fnx.grad(lambda x: jnp.sum(x * x)), np.ones(3))
    >>> "import fnx" in source, source.function()(np.arange(3.0))
    (False, array([0., 2., 4.]))
    """
    check_callable(f, "export.python")
    for x in operations.tree_leaves((args, kwargs)):
        if isinstance(x, Tracer):
            raise InvalidValue(
                f"export.python of {name_of(f)} got a traced value of type {x.aval.str_short()}; "
                "expected arrays: call it from outside of jitted functions"
            )
    return _File(f, args, kwargs).source()


class _File:
    """What a file is made of."""

    def __init__(self, f: Callable, args: tuple, kwargs: dict):
        jitted = f if isinstance(f, Jitted) else jit(f)
        traced = jitted.trace(*args, **kwargs)
        program = traced.program
        self.f, self.given, self.traced, self.program = f, (args, kwargs), traced, program
        name = name_of(f)
        self.name = _free(name) if name.isidentifier() and name.isascii() else "exported"
        self.consts = [np.asarray(c) for c in program.consts]
        self.kinds: dict[
            tuple, str
        ] = {}  # named tuples: class and fields, and what they are called here
        self._read_arguments(jitted)
        outs = operations.tree_unflatten(traced.out_tree, range(traced.out_tree.num_leaves))
        found = operations.tree_leaves_with_path(outs)
        self.out_names = [_joined("result", path) for path, _ in found]
        empty = program.empty
        self.live = [k for k in range(len(self.out_names)) if k not in empty.outs]
        names = [f"constant{k}" for k in range(len(self.consts))] + [
            _joined(head, path)
            for k, (head, path) in enumerate(self.paths)
            if k not in empty.inputs
        ]
        jaxpr = simplify(program.jaxpr, final=True)
        for a in (*jaxpr.in_avals, *jaxpr.out_avals):
            if a.dtype in dtypes.SMALL or dtypes.NAME[a.dtype] == "bfloat16":
                raise InvalidValue(
                    f"export.python of {self.name}: a {dtypes.NAME[a.dtype]} array, which NumPy lacks. "
                    "Expected arguments and results of NumPy's dtypes: convert them with astype."
                )
        self.code = printer.emit(
            jaxpr, f"{self.name}_", names, [self.out_names[k] for k in self.live]
        )

    def _read_arguments(self, jitted: Jitted) -> None:
        """The signature, and of each leaf the argument that it is in and its path there."""
        static = jitted.static
        args, kwargs, _ = (*self.given, ()) if jitted.plain else static.split(*self.given)
        names = _names(self.f, self.given[0], args, static)
        names, others = list(map(_free, names)), {k: _free(k) for k in kwargs}
        values = [*args, *kwargs.values()]
        self.arguments = dict(zip([*names, *others.values()], values, strict=True))
        self.paths = []
        for path, _ in operations.tree_leaves_with_path((args, kwargs)):
            first = path[1]
            head = names[first.idx] if path[0].idx == 0 else others[first.key]
            self.paths.append((head, path[2:]))

    # --- text

    def source(self) -> Source:
        code, whole, function = self.code, self._whole(), self._function()
        constants = {f"constant{k}": c for k, c in enumerate(self.consts)} | code.constants
        arrays = [f"{n} = {_literal(x)}" for n, x in constants.items()]
        packed = any("_unpacked(" in a for a in arrays)
        tuples = [
            f"{kind} = collections.namedtuple({of!r}, {list(fields)!r})"
            for (of, fields), kind in self.kinds.items()
        ]
        wanted = {
            "base64": packed,
            "collections": bool(tuples),
            "math": "math." in whole,
            "types": "types.SimpleNamespace" in function,
            "zlib": packed,
        }
        head = [f'"""{self._title()}"""', ""]
        head += [f"import {m}" for m, is_used in wanted.items() if is_used]
        head += [""] * any(wanted.values()) + ["import numba", "import numpy as np"]
        head += ["import scipy.special"] * ("scipy.special." in whole)
        head += ["", 'jit = numba.njit(error_model="numpy")']
        parts = [
            "\n".join(head),
            *[_UNPACKED] * packed,
            *arrays,
            *["\n".join(tuples)] * bool(tuples),
            *code.hosts,
            *code.helpers,
            code.body,
        ]
        found = Source("\n\n".join([p.rstrip("\n") + "\n" for p in [*parts, function]]) + _MAIN)
        found.name = self.name
        return found

    def _whole(self) -> str:
        return "\n".join([*self.code.hosts, *self.code.helpers, self.code.body])

    def _title(self) -> str:
        needs = "NumPy, Numba and SciPy" if self.code.needs_scipy else "NumPy and Numba"
        return f"{self.name}: written by fnx {__version__}. It needs {needs}."

    def _function(self) -> str:
        """The function that users call: of trees of arrays."""
        names = list(self.arguments)
        lines = [f"def {self.name}({', '.join(names)}):", *self._docstring()]
        values = [f"constant{k}" for k in range(len(self.consts))]
        empty = self.program.empty
        avals = iter(self.traced._avals())
        for k, (head, path) in enumerate(self.paths):
            aval = next(avals)
            if k in empty.inputs:
                continue
            read = head + "".join(map(_read, path))
            shape, dtype = tuple(aval.shape), dtypes.NAME[aval.dtype]
            values.append(f'_given("{_quoted(read)}", {read}, {shape}, np.{_numpys(dtype)})')
        shapes = [(tuple(b.shape), dtypes.NAME[b.dtype]) for b in self.program.jaxpr.out_avals]
        made = [f"np.empty({s}, np.{_numpys(d)})" for s, d in shapes]
        outs = [f"out{k}" for k in range(len(made))]
        lines += [f"    {o} = {m}" for o, m in zip(outs, made)]
        flat = [f"_flat({v})" for v in [*values, *outs]]
        lines += [f"    {self.code.entry}(", *[f"        {v}," for v in flat], "    )"]
        return _HELP + "\n\n" + "\n".join([*lines, f"    return {self._built(outs)}"]) + "\n"

    def _built(self, outs: Sequence[str]) -> str:
        """The text of the tree of results."""
        leaves = [""] * len(self.out_names)
        for k, o in zip(self.live, outs):
            leaves[k] = o
        for k, x in self.program.empty.outs.items():
            leaves[k] = f'np.zeros({tuple(x.shape)}, [("float0", "V")])'
        tree = operations.tree_unflatten(self.traced.out_tree, [_Text(t) for t in leaves])
        return self._tree(tree)

    def _tree(self, tree: Any) -> str:
        return _tree_text(tree, self.kinds)

    def _docstring(self) -> list[str]:
        lines = [f'"""{self._signature()}', ""]
        avals = self.traced._avals()
        lines += ["Arguments:"] + [
            f"    {head}{''.join(map(_read, path))}: {_type(a)}"
            for (head, path), a in zip(self.paths, avals)
        ] * bool(self.paths)
        types = self.traced.out_info
        found = operations.tree_leaves_with_path(types)
        lines += ["Returns:"]
        lines += [
            f"    {''.join(map(_read, path)) or 'the result'}: {_type(t)}" for path, t in found
        ]
        lines += ["", *self._example(), '"""']
        return [("    " + line).rstrip() for line in lines]

    def _signature(self) -> str:
        doc = (inspect.getdoc(self.f) or "").strip().splitlines()
        first = doc[0].replace("\\", "\\\\").replace('"""', "'''") if doc else ""
        return first or f"{self.name}, for arrays of these shapes and dtypes."

    def _example(self) -> list[str]:
        args, shown = [], []
        for name, value in self.arguments.items():
            tree = operations.tree_map(lambda x: _Text(_example(np.asarray(x))), value)
            shown.append(f"{name} = {self._tree(tree)}")
            args.append(name)
        lines = [f">>> {line}" for line in shown]
        lines.append(f">>> found = {self.name}({', '.join(args)})")
        for path, t in operations.tree_leaves_with_path(self.traced.out_info)[:4]:
            leaf = "found" + "".join(map(_read, path))
            lines += [
                f">>> {leaf}.shape, {leaf}.dtype.name",
                repr((tuple(t.shape), np.dtype(t.dtype).name)),
            ]
        return lines


def _free(name: str) -> str:
    """A name that nothing else in the file has."""
    taken = name in _TAKEN or keyword.iskeyword(name) or name.rstrip("0123456789") in _NUMBERED
    return f"{name}_" if taken else name


def _names(f: Callable, given: tuple, args: tuple, static: Any) -> list[str]:
    """What the positional arguments are called."""
    signature = signature_of(f)
    found: list[str] = []
    if signature is not None:
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for p in signature.parameters.values():
            if p.kind in kinds:
                found.append(p.name)
            elif p.kind is inspect.Parameter.VAR_POSITIONAL:
                found += [f"{p.name}{k}" for k in range(len(given) - len(found))]
    found += [f"x{k}" for k in range(len(found), len(given))]
    if len(args) < len(given):
        dropped = {k % len(given) for k in static.numbers if k < len(given)}
        found = [n for k, n in enumerate(found) if k not in dropped]
    return found[: len(args)]


def _joined(head: str, path: Sequence[Any]) -> str:
    """A name for a leaf: `params_w` for `params["w"]`."""
    words = [str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", "")))) for k in path]
    return "_".join(["".join(c if c.isalnum() else "_" for c in w) for w in [head, *words]])


def _read(key: Any) -> str:
    """How a child is read from its node."""
    if hasattr(key, "key") and not isinstance(key.key, (str, int, float, bool, tuple, type(None))):
        raise InvalidValue(
            f"export.python: a dict with the key {key.key!r}; expected text or numbers"
        )
    if not any(hasattr(key, kind) for kind in ("key", "name", "idx")):
        raise InvalidValue(
            f"export.python: nodes whose children have no names ({key!r}); expected dicts, lists, tuples, "
            "or classes that are registered with key paths"
        )
    return str(key)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _type(aval: Any) -> str:
    return f"{dtypes.NAME.get(aval.dtype, 'float0')}[{', '.join(map(str, aval.shape))}]"


def _numpys(dtype: str) -> str:
    """The name of a dtype in NumPy's namespace."""
    return "bool_" if dtype == "bool" else dtype


class _Text:
    """A leaf that stands for a text of Python."""

    def __init__(self, text: str):
        self.text = text


def _tree_text(tree: Any, kinds: dict[tuple, str]) -> str:
    """The text of a tree; objects of classes become namespaces, named tuples are of the `kinds`."""
    inner = partial(_tree_text, kinds=kinds)
    if isinstance(tree, _Text):
        return tree.text
    if tree is None:
        return "None"
    if type(tree) is dict:
        return "{" + ", ".join(f"{k!r}: {inner(v)}" for k, v in tree.items()) + "}"
    if type(tree) is list:
        return "[" + ", ".join(map(inner, tree)) + "]"
    if type(tree) is tuple:
        return "(" + ", ".join(map(inner, tree)) + ("," if len(tree) == 1 else "") + ")"
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        kind = kinds.setdefault((type(tree).__name__, tree._fields), f"_Tuple{len(kinds)}")
        return f"{kind}({', '.join(map(inner, tree))})"
    found = operations.tree_leaves_with_path(tree, lambda x: x is not tree)
    if all(hasattr(path[0], "name") for path, _ in found):
        named = ", ".join(f"{path[0].name}={inner(v)}" for path, v in found)
        return f"types.SimpleNamespace({named})"
    if all(hasattr(path[0], "key") for path, _ in found):
        return "{" + ", ".join(f"{path[0].key!r}: {inner(v)}" for path, v in found) + "}"
    return "(" + "".join(f"{inner(v)}, " for _, v in found) + ")"


# --- arrays ------------------------------------------------------------------------------------


def _number(x: Any) -> str:
    if isinstance(x, complex):
        return f"complex({_number(x.real)}, {_number(x.imag)})"
    if isinstance(x, float) and not np.isfinite(x):
        return {"nan": "np.nan", "inf": "np.inf"}.get(repr(x), "-np.inf")
    return repr(x)


def _nested(x: Any) -> str:
    return "[" + ", ".join(map(_nested, x)) + "]" if isinstance(x, list) else _number(x)


def _example(x: np.ndarray) -> str:
    """A short text of an array of this type."""
    dtype = f"np.{_numpys(x.dtype.name)}"
    if not x.ndim:
        return f"{dtype}({_number(x.item())})"
    if x.size <= _WRITTEN // 2:
        return (
            f"np.array({_nested(x.tolist())}, {dtype})"
            if x.size
            else f"np.zeros({x.shape}, {dtype})"
        )
    return f"np.full({x.shape}, {_number(x.flat[0].item())}, {dtype})"


def _literal(x: np.ndarray) -> str:
    """The text of an array with all its numbers."""
    if 0 < x.size <= _WRITTEN:
        return f"np.array({_nested(x.tolist())}, np.{_numpys(x.dtype.name)})"
    data = base64.b85encode(zlib.compress(np.ascontiguousarray(x).tobytes(), 9)).decode()
    lines = "\n".join(f"    {line!r}" for line in textwrap.wrap(data, 88)) or '    ""'
    return f"_unpacked(\n    {x.shape}, np.{_numpys(x.dtype.name)},\n{lines}\n)"


_UNPACKED = """def _unpacked(shape, dtype, text):
    \"\"\"An array from its compressed bytes.\"\"\"
    return np.frombuffer(zlib.decompress(base64.b85decode(text)), dtype).reshape(shape)"""

_HELP = """def _given(name, x, shape, dtype):
    \"\"\"An argument as an array of the shape and dtype that this code is for.\"\"\"
    x = np.asarray(x)
    if x.shape != shape:
        raise ValueError(f"{name} has the shape {x.shape}; this code is for {shape}")
    if not np.can_cast(x.dtype, dtype, "same_kind"):
        raise TypeError(f"{name} has the dtype {x.dtype}; this code is for {np.dtype(dtype)}")
    return np.ascontiguousarray(x, dtype)


def _flat(x):
    \"\"\"An array as the compiled code takes it: one axis, float16 as its bits.\"\"\"
    return x.reshape(-1).view(np.uint16) if x.dtype == np.float16 else x.reshape(-1)
"""

_MAIN = """

if __name__ == "__main__":
    import doctest

    print(doctest.testmod())
"""

__all__ = ["Source", "python"]
