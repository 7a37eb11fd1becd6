"""Functions of NumPy for products, norms, factorizations and systems."""

from typing import Any as _Any

from fnx.core import lazy_imports as _later

for _name in ("factorizations", "systems"):  # most programs have no use for their many primitives
    _later.add(__name__, f"{__name__}.{_name}", _name, modules=True)


def __getattr__(name: str) -> _Any:
    return _later.find(__name__, name)
