"""The persistent cache: entries survive, damage is a miss, nothing about it can stop a program."""

import ast
import os
import stat
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from module_graph import modules

from fnx.core import config
from fnx.lowering.cpu.jit import disk_cache
from fnx.lowering.cpu.processor import features


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("FNX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(disk_cache._state, "warned", False)
    monkeypatch.setitem(disk_cache._state, "writes", 0)
    return tmp_path / "cache"


def only_file(folder: Path) -> Path:
    (file,) = (p for p in folder.rglob("*") if p.is_file())
    return file


def test_put_get(folder):
    name = disk_cache.key("a program")
    assert disk_cache.get(name) is None
    assert disk_cache.put(name, b"code")
    assert disk_cache.get(name) == b"code"
    assert disk_cache.put(name, b"newer")
    assert disk_cache.get(name) == b"newer"
    assert disk_cache.get(disk_cache.key("another")) is None


def test_keys_depend_on_each_part_and_where_it_ends():
    keys = {
        disk_cache.key("ab", "c"),
        disk_cache.key("a", "bc"),
        disk_cache.key("abc"),
        disk_cache.key(b"abd"),
    }
    assert len(keys) == 4
    assert disk_cache.key("x", b"y") == disk_cache.key(b"x", "y")
    assert disk_cache.key("x", sources=False) != disk_cache.key("x")


def test_key_depends_on_cpu_and_versions():
    import llvmlite

    words = disk_cache.environment().decode().split("\0")
    assert set(features.identity()) <= set(words)
    assert llvmlite.__version__ in words[0]


def test_key_depends_on_the_version_of_python(monkeypatch):
    before = disk_cache.key("x", sources=False)
    monkeypatch.setattr(sys.implementation, "cache_tag", "cpython-399")
    disk_cache.environment.cache_clear()
    try:
        assert disk_cache.key("x", sources=False) != before
    finally:
        monkeypatch.undo()
        disk_cache.environment.cache_clear()


def test_key_depends_on_the_version_of_fnx_whatever_the_times_of_files(monkeypatch):
    before = disk_cache.key("x")
    monkeypatch.setattr(disk_cache, "__version__", "0.1.0.dev1")
    disk_cache.fingerprint.cache_clear()
    try:
        assert disk_cache.key("x") != before
    finally:
        monkeypatch.undo()
        disk_cache.fingerprint.cache_clear()


def test_key_depends_on_settings_of_numba(monkeypatch):
    before = disk_cache.key("x")
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    disk_cache.environment.cache_clear()
    try:
        assert disk_cache.key("x") != before
    finally:
        monkeypatch.undo()
        disk_cache.environment.cache_clear()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"X" + data[1:],
        lambda data: data + b"more",
        lambda data: os.urandom(len(data)),
    ],
    ids="truncated empty bit header appended noise".split(),
)
def test_damage_is_a_miss(folder, damage):
    name = disk_cache.key("x")
    disk_cache.put(name, b"some code " * 20)
    file = only_file(folder)
    file.write_bytes(damage(file.read_bytes()))
    assert disk_cache.get(name) is None
    assert not file.exists()
    assert disk_cache.put(name, b"again")
    assert disk_cache.get(name) == b"again"


def swapped(one: Path, other: Path):
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def copied(one: Path, other: Path):
    other.write_bytes(one.read_bytes())


def renamed(one: Path, other: Path):
    one.rename(other)


def hard_linked(one: Path, other: Path):
    other.unlink()
    other.hardlink_to(one)


@pytest.mark.parametrize("change", [swapped, copied, renamed, hard_linked])
def test_the_bytes_of_another_entry_are_a_miss(folder, change):
    names = [disk_cache.key(text) for text in ("one", "other")]
    for name in names:
        disk_cache.put(name, name.encode())
    change(*map(disk_cache._path, names))
    assert disk_cache.get(names[1]) is None
    assert disk_cache.get(names[0]) in (None, names[0].encode())
    for name in names:
        assert disk_cache.put(name, name.encode())
    assert [disk_cache.get(name) for name in names] == [name.encode() for name in names]


def test_an_entry_of_another_kind_is_a_miss(folder):
    name = disk_cache.key("x")
    disk_cache.put(name, b"numbers", "program")
    assert disk_cache.get(name, "program") == b"numbers"
    assert disk_cache.get(name, "code") is None


