"""Found first by the Python processes of a program that `python -m fnx.jax` runs: serves them, too."""

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path


class _First(MetaPathFinder):
    """Imports fnx.jax when somebody imports jax, so that other processes start as fast as ever."""

    def find_spec(self, name, path=None, target=None):
        if name not in ("jax", "jaxlib"):
            return None
        sys.meta_path.remove(self)
        import fnx.jax  # noqa: F401  (puts its finder first)

        return importlib.util.find_spec(name)


def _other() -> None:
    """Run the sitecustomize that this one hides, if there is one."""
    here = Path(__file__).resolve().parent
    elsewhere = [p for p in sys.path if p and Path(p).resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, _First())
_other()
