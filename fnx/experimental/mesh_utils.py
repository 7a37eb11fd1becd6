"""Arrays of devices for meshes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.process.mesh import make_mesh

__all__ = ["create_device_mesh"]


def create_device_mesh(
    mesh_shape: Sequence[int], devices: Sequence[Any] | None = None, **_: Any
) -> np.ndarray:
    """An array of devices of this shape; ValueError if there are not enough.

    >>> fnx.experimental.mesh_utils.create_device_mesh((1, 1)).shape
    (1, 1)
    """
    names = [str(k) for k in range(len(mesh_shape))]
    return make_mesh(mesh_shape, names, devices=devices).devices
