"""All programs by name, the groups that they form, and what is asked of each group."""

from __future__ import annotations

import importlib

from program import Group, Probe, Program

FAMILIES = ("scan", "networks", "sizes", "vector_math", "startup")

GROUPS = {
    "scan": Group("Simulations by scan"),
    "calls": Group("Calling a jitted function"),
    "sizes": Group("Kernels compiled again on another size of grid"),
    "compile": Group("Compiling"),
    "vector maths": Group("Elementary functions over 10^6 elements"),
    "eager": Group("Eager code"),
    "import": Group("Importing"),
}

_modules = [importlib.import_module(f"programs.{name}") for name in FAMILIES]
PROGRAMS: dict[str, Program] = {
    p.name: p for module in _modules for p in getattr(module, "PROGRAMS", ())
}
PROBES: dict[str, Probe] = {p.name: p for module in _modules for p in getattr(module, "PROBES", ())}
