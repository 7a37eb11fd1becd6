"""jit: traces a function once for each signature of its arguments, and calls native code.

Calls go the shortest way first: leaves are flattened by code made for their structure, and the
program that ran last is offered them; native code checks their types and answers NotImplemented if
they are not its own.
"""

import inspect
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial, update_wrapper
from importlib import import_module
from typing import Any

import numpy as np

from fnx.core import config
from fnx.core.array import Array, as_array, is_array_like
from fnx.core.buffer import Buffer
from fnx.core.errors import InvalidValue, TypeMismatch, entrance, hide_frames
from fnx.core.interpreter import current, evaluate
from fnx.core.lazy_imports import repr_html
from fnx.core.source import brief
from fnx.interpreters import trace_cache
from fnx.interpreters.rewrite import counted
from fnx.interpreters.spmd import bound_axes
from fnx.interpreters.trace import CapturedRefs, trace
from fnx.process import placement
from fnx.process.placement import placed_all
from fnx.pytree import operations
from fnx.pytree.flatten_fun import aval_like, flatten_arrays, name_of
from fnx.transforms.aot import Lowered, Traced
from fnx.transforms.make_jaxpr import flatten_types
from fnx.transforms.mutable_refs import Ref, carrying, check_distinct, new_ref, still_there, write
from fnx.transforms.static_args import Fixed, Static, donated_leaves
from fnx.transforms.traced_program import (
    BACKEND,
    Empty,
    Forbidden,
    Program,
    backend_of,
    check_options,
    without_collections,
)

flatten = operations.tree_flatten
overridden = config.overridden
_MANY = 256  # static values whose programs are called the short way
_RECENT = 4  # programs of one function that are tried so


class _Signature:
    """That of the function inside, for `inspect.signature` even where it does not look inside."""

    def __get__(self, instance: Any, owner: Any = None) -> inspect.Signature:
        if instance is None:
            raise AttributeError("__signature__")
        return inspect.signature(instance.fun)