_CALLS = """
import sys
import numpy as np, fnx, fnx.numpy as jnp
from fnx.lowering.cpu.jit import code_cache
x = np.arange(7.0)
for k, f in enumerate((jnp.sin, jnp.cos, lambda x: x[::-1] + 1, lambda x: jnp.sum(x) * x)):
    want = (np.sin(x), np.cos(x), x[::-1] + 1, np.sum(x) * x)[k]
    assert np.allclose(fnx.jit(lambda x: f(x) - 1)(x), want - 1), k
print(code_cache.stats()["compiled"], code_cache.stats()["disk_hits"])
"""


@pytest.mark.slow
def test_programs_that_were_mixed_up_are_compiled_again(folder):
    def run() -> list[int]:
        env = {**os.environ, "FNX_CACHE_DIR": str(folder)}
        command = [sys.executable, "-W", "error", "-c", _CALLS]
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, check=True, timeout=120
        )
        return [int(word) for word in done.stdout.split()]

    compiled = run()
    assert compiled[0] >= 4
    hits = [0, sum(compiled)]
    assert run() == hits
    files = sorted((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    contents = [file.read_bytes() for file in files]
    for file, data in zip(files, contents[1:] + contents[:1]):  # those of alike sizes, too
        file.write_bytes(data)
    assert run() == compiled
    assert run() == hits


def test_unreadable_entries_are_misses(folder):
    name = disk_cache.key("x")
    disk_cache.put(name, b"code")
    file = only_file(folder)
    file.unlink()
    file.mkdir()  # reading it fails, even for root
    (file / "notes.txt").write_text("mine")  # and so does removing it
    assert disk_cache.get(name) is None
    with pytest.warns(disk_cache.CacheWarning):
        assert not disk_cache.put(name, b"code")


def test_off(folder):
    with config.cache(False):
        assert not disk_cache.put(disk_cache.key("x"), b"code")
        assert disk_cache.get(disk_cache.key("x")) is None
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_warns_once(tmp_path, monkeypatch, folder):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FNX_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(disk_cache.CacheWarning, match="FNX_CACHE_DIR"):
        assert not disk_cache.put(disk_cache.key("x"), b"code")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not disk_cache.put(disk_cache.key("y"), b"code")
    assert disk_cache.get(disk_cache.key("x")) is None
    assert disk_cache.info().entries == 0


NOBODY = 65534


@pytest.fixture
def unprivileged():
    """The rights of a user: root may write everywhere."""
    before = os.geteuid()
    if before == 0:
        try:
            os.seteuid(NOBODY)
        except PermissionError:
            pytest.skip("this root may not become another user, and may write everywhere")
    yield
    os.seteuid(before)


def test_a_folder_without_permission(folder, request):
    folder.mkdir()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    request.getfixturevalue("unprivileged")
    with pytest.warns(disk_cache.CacheWarning, match="Permission denied"):
        assert not disk_cache.put(disk_cache.key("x"), b"code")


def test_a_full_disk_leaves_no_debris(folder, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk_cache.os, "replace", full)
    with pytest.warns(disk_cache.CacheWarning, match="No space"):
        assert not disk_cache.put(disk_cache.key("x"), b"code")
    assert [p for p in folder.rglob("*") if p.is_file()] == []


def test_info_and_clear(folder):
    assert disk_cache.info().entries == 0
    for k in range(5):
        disk_cache.put(disk_cache.key(str(k)), b"x" * 100)
    info = disk_cache.info()
    assert info.folder == folder
    assert info.enabled
    assert info.entries == 5
    assert 500 < info.bytes < 1000
    assert disk_cache.clear() == 5
    assert disk_cache.info().entries == 0
    assert disk_cache.get(disk_cache.key("0")) is None
    assert disk_cache.clear() == 0


def test_the_oldest_entries_are_evicted(folder, monkeypatch):
    names = [disk_cache.key(str(k)) for k in range(10)]
    for age, name in enumerate(names):
        disk_cache.put(name, b"x" * 1000)
        os.utime(disk_cache._path(name), (time.time() - 100 * (10 - age),) * 2)
    monkeypatch.setenv("FNX_CACHE_LIMIT", "5000")
    assert disk_cache.sweep() > 0
    left = [name for name in names if disk_cache.get(name) is not None]
    assert left == names[-len(left) :]
    assert 1 <= len(left) <= 4
    assert disk_cache.sweep() == 0


def test_a_hit_makes_an_entry_young(folder):
    name = disk_cache.key("x")
    disk_cache.put(name, b"code")
    long_ago = time.time() - 30 * 86400
    os.utime(disk_cache._path(name), (long_ago, long_ago))
    disk_cache.get(name)
    assert disk_cache._path(name).stat().st_mtime > long_ago + 86400


def test_writes_sweep_now_and_then(folder, monkeypatch):
    monkeypatch.setenv("FNX_CACHE_LIMIT", "20000")
    monkeypatch.setattr(disk_cache, "_SWEEP_EVERY", 8)
    for k in range(64):
        disk_cache.put(disk_cache.key(str(k)), b"x" * 1000)
    assert disk_cache.info().bytes < 20000 + 8 * 1100


def test_abandoned_temporary_files_go(folder):
    disk_cache.put(disk_cache.key("x"), b"code")
    torn = only_file(folder).parent / ".tmp-abandoned"
    torn.write_bytes(b"half")
    os.utime(torn, (time.time() - 7200,) * 2)
    disk_cache.sweep()
    assert not torn.exists()
    assert disk_cache.get(disk_cache.key("x")) == b"code"


_WRITER = """
import sys
from fnx.lowering.cpu.jit import disk_cache as cache
from fnx.lowering.cpu.processor import features as processor
for turn in range(40):
    for k in range(5):
        name, want = cache.key(str(k)), (b"%d" % k) * 50000
        cache.put(name, want)
        found = cache.get(name)
        assert found is None or found == want, (len(found), found[:10])
        if turn % 10 == int(sys.argv[1]):
            cache.clear()
"""


@pytest.mark.slow
def test_many_processes_share_a_folder(folder):
    env = {**os.environ, "FNX_CACHE_DIR": str(folder), "PYTHONWARNINGS": "ignore"}
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(k)], env=env) for k in range(3)]
    assert [w.wait(timeout=120) for w in writers] == [0, 0, 0]
    assert [p for p in folder.rglob(".tmp-*") if p.is_file()] == []


