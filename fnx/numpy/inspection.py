"""What the array API standard lets libraries ask of a namespace: capabilities, dtypes and devices."""

from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.errors import InvalidValue
from fnx.numpy.arrays.scalar_types import isdtype
from fnx.numpy.methods import DEVICE

_DEFAULTS = {"real floating": "f", "complex floating": "c", "integral": "i", "indexing": "i"}


class ArrayNamespaceInfo:
    """Answers of `fnx.numpy.__array_namespace_info__()`."""

    def capabilities(self) -> dict[str, Any]:
        """What works everywhere: shapes that depend on values do not under `jit`."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> Any:
        """None: arrays go where others are."""
        return None

    def devices(self) -> list[Any]:
        """The devices that an array may be on."""
        return [None, DEVICE]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """The dtypes that Python numbers become."""
        _need_known(device)
        return {name: dtypes.default_for(kind) for name, kind in _DEFAULTS.items()}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype]:
        """The dtypes of the standard of a kind, or of several, or all.

        >>> sorted(ArrayNamespaceInfo().dtypes(kind="complex floating"))
        ['complex128', 'complex64']
        """
        _need_known(device)
        beyond = (dtypes.bfloat16, np.float16, *dtypes.SMALL)
        known = {dtypes.NAME[d]: d for d in dtypes.ALL if d not in beyond}
        return {n: d for n, d in known.items() if kind is None or isdtype(d, kind)}


def _need_known(device: Any) -> None:
    if device not in (None, DEVICE):
        raise InvalidValue(f"there is no device {device!r}; leave it out, or use {DEVICE}")


def array_namespace_info() -> ArrayNamespaceInfo:
    """What libraries may ask of this namespace."""
    return ArrayNamespaceInfo()
