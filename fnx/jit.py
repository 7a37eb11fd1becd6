"""jit: traces a function once for each signature of its arguments, and calls native code.

Calls go the shortest way first: leaves are flattened, and the program that ran last is offered
them; native code checks their types and answers NotImplemented if they are not its own.
"""

import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial, update_wrapper
from typing import Any

from fnx import tree_util
from fnx.api import ShapeDtypeStruct, aval_like, flatten_arrays, name_of, signature_of
from fnx.core import config, treecode
from fnx.core.array import Array, ConcreteArray, as_array, is_array_like
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.core.interpreter import current, evaluate
from fnx.core.jaxpr import Jaxpr
from fnx.interpreters.call import Jit, compiled
from fnx.interpreters.trace import trace

flatten = tree_util.tree_flatten


class NativeBackend:
    """The backend that the setting `backend` names, loaded when it is first needed."""

    name = "native"

    def compile(self, jaxpr: Jaxpr, donated: Any = ()) -> Any:
        if config.backend.value == "reference":
            from fnx.lowering import reference

            return reference.backend.compile(jaxpr, donated)
        from fnx.lowering import cpu

        return cpu.backend.compile(jaxpr, donated)


BACKEND = NativeBackend()


class Program:
    """One signature of a jitted function: its jaxpr, and, once it ran, its native code."""

    __slots__ = ("build", "consts", "jaxpr", "name", "run", "seconds", "structure")

    def __init__(self, jaxpr: Jaxpr, consts: list[Array], structure: Any, name: str):
        self.jaxpr, self.consts, self.structure, self.name = jaxpr, consts, structure, name
        self.build = treecode.builder(structure) or structure.unflatten
        self.run: Any = None  # native: list of arrays -> list of arrays, or NotImplemented
        self.seconds: dict[str, float] = {}

    def compiled(self) -> Any:
        return compiled(self.jaxpr, BACKEND)

    def bind(self, leaves: Sequence[Array]) -> list[Array]:
        prim = Jit(self.jaxpr, self.name, BACKEND)
        return list(prim.bind(*self.consts, *leaves))


class Jitted:
    """A function that is traced and compiled for each new signature; made by `jit`."""

    def __init__(self, fun: Callable, static: "_Static", donated: tuple, options: dict):
        update_wrapper(self, fun)
        self.fun = fun
        self.static = static
        self.donated = donated
        self.options = options
        self._programs: dict[Any, Program] = {}
        self._last: tuple[Program, Callable] | None = None  # what ran last, and how to flatten for it

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        last = self._last
        if last is not None and current.get() is evaluate:
            program, take = last
            try:
                leaves = take((args, kwargs))
            except KeyError:
                leaves = None
            if leaves is not None:
                outs = program.run(leaves)
                if outs is not NotImplemented:
                    return program.build(outs)
        return self._call(args, kwargs)

    def _call(self, args: tuple, kwargs: dict) -> Any:
        if config.disable_jit.value:
            return self.fun(*args, **kwargs)
        leaves, treedef, fixed = self._split(args, kwargs)
        arrays = self._arrays(leaves)
        program = self._program(arrays, treedef, fixed)
        if current.get() is evaluate and all(type(x) is ConcreteArray for x in arrays):
            outs = self._run(program, arrays)
            if not fixed and program.run is not None:
                take = treecode.flattener(treedef)
                self._last = None if take is None else (program, take)
            return program.build(outs)
        return program.build(program.bind(arrays))

    def _run(self, program: Program, arrays: list[Array]) -> list[Array]:
        native = program.compiled()
        if program.run is None and not program.consts:
            program.run = getattr(native, "fast", None)
        return native([*program.consts, *arrays])

    def _arrays(self, leaves: list) -> list[Array]:
        arrays = []
        for x in leaves:
            if not is_array_like(x):
                raise TypeMismatch(
                    f"an argument of the jitted function {name_of(self.fun)} is not an array: "
                    f"{type(x).__name__}: {x!r:.80}. Expected arrays, numbers or pytrees of them; mark "
                    "the argument static (static_argnums, static_argnames) if it is hashable."
                )
            arrays.append(as_array(x))
        return arrays

    def _split(self, args: tuple, kwargs: dict) -> tuple[list, Any, tuple]:
        """Leaves of the dynamic arguments, their structure, and the static arguments."""
        if not self.static.any:
            return *flatten((args, kwargs)), ()
        args, kwargs, fixed = self.static.split(args, kwargs, name_of(self.fun))
        return *flatten((args, kwargs)), fixed

    def _program(self, arrays: Sequence[Any], treedef: Any, fixed: tuple) -> Program:
        avals = tuple([x.aval if isinstance(x, Array) else aval_like(x) for x in arrays])
        key = (treedef, fixed, avals, config.default_float32.value)
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = self._trace(avals, treedef, fixed)
        return program

    def _trace(self, avals: tuple, treedef: Any, fixed: tuple) -> Program:
        start = time.perf_counter()
        name = name_of(self.fun)
        structures: list = []

        def flat(*xs: Array) -> list[Array]:
            args, kwargs = tree_util.tree_unflatten(treedef, xs)
            args, kwargs = self.static.join(args, kwargs, fixed)
            arrays, structure = flatten_arrays(self.fun(*args, **kwargs), f"results of {name}")
            structures.append(structure)
            return arrays

        jaxpr, consts = trace(flat, avals, what=f"jit of {name}", name=name)
        program = Program(jaxpr, consts, structures[0], name)
        program.seconds["trace"] = time.perf_counter() - start
        return program

    # --- ahead of time -----------------------------------------------------------------------------

    def trace(self, *args: Any, **kwargs: Any) -> "Traced":
        """The jaxpr for these arguments (arrays or ShapeDtypeStructs)."""
        leaves, treedef, fixed = self._split(args, kwargs)
        return Traced(self._program(leaves, treedef, fixed), treedef, self.static)

    def lower(self, *args: Any, **kwargs: Any) -> "Lowered":
        """The program for these arguments: `as_text` shows it, `compile` makes native code."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Forget all programs."""
        self._programs.clear()
        self._last = None

    def _cache_size(self) -> int:
        return len(self._programs)


