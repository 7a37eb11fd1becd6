"""`fnx.config`: settings by name, fnx's and JAX's, and context managers that change one for a while."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from fnx.core import config as _config
from fnx.core.config import Setting
from fnx.core.errors import InvalidValue
from fnx.lowering import backends

_OWN = {s.name: s for s in vars(_config).values() if isinstance(s, Setting)}
_BY_JAX_NAME = {
    "jax_check_static_indices": _config.check_static_indices,
    "jax_default_matmul_precision": _config.default_matmul_precision,
    "jax_disable_jit": _config.disable_jit,
    "jax_debug_infs": _config.debug_infs,
    "jax_debug_nans": _config.debug_nans,
    "jax_enable_checks": _config.check,
    "jax_explain_cache_misses": _config.explain_cache_misses,
    "jax_default_prng_impl": _config.default_prng_impl,
    "jax_log_compiles": _config.log_compiles,
    "jax_no_execution": _config.no_execution,
    "jax_no_tracing": _config.no_tracing,
    "jax_num_cpu_devices": _config.num_devices,
    "jax_numpy_dtype_promotion": _config.numpy_dtype_promotion,
    "jax_numpy_rank_promotion": _config.numpy_rank_promotion,
}
ACTING = {"jax_enable_x64", *_BY_JAX_NAME}  # JAX's names that mean something here
_IN_JAX = {  # settings of JAX that programs read, and that mean nothing here
    "jax_check_tracer_leaks": False,
    "jax_compilation_cache_dir": None,
    "jax_debug_key_reuse": False,
    "jax_default_device": None,
    "jax_enable_custom_prng": False,
    "jax_legacy_prng_key": "allow",
    "jax_platforms": None,
    "jax_softmax_custom_jvp": True,
    "jax_threefry_partitionable": True,
    "jax_traceback_filtering": "auto",
    "jax_transfer_guard": None,
}


class Config:
    """All settings: attributes to read, `update` to change one for good.

    fnx's own names are those of the environment variables FNX_...: check, disable_jit,
    default_float32, debug_nans, debug_infs, traceback_filtering, cache, num_devices, backend. Of
    JAX's names those that mean something here act, the others are remembered and do nothing.
    `jax_enable_x64` chooses what Python numbers become: float64 and int64 (True, as at the start), or
    float32 and int32 (False).

    >>> config.update("jax_enable_x64", True)
    >>> config.jax_enable_x64
    True
    """

    def __init__(self) -> None:
        self._others: dict[str, Any] = {}

    def update(self, name: str, value: Any) -> None:
        """Change a setting for good; AttributeError for a name that neither fnx nor JAX has."""
        if name == "jax_enable_x64":
            _config.default_float32.set(not value)
        elif name in _BY_JAX_NAME:
            _BY_JAX_NAME[name].set(value)
        elif name in _OWN:
            _OWN[name].set(backends.check(value) if name == "backend" else value)
        elif name.startswith("jax_"):
            self._others[name] = value
        else:
            raise AttributeError(
                f"fnx.config has no setting {name!r}; it has {', '.join(sorted(_OWN))}, and JAX's "
                "names, which begin with jax_"
            )

    def read(self, name: str) -> Any:
        """The value of a setting; AttributeError if there is none of this name."""
        if name in ("jax_enable_x64", "x64_enabled", "enable_x64"):
            return not _config.default_float32.value
        if name in _BY_JAX_NAME:
            return _BY_JAX_NAME[name].value
        if name in _OWN:
            return _OWN[name].value
        for settings in (self._others, _IN_JAX):
            if name in settings:
                return settings[name]
        raise AttributeError(f"fnx.config has no setting {name!r}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.read(name)

    def parse_flags_with_absl(self) -> None:
        """What JAX's tests call first; fnx has no flags of the command line.

        >>> config.parse_flags_with_absl()
        """

    config_with_absl = parse_flags_with_absl

    def values(self) -> dict[str, Any]:
        """All settings and their values now."""
        return {name: s.value for name, s in _OWN.items()} | self._others

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{k}={v!r}' for k, v in self.values().items())})"


config = Config()


# --- for a while -------------------------------------------------------------------------------


def enable_x64(new_val: bool = True) -> AbstractContextManager[None]:
    """Within it Python numbers become float64 and int64 (True), or float32 and int32 (False).

    >>> with fnx.enable_x64(False):
    ...     x = jnp.array([1.0])
    >>> x.dtype
    dtype('float32')
    """
    return _config.default_float32(not new_val)


def disable_jit(disable: bool = True) -> AbstractContextManager[None]:
    """Within it jitted functions, and the bodies of loops, run as plain Python, operation by operation.

    >>> with fnx.disable_jit():
    ...     x = fnx.jit(lambda x: -x if x < 0 else x)(-2.0)
    >>> float(x)
    2.0
    """
    return _config.disable_jit(disable)


def _without_effect(name: str) -> Any:
    @contextmanager
    def manager(new_val: Any = None) -> Iterator[None]:
        before = config._others
        config._others = before | {f"jax_{name}": new_val}
        try:
            yield
        finally:
            config._others = before

    manager.__name__ = name
    manager.__doc__ = f"""JAX's setting {name}, which is accepted and means nothing to fnx.

    >>> with fnx.{name}(None):
    ...     x = jnp.sin(0.0)
    """
    return manager


@contextmanager
def default_device(new_val: Any = None) -> Iterator[None]:
    """Within it jitted functions of arrays that were put nowhere run on a device: on a GPU, say.

    >>> with fnx.default_device(fnx.devices()[0]):
    ...     x = jnp.sin(0.0)
    """
    runs = "cuda" if getattr(new_val, "platform", new_val) in ("gpu", "cuda") else None
    with _default_device(new_val), _config.backend(runs) if runs else nullcontext():
        yield


def default_matmul_precision(new_val: str | None = None) -> AbstractContextManager[None]:
    """Within it a GPU multiplies matrices of float32 so: "tensorfloat32", or as float32, which is the rule.

    A CPU always multiplies them as float32.

    >>> with fnx.default_matmul_precision("tensorfloat32"):
    ...     x = jnp.eye(2) @ jnp.ones(2)
    """
    return _config.default_matmul_precision(new_val)


check_tracer_leaks = checking_leaks = _without_effect("check_tracer_leaks")
debug_key_reuse = _without_effect("debug_key_reuse")
_default_device = _without_effect("default_device")
legacy_prng_key = _without_effect("legacy_prng_key")
threefry_partitionable = _without_effect("threefry_partitionable")
softmax_custom_jvp = _without_effect("softmax_custom_jvp")
transfer_guard = _without_effect("transfer_guard")
transfer_guard_device_to_device = _without_effect("transfer_guard_device_to_device")
transfer_guard_device_to_host = _without_effect("transfer_guard_device_to_host")
transfer_guard_host_to_device = _without_effect("transfer_guard_host_to_device")
enable_custom_prng = _without_effect("enable_custom_prng")


def default_prng_impl(new_val: str) -> AbstractContextManager[None]:
    """Within it keys are of another generator where none is named: threefry2x32, rbg or unsafe_rbg.

    >>> with fnx.default_prng_impl("rbg"):
    ...     fnx.random.key(0).dtype, fnx.random.PRNGKey(0).shape
    (key<rbg>, (4,))
    """
    return _config.default_prng_impl(new_val)


def log_compiles(new_val: bool = True) -> AbstractContextManager[None]:
    """Within it the log "fnx" of the module logging has what is traced and compiled, as warnings.

    >>> import logging
    >>> logging.getLogger("fnx").disabled = True  # for this example
    >>> with fnx.log_compiles():
    ...     x = fnx.jit(jnp.sin)(0.0)
    >>> logging.getLogger("fnx").disabled = False
    """
    return _config.log_compiles(new_val)


def explain_cache_misses(new_val: bool = True) -> AbstractContextManager[None]:
    """Within it the log "fnx" of the module logging says why jitted functions are traced, as warnings.

    >>> import logging
    >>> logging.getLogger("fnx").disabled = True  # for this example
    >>> with fnx.explain_cache_misses():
    ...     x = fnx.jit(jnp.sin)(0.0)
    >>> logging.getLogger("fnx").disabled = False
    """
    return _config.explain_cache_misses(new_val)


def no_tracing(new_val: bool = True) -> AbstractContextManager[None]:
    """Within it a jitted function that would have to be traced for its arguments raises RuntimeError.

    >>> double = fnx.jit(lambda x: 2 * x)
    >>> double(1.0)
    Array(2., dtype=float64, weak_type=True)
    >>> with fnx.no_tracing():
    ...     double(3.0)
    Array(6., dtype=float64, weak_type=True)
    """
    return _config.no_tracing(new_val)


def no_execution(new_val: bool = True) -> AbstractContextManager[None]:
    """Within it a jitted function that would run raises RuntimeError; operations outside of `jit` do run.

    >>> with fnx.no_execution():
    ...     fnx.eval_shape(fnx.jit(jnp.sin), 1.0).shape
    ()
    """
    return _config.no_execution(new_val)


def numpy_dtype_promotion(new_val: str = "standard") -> AbstractContextManager[None]:
    """Within it ("strict") arrays of different dtypes do not meet: TypePromotionError, a ValueError.

    Python numbers adapt to the array that they meet, if they are of no wider kind.

    >>> with fnx.numpy_dtype_promotion("strict"):
    ...     x = jnp.ones(2) * 3  # but not with an array of another dtype
    >>> x
    Array([3., 3.], dtype=float64)
    """
    return _config.numpy_dtype_promotion(_one_of(new_val, "standard", "strict"))


def numpy_rank_promotion(new_val: str = "allow") -> AbstractContextManager[None]:
    """Within it broadcasting does not add axes ("raise"), or says that it does ("warn").

    >>> with fnx.numpy_rank_promotion("raise"):
    ...     x = jnp.ones((2, 2)) * 2.0  # but not with an array of shape (2,)
    >>> x.shape
    (2, 2)
    """
    return _config.numpy_rank_promotion(_one_of(new_val, "allow", "warn", "raise"))


def enable_checks(new_val: bool = True) -> AbstractContextManager[None]:
    """Within it jaxprs and Kernel IR are checked between passes, as FNX_CHECK=1 has it.

    >>> with fnx.enable_checks():
    ...     x = fnx.jit(jnp.sum)(jnp.ones(3))
    >>> float(x)
    3.0
    """
    return _config.check(new_val)


def _one_of(value: Any, *words: str) -> Any:
    if value not in words:
        raise InvalidValue(f"{value!r} is none of {', '.join(map(repr, words))}")
    return value
