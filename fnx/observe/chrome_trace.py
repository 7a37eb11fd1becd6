"""Events as a file in the Chrome trace event format."""

import gzip
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from fnx.observe.recorder import Event


def encoded(events: Sequence[Event], threads: Mapping[int, str]) -> dict[str, Any]:
    """The events as complete ones ("X"), with microseconds, and the names of process and threads."""
    process = os.getpid()
    found: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": process, "args": {"name": "fnx"}}
    ]
    numbers = {thread: k for k, thread in enumerate(threads, 1)}  # tools read 32 bits of them
    for thread, name in threads.items():
        about = {"name": name}
        found.append(
            {
                "name": "thread_name",
                "ph": "M",
                "pid": process,
                "tid": numbers[thread],
                "args": about,
            }
        )
    for e in sorted(events, key=lambda e: (e.start, e.depth)):
        found.append(
            {
                "name": e.name if e.kind in ("mark", "pass", "transform") else f"{e.kind} {e.name}",
                "cat": e.kind, "ph": "X", "ts": 1e6 * e.start, "dur": 1e6 * e.seconds,
                "pid": process, "tid": numbers[e.thread],
                "args": {k: _plain(v) for k, v in e.about.items()},
            }
        )  # fmt: skip
    return {"traceEvents": found, "displayTimeUnit": "ms"}


def _plain(value: Any) -> Any:
    """What JSON has, or the text of what it has not."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, (str, int)) else str(value)


def save(path: str | os.PathLike, events: Sequence[Event], threads: Mapping[int, str]) -> None:
    """Write the file, compressed if its name ends with .gz."""
    data = json.dumps(encoded(events, threads)).encode()
    if os.fspath(path).endswith(".gz"):
        data = gzip.compress(data)
    with open(path, "wb") as file:
        file.write(data)


__all__ = ["encoded", "save"]
