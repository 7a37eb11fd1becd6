"""A GPU as a target: plain nests, which the schedule deals out, and the host for what is not loops."""

from fnx.lowering.portable import PortableTarget
from fnx.lowering.transform import loop_fusion

from . import columns
from .thresholds import GPU

# Functions of SciPy's for which a GPU has no code: the host computes them.
_HOST = frozenset(
    "bessel_j beta_grad_a beta_grad_b cosine_integral dawsn erfcx expi expn fresnel_cosine "
    "fresnel_sine hyp1f1 hyp1f1_grad_a hyp1f1_grad_b hyp2f1 hyp2f1_grad_a hyp2f1_grad_b "
    "hyp2f1_grad_c igamma igamma_grad_a igammac ndtri owens_t polygamma random_gamma_grad "
    "regularized_incomplete_beta sine_integral spence wofz zeta zeta_grad_s".split()
)


class CudaTarget(PortableTarget):
    """A GPU of NVIDIA's."""

    name = "cuda"
    machine = GPU
    passes = (columns.of_threads, loop_fusion.fuse)
    results_apart = True
    updates_in_blocks = False

    def math(self, name: str, dtype: str) -> bool:
        return name not in _HOST
