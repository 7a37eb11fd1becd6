"""Errors and warnings under the names of JAX's module; fnx raises and gives none of them."""

__all__ = ["CuSparseEfficiencyWarning", "SparseEfficiencyError", "SparseEfficiencyWarning"]


class SparseEfficiencyError(ValueError):
    """JAX's error for an operation on sparse arrays that would be slow.

    >>> from fnx.experimental import sparse
    >>> issubclass(sparse.SparseEfficiencyError, ValueError)
    True
    """


class SparseEfficiencyWarning(UserWarning):
    """JAX's warning of an operation on sparse arrays that is slow.

    >>> from fnx.experimental import sparse
    >>> issubclass(sparse.SparseEfficiencyWarning, UserWarning)
    True
    """


class CuSparseEfficiencyWarning(SparseEfficiencyWarning):
    """JAX's warning that a product cannot be one of NVIDIA's library.

    >>> from fnx.experimental import sparse
    >>> issubclass(sparse.CuSparseEfficiencyWarning, sparse.SparseEfficiencyWarning)
    True
    """
