"""What all tests share: an empty cache of compiled code, and Hypothesis without deadlines."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

# Before fnx is imported, so that no test sees code that another version of fnx has compiled.
_cache = tempfile.TemporaryDirectory(prefix="fnx-tests-", ignore_cleanup_errors=True)
os.environ["XDG_CACHE_HOME"] = _cache.name

# Compiling inside an example makes times uneven; a fixed seed makes failures repeatable.
settings.register_profile("fnx", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("nightly", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fnx"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The folder that holds pyproject.toml."""
    return Path(__file__).resolve().parent.parent
