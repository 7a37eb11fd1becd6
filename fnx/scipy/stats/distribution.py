"""What distributions have in common: functions derived from those that are given."""

from collections.abc import Callable
from typing import Any

from fnx.numpy import ufuncs as u


class Distribution:
    """A distribution as a namespace of functions: logpdf, pdf, cdf, sf, ... as far as they are known.

    What is not given is derived: pdf from logpdf, logcdf from cdf or the other way, sf from cdf.
    """

    def __init__(self, name: str, **functions: Callable):
        self.__name__ = name
        for key, fn in functions.items():
            fn.__name__ = key
            setattr(self, key, fn)
        self._derive("pdf", "logpdf", u.exp)
        self._derive("pmf", "logpmf", u.exp)
        self._derive("cdf", "logcdf", u.exp)
        self._derive("logcdf", "cdf", u.log)
        self._derive("sf", "logsf", u.exp)
        self._derive("sf", "cdf", lambda p: u.subtract(1.0, p))
        self._derive("logsf", "sf", u.log)
        self._derive("logsf", "cdf", lambda p: u.log1p(u.negative(p)))

    def _derive(self, new: str, old: str, of: Callable) -> None:
        if hasattr(self, old) and not hasattr(self, new):
            given = getattr(self, old)
            # The old function's signature, so that parameters can be given by name.
            derived: Any = lambda *args, **kwargs: of(given(*args, **kwargs))
            derived.__name__ = new
            derived.__wrapped__ = given
            derived.__doc__ = f"From {old}."
            setattr(self, new, derived)

    def __repr__(self) -> str:
        return f"<distribution {self.__name__}>"
