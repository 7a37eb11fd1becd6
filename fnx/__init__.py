"""fnx: composable transformations of NumPy-style functions, compiled to native code.

The names are JAX's; arrays keep the dtype that they are given, so that Python floats make float64.
"""

import importlib as _importlib
import sys as _sys
import typing as _typing
from typing import Any as _Any

from fnx.core import __version__ as __version__
from fnx.core import __version_info__ as __version_info__
from fnx.core import config as _settings
from fnx.core import lazy_imports as _later
from fnx.core.array import Array as Array
from fnx.core.array import install as _install
from fnx.core.aval import ShapedArray as _ShapedArray
from fnx.core.buffer import importers as _importers

if _typing.TYPE_CHECKING:  # what follows is imported when it is asked for
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
    from fnx.custom_derivatives import closure_convert as closure_convert
    from fnx.custom_derivatives import custom_gradient as custom_gradient
    from fnx.custom_derivatives import custom_jvp as custom_jvp
    from fnx.custom_derivatives import custom_vjp as custom_vjp
    from fnx.dtypes import float0 as float0
    from fnx.experimental.index_checks import debug_index as debug_index
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


_NAMES = {
    "fnx.transforms.checkpoint": "checkpoint checkpoint_policies remat",
    "fnx.transforms.callbacks": "pure_callback",
    "fnx.custom_derivatives": "closure_convert custom_gradient custom_jvp custom_vjp",
    "fnx.transforms.grad": "fwd_and_bwd grad jvp linearize value_and_grad vjp",
    "fnx.transforms.linear_call": "linear_transpose",
    "fnx.dtypes": "float0",
    "fnx.transforms.jacobian": "hessian jacfwd jacobian jacrev",
    "fnx.transforms.jit": "clear_caches jit",
    "fnx.transforms.vmap": "vmap",
    "fnx.process.nan_checks": "debug_infs debug_nans",
    "fnx.experimental.index_checks": "debug_index",
    "fnx.observe.benchmark": "benchmark",
    "fnx.observe.notebook": "load_ipython_extension unload_ipython_extension",
    "fnx.observe.profile": "profile",
    "fnx.observe.progress": "progress",
    "fnx.observe.show": "show",
    "fnx.process.devices": (
        "Device block_until_ready copy_to_host_async default_backend device_count "
        "device_get device_put devices live_arrays local_device_count local_devices "
        "process_count process_index process_indices"
    ),
    "fnx.transforms.mutable_refs": "Ref empty_ref free_ref freeze new_ref",
    "fnx.process.environment": "host_count host_id host_ids print_environment_info",
    "fnx.process.runtime": (
        "compile_stats effects_barrier get_num_threads release_memory set_num_threads"
    ),
    "fnx.transforms.scopes": (
        "compile_report ensure_compile_time_eval named_call named_scope typeof"
    ),
    "fnx.process.settings": (
        "check_tracer_leaks checking_leaks config debug_key_reuse default_device "
        "default_matmul_precision default_prng_impl disable_jit enable_checks "
        "enable_custom_prng enable_x64 explain_cache_misses legacy_prng_key log_compiles "
        "numpy_dtype_promotion numpy_rank_promotion softmax_custom_jvp threefry_partitionable "
        "transfer_guard transfer_guard_device_to_device transfer_guard_device_to_host "
        "transfer_guard_host_to_device"
    ),
    "fnx.process.shards": (
        "Shard make_array_from_callback make_array_from_process_local_data "
        "make_array_from_single_device_arrays"
    ),
    "fnx.sharding": "NamedSharding P make_mesh reshard set_mesh",
    "fnx.transforms.shard_map": "pmap shard_map",
    "fnx.transforms.make_jaxpr": "ShapeDtypeStruct eval_shape make_jaxpr",
}
for _module, _names in _NAMES.items():
    _later.add("fnx", _module, _names)
for _name in (
    "ad_checkpoint api_util cache checkpoints custom_batching custom_derivatives debug distributed "
    "dlpack doctor dtypes errors example_libraries "
    "experimental export extend flatten_util image lax memory nn numpy ops profiler random ref scipy "
    "sharding stages test_util tree tree_util typing version"
).split():
    _later.add("fnx", f"fnx.{_name}", _name, modules=True)

