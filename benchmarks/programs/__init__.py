"""All programs by name, the groups that they form, and what is asked of each group."""

from __future__ import annotations

import importlib

from program import Group, Probe, Program, Summary

FAMILIES = (
    "scan",
    "networks",
    "sizes",
    "vector_math",
    "startup",
    "stencils",
    "kernels",
    "inference",
    "derivatives",
    "simulations",
    "loops",
    "lanes",
    "matrices",
    "npbench",
    "spectral",
    "devices",
    "ranks",
    "libraries",
)

GROUPS = {
    "scan": Group("Simulations by scan"),
    "calls": Group("Calling a jitted function"),
    "sizes": Group("Kernels compiled again on another size of grid"),
    "compile": Group("Compiling"),
    "vector maths": Group("Elementary functions over 10^6 elements"),
    "eager": Group("Eager code"),
    "import": Group("Importing"),
    "stencils": Group("Stencils and physics of ocean models", threads=True),
    "kernels": Group(
        "NumPy-style kernels",
        threads=True,
        summaries=(Summary("run", "jax", mean=0.6, worst=1.2),),
    ),
    "derivatives": Group("Derivatives", threads=True),
    "loops": Group(
        "Gradients of loop nests",
        threads=True,
        summaries=(Summary("run", "jax", mean=0.1, worst=0.5),),
    ),
    "lanes": Group("Loops under vmap", threads=True),
    "matrices": Group("Matrix products", threads=True),
    "npbench": Group("Kernels in the style of npbench, and their gradients", threads=True),
    "spectral": Group("Fourier transforms and what is made of them", threads=True),
    "devices": Group("Two devices at once: against one, and two of JAX's"),
    "ranks": Group("Two ranks of MPI: beside mpi4py, and against one"),
    "libraries": Group(
        "Libraries written for JAX",
        summaries=(Summary("run", "jax", mean=0.25, worst=1.0),),
    ),
    "first calls": Group(
        "First calls of libraries written for JAX",
        summaries=(Summary("run", "jax", mean=0.35, worst=1.0),),
    ),
    "together": Group(
        "Compile time over stencils, kernels, derivatives, loop nests and products",
        summaries=(Summary("compile", "jax", mean=0.7), Summary("warm", "jax", mean=0.25)),
        over=("stencils", "kernels", "derivatives", "loops", "matrices"),
    ),
}

_modules = [importlib.import_module(f"programs.{name}") for name in FAMILIES]
PROGRAMS: dict[str, Program] = {
    p.name: p for module in _modules for p in getattr(module, "PROGRAMS", ())
}
PROBES: dict[str, Probe] = {p.name: p for module in _modules for p in getattr(module, "PROBES", ())}
