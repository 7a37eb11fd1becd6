"""The modules in docs/, which make pages of fnx."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def load(name: str):
    """A module of docs/, by its name."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