class _Static:
    """Which arguments are static: by number and by name."""

    def __init__(self, fun: Callable, argnums: Any, argnames: Any):
        self.numbers = _ints(argnums)
        self.names = _strs(argnames)
        signature = signature_of(fun) if self.numbers or self.names else None
        self.count = None
        if signature is not None:
            self._complete(list(signature.parameters.values()), name_of(fun))
        self.any = bool(self.numbers or self.names)

    def _complete(self, parameters: list, name: str) -> None:
        """Numbers for names and names for numbers, as in the function's signature."""
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        variadic = any(p.kind == p.VAR_POSITIONAL for p in parameters)
        keywords = any(p.kind == p.VAR_KEYWORD for p in parameters)
        known = {p.name for p in parameters}
        for n in self.names:
            if n not in known and not keywords:
                raise InvalidValue(
                    f"static_argnames of {name} names {n!r}, which is not one of its parameters "
                    f"({', '.join(sorted(known))})"
                )
        numbers = []
        for k in self.numbers:
            if not variadic and not -len(positional) <= k < len(positional):
                raise InvalidValue(
                    f"static_argnums={k} is out of range: {name} has {len(positional)} positional "
                    "parameters"
                )
            numbers.append(k % len(positional) if k < 0 else k)
        byname = [k for k, p in enumerate(positional) if p.name in self.names]
        names = [positional[k].name for k in numbers if k < len(positional)]
        self.numbers = tuple(dict.fromkeys([*numbers, *byname]))
        self.names = tuple(dict.fromkeys([*self.names, *names]))

    def split(self, args: tuple, kwargs: dict, name: str) -> tuple[tuple, dict, tuple]:
        numbers = [k % len(args) if k < 0 else k for k in self.numbers]
        fixed = [(k, args[k]) for k in sorted(numbers) if k < len(args)]
        fixed += [(n, kwargs[n]) for n in sorted(self.names) if n in kwargs]
        for where, value in fixed:
            try:
                hash(value)
            except TypeError as error:
                raise InvalidValue(
                    f"the static argument {where!r} of {name} is not hashable: "
                    f"{type(value).__name__}: {value!r:.80}. Static arguments are part of the key of "
                    "the compiled program: use a tuple instead of a list, or make it dynamic."
                ) from error
        places = {w for w, _ in fixed}
        rest = tuple(x for k, x in enumerate(args) if k not in places)
        named = {n: x for n, x in kwargs.items() if n not in places}
        return rest, named, tuple((w, type(v), v) for w, v in fixed)

    @staticmethod
    def join(args: tuple, kwargs: dict, fixed: tuple) -> tuple[tuple, dict]:
        if not fixed:
            return args, kwargs
        places = {w: v for w, _, v in fixed}
        rest = iter(args)
        full: list = []
        while True:
            if len(full) in places:
                full.append(places[len(full)])
                continue
            try:
                full.append(next(rest))
            except StopIteration:
                break
        return tuple(full), kwargs | {w: v for w, v in places.items() if isinstance(w, str)}


def _ints(x: Any) -> tuple[int, ...]:
    return () if x is None else (x,) if isinstance(x, int) else tuple(x)


def _strs(x: Any) -> tuple[str, ...]:
    return () if x is None else (x,) if isinstance(x, str) else tuple(x)


_jitted: "weakref.WeakSet[Jitted]" = weakref.WeakSet()  # for clear_caches


