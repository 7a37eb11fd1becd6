"""What all tests share: an empty cache of compiled code, Hypothesis without deadlines, fixtures."""

import gc
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Before fnx is imported, so that no test sees code that another version of fnx has compiled. The workers
# of a run share it: what one of them compiled, the others load.
if "PYTEST_XDIST_WORKER" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="fnx-tests-", ignore_cleanup_errors=True)
    os.environ["XDG_CACHE_HOME"] = _cache.name
    # Hundreds of processes import fnx, which takes three times as long from sources as from bytecode.
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(_cache.name, "bytecode")

# Compiling inside an example makes times uneven; a fixed seed makes failures repeatable.
settings.register_profile("fnx", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("nightly", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fnx"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--backend", default="", help="what jit compiles for, if a test does not say")
    parser.addoption(
        "--device", default="", help="cuda: programs run on a GPU, or in Numba's simulator of one"
    )


def pytest_configure(config: pytest.Config) -> None:
    """The backend of the command line, which tests' own processes have, too."""
    device = config.getoption("--device")
    if device not in ("", "cpu", "cuda"):
        raise pytest.UsageError(f"--device {device}: expected cpu or cuda")
    chosen = "cuda" if device == "cuda" else config.getoption("--backend")
    if chosen:
        os.environ["FNX_BACKEND"] = chosen
        if "fnx" in sys.modules:  # which a folder's conftest has imported already
            sys.modules["fnx"].config.update("backend", chosen)
    if chosen == "cuda":
        _check_gpu()


def _check_gpu() -> None:
    """End at once, with what is missing, where programs cannot run on a GPU."""
    from fnx.core.errors import FnxError
    from fnx.lowering.cuda.backend import driver

    try:
        driver()
    except FnxError as error:
        hint = "NUMBA_ENABLE_CUDASIM=1 simulates one, for small arrays"
        raise pytest.UsageError(f"--device cuda: {error} ({hint})") from error


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Tens of thousands of tests stay until the end: the collector is not to look at them each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


QUICK = 8  # of a test's cases the first and every eighth after it are not slow: 150 s of 585 s


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the cases of a test the first and every eighth after it are quick, the others are slow."""
    if os.environ.get("FNX_BACKEND", "cpu") != "cpu":
        other = pytest.mark.skip(reason="it looks at code that only the backend 'cpu' makes")
        for item in items:
            if item.get_closest_marker("own_code"):
                item.add_marker(other)
    seen: Counter[str] = Counter()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if seen[name] % QUICK:
            item.add_marker(pytest.mark.slow)
        seen[name] += 1


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    """What a test makes of a function is made anew: it may have changed how programs are made."""
    from fnx.interpreters import trace_cache

    trace_cache.forget()


@pytest.fixture
def reference() -> Iterator[None]:
    """Programs are evaluated equation by equation with NumPy."""
    from fnx.core import config

    with config.backend("reference"):
        yield


@pytest.fixture
def checked() -> Iterator[None]:
    """The Kernel IR of every program is checked."""
    from fnx.core import config

    with config.check():
        yield


@pytest.fixture(scope="session")
def repository() -> Path:
    """The folder that holds pyproject.toml."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture
def no_code(tmp_path, monkeypatch) -> Iterator[Path]:
    """The folder of an empty cache; the process forgets the code that it holds."""
    from fnx.lowering.cpu.jit import code_cache

    monkeypatch.setenv("FNX_CACHE_DIR", str(tmp_path))
    code_cache.forget()
    yield tmp_path
    code_cache.forget()
