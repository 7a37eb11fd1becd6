"""Ranks of MPI: programs that mpiexec starts, on 2 and 4 ranks, and how a job ends."""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import fnx
from fnx.errors import MissingPackage
from fnx.process import devices as process_devices

SCRIPT = Path(__file__).with_name("ranks_script.py")
CHECKS = (
    "check_methods check_nan check_programs check_devices check_pmap check_gather check_arrays "
    "check_sharded_jit check_shard_map check_map"
).split()


def mpiexec() -> str | None:
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or mpiexec() is None,
    reason="mpi4py or mpiexec is missing (pip install fnx[mpi])",
)


def start(count: int, *arguments: str, devices: int = 1, timeout: float = 120):
    env = os.environ | {"FNX_NUM_DEVICES": str(devices), "FNX_NUM_THREADS": "1"}
    command = [mpiexec(), "-n", str(count), sys.executable, "-m", "fnx.distributed", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env)


@pytest.mark.slow
@needs_mpi
@pytest.mark.parametrize(("count", "devices"), [(2, 1), (4, 1), (2, 2)])
def test_ranks(count, devices):
    done = start(count, str(SCRIPT), *CHECKS, devices=devices)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split("\n")[:-1] == [f"{name} holds" for name in CHECKS]


@pytest.mark.slow
@needs_mpi
def test_checkpoints_are_read_by_another_number_of_ranks(tmp_path, monkeypatch):
    monkeypatch.setenv("FNX_TEST_FOLDER", str(tmp_path / "kept"))
    for count, devices, name in ((4, 1, "save_checkpoint"), (2, 1, "check_checkpoint"),
                                 (2, 2, "check_checkpoint"), (1, 1, "check_checkpoint")):  # fmt: skip
        done = start(count, str(SCRIPT), name, devices=devices)
        assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
@needs_mpi
def test_a_rank_that_fails_ends_the_job_with_its_message():
    began = time.monotonic()
    done = start(2, str(SCRIPT), "check_devices", "fail", timeout=60)
    assert time.monotonic() - began < 60
    assert done.returncode != 0
    assert "rank 1 of 2 failed: ShapeError: add got incompatible shapes" in done.stderr
    assert "ranks_script.py:" in done.stderr


@needs_mpi
def test_ranks_that_come_to_different_exchanges_are_told_both_lines(tmp_path, monkeypatch):
    script = tmp_path / "differ.py"
    script.write_text(
        "import fnx, numpy as np\n"
        "from fnx.process.devices import ranks\n"
        "if fnx.process_index() == 1: ranks[0].all_reduce(np.ones(2, 'float32'), 'sum')\n"
        "ranks[0].all_reduce(np.ones(1), 'sum')\n"
    )
    monkeypatch.setenv("FNX_CHECK", "1")
    done = start(2, str(script), timeout=60)
    assert done.returncode != 0
    assert f"0: sum of float64[1], at {script}:4 (<module>)" in done.stderr
    assert f"1: sum of float32[2], at {script}:3 (<module>)" in done.stderr


def test_a_script_that_the_launcher_runs_may_initialize_itself(monkeypatch):
    monkeypatch.setattr(process_devices, "ranks", [SimpleNamespace(rank=1, size=2)])
    fnx.distributed.initialize()
    fnx.distributed.initialize(num_processes=2, process_id=1)
    with pytest.raises(ValueError, match="num_processes=3, but MPI says 2"):
        fnx.distributed.initialize(num_processes=3)
    assert len(process_devices.ranks) == 1


@needs_mpi
def test_a_rank_that_exits_ends_the_job(tmp_path):
    script = tmp_path / "exits.py"
    script.write_text(
        "import fnx, sys\n"
        "from fnx.process.devices import ranks\n"
        "if fnx.process_index() == 1: sys.exit(3)\n"
        "ranks[0].barrier()\n"
    )
    done = start(2, str(script), timeout=60)
    # Of this rank, or of the other that mpiexec then killed: of which it hears first.
    assert done.returncode in (3, 9)
    assert f"rank 1 of 2 exited with 3\n  at {script}:3 (<module>)" in done.stderr


FAULTS = """
import os, sys, time
import fnx
from fnx.process.devices import ranks
if fnx.process_index() == 1:
    match sys.argv[1]:
        case "ends": sys.exit(0)
        case "is killed": os.kill(os.getpid(), 9)
        case "leaves": os._exit(0)
        case "hangs":
            while True: time.sleep(0.01)
if sys.argv[2] != "Barrier": fnx.distributed.map(abs, range(5))
ranks[0].barrier()
"""


@pytest.mark.slow
@needs_mpi
@pytest.mark.parametrize(
    ("how", "where", "message"),
    [
        (
            "ends",
            "Barrier",
            "waits in Barrier, and rank 1 has ended its program without coming there at",
        ),
        ("ends", "fnx.distributed.map", "and rank 1 has ended its program without coming there at"),
        ("is killed", "Barrier", "fnx.distributed: rank 1 of 3 (process "),
        ("leaves", "Barrier", "rank 1 of 3 called os._exit(0)"),
        ("hangs", "Barrier", "for other ranks in Barrier at"),
        ("hangs", "fnx.distributed.map", "for other ranks in fnx.distributed.map at"),
    ],
)
def test_a_rank_that_does_not_come_ends_the_job(how, where, message, tmp_path, monkeypatch):
    script = tmp_path / "faults.py"
    script.write_text(FAULTS)
    monkeypatch.setenv("FNX_EXCHANGE_TIMEOUT", "3")
    done = start(3, str(script), how, where, timeout=60)
    assert done.returncode != 0
    assert message in done.stderr
    # MPI kills the others then, whose sentinels may speak, too.
    assert done.stderr.count(" was killed; it was last seen ") in (
        (1, 2, 3) if how == "is killed" else (0,)
    )
    if how == "hangs":
        assert "rank 1 is elsewhere at" in done.stderr
        assert "faults.py:11" in done.stderr


@pytest.mark.slow
@needs_mpi
def test_an_item_of_map_that_exits_ends_no_rank(tmp_path):
    """Who catches it goes on, and nobody waits for a rank that left."""
    script = tmp_path / "exits.py"
    script.write_text(
        "import fnx, sys\n"
        "from fnx.process.devices import ranks\n"
        "try: fnx.distributed.map(lambda k: sys.exit(5) if k == 1 else k, range(6))\n"
        "except SystemExit as exits: sys.stdout.write(f'exits with {exits.code}\\n')\n"
        "ranks[0].barrier()\n"
        "fnx.distributed.map(lambda k: sys.exit(6) if k == 1 else k, range(6))\n"
    )
    done = start(2, str(script), timeout=60)
    assert done.returncode in (6, 9)
    assert done.stdout.count("exits with 5") == 2
    assert "of 2 exited with 6" in done.stderr


@needs_mpi
def test_an_error_ends_the_job_that_was_not_launched_by_us(tmp_path):
    script = tmp_path / "plain.py"
    script.write_text(
        "import fnx; fnx.distributed.initialize()\n"
        "from fnx.process.devices import ranks\n"
        "if fnx.process_index() == 1: raise KeyError('lost')\n"
        "ranks[0].barrier()\n"
    )
    command = [mpiexec(), "-n", "2", sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "rank 1 of 2 failed: KeyError: 'lost'" in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is not None, reason="mpi4py is there")
def test_without_mpi_the_error_says_what_to_install():
    with pytest.raises(MissingPackage, match=r"pip install fnx\[mpi\]"):
        fnx.distributed.initialize()
