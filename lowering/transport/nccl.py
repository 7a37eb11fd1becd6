"""The transport between GPUs: NVIDIA's NCCL, through CuPy.

Input: arrays on the host, of one shape and dtype, one from each member, who has a GPU of its own.
Output: each member's result, a new array on the host.
Legal when: all members make the same exchanges in the same order, each from one thread or process.
Costs: a copy to the GPU and one back, and one call of NCCL an exchange. What is only moved goes as bytes,
so that any dtype will do; sums of halves are made in float32, truth values combine as bytes, and extrema of
floats are gathered, since NCCL does not say what a nan is.

**No GPU has run it**: it was tried with a fake of CuPy's.
"""

import importlib
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from fnx.core.errors import MissingPackage
from fnx.core.transport import Groups, TransportError

_OPS = {"sum": np.add, "max": np.maximum, "min": np.minimum}
_HALVES = ("float16", "bfloat16")
_NAMES = {  # NCCL's of the types that it reduces
    "int8": "NCCL_INT8",
    "uint8": "NCCL_UINT8",
    "int32": "NCCL_INT32",
    "uint32": "NCCL_UINT32",
    "int64": "NCCL_INT64",
    "uint64": "NCCL_UINT64",
    "float32": "NCCL_FLOAT32",
    "float64": "NCCL_FLOAT64",
}


def cupy() -> Any:
    """CuPy; MissingPackage, which says what to install, where there is none with NCCL."""
    try:
        found: Any = importlib.import_module("cupy")
        importlib.import_module("cupy.cuda.nccl")
    except ImportError as error:
        raise MissingPackage(
            f"NCCL is not available: {error}. Install CuPy for your CUDA (`pip install cupy-cuda13x`) and "
            "NCCL (`python -m cupyx.tools.install_library --library nccl --cuda 13.x`)."
        ) from error
    return found


def connect(rank: int, size: int, share: Callable[[np.ndarray], np.ndarray]) -> "Nccl":
    """The transport of member `rank` of `size`, on the GPU that is current in its thread.

    `share` gives all members the bytes that member 0 hands it: `lambda x: mpi.broadcast(x, 0)`.
    """
    return Nccl(rank, size, _id(rank == 0, share))


def _id(first: bool, share: Callable[[np.ndarray], np.ndarray]) -> bytes:
    """What the members of a new communicator know each other by; the first one makes it."""
    made = cupy().cuda.nccl.get_unique_id() if first else ()
    own = np.zeros(128, np.uint8)  # as many as NCCL gives it
    own[: len(made)] = np.frombuffer(bytes(int(c) & 255 for c in made), np.uint8)
    return share(own).tobytes()