def test_files_of_others_are_left_alone(folder):
    disk_cache.put(disk_cache.key("x"), b"code")
    foreign = [folder / "ab" / "notes.txt", folder / "py" / ("0" * 40), folder / "data"]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    assert disk_cache.info().entries == 1
    disk_cache.sweep(0)
    disk_cache.clear()
    assert all(path.read_text() == "mine" for path in foreign)


def test_a_changed_source_is_noticed(tmp_path):
    def stamps():
        return sorted(disk_cache._stamps(str(tmp_path)))

    (tmp_path / "inner" / "__pycache__").mkdir(parents=True)
    source = tmp_path / "inner" / "a.py"
    source.write_text("x = 1")
    first = stamps()
    assert len(first) == 1
    (tmp_path / "notes.txt").write_text("no source")
    (tmp_path / "inner" / "__pycache__" / "a.py").write_text("no source either")
    assert stamps() == first
    source.write_text("x = 1 ")
    second = stamps()
    os.utime(source, (1, 1))
    third = stamps()
    source.rename(tmp_path / "inner" / "b.py")
    assert len({str(lines) for lines in (first, second, third, stamps())}) == 4


@pytest.mark.parametrize("chosen", ["/somewhere/else", "", "  ", None, "relative/place"])
def test_the_folder_is_the_one_of_the_platform(monkeypatch, chosen):
    import platformdirs

    monkeypatch.delenv("XDG_CACHE_HOME")
    if chosen is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", chosen)
    disk_cache._default_folder.cache_clear()
    try:
        expected = platformdirs.user_cache_dir("fnx", appauthor=False)
        assert disk_cache._default_folder() == Path(expected)
    finally:
        monkeypatch.undo()
        disk_cache._default_folder.cache_clear()


@pytest.mark.slow
def test_whatever_lowers_a_primitive_is_among_the_sources_that_keys_depend_on():
    seen = 0
    for name, file in modules().items():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name == "lower" and node.returns:
                if "Recipe" in ast.unparse(node.returns):
                    assert name.startswith(disk_cache.SOURCES), name
                    seen += 1
    assert seen > 60


@pytest.mark.parametrize("chosen", [None, "relative/place"])
def test_a_user_without_a_home_has_a_folder_of_temporary_files(monkeypatch, tmp_path, chosen):
    def nobody(user):
        raise KeyError(user)

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if chosen is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", chosen)
    disk_cache._default_folder.cache_clear()
    try:  # never "~/.cache" in the current folder, whosever that is
        assert disk_cache.folder() == tmp_path / f"fnx-{os.geteuid()}"
    finally:
        monkeypatch.undo()
        disk_cache._default_folder.cache_clear()
