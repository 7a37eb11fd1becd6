"""Whose files are trusted: owners and modes of folders and files, and what is no file at all."""

import os
import shutil
import socket
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from fnx import cache
from fnx.lowering.cpu.jit import disk_cache, private_files

STRANGER = 54321
TEXT = b"some code " * 20


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty cache that nobody has looked at yet."""
    monkeypatch.setenv("FNX_CACHE_DIR", str(tmp_path / "cache"))
    forget(monkeypatch)
    return tmp_path / "cache"


def forget(monkeypatch):
    """As in a new process."""
    monkeypatch.setattr(disk_cache, "_problems", {})
    monkeypatch.setitem(disk_cache._state, "warned", False)


@pytest.fixture
def entry(folder) -> tuple[str, Path]:
    name = disk_cache.key("an entry")
    assert disk_cache.put(name, TEXT)
    return name, disk_cache._path(name)


def owned_by(monkeypatch, *paths: Path, owner: int = STRANGER):
    """Let the system say that files belong to another, which only root could bring about."""
    theirs = {(p.stat().st_dev, p.stat().st_ino) for p in paths}

    def changed(call):
        def found(*args, **kwargs):
            about = call(*args, **kwargs)
            if (about.st_dev, about.st_ino) not in theirs:
                return about
            return os.stat_result((*about[:4], owner, *about[5:10]))

        return found

    for name in ("stat", "fstat"):
        monkeypatch.setattr(private_files.os, name, changed(getattr(os, name)))


def test_folders_are_made_for_the_user_alone(tmp_path):
    before = os.umask(0)
    try:
        private_files.make(str(tmp_path / "a" / "b" / "c"))
    finally:
        os.umask(before)
    for place in ("a", "a/b", "a/b/c"):
        assert stat.S_IMODE((tmp_path / place).stat().st_mode) == 0o700
    private_files.make(str(tmp_path / "a"))
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        private_files.make(str(tmp_path / "file"))


def test_a_folder_where_none_can_be_made_is_an_error(tmp_path, monkeypatch):
    def gone(folder, mode):  # as below /proc, whatever the folder above
        raise FileNotFoundError(2, "No such file or directory", folder)

    monkeypatch.setattr(private_files.os, "mkdir", gone)
    with pytest.raises(FileNotFoundError):
        private_files.make(str(tmp_path / "a" / "b"))


def refused(name: str, *words: str):
    """Nothing is read or written; there is one warning, which holds these words."""
    with pytest.warns(disk_cache.CacheWarning) as caught:
        assert disk_cache.get(name) is None
    (one,) = caught
    for word in (*words, "FNX_CACHE_DIR"):
        assert word in str(one.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert disk_cache.get(name) is None
        assert not disk_cache.put(disk_cache.key("another"), TEXT)
        assert not cache.info().enabled
        assert cache.info().entries == cache.clear() == cache.sweep(0) == 0


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused(folder, entry, monkeypatch, mode):
    forget(monkeypatch)
    folder.chmod(mode)
    refused(entry[0], "others may write", "chmod go-w", str(folder))
    folder.chmod(0o755)
    assert disk_cache.get(entry[0]) is None  # looked at once
    forget(monkeypatch)
    assert disk_cache.get(entry[0]) == TEXT


def test_a_folder_of_another_user_is_refused(folder, entry, monkeypatch):
    forget(monkeypatch)
    owned_by(monkeypatch, folder)
    refused(entry[0], f"belongs to user {STRANGER}", f"runs as user {os.geteuid()}")


def test_a_folder_of_root_is_trusted(folder, entry, monkeypatch):
    forget(monkeypatch)
    monkeypatch.setattr(private_files.os, "geteuid", lambda: STRANGER)
    owned_by(monkeypatch, folder, entry[1], owner=0)
    assert disk_cache.get(entry[0]) == TEXT


def test_a_folder_that_everybody_may_replace_is_refused(folder, entry, monkeypatch):
    forget(monkeypatch)
    folder.parent.chmod(0o777)
    refused(entry[0], "everybody may replace it", str(folder.parent))
    forget(monkeypatch)
    folder.parent.chmod(0o1777)  # as /tmp: each may replace what is theirs
    assert disk_cache.get(entry[0]) == TEXT


def test_a_folder_below_the_current_one_is_looked_at_in_each(folder, entry, monkeypatch, tmp_path):
    monkeypatch.setenv("FNX_CACHE_DIR", "cache")
    monkeypatch.chdir(tmp_path)
    assert disk_cache.get(entry[0]) == TEXT
    (tmp_path / "elsewhere").mkdir()
    shutil.copytree(folder, tmp_path / "elsewhere" / "cache")
    (tmp_path / "elsewhere" / "cache").chmod(0o777)
    monkeypatch.chdir(tmp_path / "elsewhere")
    refused(entry[0], "others may write", "elsewhere")


def test_a_folder_below_one_that_was_removed_is_done_without(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("FNX_CACHE_DIR", "cache")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert disk_cache.get(disk_cache.key("x")) is None
    with pytest.warns(disk_cache.CacheWarning, match="cannot be kept"):
        assert not disk_cache.put(disk_cache.key("x"), TEXT)
    assert cache.info().entries == 0


def test_what_a_link_leads_to_is_looked_at(folder, entry, monkeypatch, tmp_path):
    monkeypatch.setenv("FNX_CACHE_DIR", str(tmp_path / "link"))
    (tmp_path / "link").symlink_to(folder)
    assert disk_cache.get(entry[0]) == TEXT
    forget(monkeypatch)
    folder.chmod(0o777)
    refused(entry[0], str(folder))


def test_a_new_folder_in_a_place_of_all_is_refused_too(folder, monkeypatch):
    folder.parent.chmod(0o777)
    with pytest.warns(disk_cache.CacheWarning, match="everybody may replace it"):
        assert not disk_cache.put(disk_cache.key("x"), TEXT)
    assert [p for p in folder.rglob("*") if p.is_file()] == []


def replaced(name: str, path: Path):
    """There is no entry, and a new one can take its place."""
    assert disk_cache.get(name) is None
    assert disk_cache.put(name, TEXT)
    assert disk_cache.get(name) == TEXT
    assert stat.S_ISREG(path.lstat().st_mode)
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600


def test_a_file_of_another_user_is_no_entry(entry, monkeypatch):
    with monkeypatch.context() as patch:
        owned_by(patch, entry[1])
        assert disk_cache.get(entry[0]) is None
    assert disk_cache.get(entry[0]) == TEXT


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_to_is_no_entry(entry, mode):
    entry[1].chmod(mode)
    replaced(*entry)


def linked(path: Path):
    path.rename(path.parent / "elsewhere")
    path.symlink_to(path.parent / "elsewhere")


def dangling(path: Path):
    path.unlink()
    path.symlink_to("nowhere")


def circular(path: Path):
    path.unlink()
    path.symlink_to(path.name)


def device(path: Path):
    path.unlink()
    path.symlink_to("/dev/zero")


def pipe(path: Path):
    path.unlink()
    os.mkfifo(path)


def listener(path: Path):
    path.unlink()
    before = os.getcwd()
    os.chdir(path.parent)  # a socket's path must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def emptied(path: Path):
    path.unlink()
    path.mkdir()


def endless(path: Path):
    os.truncate(path, private_files.LARGEST + 1)


@pytest.mark.parametrize(
    "change", [linked, dangling, circular, device, pipe, listener, emptied, endless]
)
def test_what_is_no_file_of_ours_is_no_entry(entry, change):
    change(entry[1])
    replaced(*entry)
    assert cache.info().entries == 1


def test_too_large_an_entry_is_not_kept(folder, monkeypatch):
    monkeypatch.setattr(private_files, "LARGEST", 100)
    assert not disk_cache.put(disk_cache.key("x"), TEXT)
    assert disk_cache.put(disk_cache.key("x"), TEXT[:70])
    assert disk_cache.get(disk_cache.key("x")) == TEXT[:70]


def test_links_are_not_followed_to_remove_files(folder, entry, tmp_path):
    shard = tmp_path / "mine"
    entry[1].parent.rename(shard)
    entry[1].parent.symlink_to(shard)
    assert cache.clear() == cache.sweep(0) == 0
    assert [p.name for p in shard.iterdir()] == [entry[0]]


_CALLS = """
import numpy as np, fnx, fnx.numpy as jnp
from fnx.lowering.cpu.jit import code_cache
found = fnx.jit(lambda x: jnp.sum(x * x) + 1)(np.arange(5.0))
print(float(found), code_cache.stats()["compiled"])
"""


@pytest.mark.slow
def test_a_program_runs_on_without_a_folder_to_trust(folder):
    def run() -> tuple[str, str]:
        env = {**os.environ, "FNX_CACHE_DIR": str(folder)}
        command = [sys.executable, "-c", _CALLS]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        return done.stdout, done.stderr

    assert run() == ("31.0 1\n", "")
    assert run() == ("31.0 0\n", "")
    before = sorted(folder.rglob("*"))
    folder.chmod(0o777)
    out, warned = run()
    assert out == "31.0 1\n"
    assert warned.count("CacheWarning") == 1
    assert sorted(folder.rglob("*")) == before
