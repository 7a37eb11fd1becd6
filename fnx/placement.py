"""Devices: there is one, the CPU of this process, so that placement means nothing more than arrays."""

from typing import Any

import numpy as np

from fnx import tree_util
from fnx.core.array import Array, as_array


class Device:
    """The CPU of this process."""

    platform, device_kind, id, process_index = "cpu", "cpu", 0, 0

    def __repr__(self) -> str:
        return "CpuDevice(id=0)"


_CPU = Device()


def devices(backend: str | None = None) -> list[Device]:
    """The devices that arrays can live on."""
    if backend not in (None, "cpu"):
        raise RuntimeError(f"no {backend!r} device here; fnx has: cpu")
    return [_CPU]


local_devices = devices


def device_count(backend: str | None = None) -> int:
    return len(devices(backend))


local_device_count = device_count


def default_backend() -> str:
    return "cpu"


def device_put(x: Any, device: Any = None, *, src: Any = None, **_: Any) -> Any:
    """The leaves of a pytree as arrays."""
    del device, src
    return tree_util.tree_map(as_array, x)


def device_get(x: Any) -> Any:
    """The leaves of a pytree as NumPy arrays."""
    return tree_util.tree_map(lambda a: np.asarray(a) if isinstance(a, Array) else a, x)


def block_until_ready(x: Any) -> Any:
    """`x` itself: results are ready when a call returns."""
    return x
