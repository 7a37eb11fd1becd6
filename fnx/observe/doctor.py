"""What fnx finds on this machine, what is wrong, and the line that mends it."""

import os
import platform
import stat
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from fnx.core import __version__, config
from fnx.core.errors import FnxError
from fnx.process.devices import devices

_NEEDED = ("numpy", "scipy", "llvmlite", "optree", "ml_dtypes", "tqdm", "platformdirs")
_EXTRAS = ("numba", "matplotlib", "ipywidgets", "treescope", "jax")
_CLEAR = "python -c 'import fnx.cache; fnx.cache.clear()'"
_FULL = 0.95  # of a cache's bound, from which on its entries push each other out


class Finding(NamedTuple):
    """Something that is wrong, and what to type to mend it."""

    what: str
    mend: str


class Report:
    """What was found: `facts`, by name, and `findings`, what is wrong. Printed, it is for people.

    >>> report = fnx.doctor()
    >>> report.facts["fnx"] == fnx.__version__
    True
    """

    def __init__(self, facts: dict[str, str], findings: list[Finding]):
        self.facts, self.findings = facts, findings

    @property
    def well(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def __str__(self) -> str:
        width = max(map(len, self.facts))
        lines = [f"{name:<{width}}  {text}" for name, text in self.facts.items()]
        if self.well:
            return "\n".join([*lines, "", "Nothing is wrong."])
        for what, mend in self.findings:
            lines += ["", f"! {what}", f"  {mend}"]
        return "\n".join(lines)

    __repr__ = __str__


def doctor() -> Report:
    """Versions, CPU, threads, cache, devices, extras; what is wrong, and the line that mends it.

    `python -m fnx.doctor` prints it, and ends with 1 if something is wrong.

    >>> "cache" in fnx.doctor().facts
    True
    """
    findings: list[Finding] = []
    facts = {"fnx": __version__, "python": f"{platform.python_version()} ({sys.executable})"}
    facts["system"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    for section in (_packages, _cpu, _threads, _cache, _compiles, _devices, _settings):
        facts.update(section(findings))
    return Report(facts, findings)


Facts = Iterator[tuple[str, str]]


def _packages(findings: list[Finding]) -> Facts:
    for name in (*_NEEDED, *_EXTRAS):
        needed = name in _NEEDED
        try:
            there = find_spec(name) is not None
        except (ImportError, ValueError):  # put aside, or half there
            there = False
        if there:
            try:
                yield name, metadata.version(name)
            except metadata.PackageNotFoundError:
                yield name, "there, of no known version"
        elif needed:
            yield name, "missing"
            findings.append(Finding(f"{name} is missing, which fnx needs", f"pip install {name}"))
        else:
            yield name, "not installed (optional)"
    if config.backend.value == "numba" and find_spec("numba") is None:
        what = "the backend is numba, which is not installed"
        findings.append(Finding(what, "pip install numba"))


def _cpu(findings: list[Finding]) -> Facts:
    from fnx.lowering.cpu.processor import features

    try:
        bits, fma = features.vector_bits(), features.has_fma()
    except Exception as error:
        yield "cpu", f"unknown: {type(error).__name__}: {error}"
        findings.append(Finding("the CPU cannot be asked what it is", "pip install -U llvmlite"))
        return
    yield "cpu", f"vectors of {bits} bits, {'with' if fma else 'without'} fused products"
    chosen = [n for n in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES") if n in os.environ]
    if chosen:
        what = f"{' and '.join(chosen)} of the environment rule what code is made for"
        findings.append(Finding(what, f"unset {' '.join(chosen)}"))


def _threads(findings: list[Finding]) -> Facts:
    from fnx.lowering.cpu.runtime import thread_pool

    free, there = thread_pool.available_cpus(), os.cpu_count() or 1
    mend = f"export FNX_NUM_THREADS={free}"
    try:
        used = thread_pool.get_num_threads()
    except FnxError as error:  # of a number of threads that is none
        yield "threads", "unknown"
        findings.append(Finding(str(error).splitlines()[0], mend))
        return
    quota = "none" if thread_pool.quota() >= there else f"{thread_pool.quota()} CPUs"
    yield (
        "threads",
        f"{used} of {free} CPUs that this process may use; {there} there, quota {quota}",
    )
    if used > free:
        findings.append(Finding(f"{used} threads share {free} CPUs, and wait for each other", mend))


def _cache(findings: list[Finding]) -> Facts:
    from fnx.lowering.cpu.jit import disk_cache, private_files

    place = disk_cache.folder()
    if not disk_cache.enabled():
        yield "cache", f"{place}, switched off"
        what = "compiled code is not kept, so that each process compiles anew"
        findings.append(Finding(what, "unset FNX_CACHE"))
        return
    yield "cache", str(place)
    try:
        found = place.stat()
    except FileNotFoundError:
        yield "cache holds", "nothing yet"
        try:
            private_files.make(str(place))
        except OSError as error:
            what = f"the cache cannot be made: {error.strerror}"
            findings.append(Finding(what, _elsewhere()))
        return
    except OSError as error:
        yield "cache holds", f"unknown: {error.strerror}"
        findings.append(Finding(f"the cache cannot be looked at: {error.strerror}", _elsewhere()))
        return
    yield "cache owner", f"user {found.st_uid}, mode {stat.filemode(found.st_mode)}"
    if not place.is_dir():
        findings.append(Finding("the cache is no folder", _elsewhere()))
        return
    why = private_files.problem(str(place))
    if why:
        own = os.name == "posix" and found.st_uid == os.geteuid()
        loose = own and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        mend = f"chmod go-w '{place}'" if loose else _elsewhere()
        findings.append(Finding(f"compiled code is not kept: {why.split(' (run')[0]}", mend))
        return
    if not os.access(place, os.W_OK | os.X_OK) or _is_read_only(place):
        findings.append(Finding("the cache cannot be written to", _elsewhere()))
    about = disk_cache.info()
    yield "cache holds", f"{about.entries} programs, {about.bytes:,} bytes of {about.limit:,}"
    if about.bytes > _FULL * about.limit:
        what = "the cache is full, so that programs push each other out"
        findings.append(Finding(what, f"export FNX_CACHE_LIMIT={4 * max(about.limit, 1 << 28)}"))


def _elsewhere() -> str:
    return "export FNX_CACHE_DIR=/a/folder/of/yours  # which nobody else may write to"


def _is_read_only(place: Path) -> bool:
    flags = os.statvfs(place).f_flag if hasattr(os, "statvfs") else 0
    return bool(flags & getattr(os, "ST_RDONLY", 1))


def _compiles(findings: list[Finding]) -> Facts:
    """Whether a small program, which no cache knows, can be compiled and gives what it should."""
    from fnx.transforms.jit import jit

    number = int.from_bytes(os.urandom(4), "little") / 7
    try:
        with config.disable_jit(False):
            found = float(jit(lambda x: x * number + 1.0)(2.0))
    except Exception as error:
        said = str(error).splitlines()[0] if str(error) else ""
        yield "compiling", f"fails: {type(error).__name__}: {said}"
        what = f"programs cannot be compiled ({type(error).__name__}: {said})"
        chosen = os.environ.get(config.backend.variable)
        slow = f"export {config.backend.variable}=reference  # slow, until it is mended"
        mend = f"unset {config.backend.variable}" if chosen else slow
        findings.append(Finding(what, mend))
        return
    good = np.isclose(found, 2.0 * number + 1.0, rtol=1e-14)
    yield "compiling", f"works, for {config.backend.value}" if good else "gives wrong numbers"
    if not good:
        findings.append(Finding("compiled programs give wrong numbers", _CLEAR))


def _devices(findings: list[Finding]) -> Facts:
    yield "devices", ", ".join(map(str, devices()))


# What is read from the environment and is no setting.
_VARIABLES = ("FNX_CACHE_DIR", "FNX_CACHE_LIMIT", "FNX_NUM_THREADS")


def _settings(findings: list[Finding]) -> Facts:
    given = {n: v for n, v in sorted(os.environ.items()) if n.startswith("FNX_")}
    yield "settings", ", ".join(map("=".join, given.items())) or "none of the environment"
    settings = [s for s in vars(config).values() if isinstance(s, config.Setting)]
    known = [*_VARIABLES, *(s.variable for s in settings)]
    for name in given:
        if name not in known:
            nearest = get_close_matches(name, known, 1)
            meant = f"; is {nearest[0]} meant?" if nearest else ""
            findings.append(Finding(f"nothing reads {name}{meant}", f"unset {name}"))
    limit = given.get("FNX_CACHE_LIMIT", "0")
    if not limit.strip().isdigit():
        what = f"FNX_CACHE_LIMIT is {limit!r}, which is no number of bytes, and is passed over"
        findings.append(Finding(what, "unset FNX_CACHE_LIMIT"))
    looks = config.debug_nans, config.debug_infs, config.debug_index
    for setting in (config.disable_jit, config.check, *looks):
        if setting.value:
            what = f"{setting.name} is on, which makes programs slow ({setting.doc})"
            off = f"fnx.config.update('{setting.name}', False)"
            mend = f"unset {setting.variable}" if setting.variable in given else off
            findings.append(Finding(what, mend))


class _Callable(ModuleType):
    """A module that is called as the function of its name is, which is found in the same place."""

    def __call__(self) -> Report:
        return doctor()


def loaded(name: str) -> None:
    """Let the module of this name be called; as a program it prints the report."""
    sys.modules[name].__class__ = _Callable
    if name == "__main__":
        raise SystemExit(main())


def main() -> int:
    """Print the report; 1 if something is wrong."""
    report = doctor()
    sys.stdout.write(f"{report}\n")
    return 0 if report.well else 1


__all__ = ["Finding", "Report", "doctor", "loaded", "main"]
