"""Processes that work together, a module path of JAX; `python -m fnx.distributed SCRIPT` runs a rank."""

import sys

from fnx.process.distributed import initialize, is_initialized, main, shutdown

__all__ = ["initialize", "is_initialized", "shutdown"]

if __name__ == "__main__":
    main(sys.argv[1:])
