"""The picture of the way of a program is that of the code."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def way():
    spec = importlib.util.spec_from_file_location("way", ROOT / "docs/way.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_is_of_this_code(way):
    """If this fails, `python docs/way.py` draws it again."""
    assert way.drawing() == (ROOT / "docs/way.svg").read_text()


def test_what_it_names_exists(way):
    files = {p.stem for p in ROOT.glob("lowering/**/*.py")} | {
        p.stem for p in ROOT.glob("interpreters/**/*.py")
    }
    for _, rooms, _, words in way.steps():
        assert all((ROOT / room).exists() for room in rooms.split(", "))
        names = [w for w in words if re.fullmatch(r"[a-z_]+", w)]
        assert set(names) <= files, names


def test_a_pass_that_is_left_out_of_the_list_is_left_out_of_the_picture(way, monkeypatch):
    assert "loop_fusion" in way.drawing()
    monkeypatch.setattr(way.CpuTarget, "passes", way.CpuTarget.passes[1:])
    assert "loop_fusion" not in way.drawing()
