"""Meshes and shardings in notebooks: who has which part."""

import os
import subprocess
import sys

import pytest
from markup import page

import fnx
import fnx.numpy as jnp
from fnx.sharding import AbstractMesh, Mesh, NamedSharding, P

DEVICES = """
import sys, fnx, numpy as np
sys.path.insert(0, sys.argv[1])
from markup import page
mesh = fnx.make_mesh((2, 3), ("x", "y"))
def texts(obj):
    return [t.text for p in page(obj).pictures for t in p.iter() if t.get("text-anchor")]
print(texts(mesh))
for spec in (fnx.P("x"), fnx.P("y", "x"), fnx.P(("x", "y")), fnx.P(None, "y"), fnx.P()):
    print(texts(fnx.NamedSharding(mesh, spec)))
print(page(fnx.NamedSharding(mesh, fnx.P(("x", "y"), None, None))).text)
print(page(fnx.device_put(np.ones((6, 2)), fnx.NamedSharding(mesh, fnx.P("y")))).text)
"""


def test_parts_and_their_devices(pytestconfig):
    support = str(pytestconfig.rootpath / "tests" / "support")
    done = subprocess.run(
        [sys.executable, "-c", DEVICES, support],
        capture_output=True, text=True, env={**os.environ, "FNX_NUM_DEVICES": "6"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    assert lines[0] == "['0', '1', '2', '3', '4', '5']"
    assert lines[1] == "['0, 1, 2', '3, 4, 5']"
    assert lines[2] == "['0', '1', '2', '3', '4', '5']"
    assert lines[3] == "['0', '1', '2', '3', '4', '5']"
    assert lines[4] == "['0, 3', '1, 4', '2, 5']"
    assert lines[5] == "[]"
    assert "axis 0 6 parts, along 'x', 'y'" in lines[6]
    assert "the first two axes are drawn" in lines[6]
    assert "devices 6 sharding NamedSharding" in lines[7]


@pytest.mark.parametrize("names", [("x",), ("x", "y"), ("x", "y", "<z>")])
def test_meshes(names):
    real = fnx.make_mesh((1,) * len(names), names)
    abstract = AbstractMesh((2,) * len(names), names)
    for m in (real, abstract, Mesh(real.devices, names)):
        shown = page(m)
        assert f"of {m.size} device" in shown.text
        assert all(f"axis {n!r}" in shown.text for n in names)
        assert len(shown.pictures) == (m is not abstract and len(names) < 3)
        assert "of a mesh without" in page(NamedSharding(abstract, P(*names))).text
    assert "of 0 devices" in page(AbstractMesh((0,), ("x",))).text


def test_one_device_and_none():
    assert "SingleDeviceSharding" in page(jnp.ones(2).sharding).text
    assert "on one device" in page(jnp.ones(2).sharding).text
    assert "Mesh of" in page(fnx.sharding.get_mesh()).text
    assert "NamedSharding" in page(jnp.ones(2).aval.sharding).text