class Jitted:
    """A function that is traced and compiled for each new signature; made by `jit`."""

    __signature__ = _Signature()

    def __init__(self, fun: Callable, static: Static, donated: Static, options: dict):
        update_wrapper(self, fun)
        self.fun = fun
        self.static = static
        self.donated = donated
        self.options = options
        self._programs: dict[Any, Any] = {}  # by signature; with mutable references, functions
        self._refs: tuple[Ref, ...] = ()  # those that the function uses from outside
        # The programs that ran last, for each of the values of static arguments.
        self._last: tuple[Program, ...] = ()  # without static arguments
        self._recent: dict[Fixed, tuple[Program, ...]] = {}
        self.plain = not static.any
        # Jitted functions of one kind share what they made of one function.
        self.kind: tuple | None = None
        if not options["compiler"]:
            chosen = *(options[k] for k in ("backend", "inline", "keep_unused")), static.key
            self.kind = *chosen, donated.key
        self.places: Callable | None = (
            None  # how results, a tree and their types, say that they lie
        )

    def __getstate__(self) -> dict:
        """What pickles by value have (cloudpickle's): the function, and nothing of its programs."""
        nothing: dict[str, Any] = {"_programs": {}, "_recent": {}, "_last": (), "_refs": ()}
        return self.__dict__ | nothing

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            fixed: Fixed = ()
            if self.plain:
                last = self._last
            else:
                given = args, kwargs
                args, kwargs, fixed = self.static.split(args, kwargs)
                last = self._recent.get(fixed, ())
            if last and current.get() is evaluate and not overridden.get():
                for program in last:
                    try:
                        leaves = program.take(args, kwargs)
                    except KeyError:
                        continue
                    if leaves is not None:
                        try:
                            outs = program.run(leaves)
                        except KeyboardInterrupt as error:
                            from fnx.lowering.cpu.loader.progress import interrupted

                            interrupted(error, program.jaxpr)
                            raise
                        if outs is not NotImplemented:
                            return program.build(outs)
            if config.disable_jit.value:
                args, kwargs = (args, kwargs) if self.plain else given
                return self.fun(*args, **kwargs)
            return self._call(args, kwargs, fixed)
        except Exception as error:
            hide_frames(error)
            raise

    def _call(self, args: tuple, kwargs: dict, fixed: Fixed) -> Any:
        leaves, treedef = flatten((args, kwargs))
        held = tuple([k for k, x in enumerate(leaves) if type(x) is Ref])
        if held or self._refs:
            return self._call_with_refs(leaves, treedef, fixed, held)
        arrays = self._arrays(leaves)
        try:
            program = self._program(arrays, treedef, fixed)
        except CapturedRefs as found:
            self._refs = still_there(found)
            return self._call(args, kwargs, fixed)
        given = Empty.without(program.empty.inputs, arrays)
        if Buffer.exist and current.get() is evaluate:
            outs = placement.run(self.fun, program, given, args, kwargs)
        else:
            outs = program(given)
        quick = program.run is not None and program.take is not None and not program.of_mesh
        if quick and not overridden.get():
            self._remember(program, fixed)
        return program.build(outs)

    def _call_with_refs(self, leaves: list, treedef: Any, fixed: Fixed, held: tuple) -> Any:
        """The call as one of a function that gets and returns what mutable references hold.

        Those are the arguments number `held`, and the ones that the function uses from outside.
        """
        refs = self._refs
        kinds = tuple([leaves[k]._kind for k in held])
        key = "refs", treedef, fixed, held, kinds, refs
        if key not in self._programs:
            carried = carrying(self.fun, refs)

            def pure(values: list, leaves: list) -> tuple:
                kind = dict(zip(held, kinds))
                given = [new_ref(x, kind=kind[k]) if k in kind else x for k, x in enumerate(leaves)]
                args, kwargs = operations.tree_unflatten(treedef, given)
                args, kwargs = self.static.join(args, kwargs, fixed)
                values, out = carried(values, *args, **kwargs)
                return values, [given[k].value for k in held], out

            pure.__name__ = name_of(self.fun)
            self._programs[key] = jit(pure, backend=self.options["backend"].name)
        plain = [x.value if k in held else x for k, x in enumerate(leaves)]
        try:
            values, ends, out = self._programs[key]([r.value for r in refs], plain)
        except CapturedRefs as found:
            self._refs = (*refs, *still_there(found))
            return self._call_with_refs(leaves, treedef, fixed, held)
        # Those from outside may be known to the program that was called alone.
        outside = [*refs, *self._programs[key]._refs]
        check_distinct([*outside, *(leaves[k] for k in held)], f"jit of {name_of(self.fun)}")
        write(refs, values)
        write([leaves[k] for k in held], ends)
        return out

    def _remember(self, program: Program, fixed: Fixed) -> None:
        before = self._last if self.plain else self._recent.get(fixed, ())
        now = (program, *[p for p in before if p is not program][: _RECENT - 1])
        if self.plain:
            self._last = now
        else:
            if len(self._recent) >= _MANY:
                self._recent.clear()
            self._recent[fixed] = now

    def _arrays(self, leaves: list) -> list[Array]:
        arrays = []
        for x in leaves:
            if not is_array_like(x):
                raise TypeMismatch(
                    f"an argument of the jitted function {name_of(self.fun)} is not an array: "
                    f"{type(x).__name__}: {brief(x, 80)}. Expected arrays, numbers or pytrees of them; "
                    "mark the argument static (static_argnums, static_argnames) if it is hashable."
                )
            arrays.append(as_array(x))
        return arrays

    def _program(self, arrays: Sequence[Any], treedef: Any, fixed: Fixed) -> Program:
        avals = tuple([x.aval if isinstance(x, Array) else aval_like(x) for x in arrays])
        names = [] if current.get() is evaluate else [a.vma for a in avals]
        axes = (*bound_axes().items(), *names) if any(names) else tuple(bound_axes().items())
        lies = placement.places_of(arrays) if placement.used else ()
        around = axes, lies, placement.mesh_in_force.get()
        key = (treedef, fixed, avals, config.of_traces(), config.backend.value, *around)
        program = self._programs.get(key)
        if program is None or not program.alive:
            outside, program = self._traced_before(key)
        if program is None or not program.alive:
            if config.no_tracing.value:
                raise Forbidden(f"{name_of(self.fun)} would be traced anew, and no_tracing is set")
            if config.explain_cache_misses.value:
                seen = [k for k in self._programs if k[0] != "refs"]
                import_module("fnx.process.compile_log").explain_miss(self.fun, key, seen)
            program = self._programs[key] = self._trace(avals, treedef, fixed, lies)
            trace_cache.keep(self.fun, (self.kind, key), outside, program)
            if config.retrace_notes.value:
                import_module("fnx.process.retraces").look(self.fun, self.static, key[:3])
        placement.mesh_reads[0] += program.of_mesh  # what is traced around it is, too
        return program

    def _traced_before(self, key: tuple) -> tuple[list | None, Any]:
        """What the function sees from outside, if it may be told others; and a program that it was told."""
        if self.kind is None or self.places is not None:
            return None, None
        outside, program = trace_cache.find(self.fun, (self.kind, key))
        if program is not None and program.alive:
            self._programs[key] = program
        return outside, program

    def _trace(self, avals: tuple, treedef: Any, fixed: Fixed, lies: tuple = ()) -> Program:
        start = time.perf_counter()
        name = name_of(self.fun)
        structures: list = []
        empty = Empty({k: np.zeros(a.shape, a.dtype) for k, a in Empty.among(avals).items()}, {})

        def flat(*xs: Array) -> list[Array]:
            given = Empty.within(empty.inputs, xs)
            if lies:
                given = import_module("fnx.process.constraints").constrained_all(given, lies)
            args, kwargs = operations.tree_unflatten(treedef, given)
            args, kwargs = self.static.join(args, kwargs, fixed)
            out = self.call(args, kwargs)
            arrays, structure = flatten_arrays(out, f"results of {name}")
            structures.append(structure)
            empty.outs = {k: np.asarray(x) for k, x in Empty.among(arrays).items()}
            return Empty.without(empty.outs, arrays)

        values = Empty.without(empty.inputs, avals)
        reads = placement.mesh_reads[0]
        with without_collections():
            jaxpr, consts = counted(*trace(flat, values, what=f"jit of {name}", name=name))
        check_options(self.options["compiler"])
        inline, backend = self.options["inline"], self.options["backend"]
        donated = donated_leaves(self.donated, self.static, treedef, fixed, empty.inputs)
        program = Program(
            jaxpr, consts, treedef, structures[0], name, inline, empty, donated, backend
        )
        program.lies, program.of_mesh = lies, placement.mesh_reads[0] != reads
        if self.places is not None and not empty.outs:
            tree = operations.tree_unflatten(structures[0], list(jaxpr.outs))
            program.mark(self.places(tree, jaxpr.out_avals))
        seconds = program.seconds["trace"] = time.perf_counter() - start
        if config.log_compiles.value:
            import_module("fnx.process.compile_log").tell_traced(self.fun, avals, seconds)
        return program

    def call(self, args: tuple, kwargs: dict) -> Any:
        """What is traced."""
        return self.fun(*args, **kwargs)

    # --- ahead of time --------------------------------------------------------------------------

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """The jaxpr for these arguments (arrays or ShapeDtypeStructs)."""
        fixed: Fixed = ()
        if not self.plain:
            args, kwargs, fixed = self.static.split(args, kwargs)
        leaves, treedef = flatten_types((args, kwargs))
        return Traced(self._program(leaves, treedef, fixed), treedef, self.static)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The program for these arguments: `as_text` shows it, `compile` makes native code."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of the results for these arguments."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Forget all programs."""
        trace_cache.forget(self.fun)
        self._programs.clear()
        self.forget_last()

    def forget_last(self) -> None:
        """Let the next call look for its program anew."""
        self._last = ()
        self._recent.clear()

    def _cache_size(self) -> int:
        return len(self._programs)

    def __repr__(self) -> str:
        return f"<CompiledFunction of {name_of(self.fun)}>"

    _repr_html_ = repr_html


class PlacedJitted(Jitted):
    """A jitted function whose arguments and results lie as was asked for."""

    def __init__(self, in_shardings: Any, out_shardings: Any, *given: Any):
        super().__init__(*given)
        self.kind = None  # each is its own
        self.in_shardings, self.out_shardings = in_shardings, out_shardings

    def call(self, args: tuple, kwargs: dict) -> Any:
        if self.in_shardings is not None:
            places = self.in_shardings
            places = tuple(places) if isinstance(places, list) else places
            args, kwargs, fixed = self.static.split(args, kwargs)  # static ones lie nowhere
            args = import_module("fnx.process.constraints").laid(args, places)
            args, kwargs = self.static.join(args, kwargs, fixed)
        out = self.fun(*args, **kwargs)
        if self.out_shardings is None:
            return out
        return import_module("fnx.process.constraints").laid(out, self.out_shardings)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        out = super().__call__(*args, **kwargs)
        return out if self.out_shardings is None else placed_all(out, self.out_shardings)


CompilerOptions = dict[str, str | bool]
_jitted: "weakref.WeakKeyDictionary[Jitted, None]" = weakref.WeakKeyDictionary()  # for clear_caches


def _all_jitted() -> list[Jitted]:
    """Those that there are now; other threads make some meanwhile."""
    return [f for r in _jitted.keyrefs() if (f := r()) is not None]


def _backend_of(device: Any, backend: str | None) -> str | None:
    """The backend of a device that jit was told."""
    platform = getattr(device, "platform", None)
    if platform not in ("cpu", "gpu"):
        raise InvalidValue(f"jit(device={brief(device)}); expected a device, as of fnx.devices()")
    if backend is not None:
        raise InvalidValue("jit got a device and a backend; expected one of both")
    return "cuda" if platform == "gpu" else None


@entrance
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
    the function is compiled for each of their values. Without `fun`, a decorator. Results are computed
    in the memory of donated arguments where that can be; such arrays are deleted. `in_shardings` and
    `out_shardings`, pytree prefixes, say how arguments and results lie on a mesh of devices, which then
    compute their parts. `backend` is "cpu",
    "cuda", "numba" or "reference", by default what the setting of that name says. TypeError for
    arguments that are not arrays, ValueError for static ones that cannot be hashed,
    and for a backend that there is not.

    >>> fnx.jit(lambda x: 2.0 * x)(3.0)
    Array(6., dtype=float64, weak_type=True)
    """
    options: dict[str, Any] = {
        "inline": inline,
        "keep_unused": keep_unused,
        "compiler": compiler_options,
    }
    options["backend"] = backend_of(backend if device is None else _backend_of(device, backend))

    def make(f: Callable) -> Jitted:
        if not callable(f):
            raise TypeMismatch(f"jit needs a function, got {type(f).__name__}: {brief(f, 80)}")
        if inspect.isgeneratorfunction(f):
            raise TypeMismatch(
                f"jit needs a function, got the generator {name_of(f)}; return arrays"
            )
        static = Static(f, static_argnums, static_argnames)
        given = Static(f, donate_argnums, donate_argnames, "donate")
        both = {*static.numbers, *static.names} & {*given.numbers, *given.names}
        if both:
            raise InvalidValue(
                f"arguments {sorted(map(str, both))} of {name_of(f)} are both static and donated; expected "
                "one of both"
            )
        if in_shardings is None and out_shardings is None:
            made = Jitted(f, static, given, options)
        else:
            made = PlacedJitted(in_shardings, out_shardings, f, static, given, options)
        _jitted[made] = None
        return made

    return make if fun is None else make(fun)


def clear_caches() -> None:
    """Forget every traced and compiled program of this process; the cache on disk stays.

    >>> fnx.clear_caches()
    """
    from fnx.lowering.cpu.loader import symbols

    trace_cache.forget()
    symbols.forget()
    numba_load = sys.modules.get("fnx.lowering.numba.load")
    if numba_load is not None:
        numba_load.forget()
    for f in _all_jitted():
        f.clear_cache()


def _forget_last() -> None:
    for f in _all_jitted():
        f.forget_last()


config.hooks.append(_forget_last)

__all__ = ["BACKEND", "Jitted", "clear_caches", "jit"]
