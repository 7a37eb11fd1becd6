"""Names of `jax.extend.backend`: the one backend, as libraries ask for it."""

from typing import Any

from fnx.process.devices import Device, devices
from fnx.transforms.jit import clear_caches as clear_backends

__all__ = ["Backend", "backends", "clear_backends", "get_backend", "get_default_device"]


class Backend:
    """What JAX calls a client: a platform and its devices.

    >>> fnx.extend.backend.get_backend().device_count()
    1
    """

    platform = "cpu"
    platform_version = "llvm"
    runtime_type = "fnx"

    def devices(self) -> list[Device]:
        return devices()

    local_devices = devices

    def device_count(self) -> int:
        return len(devices())

    local_device_count = device_count

    def process_index(self) -> int:
        return 0

    def process_count(self) -> int:
        return 1


_backend = Backend()


def get_backend(platform: Any = None) -> Backend:
    """The backend of a platform; RuntimeError for another than the CPU.

    >>> fnx.extend.backend.get_backend().platform
    'cpu'
    """
    devices(platform)  # which refuses other platforms
    return _backend


def backends() -> dict[str, Backend]:
    """All backends by their platform.

    >>> list(fnx.extend.backend.backends())
    ['cpu']
    """
    return {"cpu": _backend}


def get_default_device() -> Device:
    """The device that arrays live on.

    >>> fnx.extend.backend.get_default_device()
    CpuDevice(id=0)
    """
    return devices()[0]
