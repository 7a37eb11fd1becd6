"""The cache on disk under writers that die, files that are spoilt, disks that are full, and strangers.

Six processes compile and recall programs from one folder. Whatever happens to it, each of their results
must be NumPy's, and none may crash or wait for ever.
"""

import contextlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from fnx.lowering.cpu.jit import disk_cache, private_files

from . import _damage

ROOT = Path(__file__).resolve().parents[2]
WORKERS, KILLS, DAMAGES, TURNS = 6, 50, 500, 25
SAMPLE = 10.0  # a run of fewer seconds does not wait for the end of all it has begun
PATIENCE = 180.0  # seconds until a process is said to hang
STRANGER = 54321


# --- a process that uses the cache -------------------------------------------------------------


def programs() -> list[tuple[Any, Any]]:
    """Functions of an array and a number, and what NumPy says of them."""
    import numpy as np

    import fnx.numpy as jnp
    from fnx import lax

    def each(make: Any) -> tuple[Any, Any]:
        return make(jnp), make(np)

    def rounds(x: Any, c: float) -> Any:
        return lax.fori_loop(0, 5, lambda i, s: s * c + i, x)

    def rounds_again(x: Any, c: float) -> Any:
        for i in range(5):
            x = x * c + i
        return x

    return [
        each(lambda np: lambda x, c: np.sin(x) + c),
        each(lambda np: lambda x, c: np.cos(x) + c),
        each(lambda np: lambda x, c: x[::-1] * c),
        each(lambda np: lambda x, c: np.sum(x * x) * c + x),
        each(lambda np: lambda x, c: np.cumsum(x) - c),
        each(lambda np: lambda x, c: np.outer(x, x + c)),
        each(lambda np: lambda x, c: np.where(x > c, x, -x)),
        each(lambda np: lambda x, c: np.sort(np.sin(9 * x)) + c),
        each(lambda np: lambda x, c: np.outer(x, x) @ (x + c)),
        each(lambda np: lambda x, c: np.exp(-x / 10) * c + np.tanh(x)),
        (rounds, rounds_again),
    ]


def worker(seed: int, turns: int, tidies: bool = True) -> None:
    """Compile or recall programs, and say of each result whether it is right."""
    import numpy as np

    import fnx
    from fnx.lowering.cpu.jit import code_cache

    rng, table = random.Random(seed), programs()
    for turn in range(turns):
        k = turn % len(table) if seed < 0 else rng.randrange(len(table))
        c, n = rng.choice((1.25, -0.5, 3.0)), rng.choice((5, 7, 40))
        x, (f, g) = np.arange(float(n)), table[k]
        found = np.asarray(fnx.jit(lambda x, f=f, c=c: f(x, c))(x))
        if not np.allclose(found, g(x, c), rtol=1e-9, atol=1e-9):
            say(wrong=f"program {k} of {n} numbers with {c}: {found} is not {g(x, c)}")
        say(**code_cache.stats())
        code_cache.forget()
        if tidies and rng.random() < 0.02:
            rng.choice((fnx.cache.clear, lambda: fnx.cache.sweep(20000)))()


def say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class Process:
    """A worker, and what it has said."""

    running: ClassVar[list["Process"]] = []

    def __init__(self, cache: Path, seed: int, *more: Any, **options: Any):
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed when it has been read
        self.start, self.killed = time.monotonic(), False
        call = ", ".join(map(repr, (seed, *(more or (TURNS,)))))
        code = f"from tests.stress import cache; cache.worker({call})"
        env = {**os.environ, "FNX_CACHE_DIR": str(cache), "PYTHONWARNINGS": "ignore"}
        env["PYTHONDONTWRITEBYTECODE"] = "1"  # where no file can be written to its end
        command = [sys.executable, "-X", "faulthandler", "-c", code]
        self.process = subprocess.Popen(
            command, env=env, cwd=ROOT, stdout=self.log, stderr=self.log, **options
        )
        Process.running.append(self)

    def kill(self) -> None:
        self.killed = True
        self.process.kill()

    def ended(self) -> bool:
        if time.monotonic() - self.start > PATIENCE and not self.killed:
            self.process.kill()
        return self.process.poll() is not None

    def said(self) -> tuple[list[str], Counter[str]]:
        """What went wrong, and how often code was compiled or recalled; waits for the end."""
        while not self.ended():
            time.sleep(0.02)
        self.log.seek(0)
        text = self.log.read()
        self.log.close()
        Process.running.remove(self)
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        wrong = [line["wrong"] for line in lines if "wrong" in line]
        counts = sum((Counter(line) for line in lines if "wrong" not in line), Counter())
        if self.process.returncode and not self.killed:
            how = "hangs" if time.monotonic() - self.start > PATIENCE else "ends"
            wrong.append(f"a process {how} with {self.process.returncode}: {text[-2000:]}")
        return wrong, counts


def whole(cache: Path, **options: Any) -> tuple[list[str], Counter[str]]:
    """What a process says that runs each program once, on always the same numbers, and tidies nothing."""
    return Process(cache, -1, 11, False, **options).said()


# --- scenes ------------------------------------------------------------------------------------


