"""Threads whose first imports are parts of fnx, each another one, get whole modules."""

import subprocess
import sys

PROGRAM = """
import fnx, importlib, threading
names = '''numpy lax random scipy.linalg nn tree sharding image transforms.jit transforms.grad
process.devices experimental.sparse interpreters.ad ops.linalg.convolution control_flow checkpoints
export dtypes'''.split()
start, results = threading.Barrier(len(names)), []
def work(name):
    start.wait()
    importlib.import_module("fnx." + name)
    results.append(float(fnx.numpy.sum(fnx.numpy.ones(4))))
threads = [threading.Thread(target=work, args=(name,)) for name in names]
[t.start() for t in threads]
[t.join() for t in threads]
print(len(names), results.count(4.0))
"""


def test_threads_that_import_at_the_same_time():
    run = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=100)
    assert (ended.stdout, ended.stderr) == ("18 18\n", "")
