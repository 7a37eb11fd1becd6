"""`pytest -p private_jax` in a checkout of JAX: what its own tests use of its private modules, for fnx.

JAX's tests compare with its `test_util`, which is taken from the checkout as it is. The private modules
that it and the tests import have what fnx has under that name, or a public module of JAX's; any other name
of theirs is an `Absent`, and a test that makes use of one is skipped, and says which.
"""

import functools
import importlib
import importlib.util
import itertools
import math
import sys
import types
import unittest
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest
from absl.testing import parameterized

import fnx.jax
from fnx.jax.finder import Finder, ServedModule, server

PRIVATE = "jax._src"
# Of the checkout: what the tests are written with, which computes with NumPy alone.
OF_TESTS = "test_util test_loader test_warning_util public_test_util lax_reference".split()
OF_TESTS += ["internal_test_util", "internal_test_util.lax_test_util"]
OF_TESTS = [f"{PRIVATE}.{name}" for name in OF_TESTS] + ["jax.experimental.sparse.test_util"]
# Where public names stand that tests take from private modules.
PUBLIC = "lax numpy tree_util sharding core extend.core dtypes errors api_util custom_derivatives "
PUBLIC += (
    "stages random numpy.linalg lax.linalg interpreters.ad interpreters.batching ad_checkpoint "
)
PUBLIC += "export experimental.pjit custom_batching typing"

COUNTERS = "assert_num_jit_and_pmap_compilations", "collect_lowered_jaxprs"

_running = False  # whether a test runs, rather than the files being read


