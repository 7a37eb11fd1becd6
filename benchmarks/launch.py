"""Worker processes: started, listened to, and outlived when they crash or hang."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from measure import Settings

WORKER = Path(__file__).parent / "worker.py"


def say(text: str) -> None:
    """Progress on standard error."""
    print(f"... {text}", file=sys.stderr, flush=True)


def records(
    mode: str,
    names: Sequence[str],
    subject: str,
    settings: Settings,
    env: dict[str, str],
    timeout: float,
    threads: int | None = None,
) -> Iterator[dict]:
    """What workers say of each program of `names`; a worker that dies costs one program."""
    left = list(names)
    while left:
        command = [sys.executable, str(WORKER), mode, *left, "--subject", subject]
        command += ["--settings", json.dumps(asdict(settings))]
        command += ["--threads", str(threads)] if threads else []
        current = None
        for record in lines(command, env, timeout):
            if "start" in record:
                current = record["start"]
                say(f"{mode} {subject}: {current}")
            elif "program" in record:
                left.remove(record["program"])
                current = None
                yield record
            else:
                name = current or left[0]
                left.remove(name)
                died = record["died"]
                yield {"program": name, "error": died, "errors": {"subject": died}, "samples": {}}


def lines(command: list[str], env: dict[str, str], timeout: float) -> Iterator[dict]:
    """The JSON lines that a process prints; one more, {"died": why}, if it ends badly or hangs."""
    process = subprocess.Popen(
        command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    found: queue.Queue = queue.Queue()
    said: list[str] = []

    def read() -> None:
        for line in process.stdout:
            found.put(line)
        found.put(None)

    def listen() -> None:
        for line in process.stderr:
            said.append(line)
            del said[:-200]

    readers = [threading.Thread(target=t, daemon=True) for t in (read, listen)]
    for reader in readers:
        reader.start()
    died = None
    while died is None:
        try:
            line = found.get(timeout=timeout)
        except queue.Empty:
            process.kill()
            died = f"no answer within {timeout:.0f} s"
            break
        if line is None:
            break
        yield json.loads(line)
    status = process.wait()
    readers[1].join(timeout=1)
    if os.environ.get("FNX_BENCH_TRACEBACK"):
        sys.stderr.write("".join(said))
    if status and died is None:
        last = next((line.strip() for line in reversed(said) if line.strip()), "")
        died = f"the process ended with status {status}: {last[:300]}"
    if died:
        yield {"died": died}
