"""Devices: the CPU of this process, under one number or (setting `num_devices`) several."""

import gc
import os
import re
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from fnx.core import config, lazy_imports
from fnx.core.array import Array, ConcreteArray, as_array
from fnx.core.buffer import Buffer
from fnx.core.errors import InvalidValue
from fnx.core.interpreter import Tracer
from fnx.numpy.methods import DEVICE, CpuDevice
from fnx.process.placement import placed, put
from fnx.pytree import operations

Device = CpuDevice
_device = lru_cache(maxsize=None)(Device)


def devices(backend: str | None = None) -> list[Device]:
    """The devices that arrays can live on; RuntimeError for a platform other than cpu.

    Of the CPU there is one; `devices("gpu")` are those of NVIDIA's. The setting `num_devices`
    (FNX_NUM_DEVICES) makes more CPUs, for programs that map over devices, as does
    XLA_FLAGS=--xla_force_host_platform_device_count=n, which is read when devices are first asked for.
    They share the process's memory. With fnx.distributed, those of all processes.

    >>> fnx.devices()
    [CpuDevice(id=0)]
    """
    if backend in ("gpu", "cuda"):
        return import_module("fnx.lowering.cuda.device").devices()
    if backend not in (None, "cpu"):
        raise RuntimeError(f"Unknown backend {backend!r}; fnx runs on: cpu")
    if not are_counted:
        _count()
    local = config.num_devices.value
    count = local * (ranks[0].size if ranks else 1)
    return [DEVICE, *(_device(k, k // local) for k in range(1, count))]


ranks: list[Any] = []  # the transport between processes, once there are several (distributed.py)
are_counted: list[bool] = []  # not empty once devices were asked for


def _count() -> None:
    """Read how many devices XLA is asked to make, which the setting overrules."""
    are_counted.append(True)
    flag = re.search(
        r"--xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", "")
    )
    if flag and config.num_devices.value == 1:
        config.num_devices.set(max(1, int(flag[1])))


def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Device]:
    """The devices of this process.

    >>> fnx.local_devices() == fnx.devices()
    True
    """
    own = ranks[0].rank if ranks else 0
    wanted = next((k for k in (process_index, host_id) if k is not None), own)
    return [d for d in devices(backend) if d.process_index == wanted]


def device_count(backend: str | None = None) -> int:
    """The number of devices.

    >>> fnx.device_count()
    1
    """
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """The number of devices of this process.

    >>> fnx.local_device_count()
    1
    """
    return len(local_devices(backend=backend))


def process_index(backend: str | None = None) -> int:
    """The number of this process among those that work together (fnx.distributed).

    >>> fnx.process_index()
    0
    """
    del backend
    return ranks[0].rank if ranks else 0


def process_count(backend: str | None = None) -> int:
    """The number of processes that work together (fnx.distributed).

    >>> fnx.process_count()
    1
    """
    del backend
    return ranks[0].size if ranks else 1


def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of the processes that work together.

    >>> fnx.process_indices()
    [0]
    """
    return list(range(process_count(backend)))


def live_arrays(platform: str | None = None) -> list[Array]:
    """The arrays of numbers that exist now and are not deleted, to look for those that nobody needs.

    >>> x = jnp.ones(3)
    >>> any(a is x for a in fnx.live_arrays())
    True
    """
    del platform
    found = [x for x in gc.get_objects() if type(x) is ConcreteArray and not hasattr(x, "written")]
    # Some have no numbers yet: blanks that native code copies, and what another thread is making.
    return [x for x in found if hasattr(x, "_value") and not x.is_deleted()]


def default_backend() -> str:
    """The platform that programs are compiled for.

    >>> fnx.default_backend()
    'cpu'
    """
    return "cpu"


def device_put(
    x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None
) -> Any:
    """The leaves of a pytree as arrays of their own.

    `device`: a device, a sharding, None, or a pytree prefix of them. Those that are donated (`donate`, a
    bool or a pytree prefix) are deleted. ValueError for any other device; RuntimeError for deleted arrays.

    >>> fnx.device_put(np.ones(2))
    Array([1., 1.], dtype=float64)
    """
    del src, may_alias
    leaves, structure = operations.tree_flatten(x)
    if type(device) in (tuple, list, dict):
        places = operations.broadcast_prefix(device, x, is_leaf=lambda d: d is None)
    else:
        places = [device] * max(1, len(leaves))
    for place in places:
        _check_place(place)
    if any(getattr(p, "platform", "cpu") == "gpu" for p in places):
        gpu = import_module("fnx.lowering.cuda.device")
        found = list(map(gpu.put, leaves, places))
    else:
        found = list(map(_put, leaves, places))
    if donate is not False:
        for leaf, gone in zip(leaves, operations.broadcast_prefix(donate, x), strict=True):
            if gone and type(leaf) is ConcreteArray and not any(leaf is y for y in found):
                leaf.delete()  # type: ignore[attr-defined]
    return structure.unflatten(found)


def _put(x: Any, place: Any) -> Array:
    """A copy of an array that lies so."""
    x = as_array(x)
    place = getattr(place, "device", place)  # of a SingleDeviceSharding
    if hasattr(place, "partitions"):  # of the mesh that was set
        place = lazy_imports.find(__name__, "named")(place)
    check = getattr(place, "check", None)
    if check is not None:  # shardings say what they cannot cut
        check(x.aval)
    if ranks and not isinstance(x, Tracer) and hasattr(place, "put"):
        return place.put(x)
    if isinstance(place, CpuDevice) and type(x) is ConcreteArray:
        return put(x.copy(), place)
    if isinstance(x, Tracer):
        return lazy_imports.find(__name__, "constrained")(x, place)
    return placed(x.copy(), place)  # type: ignore[attr-defined]


def _check_place(place: Any) -> None:
    if isinstance(place, (str, int, float)):
        raise InvalidValue(
            f"device_put to {place!r}; expected a device (fnx.devices()[0]), a sharding or None"
        )


def device_get(x: Any) -> Any:
    """The arrays of a pytree as NumPy arrays; other leaves as they are, traced values among them.

    >>> fnx.device_get({"x": jnp.ones(2)})
    {'x': array([1., 1.])}
    """
    known = lambda a: isinstance(a, Array) and not isinstance(a, Tracer)
    return operations.tree_map(lambda a: np.asarray(a) if known(a) else a, x)


def block_until_ready(x: Any) -> Any:
    """`x` itself, when its arrays are computed: a GPU's come later than the call returns.

    >>> fnx.block_until_ready(jnp.ones(2))
    Array([1., 1.], dtype=float64)
    """
    if Buffer.exist:
        for leaf in operations.tree_leaves(x):
            if type(leaf) is ConcreteArray:
                leaf.block_until_ready()  # type: ignore[attr-defined]
    return x


def copy_to_host_async(x: Any) -> Any:
    """`x` itself: arrays are on the host; leaves that have a method of this name are asked to begin.

    >>> fnx.copy_to_host_async(jnp.ones(2))
    Array([1., 1.], dtype=float64)
    """
    for leaf in operations.tree_leaves(x):
        if (begin := getattr(leaf, "copy_to_host_async", None)) is not None:
            begin()
    return x
