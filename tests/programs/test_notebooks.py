"""The notebooks run from their first cell to their last, in a kernel of their own, with this fnx."""

import importlib.util
import subprocess
import sys

import pytest

nbformat = pytest.importorskip(
    "nbformat", reason="notebooks need nbformat, see the extra 'notebook'"
)
pytest.importorskip("nbclient", reason="notebooks need nbclient, see the extra 'notebook'")
pytest.importorskip("ipykernel", reason="notebooks need ipykernel, see the extra 'notebook'")
pytest.importorskip("matplotlib", reason="notebooks need matplotlib, see the extra 'plot'")

NAMES = (
    *("01_tour", "02_from_the_inside", "03_shallow_water", "04_posterior"),
    *("05_speed", "06_coming_from", "07_rules_of_your_own", "08_many_devices"),
)
NEEDS = {"04_posterior": "blackjax"}  # written for JAX, which comes with it

# In a process of its own: Jupyter's packages leave sockets and event loops behind.
EXECUTE = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


def test_all_notebooks_are_named_here(repository):
    assert sorted(p.stem for p in (repository / "notebooks").glob("*.ipynb")) == list(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_runs(name, repository, tmp_path):
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    path = repository / "notebooks" / f"{name}.ipynb"
    nbformat.validate(nbformat.read(path, as_version=4))
    command = [sys.executable, "-c", EXECUTE, str(path), str(tmp_path / "done.ipynb")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-5000:]
    cells = nbformat.read(tmp_path / "done.ipynb", as_version=4).cells
    cells = [cell for cell in cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)
    outputs = [out for cell in cells for out in cell.outputs]
    assert len(outputs) > len(cells) // 2
    assert not [out.text for out in outputs if out.get("name") == "stderr"]
