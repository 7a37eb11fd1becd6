"""fnx: composable transformations of NumPy-style functions, compiled to native code.

The names are JAX's; arrays keep the dtype that they are given, so that Python floats make float64.
"""

import _frozen_importlib_external as _machinery  # the part of importlib.machinery that Python starts with
import gc as _gc
import sys as _sys

# Python locks one module at a time, a part before the package that it is in. Threads that import
# different parts at the same time would wait for each other in a circle, and see halves. So this package
# imports nothing of its own while others wait for it, and whatever is not its core waits for the face,
# and most of it for fnx.numpy. These do not: what fnx.numpy is made of, and rooms that need no arrays...
_BEFORE = frozenset(
    "interpreters lowering numpy ops process pytree transforms "
    "cache custom_derivatives errors jax ref tree tree_util version".split()
)
_AFTER = frozenset(["jax.src", "process.devices", "transforms.ravel"])  # ...but for these in them.

_BLOCKS_OF_A_BEGINNING = 250_000  # of memory, in a process that has just begun: with SciPy 190,000


class _Finder:
    """Finds the modules of fnx, with a loader that waits for others."""

    @staticmethod
    def find_spec(name, path=None, target=None):  # type: ignore[no-untyped-def]
        """Where a module is; here nothing may wait, as Python holds a lock."""
        package, _, part = name.partition(".")
        room = part.partition(".")[0]
        if package != "fnx" or room in ("", "core", "face"):
            return None
        spec = _machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is _machinery.SourceFileLoader:
            alone = part not in _AFTER and ("." in part or part in _BEFORE)
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
            spec.loader.needs = ("fnx.face",) if alone else ("fnx.face", "fnx.numpy")
        return spec


class _Loader(_machinery.SourceFileLoader):
    """Loads a module when others are whole."""

    needs: tuple[str, ...]
    begun = False  # whether a module has been loaded, and with it most of what there is

    def exec_module(self, module):  # type: ignore[no-untyped-def]
        first, _Loader.begun = not _Loader.begun, True
        if not (first and _gc.isenabled()):
            self._execute(module)
            return
        # What modules make lives on: to look for garbage among it takes a tenth of the time of the import
        # and, once more at the end of the process, a sixth of that of a short script. So nobody does,
        # unless there is more that may become garbage than Python, NumPy and SciPy have made.
        frozen, has_begun = (
            _gc.get_freeze_count(),
            _sys.getallocatedblocks() < _BLOCKS_OF_A_BEGINNING,
        )
        try:
            _gc.disable()
            self._execute(module)
        finally:
            if not frozen:
                _gc.freeze()
                if not has_begun:
                    _gc.unfreeze()  # all are old now, and none has been looked at
            _gc.enable()

    def _execute(self, module):  # type: ignore[no-untyped-def]
        for name in self.needs:
            __import__(name)
        super().exec_module(module)


# No file is imported before this: until it stands, other threads find parts of this package without it.
_sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]

import importlib as _importlib  # noqa: E402
import typing as _typing  # noqa: E402
from typing import Any as _Any  # noqa: E402

