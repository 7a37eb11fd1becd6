"""Checkpoints: what comes back, what is refused, and runs that are killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import checkpoints
from fnx.checkpoints import writing
from fnx.core import config, dtypes
from fnx.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.sharding import NamedSharding
from fnx.sharding import PartitionSpec as P


class State(NamedTuple):
    w: object
    step: object


TREE = {
    "z": [jnp.arange(6.0).reshape(2, 3), None, (3, 2.5, True, 1 + 2j)],
    "a": {"empty": jnp.zeros((0, 3)), "scalar": jnp.asarray(7), "weak": jnp.asarray(2.0) * 1},
    "numpy": np.arange(3, dtype=np.int8),
}


def same(found, expected):
    assert fnx.tree.structure(found) == fnx.tree.structure(expected)
    for a, b in zip(fnx.tree.leaves(found), fnx.tree.leaves(expected), strict=True):
        if isinstance(b, (bool, int, float, complex)):
            assert (type(a), a) == (type(b), b)
        else:
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_a_tree_comes_back(tmp_path):
    path = checkpoints.save(tmp_path, 12, TREE)
    assert path.name == "step_000000000012"
    same(checkpoints.restore(tmp_path), TREE)
    same(checkpoints.restore(tmp_path, like=TREE), TREE)
    assert list(checkpoints.restore(tmp_path)) == list(TREE)  # keys in their order


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: dtypes.NAME[d])
def test_every_dtype_comes_back(dtype, tmp_path):
    x = jnp.asarray(np.arange(6).reshape(2, 3) % 2).astype(dtype)
    checkpoints.save(tmp_path, 0, x)
    back = checkpoints.restore(tmp_path)
    assert back.dtype == dtype
    assert np.asarray(back).tobytes() == np.asarray(x).tobytes()


def test_weak_types_and_bits_stay(tmp_path):
    x = [jnp.asarray(np.array([np.nan, -0.0, np.inf])), fnx.jit(lambda: 2.0)()]
    checkpoints.save(tmp_path, 0, x)
    back = checkpoints.restore(tmp_path)
    assert np.asarray(back[0]).tobytes() == np.asarray(x[0]).tobytes()
    assert back[1].weak_type == x[1].weak_type


def test_other_nodes_need_a_tree_of_the_structure(tmp_path):
    checkpoints.save(tmp_path, 0, State(jnp.ones(2), 5))
    with pytest.raises(InvalidValue, match="like=tree"):
        checkpoints.restore(tmp_path)
    back = checkpoints.restore(tmp_path, like=State(fnx.ShapeDtypeStruct((2,), "float64"), 0))
    assert isinstance(back, State)
    assert back.step == 5


def test_the_last_steps_stay(tmp_path):
    assert checkpoints.latest(tmp_path) is None
    for step in (3, 1, 10, 20):
        checkpoints.save(tmp_path, step, {"x": jnp.asarray(step)}, keep=2)
    assert checkpoints.steps(tmp_path) == [10, 20]
    assert checkpoints.latest(tmp_path) == 20
    assert int(checkpoints.restore(tmp_path, step=10)["x"]) == 10
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"step_{k:012d}" for k in (10, 20)]


def test_what_cannot_be_done_says_why(tmp_path):
    with pytest.raises(InvalidValue, match="no checkpoint in"):
        checkpoints.restore(tmp_path)
    checkpoints.save(tmp_path, 1, {"x": jnp.ones(2)})
    with pytest.raises(InvalidValue, match="of step 1"):
        checkpoints.save(tmp_path, 1, {"x": jnp.ones(2)})
    with pytest.raises(InvalidValue, match=r"of step 2 in .*there are \[1\]"):
        checkpoints.restore(tmp_path, step=2)
    with pytest.raises(InvalidValue, match="another structure"):
        checkpoints.restore(tmp_path, like={"y": jnp.ones(2)})
    with pytest.raises(
        ShapeError, match=r"shape \(2,\) and dtype float64; `like` has shape \(3,\)"
    ):
        checkpoints.restore(tmp_path, like={"x": jnp.ones(3)})
    with pytest.raises(TypeMismatch, match=r"\['s'\] of a checkpoint is str"):
        checkpoints.save(tmp_path, 3, {"s": "text"})
    with pytest.raises(TypeMismatch, match="outside of jit"):
        fnx.jit(lambda x: checkpoints.save(tmp_path, 4, x))(1.0)
    with pytest.raises(TypeMismatch, match="dtype object"):
        checkpoints.save(tmp_path, 5, 2**80)
    with pytest.raises(InvalidValue, match="keep=0"):
        checkpoints.save(tmp_path, 6, 1, keep=0)
    assert checkpoints.steps(tmp_path) == [1]


@pytest.mark.parametrize("damage", ["change", "cut", "remove", "index", "no index", "list"])
def test_files_that_are_not_what_was_written_are_found(damage, tmp_path):
    where = checkpoints.save(tmp_path, 1, {"x": jnp.arange(100.0)})
    data, index = where / "process_0.bin", where / "index.json"
    if damage == "change":
        raw = bytearray(data.read_bytes())
        raw[17] ^= 1
        data.write_bytes(raw)
    elif damage == "cut":
        data.write_bytes(data.read_bytes()[:-1])
    elif damage == "remove":
        data.unlink()
    elif damage == "index":
        body = json.loads(index.read_text())
        body["leaves"][0]["shape"] = [50]
        index.write_text(json.dumps(body))
    else:
        index.write_text("{" if damage == "no index" else "[1]")
    with pytest.raises(checkpoints.CorruptCheckpoint):
        checkpoints.restore(tmp_path)


def test_arrays_come_back_as_they_lay_or_as_is_asked(tmp_path):
    with config.num_devices(4):
        mesh = fnx.make_mesh((2, 2), ("x", "y"))
        s, t = NamedSharding(mesh, P("x", "y")), NamedSharding(mesh, P(None, "y"))
        x = fnx.device_put(np.arange(32.0).reshape(4, 8), s)
        checkpoints.save(tmp_path, 0, {"x": x, "k": 1})
        back = checkpoints.restore(tmp_path, like={"x": x, "k": 0})
        assert back["x"].sharding == s
        np.testing.assert_array_equal(back["x"], x)
        assert checkpoints.restore(tmp_path, shardings={"x": t, "k": None})["x"].sharding == t


@pytest.mark.parametrize("steps", [(2, 3, 4), (1,)])
def test_writers_at_the_same_time_leave_each_other_alone(steps, tmp_path, monkeypatch):
    """While one writes step 1, another saves and forgets others, or is faster with the same."""
    write, saved = writing._write_file, []

    def slow(path, blocks):
        write(path, blocks)
        if not saved:
            saved.append(True)
            for step in steps:
                checkpoints.save(tmp_path, step, {"x": jnp.ones(2)}, keep=2)

    monkeypatch.setattr(writing, "_write_file", slow)
    if 1 in steps:
        with pytest.raises(InvalidValue, match="a checkpoint of step 1"):
            checkpoints.save(tmp_path, 1, {"x": jnp.zeros(2)})
    else:
        checkpoints.save(tmp_path, 1, {"x": jnp.zeros(2)}, keep=None)
    found = checkpoints.restore(tmp_path, step=1)["x"]
    np.testing.assert_array_equal(found, np.ones(2) if 1 in steps else np.zeros(2))
    assert not list(tmp_path.glob(".*"))


def test_what_killed_runs_left_is_cleared(tmp_path):
    (tmp_path / ".draft_7").mkdir(parents=True)
    (tmp_path / ".draft_7" / "process_0.bin").write_bytes(b"rest")
    (tmp_path / ".old_3").mkdir()
    assert checkpoints.latest(tmp_path) is None
    checkpoints.save(tmp_path, 7, {"x": jnp.ones(2)})
    assert [p.name for p in tmp_path.iterdir()] == ["step_000000000007"]


RUN = """
import sys
import numpy as np
from fnx import checkpoints
from fnx.checkpoints import writing
folder, last = sys.argv[1], int(sys.argv[2])
step = checkpoints.latest(folder)
x = np.arange(20000.0) if step is None else np.asarray(checkpoints.restore(folder)["x"])
assert step is None or x[0] == step, (step, x[0])
print("begins", flush=True)
for step in range(0 if step is None else step + 1, last + 1):
    checkpoints.save(folder, step, {"x": np.arange(20000.0) + step, "step": step}, keep=2)
"""


@pytest.mark.slow
def test_runs_that_are_killed_go_on_from_the_last_checkpoint(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(RUN)
    folder, rng = tmp_path / "kept", random.Random(1)
    command = [sys.executable, str(script), str(folder)]
    seen = -1
    for _ in range(6):
        run = subprocess.Popen([*command, "100000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert run.stdout.readline() == b"begins\n", run.stderr.read()
        time.sleep(rng.uniform(0.0, 0.2))
        os.kill(run.pid, signal.SIGKILL)
        run.communicate()
        last = checkpoints.latest(folder)
        if last is not None:
            x = np.asarray(checkpoints.restore(folder)["x"])
            np.testing.assert_array_equal(x, np.arange(20000.0) + last)
            assert last >= seen
            seen = last
    done = subprocess.run([*command, str(seen + 3)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert checkpoints.steps(folder) == [seen + 2, seen + 3]
    assert len(list(Path(folder).iterdir())) == 2
