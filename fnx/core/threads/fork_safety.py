"""What a forked child may use, whatever the parent's other threads were doing: none of them is in it."""

import os
from functools import cached_property as _with_lock
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")
# Seconds that a fork waits for another thread: a first program is compiled in one of them. It imports
# modules meanwhile, and Python has no way to import in a child what another thread was importing.
PATIENCE = 5.0


def fork_safe(lock: T, patience: float = 0) -> T:
    """A reentrant lock of a module, such that a forked child finds it free, or its own.

    Where a change that is half done would matter, the fork has the `patience` to wait for its end: for
    locks that are taken first, lest two threads wait for each other all that time.
    """
    if hasattr(os, "register_at_fork"):
        found = _Renewed(lock, patience)
        os.register_at_fork(
            before=found.before, after_in_parent=found.go_on, after_in_child=found.renew
        )
    return lock


class _Renewed:
    """What happens to a lock at a fork."""

    def __init__(self, lock: Any, patience: float):
        self.lock, self.patience = lock, patience
        self.is_taken = self.is_own = False

    def before(self) -> None:
        self.is_own = self.lock._is_owned()
        self.is_taken = self.patience > 0 and self.lock.acquire(timeout=self.patience)

    def go_on(self) -> None:
        if self.is_taken:
            self.lock.release()

    def renew(self) -> None:
        if self.is_taken:
            self.lock.release()
        elif not self.is_own:
            self.lock._at_fork_reinit()


class _WithoutLock:
    """functools.cached_property as it is since Python 3.12.

    The one before holds a lock while it computes, the same for all objects of a class.
    """

    def __init__(self, function: Any):
        self.function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, thing: Any, owner: type | None = None) -> Any:
        if thing is None:
            return self
        found = thing.__dict__.get(self.name, self)
        if found is self:
            found = thing.__dict__[self.name] = self.function(thing)
        return found


if TYPE_CHECKING:
    cached_property = _with_lock
else:
    cached_property = _WithoutLock
