"""fnx.doctor says what is wrong with a machine, and what to type."""

import importlib.util
import os
import subprocess
import sys

import pytest

import fnx
from fnx.core import config
from fnx.lowering.cpu.jit import disk_cache, private_files
from fnx.lowering.cpu.runtime import thread_pool
from fnx.observe import doctor


@pytest.fixture
def place(monkeypatch, tmp_path):
    """The folder of a cache that is well."""
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    for name in [n for n in os.environ if n.startswith(("FNX_", "NUMBA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("FNX_CACHE_DIR", str(own))
    monkeypatch.setattr(disk_cache, "_problems", {})
    monkeypatch.setitem(disk_cache._state, "warned", True)
    monkeypatch.setattr(private_files, "problem", _without_parents(private_files.problem, own))
    return own


def _without_parents(problem, own):
    """Folders above are the test runner's, whoever may write there."""
    return lambda folder: "" if "everybody may replace" in (why := problem(folder)) else why


def finding():
    report = fnx.doctor()
    (found,) = report.findings
    assert not report.well
    assert f"! {found.what}\n  {found.mend}" in str(report)
    return found


@pytest.mark.own_code
def test_nothing_is_wrong(place):
    report = fnx.doctor()
    assert report.well, report
    assert report.facts["cache"] == str(place)
    assert report.facts["compiling"] == "works, for cpu"
    assert str(report).endswith("Nothing is wrong.")


def test_a_folder_that_is_not_there_yet_is_no_mistake(place):
    place.rmdir()
    assert fnx.doctor().well


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_a_folder_that_others_may_write_to(place):
    place.chmod(0o777)
    found = finding()
    assert "others may write" in found.what
    assert found.mend == f"chmod go-w '{place}'"
    subprocess.run(found.mend, shell=True, check=True)
    disk_cache._problems.clear()
    assert fnx.doctor().well


def test_a_folder_of_another_user(place, monkeypatch):
    monkeypatch.setattr(private_files, "_ours", lambda found: False)
    assert "belongs to user" in finding().what
    assert "FNX_CACHE_DIR" in finding().mend


def test_a_file_in_place_of_the_folder(place):
    place.rmdir()
    place.write_text("")
    assert "no folder" in finding().what


def test_a_folder_that_cannot_be_written(place, monkeypatch):
    monkeypatch.setattr(doctor, "_is_read_only", lambda place: True)
    assert "cannot be written" in finding().what


def test_a_folder_that_cannot_be_made(place, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied", folder)

    place.rmdir()
    monkeypatch.setattr(private_files, "make", refuse)
    assert finding().what == "the cache cannot be made: Permission denied"


def test_a_full_cache(place, monkeypatch):
    monkeypatch.setenv("FNX_CACHE_LIMIT", "1")
    (place / "ab").mkdir()
    (place / "ab" / ("0" * 2 * disk_cache._DIGEST)).write_bytes(b"code")
    monkeypatch.setattr(disk_cache, "sweep", lambda bound=None: 0)
    assert "full" in finding().what


@pytest.mark.own_code
def test_without_a_package(place, monkeypatch):
    there = importlib.util.find_spec
    without = lambda gone: lambda name, *a: None if name == gone else there(name, *a)
    monkeypatch.setattr(doctor, "find_spec", without("numba"))
    assert fnx.doctor().well
    assert fnx.doctor().facts["numba"] == "not installed (optional)"
    monkeypatch.setattr(doctor, "find_spec", without("scipy"))
    assert finding() == ("scipy is missing, which fnx needs", "pip install scipy")


def test_more_threads_than_cpus(place, monkeypatch):
    monkeypatch.setattr(thread_pool, "available_cpus", lambda: 1)
    monkeypatch.setattr(thread_pool, "get_num_threads", lambda: 64)
    assert finding().mend == "export FNX_NUM_THREADS=1"


def test_settings_that_make_programs_slow(place):
    with config.check(True):
        assert finding().mend == "fnx.config.update('check', False)"


VARIABLES = {
    "FNX_NUM_THREADS": ("many", "FNX_NUM_THREADS is 'many'; expected an integer"),
    "FNX_CACHE_LIMIT": ("1 GB", "FNX_CACHE_LIMIT is '1 GB', which is no number of bytes"),
    "FNX_NUM_THREAD": ("2", "nothing reads FNX_NUM_THREAD; is FNX_NUM_THREADS meant?"),
}


@pytest.mark.parametrize("name", VARIABLES)
def test_variables_that_say_nothing(name, place, monkeypatch):
    value, what = VARIABLES[name]
    monkeypatch.setitem(thread_pool._settings, "threads", None)  # what another test said
    monkeypatch.setenv(name, value)
    found = finding()
    assert what in found.what
    assert found.mend.startswith((f"unset {name}", f"export {name}="))


def test_a_setting_of_the_environment_that_is_no_number(monkeypatch):
    monkeypatch.setenv("FNX_NUM_DEVICES", "four")
    with pytest.raises(ValueError, match="FNX_NUM_DEVICES is 'four' in the environment"):
        config.Setting("num_devices", 1, "")


def test_a_backend_that_is_none(place, monkeypatch):
    monkeypatch.setenv("FNX_BACKEND", "cpus")
    with config.backend("cpus"):
        assert finding().mend == "unset FNX_BACKEND"


@pytest.mark.own_code
def test_a_compiler_that_fails(place, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no code today")

    monkeypatch.setattr(disk_cache, "get", lambda *_, **__: None)
    monkeypatch.setattr("fnx.lowering.cpu.llvm.module_printer.emit", fail)
    assert "cannot be compiled" in finding().what


def test_the_command_and_the_function_have_one_name(place):
    import fnx.doctor

    assert fnx.doctor().facts["fnx"] == fnx.__version__
    command = [sys.executable, "-m", "fnx.doctor"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done
    assert "Nothing is wrong." in done.stdout
