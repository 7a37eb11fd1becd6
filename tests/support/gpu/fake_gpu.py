"""A GPU that is none: the calls of cuda.core and cuda.bindings that a driver makes, on the host's memory.

Each call is recorded. Kernels run, each thread as one of Python's, when the stream is waited for, or when
something is copied: what is not asked for in order gives wrong numbers. Calls fail when they are told to.
"""

import ctypes
import itertools
import json
import math
import threading
from types import ModuleType, SimpleNamespace

import numpy as np
import races

LIMIT = 1 << 24  # bytes
_atomic = threading.Lock()


class CUDAError(Exception):
    """What cuda.core raises."""


class Gpu:
    """What the modules below stand for; `fails` maps a call to the error of its next time."""

    def __init__(self):
        self.calls = []
        self.fails = {}
        self.memory = {}
        self.limit = LIMIT
        self.version = 13010
        self.waiting = []  # what the stream has been asked for
        self.watches, self.races = False, []  # whether kernels are looked at, and threads that meet
        self.current = threading.local()  # whether a thread has a context
        self.order = threading.RLock()  # what is asked for runs in order, whoever waits for it
        self.known = {}  # kernels and streams by handle
        self.unloaded = []  # for each kernel whose code is gone, how much had been asked for then

    def knows(self, x):
        """The handle of a new kernel or stream."""
        self.known[100 + len(self.known)] = x
        return 99 + len(self.known)

    def call(self, name, *about):
        self.calls.append((name, *about))
        if name != "device" and not hasattr(self.current, "is_set") and name != "cubin":
            raise CUDAError("CUDA_ERROR_INVALID_CONTEXT: this thread has none")
        error = self.fails.pop(name, None)
        if error:
            raise error

    def made(self, name):
        """What a call was asked for, each time."""
        return [c[1:] for c in self.calls if c[0] == name]

    def wait(self):
        with self.order:
            waiting, self.waiting = self.waiting, []
            for run in waiting:
                run()

    @property
    def in_use(self):
        return sum(m.nbytes for m in self.memory.values())


class _Failure(str):
    """A result of a call of cuda.bindings that is no success."""

    __repr__ = str.__str__


class Buffer:
    def __init__(self, gpu, size):
        self.gpu, self.array = gpu, np.full(size, 0xAB, np.uint8)
        self.handle = self.array.ctypes.data
        gpu.memory[self.handle] = self.array

    def close(self, stream=None):
        self.gpu.call("free", self.array.nbytes)
        # Freed on the stream: what was asked for before still finds it.
        self.gpu.waiting.append(lambda: self.gpu.memory.pop(self.handle, None))


class Device:
    arch, name = "90", "Fake"

    def __init__(self, gpu):
        self.gpu = gpu

    def sync(self):
        self.gpu.call("device sync")
        self.gpu.wait()

    def set_current(self):
        self.gpu.current.is_set = True
        self.gpu.call("set_current")

    def create_graph_builder(self):
        self.gpu.call("create_graph_builder")
        return GraphBuilder(self.gpu)

    def create_stream(self):
        return Stream(self.gpu)

    def allocate(self, size, *, stream):
        self.gpu.call("allocate", size)
        if self.gpu.in_use + size > self.gpu.limit:
            raise CUDAError("CUDA_ERROR_OUT_OF_MEMORY: out of memory")
        return Buffer(self.gpu, size)


class Stream:
    def __init__(self, gpu, handle=7):
        self.gpu, self.handle = gpu, handle
        gpu.known[handle] = self

    def ask(self, run):
        self.gpu.waiting.append(run)

    def sync(self):
        self.gpu.call("sync")
        self.gpu.wait()


class GraphBuilder:
    def __init__(self, gpu):
        self.gpu, self.nodes = gpu, []
        self.handle = gpu.knows(self)
        self.stream = SimpleNamespace(handle=self.handle)

    def begin_building(self):
        return self

    def ask(self, run):
        self.nodes.append(run)

    def end_building(self):
        self.gpu.call("end_building")
        return self

    def complete(self):
        self.gpu.call("graph", len(self.nodes))
        return self

    def launch(self, stream):
        self.gpu.call("launch graph", len(self.nodes))
        for run in self.nodes:
            stream.ask(run)


