"""`jax.monitoring`: events that programs record, and who listens to them; fnx records none itself."""

from collections.abc import Callable
from typing import Any

_KINDS = "event", "event_duration", "event_time_span", "scalar"
_listeners: dict[str, list[Callable]] = {kind: [] for kind in _KINDS}


def _tell(kind: str, *args: Any, **said: Any) -> None:
    for listener in list(_listeners[kind]):
        listener(*args, **said)


def record_event(event: str, **said: Any) -> None:
    """Tell listeners that something happened."""
    _tell("event", event, **said)


def record_event_duration_secs(event: str, duration: float, **said: Any) -> None:
    """Tell listeners how many seconds something took."""
    _tell("event_duration", event, duration, **said)


def record_event_time_span(event: str, start_time: float, end_time: float, **said: Any) -> None:
    """Tell listeners when something began and ended, in seconds."""
    _tell("event_time_span", event, start_time, end_time, **said)


def record_scalar(event: str, value: float, **said: Any) -> None:
    """Tell listeners a number."""
    _tell("scalar", event, value, **said)


# Functions of a listener, which is called from then on, or no more: ValueError for one that is not there.
register_event_listener = _listeners["event"].append
register_event_duration_secs_listener = _listeners["event_duration"].append
register_event_time_span_listener = _listeners["event_time_span"].append
register_scalar_listener = _listeners["scalar"].append
unregister_event_listener = _listeners["event"].remove
unregister_event_duration_listener = _listeners["event_duration"].remove
unregister_event_time_span_listener = _listeners["event_time_span"].remove
unregister_scalar_listener = _listeners["scalar"].remove


def clear_event_listeners() -> None:
    """Forget all listeners."""
    for listeners in _listeners.values():
        listeners.clear()
