"""What fnx finds on this machine: `python -m fnx.doctor`, or `fnx.doctor()`.

>>> "cache" in fnx.doctor().facts
True
"""

from fnx.observe.doctor import Finding, Report, doctor, loaded, main

__all__ = ["Finding", "Report", "doctor", "main"]

loaded(__name__)