for _name in "ad batching mlir partial_eval xla".split():
    _later.add("fnx.interpreters", f"fnx.interpreters.{_name}", _name, modules=True)

# The loops need tracing, and the rules of users transformations: both live under the roof, and are
# called by names of rooms below it.
_later.add(
    "fnx.lax", "fnx.control_flow", "associative_scan cond fori_loop map scan switch while_loop"
)
_later.add("fnx.lax", "fnx.process.constraints", "with_sharding_constraint")
_later.add("fnx.lax", "fnx.transforms.implicit_diff", "custom_linear_solve custom_root")
_later.add(
    "fnx.ops", "fnx.numpy.numerics.segment_ops", "segment_sum segment_prod segment_max segment_min"
)
_later.add("fnx.numpy.arrays.util", "fnx.transforms.grad", "value_and_grad")
_later.add("fnx.numpy.arrays.util", "fnx.control_flow", "scan while_loop")
_later.add("fnx.numpy.arrays.util", "fnx.transforms.vmap", "vmap")
_later.along("fnx.core.array", "fnx.numpy")  # arrays have their operators from there
_later.along("fnx.numpy", "fnx.transforms.jit fnx.transforms.grad fnx.transforms.vmap")
# What fnx.numpy is made of, and rooms that need no arrays; those in them that do.
_later.bring_before(
    "fnx.numpy",
    but="core interpreters lowering numpy ops process pytree transforms "
    "cache custom_derivatives errors jax ref tree tree_util version",
    also="jax.src process.devices transforms.ravel",
)
_later.add("fnx.process.placement", "fnx.process.sharded_program", "at_once")
_later.add("fnx.process.sharded_program", "fnx.transforms.traced_program", "BACKEND backend_of")
_later.add("fnx.core.lazy_imports", "fnx.observe.displays.dispatch", "html")
_later.add("fnx.core.primitive", "fnx.lowering.cpu.ufuncs", "compiled_ufunc")


def _shards(x: Array) -> _Any:
    return _importlib.import_module("fnx.process.shards").shards(x)


def _devices(x: Array) -> _Any:
    return _importlib.import_module("fnx.process.shards").devices_of(x)


def _of_a_gpu(x: _Any) -> _Any:
    there = getattr(x, "__dlpack_device__", None)
    if (there is None or there()[0] == 1) and not hasattr(x, "__cuda_array_interface__"):
        return None
    return _importlib.import_module("fnx.lowering.cuda.interchange").taken(x)


_importers.append(_of_a_gpu)


def _sharding_of_aval(aval: _Any) -> _Any:
    return _importlib.import_module("fnx.process.shardings").sharding_of_aval(aval)


# The type of an array lies on no mesh.
_ShapedArray.sharding = property(_sharding_of_aval)  # type: ignore[attr-defined]
_install(
    {
        "sharding": property(
            lambda x: _importlib.import_module("fnx.process.shardings").sharding_of(x)
        ),
        "addressable_shards": property(_shards),
        "devices": _devices,
        "global_shards": property(
            lambda x: _importlib.import_module("fnx.process.shards").global_shards(x)
        ),
        "is_fully_addressable": property(
            lambda x: _importlib.import_module("fnx.process.shards").is_here(x)
        ),
    }
)


def _follow_settings() -> None:
    """Bring what the settings debug_nans, debug_infs and progress ask for."""
    if (
        _settings.debug_nans.value
        or _settings.debug_infs.value
        or _settings.debug_index.value
        or "fnx.process.nan_checks" in _sys.modules
    ):
        _importlib.import_module("fnx.process.nan_checks").follow_setting()
    if _settings.debug_index.value:
        _importlib.import_module("fnx.experimental.index_checks")
    if _settings.progress.value:
        _importlib.import_module("fnx.observe.progress")


_settings.hooks.append(_follow_settings)
_follow_settings()
del _module, _name, _names


def __getattr__(name: str) -> _Any:
    """What is imported when it is asked for."""
    if name in _later.names(__name__):
        _importlib.import_module("fnx.numpy")  # arrays have their operators from there
    return _later.find(__name__, name)


def __dir__() -> list[str]:
    names = {*globals(), *_later.names(__name__)}
    return sorted(names - {n for n in names if n.startswith("_")})
