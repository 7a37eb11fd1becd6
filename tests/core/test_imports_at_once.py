"""Threads whose first imports are fnx and parts of it, each another one, get whole modules."""

import subprocess
import sys

import pytest

PROGRAM = """
import importlib, sys, threading
if FIRST:
    import fnx
names = '''fnx fnx.numpy fnx.lax fnx.random fnx.scipy.linalg fnx.nn fnx.tree fnx.sharding fnx.image
fnx.transforms.jit fnx.transforms.grad fnx.process.devices fnx.experimental.sparse fnx.interpreters.ad
fnx.ops.linalg.convolution fnx.control_flow fnx.checkpoints fnx.export fnx.dtypes fnx.jax'''.split()
sys.setswitchinterval(1e-5)
start, results = threading.Barrier(len(names)), []
def work(name):
    start.wait()
    importlib.import_module(name)
    import fnx
    results.append(float(fnx.numpy.sum(fnx.numpy.ones(4))))
threads = [threading.Thread(target=work, args=(name,)) for name in names]
[t.start() for t in threads]
[t.join() for t in threads]
print(len(names), results.count(4.0))
"""


@pytest.mark.parametrize("first", [True, False])
def test_threads_that_import_at_the_same_time(first):
    run = [sys.executable, "-c", PROGRAM.replace("FIRST", str(first))]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=100)
    assert (ended.stdout, ended.stderr) == ("20 20\n", "")