class Nccl:
    """One member's end of exchanges between GPUs."""

    def __init__(self, rank: int, size: int, identity: bytes):
        self.rank, self.size = rank, size
        self.cupy, self.nccl = cupy(), cupy().cuda.nccl
        # CuPy takes C's signed characters.
        signed = tuple([c - 256 if c > 127 else c for c in identity])
        self.comm = self.nccl.NcclCommunicator(size, signed, rank)
        self._groups: dict[Groups, Nccl] = {}

    def _exchange(self, x: np.ndarray, like: np.ndarray, call: Callable) -> np.ndarray:
        """What a call of NCCL's, of the addresses of both and the stream, leaves in an array like one."""
        stream = self.cupy.cuda.get_current_stream()
        given = self.cupy.asarray(np.ascontiguousarray(x))
        made = self.cupy.zeros(like.shape, like.dtype)
        try:
            call(given.data.ptr, made.data.ptr, stream.ptr)
            stream.synchronize()
        except Exception as error:
            if isinstance(error, TransportError):
                raise
            raise TransportError(f"NCCL between {self.size} GPUs: {error}") from error
        return self.cupy.asnumpy(made)

    def _moved(self, x: np.ndarray, shape: tuple[int, ...], call: Callable) -> np.ndarray:
        """The same for what is only moved: as bytes, in the type of `x`."""
        made = np.empty(shape, x.dtype)
        if not made.size:
            return made
        raw = self._exchange(_bytes(x), _bytes(made), call)
        return raw.view(x.dtype).reshape(shape)

    def all_reduce(self, x: np.ndarray, op: str) -> np.ndarray:
        if x.dtype.name in _HALVES and op == "sum":
            return self.all_reduce(x.astype(np.float32), op).astype(x.dtype)
        if x.dtype == np.bool_:
            kind = "min" if op == "min" else "max"
            return self.all_reduce(x.view(np.uint8), kind).view(np.bool_)
        if x.dtype.kind == "c" and op == "sum":
            parts = np.asarray(x, order="C").reshape(-1).view(x.real.dtype)
            return self.all_reduce(parts, op).view(x.dtype).reshape(x.shape)
        name = _NAMES.get(x.dtype.name)
        if name is None or (op != "sum" and x.dtype.kind not in "iu") or not x.size:
            with np.errstate(all="ignore"):
                return np.asarray(reduce(_OPS[op], self.all_gather(x))).astype(x.dtype)
        kind, how = getattr(self.nccl, name), getattr(self.nccl, f"NCCL_{op.upper()}")
        made = self._exchange(
            x.reshape(-1),
            x.reshape(-1),
            lambda a, b, stream: self.comm.allReduce(a, b, x.size, kind, how, stream),
        )
        return made.reshape(x.shape)

    def all_gather(self, x: np.ndarray) -> np.ndarray:
        count, kind = x.nbytes, self.nccl.NCCL_UINT8
        gather = lambda a, b, stream: self.comm.allGather(a, b, count, kind, stream)
        return self._moved(x, (self.size, *x.shape), gather)

    def reduce_scatter(self, x: np.ndarray, op: str) -> np.ndarray:
        with np.errstate(all="ignore"):
            if x.dtype.name in _HALVES:
                return self.reduce_scatter(x.astype(np.float32), op).astype(x.dtype)
            return np.asarray(reduce(_OPS[op], self.all_to_all(x))).astype(x.dtype)

    def all_to_all(self, x: np.ndarray) -> np.ndarray:
        everyone = range(self.size)
        return self._moved(x, x.shape, self._between(x.nbytes // self.size, everyone, everyone))

    def permute(self, x: np.ndarray, pairs: tuple[tuple[int, int], ...]) -> np.ndarray:
        to = [b for a, b in pairs if a == self.rank]
        of = [a for a, b in pairs if b == self.rank]
        made = self._moved(x, x.shape, self._between(x.nbytes, to, of, shared=True))
        return made if of else np.zeros_like(x, order="C")

    def _between(self, count: int, to: Any, of: Any, shared: bool = False) -> Callable:
        """Sends and receives of so many bytes, all at once; `shared`: everyone gets the same ones."""
        kind = self.nccl.NCCL_UINT8

        def call(a: int, b: int, stream: int) -> None:
            self.nccl.groupStart()
            for k, peer in enumerate(to):
                self.comm.send(a + (0 if shared else k * count), count, kind, peer, stream)
            for k, peer in enumerate(of):
                self.comm.recv(b + k * count, count, kind, peer, stream)
            self.nccl.groupEnd()

        return call

    def broadcast(self, x: np.ndarray, root: int) -> np.ndarray:
        count, kind = x.nbytes, self.nccl.NCCL_UINT8
        send = lambda a, b, stream: self.comm.broadcast(a, b, count, kind, root, stream)
        return self._moved(x, x.shape, send)

    def barrier(self) -> None:
        self.all_reduce(np.zeros(1, np.int32), "sum")

    def split(self, groups: Groups) -> "Nccl":
        if groups not in self._groups:
            (mine,) = [group for group in groups if self.rank in group]
            share = lambda own: self.all_gather(own)[mine[0]]
            identity = _id(self.rank == mine[0], share)
            self._groups[groups] = Nccl(mine.index(self.rank), len(mine), identity)
        return self._groups[groups]


def _bytes(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


__all__ = ["Nccl", "connect"]
