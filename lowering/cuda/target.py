"""A GPU as a target: plain nests, which the schedule deals out, and the host for what is not loops."""

from fnx.lowering.portable import PortableTarget
from fnx.lowering.transform import loop_fusion

from . import scalar
from .thresholds import GPU


class CudaTarget(PortableTarget):
    """A GPU of NVIDIA's."""

    name = "cuda"
    machine = GPU
    passes = (loop_fusion.fuse,)
    results_apart = True
    updates_in_blocks = False


__all__ = ["CudaTarget", "scalar"]
