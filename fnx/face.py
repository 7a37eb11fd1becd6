"""What the package fnx has, and what its rooms have from above: names, and where they are when asked for.

Whatever is not the core imports this first; it is apart from fnx/__init__.py so that no thread that imports
the package holds it for long.
"""

import importlib
import sys
from typing import Any

from fnx.core import config as settings
from fnx.core import lazy_imports as later
from fnx.core.array import Array, install
from fnx.core.aval import ShapedArray
from fnx.core.buffer import importers

_NAMES = {
    "fnx.core": "__version__ __version_info__",
    "fnx.core.array": "Array",
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
        "no_execution no_tracing numpy_dtype_promotion numpy_rank_promotion softmax_custom_jvp "
        "threefry_partitionable transfer_guard transfer_guard_device_to_device "
        "transfer_guard_device_to_host transfer_guard_host_to_device"
    ),
    "fnx.process.shards": (
        "Shard make_array_from_callback make_array_from_process_local_data "
        "make_array_from_single_device_arrays"
    ),
    "fnx.sharding": "NamedSharding P make_mesh reshard set_mesh",
    "fnx.experimental.shard_map": "smap",
    "fnx.transforms.shard_map": "pmap shard_map",
    "fnx.transforms.make_jaxpr": "ShapeDtypeStruct eval_shape make_jaxpr",
}
for _module, _names in _NAMES.items():
    later.add("fnx", _module, _names)
for _name in (
    "ad ad_checkpoint api_util cache checkpoints custom_batching custom_derivatives debug distributed "
    "dlpack doctor dtypes errors example_libraries "
    "experimental export extend flatten_util image lax memory nn numpy ops profiler random ref scipy "
    "sharding stages test_util tree tree_util typing version"
).split():
    later.add("fnx", f"fnx.{_name}", _name, modules=True)

for _name in "ad batching mlir partial_eval xla".split():
    later.add("fnx.interpreters", f"fnx.interpreters.{_name}", _name, modules=True)

# The loops need tracing, and the rules of users transformations: both live under the roof, and are
# called by names of rooms below it.
later.add(
    "fnx.lax", "fnx.control_flow", "associative_scan cond fori_loop map scan switch while_loop"
)
later.add("fnx.lax", "fnx.process.constraints", "with_sharding_constraint")
later.add("fnx.lax", "fnx.transforms.implicit_diff", "custom_linear_solve custom_root")
later.add(
    "fnx.ops", "fnx.numpy.numerics.segment_ops", "segment_sum segment_prod segment_max segment_min"
)
later.add("fnx.numpy.arrays.util", "fnx.transforms.grad", "value_and_grad")
later.add("fnx.numpy.arrays.util", "fnx.control_flow", "scan while_loop")
later.add("fnx.numpy.arrays.util", "fnx.transforms.vmap", "vmap")
later.along("fnx.core.array", "fnx.numpy")  # arrays have their operators from there
later.add("fnx.process.placement", "fnx.process.sharded_program", "at_once")
later.add("fnx.numpy.arrays.public_calls", "fnx.process.devices", "device_put")
later.add("fnx.process.devices", "fnx.process.constraints", "constrained named")
later.add("fnx.process.sharded_program", "fnx.transforms.traced_program", "BACKEND backend_of")
later.add("fnx.core.lazy_imports", "fnx.observe.displays.dispatch", "html")
later.add("fnx.core.primitive", "fnx.lowering.cpu.ufuncs", "compiled_ufunc")


def _shards(x: Array) -> Any:
    return importlib.import_module("fnx.process.shards").shards(x)


def _devices(x: Array) -> Any:
    return importlib.import_module("fnx.process.shards").devices_of(x)


def _to_device(x: Array, device: Any, *, stream: Any = None) -> Array:
    """The array on a device, or as a sharding has it."""
    return importlib.import_module("fnx.process.devices").device_put(x, device)


def _of_a_gpu(x: Any) -> Any:
    there = getattr(x, "__dlpack_device__", None)
    if (there is None or there()[0] == 1) and not hasattr(x, "__cuda_array_interface__"):
        return None
    return importlib.import_module("fnx.lowering.cuda.interchange").taken(x)


importers.append(_of_a_gpu)


def _sharding_of_aval(aval: Any) -> Any:
    return importlib.import_module("fnx.process.shardings").sharding_of_aval(aval)


# The type of an array lies on no mesh.
ShapedArray.sharding = property(_sharding_of_aval)  # type: ignore[attr-defined]
install(
    {
        "sharding": property(
            lambda x: importlib.import_module("fnx.process.shardings").sharding_of(x)
        ),
        "addressable_shards": property(_shards),
        "addressable_data": lambda x, index: _shards(x)[index].data,
        "devices": _devices,
        "to_device": _to_device,
        "is_fully_replicated": property(lambda x: x.sharding.is_fully_replicated),
        "global_shards": property(
            lambda x: importlib.import_module("fnx.process.shards").global_shards(x)
        ),
        "is_fully_addressable": property(
            lambda x: importlib.import_module("fnx.process.shards").is_here(x)
        ),
    }
)


def _wanted() -> list[str]:
    """What the settings debug_nans, debug_infs, debug_index and progress ask for."""
    checks = settings.debug_nans.value or settings.debug_infs.value or settings.debug_index.value
    wanted = {
        "fnx.process.nan_checks": checks or "fnx.process.nan_checks" in sys.modules,
        "fnx.experimental.index_checks": settings.debug_index.value,
        "fnx.observe.progress": settings.progress.value,
    }
    return [module for module, is_wanted in wanted.items() if is_wanted]


def _follow_settings() -> None:
    for module in _wanted():
        found = importlib.import_module(module)
        if module == "fnx.process.nan_checks":
            found.follow_setting()


settings.hooks.append(_follow_settings)
# What arrays need, and what the environment asks for.
later.along(
    "fnx.numpy",
    " ".join(["fnx.transforms.jit fnx.transforms.grad fnx.transforms.vmap", *_wanted()]),
)
del _module, _name, _names
