"""The version, under the names of `jax.version`."""

import sys
from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("__version__", "__version_info__"):
        return getattr(sys.modules["fnx"], name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