if _typing.TYPE_CHECKING:  # what follows is imported when it is asked for
    from fnx import ad as ad
    from fnx import checkpoints as checkpoints
    from fnx import debug as debug
    from fnx import distributed as distributed
    from fnx import doctor as doctor
    from fnx import dtypes as dtypes
    from fnx import errors as errors
    from fnx import lax as lax
    from fnx import numpy as numpy
    from fnx import ops as ops
    from fnx import random as random
    from fnx import sharding as sharding
    from fnx import tree as tree
    from fnx import tree_util as tree_util
    from fnx import typing as typing
    from fnx.core import __version__ as __version__
    from fnx.core import __version_info__ as __version_info__
    from fnx.core.array import Array as Array
    from fnx.custom_derivatives import closure_convert as closure_convert
    from fnx.custom_derivatives import custom_gradient as custom_gradient
    from fnx.custom_derivatives import custom_jvp as custom_jvp
    from fnx.custom_derivatives import custom_vjp as custom_vjp
    from fnx.dtypes import float0 as float0
    from fnx.experimental.index_checks import debug_index as debug_index
    from fnx.experimental.shard_map import smap as smap
    from fnx.observe.benchmark import benchmark as benchmark
    from fnx.observe.notebook import load_ipython_extension as load_ipython_extension
    from fnx.observe.notebook import unload_ipython_extension as unload_ipython_extension
    from fnx.observe.profile import profile as profile
    from fnx.observe.progress import progress as progress
    from fnx.observe.show import show as show
    from fnx.process.devices import Device as Device
    from fnx.process.devices import block_until_ready as block_until_ready
    from fnx.process.devices import copy_to_host_async as copy_to_host_async
    from fnx.process.devices import default_backend as default_backend
    from fnx.process.devices import device_count as device_count
    from fnx.process.devices import device_get as device_get
    from fnx.process.devices import device_put as device_put
    from fnx.process.devices import devices as devices
    from fnx.process.devices import live_arrays as live_arrays
    from fnx.process.devices import local_device_count as local_device_count
    from fnx.process.devices import local_devices as local_devices
    from fnx.process.devices import process_count as process_count
    from fnx.process.devices import process_index as process_index
    from fnx.process.devices import process_indices as process_indices
    from fnx.process.environment import host_count as host_count
    from fnx.process.environment import host_id as host_id
    from fnx.process.environment import host_ids as host_ids
    from fnx.process.environment import print_environment_info as print_environment_info
    from fnx.process.nan_checks import debug_infs as debug_infs
    from fnx.process.nan_checks import debug_nans as debug_nans
    from fnx.process.runtime import compile_stats as compile_stats
    from fnx.process.runtime import effects_barrier as effects_barrier
    from fnx.process.runtime import get_num_threads as get_num_threads
    from fnx.process.runtime import release_memory as release_memory
    from fnx.process.runtime import set_num_threads as set_num_threads
    from fnx.process.settings import check_tracer_leaks as check_tracer_leaks
    from fnx.process.settings import checking_leaks as checking_leaks
    from fnx.process.settings import config as config
    from fnx.process.settings import debug_key_reuse as debug_key_reuse
    from fnx.process.settings import default_device as default_device
    from fnx.process.settings import default_matmul_precision as default_matmul_precision
    from fnx.process.settings import default_prng_impl as default_prng_impl
    from fnx.process.settings import disable_jit as disable_jit
    from fnx.process.settings import enable_checks as enable_checks
    from fnx.process.settings import enable_custom_prng as enable_custom_prng
    from fnx.process.settings import enable_x64 as enable_x64
    from fnx.process.settings import explain_cache_misses as explain_cache_misses
    from fnx.process.settings import legacy_prng_key as legacy_prng_key
    from fnx.process.settings import log_compiles as log_compiles
    from fnx.process.settings import no_execution as no_execution
    from fnx.process.settings import no_tracing as no_tracing
    from fnx.process.settings import numpy_dtype_promotion as numpy_dtype_promotion
    from fnx.process.settings import numpy_rank_promotion as numpy_rank_promotion
    from fnx.process.settings import softmax_custom_jvp as softmax_custom_jvp
    from fnx.process.settings import threefry_partitionable as threefry_partitionable
    from fnx.process.settings import transfer_guard as transfer_guard
    from fnx.process.settings import (
        transfer_guard_device_to_device as transfer_guard_device_to_device,
    )
    from fnx.process.settings import transfer_guard_device_to_host as transfer_guard_device_to_host
    from fnx.process.settings import transfer_guard_host_to_device as transfer_guard_host_to_device
    from fnx.process.shards import Shard as Shard
    from fnx.process.shards import make_array_from_callback as make_array_from_callback
    from fnx.process.shards import (
        make_array_from_process_local_data as make_array_from_process_local_data,
    )
    from fnx.process.shards import (
        make_array_from_single_device_arrays as make_array_from_single_device_arrays,
    )
    from fnx.sharding import NamedSharding as NamedSharding
    from fnx.sharding import P as P
    from fnx.sharding import make_mesh as make_mesh
    from fnx.sharding import reshard as reshard
    from fnx.sharding import set_mesh as set_mesh
    from fnx.transforms.callbacks import pure_callback as pure_callback
    from fnx.transforms.checkpoint import checkpoint as checkpoint
    from fnx.transforms.checkpoint import checkpoint_policies as checkpoint_policies
    from fnx.transforms.checkpoint import remat as remat
    from fnx.transforms.grad import fwd_and_bwd as fwd_and_bwd
    from fnx.transforms.grad import grad as grad
    from fnx.transforms.grad import jvp as jvp
    from fnx.transforms.grad import linearize as linearize
    from fnx.transforms.grad import value_and_grad as value_and_grad
    from fnx.transforms.grad import vjp as vjp
    from fnx.transforms.jacobian import hessian as hessian
    from fnx.transforms.jacobian import jacfwd as jacfwd
    from fnx.transforms.jacobian import jacobian as jacobian
    from fnx.transforms.jacobian import jacrev as jacrev
    from fnx.transforms.jit import clear_caches as clear_caches
    from fnx.transforms.jit import jit as jit
    from fnx.transforms.linear_call import linear_transpose as linear_transpose
    from fnx.transforms.make_jaxpr import ShapeDtypeStruct as ShapeDtypeStruct
    from fnx.transforms.make_jaxpr import eval_shape as eval_shape
    from fnx.transforms.make_jaxpr import make_jaxpr as make_jaxpr
    from fnx.transforms.mutable_refs import Ref as Ref
    from fnx.transforms.mutable_refs import empty_ref as empty_ref
    from fnx.transforms.mutable_refs import free_ref as free_ref
    from fnx.transforms.mutable_refs import freeze as freeze
    from fnx.transforms.mutable_refs import new_ref as new_ref
    from fnx.transforms.scopes import compile_report as compile_report
    from fnx.transforms.scopes import ensure_compile_time_eval as ensure_compile_time_eval
    from fnx.transforms.scopes import named_call as named_call
    from fnx.transforms.scopes import named_scope as named_scope
    from fnx.transforms.scopes import typeof as typeof
    from fnx.transforms.shard_map import pmap as pmap
    from fnx.transforms.shard_map import shard_map as shard_map
    from fnx.transforms.vmap import vmap as vmap


def __getattr__(name: str) -> _Any:
    """What is imported when it is asked for."""
    if name.startswith("__") and not name.startswith("__version"):
        raise AttributeError(f"module 'fnx' has no attribute {name!r}")
    later = _importlib.import_module("fnx.face").later
    if name in later.names(__name__):
        _importlib.import_module("fnx.numpy")  # arrays have their operators from there
    return later.find(__name__, name)


def __dir__() -> list[str]:
    names = {*globals(), *_importlib.import_module("fnx.face").later.names(__name__)}
    return sorted(names - {n for n in names if n.startswith("_")})
