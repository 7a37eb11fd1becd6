"""A GPU as a target: plain nests, which the schedule deals out, and the host for what is not loops."""

from typing import Any

from fnx.core import recipe
from fnx.lowering.generate.values import Value
from fnx.lowering.ir.kernel import Loop
from fnx.lowering.portable import PortableRoutines, PortableTarget
from fnx.lowering.transform import loop_fusion, row_fusion

from . import columns, libraries, sorting
from .kernels import independence
from .kernels.thresholds import GPU, LIMITS, Limits

# Functions of SciPy's for which a GPU has no code: the host computes them.
_HOST = frozenset(
    "bessel_j beta_grad_a beta_grad_b cosine_integral dawsn erfcx expi expn fresnel_cosine "
    "fresnel_sine hyp1f1 hyp1f1_grad_a hyp1f1_grad_b hyp2f1 hyp2f1_grad_a hyp2f1_grad_b "
    "hyp2f1_grad_c igamma igamma_grad_a igammac ndtri owens_t polygamma random_gamma_grad "
    "regularized_incomplete_beta sine_integral spence wofz zeta zeta_grad_s".split()
)


class CudaRoutines(PortableRoutines):
    """Loops, but for large products of matrices, where CuPy is there."""

    def known(self, r: recipe.Library) -> bool:
        return super().known(r) and not libraries.multiplies(r, LIMITS.product)

    def library(self, builder: Any, r: recipe.Library, outs: list[Value]) -> None:
        if r.name == "sort":
            sorting.sort(builder, r, outs)
        elif r.name == "top_k":
            sorting.top_k(builder, r, outs)
        else:
            super().library(builder, r, outs)


class CudaTarget(PortableTarget):
    """A GPU of NVIDIA's."""

    name = "cuda"
    machine = GPU
    routines = CudaRoutines()
    passes = (columns.of_threads, loop_fusion.fuse, row_fusion.fuse)
    results_apart = True
    updates_in_blocks = False
    chooses_pieces = True

    def __init__(self, limits: Limits = LIMITS):
        super().__init__()
        self.limits = limits

    def runs_at_once(self, loop: Loop) -> bool:
        return independence.may_be_dealt(loop)

    def math(self, name: str, dtype: str) -> bool:
        return name not in _HOST
