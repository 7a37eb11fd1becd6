"""What a report of a mistake should say of the machine, and older names of the one process."""

import os
import platform
import sys

import numpy as np

from fnx.core import __version__
from fnx.core.source import warn_user
from fnx.process.devices import devices, process_count, process_index, process_indices


def print_environment_info(return_string: bool = False) -> str | None:
    """Versions, devices and settings of the environment, printed or as a string.

    >>> "numpy" in fnx.print_environment_info(return_string=True)
    True
    """
    settings = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith(("FNX_", "JAX_")))
    lines = [
        f"fnx: {__version__}",
        f"numpy: {np.__version__}",
        f"python: {sys.version.splitlines()[0]}",
        f"devices: {devices()}",
        f"process_count: {process_count()}",
        f"platform: {platform.uname()}",
        *settings,
    ]
    text = "\n".join(lines)
    if return_string:
        return text
    sys.stdout.write(text + "\n")
    return None


def host_id(backend: str | None = None) -> int:
    """`process_index` under an older name, with a warning.

    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     fnx.host_id()
    0
    """
    warn_user("host_id has become process_index", UserWarning)
    return process_index(backend)


def host_count(backend: str | None = None) -> int:
    """`process_count` under an older name, with a warning.

    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     fnx.host_count()
    1
    """
    warn_user("host_count has become process_count", UserWarning)
    return process_count(backend)


def host_ids(backend: str | None = None) -> list[int]:
    """`process_indices` under an older name, with a warning.

    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     fnx.host_ids()
    [0]
    """
    warn_user("host_ids has become process_indices", UserWarning)
    return process_indices(backend)


__all__ = ["host_count", "host_id", "host_ids", "print_environment_info"]