class Code:
    """What holds a kernel's code: it is unloaded with this, whatever the stream has been asked for."""

    def __init__(self, kernel):
        self.gpu, self.handle = kernel.gpu, kernel.handle

    def __del__(self):
        self.gpu.unloaded.append(len(self.gpu.waiting))


class Kernel:
    def __init__(self, gpu, code):
        self.gpu, self.code = gpu, json.loads(code)
        self.handle = gpu.knows(self)
        self.count = sum(7 if is_array else 1 for _, is_array in self.code["types"])

    def get_kernel(self, entry):
        self.gpu.call("load", entry)
        return Code(self)

    def run(self, grid, block, words):
        code = self.code
        exec(compile(code["source"], code["name"], "exec"), space := dict(_names()))
        arguments, bases, words = [], [], list(words)
        for (dtype, is_array), size in zip(code["types"], code["sizes"], strict=True):
            if is_array:
                _, _, size, _, address, *_ = [words.pop(0) for _ in range(7)]
            else:
                address = words.pop(0)
            raw = (ctypes.c_uint8 * (size * np.dtype(dtype).itemsize)).from_address(address)
            arguments.append(np.frombuffer(raw, dtype))
            bases.append(address)
        watch = races.Watch(code["name"]) if self.gpu.watches else None
        for place in itertools.product(*map(range, reversed(grid))):
            of = _Block(place[::-1], grid, block, space, space[code["name"]], arguments)
            of.watch, of.bases = watch, bases
            of.run()
        if watch:
            self.gpu.races += watch.found


def _names():
    import numba

    from fnx.lowering.cuda import simulator

    return {
        "np": simulator._numbers(),
        "math": simulator._mathematics(),
        "libdevice": simulator._libdevice(),
        "range": simulator._range,
        "numba": numba,
    }


class _Block:
    """The threads of a block, each one of Python's: they meet at barriers."""

    def __init__(self, place, grid, block, space, function, arguments):
        self.place, self.grid, self.block = place, grid, block
        self.function, self.arguments, self.space = function, arguments, space
        self.barrier, self.barriers = threading.Barrier(math.prod(block)), {}
        self.shared, self.exchanged, self.errors = {}, {}, []
        self.lock = threading.Lock()
        self.watch, self.bases = None, []

    def run(self):
        places = list(itertools.product(*map(range, self.block)))
        if len(places) == 1:
            self.thread(places[0])
        else:
            threads = [threading.Thread(target=self.thread, args=(p,)) for p in places]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        if self.errors:
            raise self.errors[0]

    def thread(self, at):
        code = self.function.__code__
        cuda = _Cuda(self, at)
        function = type(self.function)(code, dict(self.space, cuda=cuda))
        arguments = self.arguments
        if self.watch:
            given = zip(arguments, self.bases, code.co_varnames, strict=False)
            arguments = [races.Watched(a, base, self.watch, cuda, n) for a, base, n in given]
        try:
            with np.errstate(all="ignore"):
                function(*arguments)
        except BaseException as error:
            self.errors.append(error)
            for barrier in (self.barrier, *self.barriers.values()):
                barrier.abort()


