"""JAX's settings in the environment, which programs that were written for it are started with."""

from collections.abc import Mapping
from typing import Any

from fnx.core.errors import InvalidValue

_TRUTH = {"1": True, "t": True, "true": True, "y": True, "yes": True, "on": True}
_TRUTH |= {"0": False, "f": False, "false": False, "n": False, "no": False, "off": False}


def follow(environment: Mapping[str, str]) -> None:
    """Set what variables say that JAX would read, such as JAX_DEBUG_NANS=1, and that mean something here.

    InvalidValue, a ValueError, for words that are not true or false where one is expected.
    """
    given = {k.lower(): text for k, text in environment.items() if k.startswith("JAX_")}
    if not given:
        return
    from fnx.process.settings import ACTING, config

    for name in sorted(given.keys() & ACTING):
        config.update(name, _value(name, given[name], config.read(name)))


def _value(name: str, text: str, before: Any) -> Any:
    if not isinstance(before, bool):
        return int(text) if isinstance(before, int) else text
    if text.lower() not in _TRUTH:
        raise InvalidValue(
            f"{name.upper()} is {text!r} in the environment; expected true or false, 1 or 0"
        )
    return _TRUTH[text.lower()]