class Absent:
    """A name of JAX's that fnx does not have: it can stand in a file; a test that uses it is skipped, or,
    if the name is public, fails.
    """

    def __init__(self, name: str):
        self.__dict__["_name"] = name

    def _used(self, *args: Any, **kwargs: Any) -> Any:
        if _running:
            self._end()
        if len(args) == 1 and isinstance(args[0], types.FunctionType) and not kwargs:
            return functools.wraps(args[0])(lambda *_, **__: self._end())  # it decorates a test
        return Absent(f"{self._name}()")

    def _end(self) -> None:
        if "._" in self._name or self._name.endswith("_p"):  # a primitive, or private by its name
            raise SkipTest(f"uses {self._name}, which is private to JAX")
        raise AttributeError(f"fnx has no {self._name}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and (_running or name not in ("__name__", "__members__")):
            raise AttributeError(name)
        if name == "cache_clear":  # of a function that is not there: there is nothing to forget
            return lambda: None
        return {"__name__": self._name, "__members__": {}}.get(name) or Absent(
            f"{self._name}.{name}"
        )

    def __mro_entries__(self, bases: tuple) -> tuple:
        return ()

    def __bool__(self) -> bool:
        if _running:
            self._used()
        return False

    def __iter__(self) -> Iterator:
        self._used()
        return iter(())

    def __len__(self) -> int:
        self._used()
        return 0

    __hash__ = object.__hash__
    __call__ = __enter__ = __exit__ = __getitem__ = __setattr__ = _used
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __or__ = __add__ = _used  # type: ignore[assignment]
    __instancecheck__ = __contains__ = __int__ = __array__ = _used


class State:
    """A setting as `jax._src.config` has it: its value, and itself for a while when it is called."""

    def __init__(self, name: str, default: Any = None):
        self.name, self.default = name, default

    @property
    def value(self) -> Any:
        """What it is now."""
        try:
            return fnx.config.read(self.name)
        except AttributeError:
            return self.default

    def __call__(self, value: Any) -> Any:
        manager = getattr(fnx, self.name.removeprefix("jax_"), None)
        return manager(value) if callable(manager) else self._for_a_while(value)

    @contextmanager
    def _for_a_while(self, value: Any) -> Iterator[None]:
        before = self.value
        fnx.config.update(self.name, value)
        try:
            yield
        finally:
            fnx.config.update(self.name, before)


class Settings(types.ModuleType):
    """`jax._src.config`."""

    config_states = type("States", (dict,), {"__missing__": lambda self, name: State(name)})()
    config = types.SimpleNamespace(values={}, update=fnx.config.update)
    update = fnx.config.update
    _read = staticmethod(lambda name: State(name).value)
    bool_env = int_env = staticmethod(lambda name, default: default)
    bool_flag = int_flag = string_flag = staticmethod(
        lambda name, default, *a, **k: types.SimpleNamespace(value=default)
    )
    parse_flags_with_absl = staticmethod(lambda: None)
    enable_x64 = State("jax_enable_x64")
    # settings of JAX's with which its tests choose what to ask
    use_shardy_partitioner = State("jax_use_shardy_partitioner", True)
    use_simplified_jaxpr_constants = State("jax_use_simplified_jaxpr_constants", False)
    explicit_x64_dtypes = State("jax_explicit_x64_dtypes", "error")
    enable_custom_prng = State("jax_enable_custom_prng", False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if f"jax_{name}" in KNOWN_SETTINGS or hasattr(fnx, name):
            return State(f"jax_{name}")
        return Absent(f"{PRIVATE}.config.{name}")


KNOWN_SETTINGS = (
    "jax_numpy_rank_promotion jax_numpy_dtype_promotion jax_disable_jit jax_threefry_partitionable "
    "jax_traceback_filtering jax_default_matmul_precision jax_default_prng_impl jax_log_compiles "
    "jax_softmax_custom_jvp jax_debug_key_reuse jax_debug_nans jax_debug_infs jax_platforms "
    "jax_check_tracer_leaks jax_legacy_prng_key jax_enable_checks"
).split()


class _Primitives:
    """`dispatch.xla_primitive_callable`: nothing is compiled without jit."""

    cache_info = staticmethod(lambda: types.SimpleNamespace(misses=0))
    cache_clear = staticmethod(lambda: None)


class _Backend:
    """`xla_bridge.get_backend`, which remembers no backend."""

    cache_clear = staticmethod(lambda: None)

    def __call__(self, platform: Any = None) -> Any:
        from fnx.extend.backend import get_backend

        return get_backend(platform)


def _safe_map(f: Callable, *lists: Sequence) -> list:
    assert len({len(list(xs)) for xs in lists}) == 1, "lists of different lengths"
    return [f(*xs) for xs in zip(*lists)]


def _safe_zip(*lists: Sequence) -> list:
    return _safe_map(lambda *xs: xs, *lists)


def _default_types() -> dict[str, Callable]:
    import numpy as np

    from fnx import dtypes

    kinds = {"b": bool, "i": int, "u": np.uint64, "f": float, "c": complex}
    return {k: functools.partial(dtypes.canonicalize_dtype, v) for k, v in kinds.items()}


def _split_list(xs: Sequence, sizes: Sequence[int]) -> list:
    cuts = [0, *(sum(sizes[: k + 1]) for k in range(len(sizes))), len(xs)]
    return [list(xs[a:b]) for a, b in itertools.pairwise(cuts)]


def _extras(module: str) -> dict[str, Any]:
    """Names of a private module that JAX's own `test_util` is written with."""
    import numpy as np

    from fnx import dtypes
    from fnx.core.array import ConcreteArray
    from fnx.core.dtypes import to_inexact
    from fnx.jax.src.core import trace_state_clean

    never = staticmethod(lambda: False)
    kind = types.SimpleNamespace
    return {
        "array": {"ArrayImpl": ConcreteArray},
        "core": {"reset_trace_state": trace_state_clean},
        "cloud_tpu_init": {"running_in_cloud_tpu_vm": False},
        "compilation_cache": {"_cache": None},
        "dispatch": {
            "xla_primitive_callable": _Primitives,
            "runtime_tokens": kind(clear=lambda: None, block_until_ready=lambda: None),
        },
        "deprecations": {"is_accelerated": lambda name: False},
        "dtypes": {
            "to_inexact_dtype": lambda dtype: to_inexact(np.dtype(dtype)),
            "default_float_dtype": lambda: np.dtype(dtypes.canonicalize_dtype(float)),
            "int1": None,
            "uint1": None,
            "_intn_dtypes": [np.dtype(t) for t in ("int2", "uint2", "int4", "uint4")],
            "python_scalar_types_to_dtypes": {t: np.dtype(t) for t in (bool, int, float, complex)},
            "default_types": _default_types(),
        },
        "debugging": {
            "debug_print": fnx.debug.print,
            "debug_callback": fnx.debug.callback,
        },
        "lax.lax": {
            "remaining": lambda xs, *gone: [x for x in xs if all(x not in g for g in gone)]
        },
        "lib": {
            "version": (0, 10, 2),
            "jaxlib_extension_version": 10**6,
            "cuda_versions": None,
            "_jax": kind(
                is_asan=never, is_msan=never, is_tsan=never, is_sanitized=never,
                is_optimized_build=lambda: True,
            ),
        },
        "util": {
            "curry": lambda f: functools.partial(functools.partial, f),
            "cache": lambda *a, **k: functools.cache,
            "unzip2": lambda pairs: tuple(zip(*pairs)) or ((), ()),
            "safe_map": _safe_map,
            "safe_zip": _safe_zip,
            "split_list": _split_list,
            "install_failure_signal_handler": lambda: None,
        },
        "xla_bridge": {
            "num_cpu_devices": State("jax_num_cpu_devices", 1),
            "get_backend": _Backend(),
        },
    }.get(module, {})  # fmt: skip


class PrivateModule(types.ModuleType):
    """A private module: names that tests need, else fnx's, else those of public modules, else absent."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__ == PRIVATE:
            return importlib.import_module(f"{PRIVATE}.{name}")
        found = _found(self.__name__, name)
        self.__dict__[name] = found
        return found


def _found(module: str, name: str) -> Any:
    extras = _extras(module.removeprefix(f"{PRIVATE}."))
    if name in extras:
        return extras[name]
    public = [f"jax.{part}" for part in (module.removeprefix(f"{PRIVATE}."), *PUBLIC.split())]
    stored = ["ml_dtypes"] if module == f"{PRIVATE}.dtypes" else []
    for place in [*map(server, [module, "jax", *public]), *stored]:
        found = getattr(importlib.import_module(place), name, None) if place else None
        if found is not None and module.startswith(PRIVATE):
            inside = isinstance(found, types.ModuleType)
            return importlib.import_module(f"{module}.{name}") if inside else found
    return Absent(f"{module}.{name}")


class PrivateFinder(MetaPathFinder, Loader):
    """Finds the private modules of JAX."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Files of the checkout for what tests are written with, and modules of names for the others."""
        if name in OF_TESTS:
            place = Path(*name.split("."))
            file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            inside = [str(place.resolve())] if place.is_dir() else None
            return importlib.util.spec_from_file_location(
                name, file.resolve(), submodule_search_locations=inside
            )
        private = name == PRIVATE or name.startswith(f"{PRIVATE}.")
        missing = name.startswith("jax.") and not _running and server(name) is None
        return ModuleSpec(name, self, is_package=True) if private or missing else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        """Settings, or names."""
        return (Settings if spec.name == f"{PRIVATE}.config" else PrivateModule)(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to run."""


def _words_are_not_compared(case: Any, error: Any, words: Any, *args: Any, **kwargs: Any) -> Any:
    """`assertRaisesRegex`: the type of an error is asked for; its words are fnx's."""
    for one in error if isinstance(error, tuple) else (error,):
        bool(one)  # an absent one ends the test
    return case.assertRaises(error, *args, **kwargs)  # noqa: PT027


def _of_cases(decorated: Callable, kind: Any, cases: Any) -> Callable:
    """A test of parameters, which may have no cases where private values are absent."""
    try:
        return decorated(kind, cases)
    except parameterized.NoTestsError:
        return unittest.skip("all of its cases are of what is private to JAX")


_served = ServedModule.__getattr__


def _named(module: ServedModule, name: str) -> Any:
    """A name of a public module that fnx does not have can stand in a file of tests, too."""
    try:
        return _served(module, name)
    except AttributeError:
        asks = sys._getframe(1).f_globals.get("__name__", "")
        if _running or name.startswith("__") or not asks.endswith("_test"):
            raise
        full = f"jax{module.__name__.removeprefix('fnx')}.{name}"
        return importlib.import_module(full) if full in OF_TESTS else Absent(full)


def pytest_configure() -> None:
    """Take JAX's `test_util` from the checkout, without what counts events of XLA's compilations."""
    way = parameterized._parameter_decorator
    parameterized._parameter_decorator = functools.partial(_of_cases, way)
    ServedModule.__getattr__ = _named  # type: ignore[method-assign]
    unittest.TestCase.assertRaisesRegex = _words_are_not_compared  # type: ignore[assignment]
    jtu = importlib.import_module(f"{PRIVATE}.test_util")
    jtu.JaxTestCase.assertCacheMisses = Absent("jax._src.test_util.assertCacheMisses")
    importlib.import_module("jax.experimental.jet").fact = math.factorial
    jtu.capture_stdout = lambda: jtu._capture_output(sys.stdout)  # pytest's own, once a test runs
    jtu.capture_stderr = lambda: jtu._capture_output(sys.stderr)
    for name in vars(jtu).copy():
        if name.startswith("count_") or name in COUNTERS:
            setattr(jtu, name, Absent(f"{PRIVATE}.test_util.{name}"))


sys.meta_path.insert(0, PrivateFinder())
assert any(isinstance(finder, Finder) for finder in sys.meta_path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    """While a test runs what is absent cannot be used."""
    global _running  # noqa: PLW0603
    _running = True
    try:
        return (yield)
    finally:
        _running = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Iterator[None]:
    """A test that asks an object for what is private to JAX's is skipped, too."""
    report: Any = yield
    error = None if call.excinfo is None else call.excinfo.value
    name = getattr(error, "name", None) or ""
    if isinstance(error, AttributeError) and name.startswith("_") and not name.startswith("__"):
        report.outcome = "skipped"
        why = f"asks {type(error.obj).__name__} for {name}, which is private to JAX"
        report.longrepr = (str(item.path), item.location[1], why)
    return report
