"""fnx: composable transformations of NumPy-style functions, compiled to native code.

The names are JAX's; arrays keep the dtype that they are given, so that Python floats make float64.
"""

import importlib as _importlib
import typing as _typing
from typing import Any as _Any

from fnx import control_flow as _control_flow
from fnx import core as core
from fnx import debug as debug
from fnx import dtypes as dtypes
from fnx import errors as errors
from fnx import lax as lax
from fnx import nans as _nans
from fnx import numpy as numpy
from fnx import ops as ops
from fnx import segment as _segment
from fnx import sharding as sharding
from fnx import tree as tree
from fnx import tree_util as tree_util
from fnx import typing as typing
from fnx.ad_checkpoint import checkpoint as checkpoint
from fnx.ad_checkpoint import checkpoint_policies as checkpoint_policies
from fnx.ad_checkpoint import remat as remat
from fnx.callbacks import pure_callback as pure_callback
from fnx.core import config as _settings
from fnx.core.array import Array as Array
from fnx.custom_derivatives import closure_convert as closure_convert
from fnx.custom_derivatives import custom_gradient as custom_gradient
from fnx.custom_derivatives import custom_jvp as custom_jvp
from fnx.custom_derivatives import custom_vjp as custom_vjp
from fnx.derivatives import grad as grad
from fnx.derivatives import jvp as jvp
from fnx.derivatives import linear_transpose as linear_transpose
from fnx.derivatives import linearize as linearize
from fnx.derivatives import value_and_grad as value_and_grad
from fnx.derivatives import vjp as vjp
from fnx.implicit import custom_linear_solve as _custom_linear_solve
from fnx.implicit import custom_root as _custom_root
from fnx.jacobians import hessian as hessian
from fnx.jacobians import jacfwd as jacfwd
from fnx.jacobians import jacobian as jacobian
from fnx.jacobians import jacrev as jacrev
from fnx.jit import clear_caches as clear_caches
from fnx.jit import jit as jit
from fnx.lanes import vmap as vmap
from fnx.nans import debug_nans as debug_nans
from fnx.placement import Device as Device
from fnx.placement import block_until_ready as block_until_ready
from fnx.placement import copy_to_host_async as copy_to_host_async
from fnx.placement import default_backend as default_backend
from fnx.placement import device_count as device_count
from fnx.placement import device_get as device_get
from fnx.placement import device_put as device_put
from fnx.placement import devices as devices
from fnx.placement import local_device_count as local_device_count
from fnx.placement import local_devices as local_devices
from fnx.placement import process_count as process_count
from fnx.placement import process_index as process_index
from fnx.refs import Ref as Ref
from fnx.refs import empty_ref as empty_ref
from fnx.refs import freeze as freeze
from fnx.refs import new_ref as new_ref
from fnx.runtime import compile_report as compile_report
from fnx.runtime import compile_stats as compile_stats
from fnx.runtime import effects_barrier as effects_barrier
from fnx.runtime import ensure_compile_time_eval as ensure_compile_time_eval
from fnx.runtime import get_num_threads as get_num_threads
from fnx.runtime import named_call as named_call
from fnx.runtime import named_scope as named_scope
from fnx.runtime import release_memory as release_memory
from fnx.runtime import set_num_threads as set_num_threads
from fnx.runtime import typeof as typeof
from fnx.settings import check_tracer_leaks as check_tracer_leaks
from fnx.settings import checking_leaks as checking_leaks
from fnx.settings import config as config
from fnx.settings import debug_key_reuse as debug_key_reuse
from fnx.settings import default_device as default_device
from fnx.settings import default_matmul_precision as default_matmul_precision
from fnx.settings import default_prng_impl as default_prng_impl
from fnx.settings import disable_jit as disable_jit
from fnx.settings import enable_checks as enable_checks
from fnx.settings import enable_custom_prng as enable_custom_prng
from fnx.settings import enable_x64 as enable_x64
from fnx.settings import legacy_prng_key as legacy_prng_key
from fnx.settings import log_compiles as log_compiles
from fnx.settings import numpy_dtype_promotion as numpy_dtype_promotion
from fnx.settings import numpy_rank_promotion as numpy_rank_promotion
from fnx.settings import threefry_partitionable as threefry_partitionable
from fnx.settings import transfer_guard as transfer_guard
from fnx.sharding import NamedSharding as NamedSharding
from fnx.sharding import P as P
from fnx.sharding import make_mesh as make_mesh
from fnx.sharding import reshard as reshard
from fnx.sharding import set_mesh as set_mesh
from fnx.spmd import pmap as pmap
from fnx.spmd import shard_map as shard_map
from fnx.staging import ShapeDtypeStruct as ShapeDtypeStruct
from fnx.staging import eval_shape as eval_shape
from fnx.staging import make_jaxpr as make_jaxpr

if _typing.TYPE_CHECKING:
    from fnx import random as random

__version__ = "0.1.0"
__version_info__ = (0, 1, 0)

# The loops need tracing, and the rules of users transformations: both live under the roof, and are
# called by names of rooms below it.
for _name in "associative_scan cond fori_loop map scan switch while_loop".split():
    setattr(lax, _name, getattr(_control_flow, _name))
lax.custom_linear_solve, lax.custom_root = _custom_linear_solve, _custom_root  # type: ignore
for _name in ("segment_sum", "segment_prod", "segment_max", "segment_min"):
    setattr(ops, _name, getattr(_segment, _name))
_nans.install(_settings.hooks)
numpy.util.use_transformations(
    vmap=vmap,
    value_and_grad=value_and_grad,
    scan=_control_flow.scan,
    while_loop=_control_flow.while_loop,
)
del _name

_LATER = frozenset(
    "ad_checkpoint cache custom_derivatives experimental flatten_util image nn random profiler ref scipy "
    "stages test_util".split()
)

_MODULES = {"stages": "fnx.aot", "ref": "fnx.refs"}


def __getattr__(name: str) -> _Any:
    """Modules that few programs need are imported when they are asked for."""
    if name in _LATER:
        return _importlib.import_module(_MODULES.get(name, f"fnx.{name}"))
    import sys

    # With name and obj Python adds "Did you mean" to the message.
    obj = sys.modules[__name__]
    raise AttributeError(f"module 'fnx' has no attribute {name!r}", name=name, obj=obj)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER} - {n for n in globals() if n.startswith("_")})
