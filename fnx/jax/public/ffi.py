"""`jax.ffi`: functions compiled for XLA's interface, which fnx's native code cannot call.

Libraries register theirs when they are imported, and use them where a program asks for them: what is
registered is remembered, to call it is an error.
"""

import ctypes
from typing import Any, NoReturn

from fnx.core.errors import InvalidValue, MissingPackage, MissingRule

_targets: dict[tuple[str, str], Any] = {}  # by name and platform
_types: dict[tuple[str, str], Any] = {}


def register_ffi_target(
    name: str, fn: Any, platform: str = "cpu", api_version: int = 1, **kwargs: Any
) -> None:
    """Remember a function under a name, which an error of `ffi_call` then says."""
    del api_version, kwargs
    _targets[name, platform] = fn


def register_ffi_type(name: str, type_registration: Any, platform: str = "cpu") -> None:
    """Remember a type of states of such functions."""
    _types[name, platform] = type_registration


def register_ffi_type_id(name: str, obj: Any, platform: str = "cpu") -> NoReturn:
    """ValueError, as with JAX: `register_ffi_type` has taken its place."""
    raise InvalidValue(
        f"register_ffi_type_id({name!r}) is gone from JAX; expected register_ffi_type"
    )


def register_ffi_target_as_batch_partitionable(name: str) -> None:
    """That batches of arguments may be cut; ValueError for a function that is not registered."""
    if not any(name == known for known, _ in _targets):
        raise InvalidValue(
            f"no function {name!r} is registered; expected register_ffi_target first"
        )


def pycapsule(funcptr: Any) -> Any:
    """A function of ctypes as a PyCapsule, which holds its address."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    return new(ctypes.cast(funcptr, ctypes.c_void_p), None, None)


def include_dir() -> NoReturn:
    """ImportError: the headers of XLA's interface are jaxlib's."""
    raise MissingPackage("the headers of XLA's interface come with jaxlib, which fnx does not use")


def _refused(name: str, called: str) -> NoReturn:
    registered = any(name == known for known, _ in _targets)
    raise MissingRule(
        f"jax.ffi.{called}({name!r}): fnx calls no functions of XLA's interface"
        f"{', though one of this name is registered' if registered else ''}; expected fnx.pure_callback "
        "of a Python function, which may call C by ctypes or cffi"
    )


def ffi_call(target_name: str, result_shape_dtypes: Any, **kwargs: Any) -> NoReturn:
    """NotImplementedError, which says what to use instead."""
    _refused(target_name, "ffi_call")


def ffi_lowering(call_target_name: str, **kwargs: Any) -> NoReturn:
    """NotImplementedError, which says what to use instead."""
    _refused(call_target_name, "ffi_lowering")


def build_ffi_lowering_function(call_target_name: str, **kwargs: Any) -> NoReturn:
    """NotImplementedError, which says what to use instead."""
    _refused(call_target_name, "build_ffi_lowering_function")
