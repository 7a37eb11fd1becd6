"""Every module can be the first that is imported, and importing fnx stays light."""

import json
import os
import subprocess
import sys

import pytest
from module_graph import modules, room

# Forks a process for each module, with the packages that others brought along already loaded. The
# face, fnx/__init__.py, is put aside where it may be: it would import everything in its own order.
IMPORT_EACH_FIRST = """
import gc, importlib, importlib.util, json, os, sys, traceback, types
import numpy, ml_dtypes, optree

gc.disable()  # processes that end as soon as a module is imported

def import_first(name, with_face):
    if not with_face:
        spec = importlib.util.find_spec("fnx")
        face = types.ModuleType("fnx")
        face.__path__ = list(spec.submodule_search_locations)
        face.__spec__ = spec
        sys.modules["fnx"] = face
    importlib.import_module(name)

failed = {}
for name, with_face in json.load(sys.stdin):
    read, write = os.pipe()
    if os.fork() == 0:
        status = ""
        try:
            import_first(name, with_face)
        except BaseException:
            status = traceback.format_exc()[-3000:]
        os.write(write, status.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        status = pipe.read()
    os.wait()
    if status:
        failed[name] = status
print(json.dumps(failed))
"""


def run(code: str, **options) -> str:
    """What a fresh process prints that runs ``code`` with warnings as errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="starts a process for each module by fork")
@pytest.mark.slow
def test_each_module_can_be_imported_first(tmp_path):
    names = [name for name in modules() if not name.endswith("__main__")]
    wanted = [(name, room(name) in ("face", "demo")) for name in names]
    failed = json.loads(run(IMPORT_EACH_FIRST, input=json.dumps(wanted), cwd=tmp_path))
    assert failed == {}


def test_the_check_notices_a_module_that_cannot_be_imported(tmp_path):
    wanted = json.dumps([("fnx.no_such_module", False), ("fnx.core", False)])
    failed = json.loads(run(IMPORT_EACH_FIRST, input=wanted, cwd=tmp_path))
    assert list(failed) == ["fnx.no_such_module"]


@pytest.mark.parametrize("late", ["numba", "scipy", "llvmlite", "matplotlib", "jax"])
def test_importing_fnx_leaves_out(late, tmp_path):
    loaded = run("import fnx, sys; print(*sys.modules)", cwd=tmp_path).split()
    assert "fnx" in loaded
    assert late not in loaded


@pytest.mark.parametrize(
    ("before", "is_frozen", "enabled"),
    [
        ("", True, True),
        ("many = [[] for _ in range(300_000)]", False, True),  # of which some may become garbage
        ("gc.disable()", False, False),
        ("gc.freeze(); gc.unfreeze(); many = [[]]; gc.freeze()", True, True),
    ],
)
def test_who_looks_for_garbage_among_modules(before, is_frozen, enabled):
    """In a process that has just begun nobody; what lived before in another stays as it was."""
    printed = run(
        f"import gc\n{before}\nfrozen = gc.get_freeze_count()\nimport fnx.numpy\n"
        "print(gc.get_freeze_count() > 0, gc.isenabled(), not frozen or gc.get_freeze_count() <= frozen)"
    )
    assert printed.split() == [str(is_frozen), str(enabled), "True"]
