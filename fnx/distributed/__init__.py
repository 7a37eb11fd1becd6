"""Processes that work together, a module path of JAX; `python -m fnx.distributed SCRIPT` runs a rank."""

from fnx.process.distributed import initialize, is_initialized, shutdown

__all__ = ["initialize", "is_initialized", "shutdown"]
