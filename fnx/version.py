"""The version, a module path of JAX."""

from fnx.core import __version__, __version_info__

__all__ = ["__version__", "__version_info__"]