def jit(
    fun: Callable | None = None,
    /,
    *,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: dict[str, Any] | None = None,
) -> Any:
    """The function, compiled to native code for each new combination of shapes and dtypes.

    Arguments are arrays, numbers, and pytrees of them; those that are static must be hashable, and
    the function is compiled for each of their values. Without `fun`, a decorator. TypeError for
    arguments that are not arrays, ValueError for static ones that cannot be hashed.

    >>> jit(lambda x: 2.0 * x)(3.0)
    Array(6., dtype=float64, weak_type=True)
    """
    options = {"inline": inline, "keep_unused": keep_unused, "compiler": compiler_options}
    del in_shardings, out_shardings, device, backend

    def make(f: Callable) -> Jitted:
        if not callable(f):
            raise TypeMismatch(f"jit needs a function, got {type(f).__name__}: {f!r:.80}")
        static = _Static(f, static_argnums, static_argnames)
        made = Jitted(f, static, (_ints(donate_argnums), _strs(donate_argnames)), options)
        _jitted.add(made)
        return made

    return make if fun is None else make(fun)


def clear_caches() -> None:
    """Forget every traced and compiled program of this process; the cache on disk stays."""
    for f in list(_jitted):
        f.clear_cache()


# --- stages -------------------------------------------------------------------------------------------------


class Traced:
    """A traced function: `jaxpr`, `out_info`, `lower()`."""

    def __init__(self, program: Program, treedef: Any, static: _Static):
        self.program, self.treedef, self.static = program, treedef, static

    @property
    def jaxpr(self) -> Any:
        from fnx.core.jaxpr import ClosedJaxpr

        return ClosedJaxpr(self.program.jaxpr, self.program.consts)

    @property
    def out_info(self) -> Any:
        avals = self.program.jaxpr.out_avals
        shapes = [ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals]
        return tree_util.tree_unflatten(self.program.structure, shapes)

    def lower(self) -> "Lowered":
        return Lowered(self.program, self.treedef, self.static)


class Lowered:
    """A program before it is compiled.

    `as_text(dialect)` shows it as "jaxpr", "kernel" (the Kernel IR), "numba" (runnable Python),
    "llvm" or "asm".
    """

    def __init__(self, program: Program, treedef: Any, static: _Static):
        self.program, self.treedef, self.static = program, treedef, static

    out_info = Traced.out_info

    def as_text(self, dialect: str | None = None) -> str:
        if dialect in (None, "jaxpr"):
            return str(self.program.jaxpr)
        native = self.program.compiled()
        texts = {
            "kernel": native.kernel_text,
            "numba": native.numba_text,
            "llvm": native.llvm_text,
            "asm": native.asm,
        }
        if dialect not in texts:
            raise InvalidValue(
                f"unknown dialect {dialect!r}; expected one of jaxpr, {', '.join(texts)}"
            )
        return texts[dialect]()

    def compiler_ir(self, dialect: str | None = None) -> str:
        return self.as_text(dialect or "llvm")

    def compile(self, compiler_options: Any = None) -> "Compiled":
        del compiler_options
        self.program.compiled()
        return Compiled(self.program, self.treedef, self.static)

    def cost_analysis(self) -> dict[str, float]:
        return self.program.compiled().cost_analysis()

    def __str__(self) -> str:
        return self.as_text()


class Compiled:
    """A compiled program, called with arguments of the types that it was compiled for.

    `seconds` tells how long tracing and each pass of the compiler took.
    """

    def __init__(self, program: Program, treedef: Any, static: _Static):
        self.program, self.treedef, self.static = program, treedef, static

    out_info = Traced.out_info

    @property
    def seconds(self) -> dict[str, float]:
        return {**self.program.seconds, **self.program.compiled().seconds}

    def as_text(self) -> str:
        return self.program.compiled().asm()

    def report(self) -> str:
        """Kernels, fusion, library and host calls, buffers and bytes."""
        return self.program.compiled().report()

    def cost_analysis(self) -> dict[str, float]:
        return self.program.compiled().cost_analysis()

    def memory_analysis(self) -> Any:
        return self.program.compiled().memory_analysis()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.static.any:
            args, kwargs, _ = self.static.split(args, kwargs, self.program.name)
        leaves, treedef = flatten((args, kwargs))
        if treedef != self.treedef:
            raise TypeMismatch(
                f"a compiled function was called with arguments of structure {treedef}; it was "
                f"compiled for {self.treedef}"
            )
        arrays = [as_array(x) for x in leaves]
        wanted = self.program.jaxpr.in_avals[len(self.program.consts) :]
        for x, aval in zip(arrays, wanted, strict=True):
            if not x.aval.like(aval):
                raise TypeMismatch(
                    f"a compiled function was called with an argument of type {x.aval}; it was "
                    f"compiled for {aval}. Convert the argument, or call the jitted function."
                )
        if all(type(x) is ConcreteArray for x in arrays):
            return self.program.build(self.program.compiled()([*self.program.consts, *arrays]))
        return self.program.build(self.program.bind(arrays))
