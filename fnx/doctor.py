"""What fnx finds on this machine: `python -m fnx.doctor`, or `fnx.doctor()`.

>>> "cache" in fnx.doctor().facts
True
"""

import sys

from fnx.observe.doctor import Callable, Finding, Report, doctor, main

__all__ = ["Finding", "Report", "doctor", "main"]

sys.modules[__name__].__class__ = Callable

if __name__ == "__main__":
    raise SystemExit(main())
