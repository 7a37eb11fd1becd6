"""Displays in a real kernel: HTML beside the plain text, which stays as it is."""

import subprocess
import sys

import pytest
from markup import Page

import fnx
import fnx.numpy as jnp

nbformat = pytest.importorskip("nbformat", reason="the extra `notebook` is not installed")
nbclient = pytest.importorskip("nbclient", reason="the extra `notebook` is not installed")
pytest.importorskip("ipykernel", reason="the extra `notebook` is not installed")

CELLS = {
    "import fnx, fnx.numpy as jnp": None,
    "jnp.arange(3.0)": ("Array([0., 1., 2.], dtype=float64)", "0 / 1 / 2"),
    "f = fnx.jit(lambda x: jnp.sum(jnp.sin(x) ** 2)); f(jnp.ones(3)); f": (
        "<CompiledFunction of <lambda>>",
        "1 specialisation",
    ),
    "def g(x):\n    y = jnp.tan(x)\n    return y * 2\nfnx.show(g)(1.0)": ("tan", "y = jnp.tan"),
    "fnx.random.key(1)": ("key<fry>", "random keys"),
    "fnx.show([jnp.ones(2)])": ("[0]  f64[2]", "leaves: 1"),
    "jnp.ones(2).sharding": ("SingleDeviceSharding", "on one device"),
    "fnx.export.python(lambda x: x + 1, 1.0)": ('"""exported: written by fnx', None),
    "str(fnx.show(lambda x: x + 1)(1.0))": ("# Cell In[9]:1", None),
    "try:\n    with fnx.debug_nans():\n        jnp.log(-1.0) + fnx.jit(jnp.log)(-1.0)\n"
    "except FloatingPointError as error:\n    display(str(error))": (
        "Cell In[10]:3 (<module>)",
        None,
    ),
    "fnx.jit(lambda x: display(x))(1.0)": ("Tracer<f64[]*> of jit", "This is no value"),
}


def test_what_ipython_makes_of_an_array_and_of_a_tracer():
    formatters = pytest.importorskip("IPython.core.formatters")
    made = formatters.DisplayFormatter().format
    data, _ = made(jnp.arange(3.0))
    assert data["text/plain"] == "Array([0., 1., 2.], dtype=float64)"
    assert "0 / 1 / 2" in Page(data["text/html"]).text
    found = []
    fnx.jit(lambda x: found.append(made(x)[0]))(1.0)
    assert found[0]["text/plain"].startswith("Tracer<f64[]*>")
    assert "This is no value" in Page(found[0]["text/html"]).text


# In a process of its own: Jupyter's packages leave sockets and event loops behind.
EXECUTE = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[1])
"""


@pytest.mark.slow
def test_a_notebook_shows_html_and_text(tmp_path):
    code = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    path = tmp_path / "shown.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=code), path)
    command = [sys.executable, "-c", EXECUTE, str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-5000:]
    cells = nbformat.read(path, as_version=4).cells
    for cell, expected in zip(cells, CELLS.values(), strict=True):
        found = [out["data"] for out in cell.outputs if "data" in out]
        assert len(found) == (expected is not None), cell.source
        if expected is not None:
            plain, shown = expected
            assert plain in found[0]["text/plain"]
            if shown is None:
                continue
            page = Page(found[0]["text/html"])
            titles = " ".join([attrs.get("title", "") for _, attrs in page.tags])
            assert shown in page.text + titles
