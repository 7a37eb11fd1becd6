"""Sparse arrays: BCOO (coordinates), BCSR (compressed rows), their products with dense arrays; and JAX's
older COO, CSR and CSC of matrices."""

from fnx.experimental.sparse.bcoo import BCOO as BCOO
from fnx.experimental.sparse.bcoo import JAXSparse as JAXSparse
from fnx.experimental.sparse.bcoo import bcoo_fromdense as bcoo_fromdense
from fnx.experimental.sparse.bcoo import bcoo_reduce_sum as bcoo_reduce_sum
from fnx.experimental.sparse.bcoo import bcoo_todense as bcoo_todense
from fnx.experimental.sparse.bcoo import todense as todense
from fnx.experimental.sparse.bcsr import BCSR as BCSR
from fnx.experimental.sparse.coo import COO as COO
from fnx.experimental.sparse.coo import coo_fromdense as coo_fromdense
from fnx.experimental.sparse.coo import coo_matmat as coo_matmat
from fnx.experimental.sparse.coo import coo_matvec as coo_matvec
from fnx.experimental.sparse.coo import coo_todense as coo_todense
from fnx.experimental.sparse.creation import empty as empty
from fnx.experimental.sparse.creation import eye as eye
from fnx.experimental.sparse.creation import random_bcoo as random_bcoo
from fnx.experimental.sparse.csr import CSC as CSC
from fnx.experimental.sparse.csr import CSR as CSR
from fnx.experimental.sparse.csr import csr_fromdense as csr_fromdense
from fnx.experimental.sparse.csr import csr_matmat as csr_matmat
from fnx.experimental.sparse.csr import csr_matvec as csr_matvec
from fnx.experimental.sparse.csr import csr_todense as csr_todense
from fnx.experimental.sparse.derivatives import grad as grad
from fnx.experimental.sparse.derivatives import jacfwd as jacfwd
from fnx.experimental.sparse.derivatives import jacobian as jacobian
from fnx.experimental.sparse.derivatives import jacrev as jacrev
from fnx.experimental.sparse.derivatives import value_and_grad as value_and_grad
from fnx.experimental.sparse.functions import bcoo_broadcast_in_dim as bcoo_broadcast_in_dim
from fnx.experimental.sparse.functions import bcoo_concatenate as bcoo_concatenate
from fnx.experimental.sparse.functions import bcoo_dot_general as bcoo_dot_general
from fnx.experimental.sparse.functions import bcoo_extract as bcoo_extract
from fnx.experimental.sparse.functions import bcoo_multiply_dense as bcoo_multiply_dense
from fnx.experimental.sparse.functions import bcoo_multiply_sparse as bcoo_multiply_sparse
from fnx.experimental.sparse.functions import bcoo_reshape as bcoo_reshape
from fnx.experimental.sparse.functions import bcoo_slice as bcoo_slice
from fnx.experimental.sparse.functions import bcoo_sort_indices as bcoo_sort_indices
from fnx.experimental.sparse.functions import bcoo_squeeze as bcoo_squeeze
from fnx.experimental.sparse.functions import bcoo_sum_duplicates as bcoo_sum_duplicates
from fnx.experimental.sparse.functions import bcoo_transpose as bcoo_transpose
from fnx.experimental.sparse.functions import bcoo_update_layout as bcoo_update_layout
from fnx.experimental.sparse.transform import sparsify as sparsify
from fnx.experimental.sparse.util import CuSparseEfficiencyWarning as CuSparseEfficiencyWarning
from fnx.experimental.sparse.util import SparseEfficiencyError as SparseEfficiencyError
from fnx.experimental.sparse.util import SparseEfficiencyWarning as SparseEfficiencyWarning

__all__ = [name for name in list(globals()) if not name.startswith("_")]
