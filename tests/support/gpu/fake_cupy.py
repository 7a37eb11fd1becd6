"""CuPy where there is none: the few calls of it that fnx makes, by NumPy and SciPy on the host's memory."""

import ctypes
import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import numpy as np


class Cupy:
    """What was asked of it: functions with the stream and the precision of that time."""

    def __init__(self, gpu):
        self.gpu, self.calls = gpu, []
        self.stream = None
        self.compute = {"float32": "default"}

    def told(self, name, function):
        def run(*args, **kwargs):
            assert all(isinstance(a, np.ndarray) for a in args if hasattr(a, "shape"))
            self.gpu.wait()  # what was asked for before on the stream
            self.calls.append((name, self.stream, self.compute["float32"]))
            return function(*args, **kwargs)

        return run

    @property
    def names(self):
        return [name for name, *_ in self.calls]


def _array(shape, dtype, memptr):
    nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    assert memptr.offset + nbytes <= memptr.memory.nbytes
    raw = (ctypes.c_uint8 * nbytes).from_address(memptr.memory.address + memptr.offset)
    return np.frombuffer(raw, dtype).reshape(shape)


class _Stream:
    """A stream of the driver's, which CuPy's calls go to within."""

    def __init__(self, made, stream):
        self.made, self.handle = made, stream.__cuda_stream__()[1]

    def __enter__(self):
        self.made.stream = self.handle

    def __exit__(self, *_):
        self.made.stream = None


def install(monkeypatch, gpu):
    """Put it in the place of CuPy, for a fake GPU."""
    import scipy.linalg

    from fnx.lowering.cuda import libraries

    made = Cupy(gpu)
    cupy, cupyx = ModuleType("cupy"), ModuleType("cupyx")
    linalg, scipy_linalg = ModuleType("cupy.linalg"), ModuleType("cupyx.scipy.linalg")
    for name in ("stack", "asarray", "full_like", "nan"):
        setattr(cupy, name, getattr(np, name))
    for name in ("matmul", "tril"):
        setattr(cupy, name, made.told(name, getattr(np, name)))
    cupy.asnumpy = np.asarray
    for name in ("cholesky", "qr", "svd", "eigh"):
        setattr(linalg, name, made.told(name, getattr(np.linalg, name)))
    linalg.LinAlgError = np.linalg.LinAlgError
    kinds = ("fftn", "ifftn", "rfftn", "irfftn")
    cupy.fft = SimpleNamespace(**{n: made.told(n, getattr(np.fft, n)) for n in kinds})
    cupy.linalg = linalg
    cupy.ndarray = _array
    scipy_linalg.solve_triangular = made.told("solve_triangular", scipy.linalg.solve_triangular)
    scipy_linalg.lu_factor = made.told("lu_factor", scipy.linalg.lu_factor)

    @contextmanager
    def errstate(linalg):
        assert linalg == "raise"
        yield

    cupyx.errstate = errstate
    cupy.cuda = SimpleNamespace(
        UnownedMemory=lambda address, nbytes, owner: SimpleNamespace(
            address=address, nbytes=nbytes
        ),
        MemoryPointer=lambda memory, offset: SimpleNamespace(memory=memory, offset=offset),
        Stream=SimpleNamespace(from_external=lambda stream: _Stream(made, stream)),
    )
    core = ModuleType("cupy._core")
    core._routines_linalg = SimpleNamespace(
        COMPUTE_TYPE_TF32="tf32", COMPUTE_TYPE_DEFAULT="default"
    )
    core.get_compute_type = lambda dtype: made.compute[dtype]
    core.set_compute_type = made.compute.__setitem__
    cupy._core = core
    modules = {"cupy": cupy, "cupy._core": core, "cupyx": cupyx}
    modules |= {"cupyx.scipy": ModuleType("cupyx.scipy"), "cupyx.scipy.linalg": scipy_linalg}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(libraries, "is_there", lambda: True)
    libraries._stream.cache_clear()
    return made
