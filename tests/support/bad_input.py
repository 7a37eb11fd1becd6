"""Cases of bad input: functions that must raise, with certain words, mostly at a line that they mark."""

import inspect
import os
from collections.abc import Callable

import pytest

import fnx


def registry() -> tuple[list, Callable]:
    """A list of cases, and the decorator that enters one."""
    cases: list = []

    def raises(*kinds: type, words: str) -> Callable:
        """It must raise an error of all `kinds` with these words, which names its line marked `# here`."""

        def register(case: Callable) -> Callable:
            cases.append(pytest.param(case, kinds, words.split(), id=case.__name__))
            return case

        return register

    return cases, raises


def check(case: Callable, kinds: tuple[type, ...], words: list[str]) -> None:
    """Run a case: its error has these types and words, and knows the line that the case marks."""
    with pytest.raises(Exception) as caught:
        case()
    error = caught.value
    for kind in kinds:
        assert isinstance(error, kind), (type(error).__mro__, str(error))
    text = str(error)
    missing = [w for w in words if w not in text]
    assert not missing, f"{missing} not in: {text}"
    lines, first = inspect.getsourcelines(case)
    marked = [first + k for k, line in enumerate(lines) if "# here" in line]
    for here in marked:
        assert isinstance(error, fnx.errors.FnxError)
        assert f"{os.path.basename(inspect.getsourcefile(case))}:{here}" in text
