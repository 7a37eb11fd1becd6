"""Payloads: where the numbers of a concrete array are, if not in an array of NumPy's.

A concrete array holds an `np.ndarray`, or a `Buffer`, which knows shape and dtype and brings the numbers
to the host when somebody asks for them. A backend that computes elsewhere makes arrays of buffers of
its own, and takes them as they are; everybody else reads them as NumPy arrays and need not know.
"""

from collections.abc import Callable
from math import prod
from typing import Any, NoReturn

import numpy as np

from fnx.core.errors import FnxError, MixedDevices


class Buffer(np.lib.mixins.NDArrayOperatorsMixin):
    """Numbers that are elsewhere. A subclass says how they are brought, in `fetch`.

    What is asked of it beside shape, dtype and size is asked of a NumPy array with its numbers, which
    is brought once, when that happens first.
    """

    device = "cpu"
    computes = False  # whether operations on it are computed where it lies
    exist = False  # whether there ever was one in this process
    place: Any = None  # the device that the numbers were put on, if they were
    origin: Any = None  # where in the user's program that was

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype):
        if not Buffer.exist:  # each assignment to a class makes Python look up its attributes anew
            Buffer.exist = True
        self.shape, self.dtype = shape, dtype
        self.ndim, self.size = len(shape), prod(shape)
        self.nbytes = self.size * dtype.itemsize
        self._host: np.ndarray | None = None

    def wait(self) -> None:
        """Return when the numbers are there; errors of what computes them are raised."""

    def fetch(self) -> np.ndarray:
        """The numbers, C-contiguous, in memory of the host."""
        raise NotImplementedError

    def shown(self) -> str | None:
        """What is shown of it, if not all its numbers."""
        return None

    def host(self) -> np.ndarray:
        """The numbers, brought at most once; nobody may write to them."""
        if self._host is None:
            self._host = self.fetch()
        return self._host

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = self.host()
        return np.array(value, dtype) if copy else np.asarray(value, dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        check_places(inputs)
        return getattr(ufunc, method)(*map(on_host, inputs), **kwargs)

    def __array_function__(self, fn: Any, types: Any, args: Any, kwargs: Any) -> Any:
        check_places(args)
        return fn(*_on_host_all(args), **{k: on_host(v) for k, v in kwargs.items()})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__array_"):
            raise AttributeError(name)  # it is no array of NumPy's, and has none of their protocols
        return getattr(self.host(), name)

    def __getitem__(self, index: Any) -> Any:
        return self.host()[index]

    def __len__(self) -> int:
        return len(self.host())

    def __iter__(self) -> Any:
        return iter(self.host())

    def __bool__(self) -> bool:
        return bool(self.host())

    def __int__(self) -> int:
        return int(self.host())

    def __float__(self) -> float:
        return float(self.host())

    def __complex__(self) -> complex:
        return complex(self.host())

    def __index__(self) -> int:
        return self.host().__index__()

    def __format__(self, spec: str) -> str:
        here = self.shown()
        return format(self.host(), spec) if here is None else here

    def __str__(self) -> str:
        return format(self, "")


# What make arrays, without a copy, of objects of other libraries whose numbers are elsewhere, or give None.
importers: list[Callable[[Any], Any]] = []


def received(x: Any) -> Any:
    """What another library's array is: one on its own memory where that is not the host's, or NumPy's."""
    for take in importers:
        found = take(x)
        if found is not None:
            return found
    is_numpys = hasattr(x, "__array__") or not hasattr(x, "__dlpack__")
    return np.asarray(x) if is_numpys else np.from_dlpack(x)


def described(value: Any, name: str = "") -> str:
    """An array of a device, for errors: its type, where it is, and where it was put there."""
    kind = f"{value.dtype}[{','.join(map(str, value.shape))}]"
    where = f" (put there at {value.origin})" if getattr(value, "origin", None) else ""
    return f"{name}{kind} on {value.place}{where}"


def check_places(values: Any) -> None:
    """MixedDevices where arrays were put on different devices."""
    found = [v for v in values if isinstance(v, Buffer) and v.place is not None]
    for other in found[1:]:
        if other.place != found[0].place:
            raise MixedDevices(
                f"an operation of arrays of different devices: {described(found[0])}, and "
                f"{described(other)}. Expected all on one: fnx.device_put(x, device)."
            )


def on_host(value: Any) -> Any:
    """A payload as an array of NumPy's; anything else as it is."""
    return value.host() if isinstance(value, Buffer) else value


def _on_host_all(values: Any) -> Any:
    """The same in tuples and lists, as NumPy's functions take them."""
    if isinstance(values, (tuple, list)):
        return type(values)([_on_host_all(v) for v in values])
    return on_host(values)


class DeletedArray(FnxError, RuntimeError):
    """An array was read after it was deleted, or donated to a jitted function that took its memory."""


class Deleted(Buffer):
    """What is left of an array whose memory was given away: its type, and an error for whoever reads it."""

    def __init__(self, value: Any):
        super().__init__(value.shape, value.dtype)
        seen = value._host if isinstance(value, Buffer) else value
        # NumPy's views of an array hold the array alone: what was shown lasts as long as it does.
        self._shown = None if seen is None or seen.flags.writeable else seen

    def fetch(self) -> NoReturn:
        raise DeletedArray(
            f"Array has been deleted with shape={self.shape} and dtype={self.dtype}. Expected an array "
            "that was neither deleted nor donated (donate_argnums, donate_argnames of jit): use what "
            "the function returned instead, or do not donate."
        )
