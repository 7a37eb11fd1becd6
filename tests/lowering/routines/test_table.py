"""The table of routines names what their modules have."""

import pkgutil
from importlib import import_module

import fnx.lowering.cpu.routines
import fnx.lowering.routines
from fnx.lowering.cpu.routines import table
from fnx.lowering.routines import unrolled_batched


def test_the_table_names_every_routine():
    listed = {
        name: module() for name, module in (*table._ANY_DTYPE.items(), *table._LAPACK.items())
    }
    found = {}
    for package in (fnx.lowering.cpu.routines, fnx.lowering.routines):
        for entry in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            module = import_module(entry.name)
            found.update(dict.fromkeys(getattr(module, "ROUTINES", ()), module))
    assert listed == found
    assert frozenset(unrolled_batched.ELEMENTS) == table._UNROLLED