class _Cuda:
    """The names of numba.cuda that kernels use, in one thread."""

    def __init__(self, block, at):
        axes = lambda values: SimpleNamespace(**dict(zip("xyz", (*values, 0), strict=False)))
        self._block, self._at, self._made, self._barriers = block, at, 0, 0
        self.threadIdx, self.blockIdx = axes(at), axes(block.place)
        self.blockDim, self.gridDim = axes(block.block), axes(block.grid)
        self.shared = SimpleNamespace(array=self._shared)
        self.local = SimpleNamespace(array=lambda n, kind: np.zeros(n, _dtype(kind)))
        self.atomic = SimpleNamespace(add=self._add, max=self._max, min=self._min)

    def grid(self, count):
        return self.threadIdx.x + self.blockIdx.x * self.blockDim.x

    def gridsize(self, count):
        return self.blockDim.x * self.gridDim.x

    def selp(self, condition, a, b):
        return a if condition else b

    @property
    def who(self):
        return races.Who(self._block.place, self._at, self._barriers)

    def syncthreads(self):
        self._block.barrier.wait(60)
        self._barriers += 1

    def syncwarp(self, mask):
        lanes = mask.bit_count()
        self._meet(self.threadIdx.x // lanes, lanes)

    def _meet(self, who, count):
        """Wait for some threads of the block, which may be elsewhere than the others."""
        with self._block.lock:
            barrier = self._block.barriers.setdefault((who, count), threading.Barrier(count))
        barrier.wait(60)
        self._barriers += 1

    def shfl_xor_sync(self, mask, value, distance):
        mine, seen = self.threadIdx.x, self._block.exchanged
        pair = frozenset((int(mine), int(mine ^ distance)))
        seen[mine] = value
        self._meet(pair, 2)
        found = seen[mine ^ distance]
        self._meet(pair, 2)
        return found

    def _shared(self, size, kind):
        self._made += 1
        with self._block.lock:
            found = self._block.shared.setdefault(self._made, np.zeros(size, _dtype(kind)))
        if not self._block.watch:
            return found
        base = "shared", self._made, self._block.place
        return races.Watched(found, base, self._block.watch, self, f"shared array {self._made}")

    def _update(self, array, index, new):
        with _atomic:
            if isinstance(array, races.Watched):
                return array.update(index, new)
            old = array[index]
            array[index] = new(old)
        return old

    def _add(self, array, index, value):
        return self._update(array, index, lambda old: old + value)

    def _max(self, array, index, value):
        return self._update(array, index, lambda old: max(old, value))

    def _min(self, array, index, value):
        return self._update(array, index, lambda old: min(old, value))


def _dtype(kind):
    return np.dtype({"bool": "bool"}.get(str(kind), str(kind)))


def install(monkeypatch):
    """Put a fake GPU in the place of CUDA's modules; the driver of the process is a new one."""
    import sys

    from fnx.lowering.cuda import backend, device_code
    from fnx.lowering.cuda.kernels import thresholds

    gpu = Gpu()
    core, bindings, driver = (ModuleType(n) for n in ("core", "bindings", "driver"))

    def first(number):
        gpu.call("device", number)
        return Device(gpu)

    def copy(target, source, nbytes, stream):
        gpu.call("copy", nbytes, stream)
        with gpu.order:
            gpu.wait()
            ctypes.memmove(target, source, nbytes)
        return (0,)

    def launch(kernel, *given):
        grid, block, (shared, stream, place, extra) = given[:2], given[3:5], given[6:]
        assert (given[2], given[5], shared, extra) == (1, 1, 0, 0)
        kernel = gpu.known[kernel]
        try:
            gpu.call("launch", kernel.code["name"], grid, block)
        except CUDAError as error:
            return (_Failure(str(error)),)
        count = kernel.count
        pointers = (ctypes.c_void_p * count).from_address(place)
        words = [ctypes.c_uint64.from_address(p).value for p in pointers]
        gpu.known[stream].ask(lambda: kernel.run(grid, block, words))
        return (0,)

    def cubin(printed, architecture):
        gpu.call("cubin", printed.name, architecture)
        text = {"name": printed.name, "source": printed.source}
        text |= {"types": device_code._types(printed)}
        text |= {"sizes": [max(b.size, 1) for b in printed.buffers]}
        return device_code.Code(json.dumps(text).encode(), printed.name, 8, 0, 0)

    core.Device, driver.cuLaunchKernel = first, launch
    driver.CUfunction = driver.CUstream = int
    core.ObjectCode = SimpleNamespace(from_cubin=lambda code: Kernel(gpu, code))
    driver.cuMemcpyAsync = copy
    driver.cuDriverGetVersion = lambda: (0, gpu.version)
    driver.cuMemGetInfo = lambda: (0, gpu.limit - gpu.in_use, gpu.limit)
    bindings.driver = driver
    cuda = ModuleType("cuda")
    cuda.core, cuda.bindings = core, bindings
    names = {"cuda": cuda, "cuda.core": core, "cuda.bindings": bindings}
    for name, module in {**names, "cuda.bindings.driver": driver}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(device_code, "needed", lambda: None)
    monkeypatch.setattr(device_code, "cubin", cubin)
    monkeypatch.setattr(backend, "limits", lambda: thresholds.SIMULATED)
    backend.drivers.clear()
    return gpu