def spoilt(cache: Path, seconds: float, rng: random.Random) -> list[str]:
    """Writers are killed and files spoilt, at random moments; in the end all is well again."""
    share = min(1.0, seconds / 60)
    moments = [(rng.uniform(0.1, 1) * seconds, "kill") for _ in range(round(KILLS * share))]
    moments += [(rng.uniform(0.1, 1) * seconds, "spoil") for _ in range(round(DAMAGES * share))]
    moments.sort()
    failures, total = whole(cache)  # what there is to spoil, however slowly processes start
    start, done = time.monotonic(), Counter()
    crew: list[Process] = []
    while time.monotonic() < start + seconds or crew:
        while moments and time.monotonic() > start + moments[0][0]:
            if moments.pop(0)[1] == "spoil":
                done[_damage.some(rng, cache)] += 1
            elif crew:
                rng.choice(crew).kill()
                done["kill"] += 1
        for one in [one for one in crew if one.ended()]:
            crew.remove(one)
            wrong, counts = one.said()
            failures += wrong
            total += counts
        if time.monotonic() < start + seconds:
            crew += [Process(cache, rng.randrange(1 << 30)) for _ in range(WORKERS - len(crew))]
        elif seconds < SAMPLE:
            for one in crew:
                one.kill()
        time.sleep(0.01)
    sys.stdout.write(f"  done: {dict(sorted(done.items()))}, programs: {dict(total)}\n")
    return failures + healed(cache)


def healed(cache: Path) -> list[str]:
    """What is wrong after all: right results at once, and entries for all of them when it is empty."""
    failures = whole(cache)[0]
    shutil.rmtree(cache)
    wrong, first = whole(cache)
    again, second = whole(cache)
    if second["compiled"] or not first["compiled"]:
        failures.append(f"an empty cache is not filled: {dict(first)}, then {dict(second)}")
    debris = [str(p) for p in cache.rglob(".tmp-*")]
    return failures + wrong + again + debris


@contextlib.contextmanager
def small_disk(place: Path, size: str) -> Iterator[bool]:
    """A file system of so many bytes, where this user may make one."""
    place.mkdir(0o700, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(place)]
    made = os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0
    try:
        yield made
    finally:
        if made:
            subprocess.run(["umount", "-l", str(place)], check=True)


def full(place: Path) -> list[str]:
    """Files cannot be written to their end: the disk is full, or no file may have so many bytes."""
    failures = []
    with small_disk(place / "small", "64k") as made:
        if made:
            crew = [Process(place / "small", seed, 11) for seed in range(3)]
            failures += [text for one in crew for text in one.said()[0]]
            failures += whole(place / "small")[0]

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    failures += whole(place / "short", preexec_fn=limited)[0]
    debris = list((place / "short").rglob(".tmp-*"))
    return failures + [f"left behind: {path}" for path in debris]


def read_only(place: Path) -> list[str]:
    """A filled cache that can be read alone is read, and one that cannot be made is done without."""
    failures = whole(Path("/proc/self/fnx"))[0]
    with small_disk(place / "reading", "4m") as made:
        failures += whole(place / "reading")[0]
        if made:
            remount = ["mount", "-o", "remount,ro", str(place / "reading")]
            subprocess.run(remount, check=True, capture_output=True)
        else:
            for path in [place / "reading", *(place / "reading").rglob("*")]:
                path.chmod(path.stat().st_mode & ~0o222)
        wrong, counts = whole(place / "reading")
        if counts["compiled"]:
            failures.append(f"a cache that can only be read is not used: {dict(counts)}")
        if not made:
            for path in [place / "reading", *(place / "reading").rglob("*")]:
                path.chmod(0o700)
    return failures + wrong


def planted(cache: Path) -> None:
    """Let each entry hold another's code, with the checksum that fits, as somebody would plant it."""
    files = sorted((p for p in cache.glob("??/*")), key=lambda p: p.stat().st_size)
    payloads = [path.read_bytes()[disk_cache._HEADER :] for path in files]
    for path, payload in zip(files, payloads[1:] + payloads[:1]):
        kind = "code" if payload[:1] in (b"I", b"O") else "program"
        path.write_bytes(disk_cache._header(kind, path.name, payload) + payload)


def foreign(place: Path) -> list[str]:
    """Code that others may have planted is not run, and nothing is written beside it."""
    failures = whole(place / "filled")[0]
    planted(place / "filled")
    ways = {"group": lambda p: p.chmod(0o770), "others": lambda p: p.chmod(0o703)}
    ways["parent"] = lambda p: p.parent.chmod(0o777)
    if os.geteuid() == 0:
        ways["owner"] = lambda p: os.chown(p, STRANGER, STRANGER)
    for name, change in ways.items():
        cache = place / name / "cache"
        private_files.make(str(cache.parent))
        shutil.copytree(place / "filled", cache)
        change(cache)
        before = {p: p.lstat().st_mtime_ns for p in cache.rglob("*")}
        wrong, counts = whole(cache)
        if counts["disk_hits"] or {p: p.lstat().st_mtime_ns for p in cache.rglob("*")} != before:
            failures.append(f"a folder of others is used ({name}): {dict(counts)}")
        failures += wrong
    return failures


def run(seconds: float, seed: int) -> list[str]:
    """What went wrong in so many seconds, after which each scene, or only one, is played out."""
    rng = random.Random(seed)
    place = Path(tempfile.mkdtemp(prefix="fnx-stress-"))
    try:
        failures = spoilt(place / "shared", seconds, rng)
        scenes = [full, read_only, foreign]
        for scene in scenes if seconds >= SAMPLE else rng.sample(scenes, 1):
            failures += [f"{scene.__name__}: {text}" for text in scene(place)]
        return failures
    finally:
        for one in Process.running:
            one.kill()
            one.process.wait()
        shutil.rmtree(place, ignore_errors=True)
