"""Worker processes: started, listened to, and outlived when they crash or hang."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
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
    """The JSON lines that a worker prints; one more, {"died": why}, if it ends badly or hangs.

    The worker goes on to its next program when this generator is resumed, so that the generators of
    several workers can take turns.
    """
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=env, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
    said: list[str] = []
    try:
        died = yield from conversation(process, timeout, said)
        status = 0 if died else process.wait()
    finally:
        process.kill()
        process.wait()
    if os.environ.get("FNX_BENCH_TRACEBACK"):
        sys.stderr.write("".join(said))
    if status:
        last = next((line.strip() for line in reversed(said) if line.strip()), "")
        died = f"the process ended with status {status}: {last[:300]}"
    if died:
        yield {"died": died}


def conversation(
    process: subprocess.Popen, timeout: float, said: list[str]
) -> Generator[dict, None, str | None]:
    """Ask for one program after the other; returns why the process did not answer, if it did not."""
    found: queue.Queue = queue.Queue()

    def read() -> None:
        for line in process.stdout:
            found.put(line)
        found.put(None)

    def listen() -> None:
        for line in process.stderr:
            said.append(line)
            del said[:-200]

    for target in (read, listen):
        threading.Thread(target=target, daemon=True).start()
    proceed(process)
    while True:
        try:
            line = found.get(timeout=timeout)
        except queue.Empty:
            return f"no answer within {timeout:.0f} s"
        if line is None:
            return None
        record = json.loads(line)
        yield record
        if "program" in record:
            proceed(process)


def proceed(process: subprocess.Popen) -> None:
    """Tell a worker to go on; one that has ended is noticed elsewhere."""
    with contextlib.suppress(OSError):
        process.stdin.write("\n")
        process.stdin.flush()
