"""Events as a file in the Chrome trace event format."""

import gzip
import json
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
    for number, name in threads.items():
        about = {"name": name}
        found.append(
            {"name": "thread_name", "ph": "M", "pid": process, "tid": number, "args": about}
        )
    for e in sorted(events, key=lambda e: (e.start, e.depth)):
        found.append(
            {
                "name": e.name if e.kind in ("mark", "pass", "transform") else f"{e.kind} {e.name}",
                "cat": e.kind, "ph": "X", "ts": 1e6 * e.start, "dur": 1e6 * e.seconds,
                "pid": process, "tid": e.thread, "args": e.about,
            }
        )  # fmt: skip
    return {"traceEvents": found, "displayTimeUnit": "ms"}


def save(path: str | os.PathLike, events: Sequence[Event], threads: Mapping[int, str]) -> None:
    """Write the file, compressed if its name ends with .gz."""
    data = json.dumps(encoded(events, threads), default=str).encode()
    if os.fspath(path).endswith(".gz"):
        data = gzip.compress(data)
    with open(path, "wb") as file:
        file.write(data)


__all__ = ["encoded", "save"]
