"""Scaled dot-product attention."""

import math

import numpy as np

from fnx.core.errors import ShapeError
from fnx.nn.normalization import logsumexp, softmax
from fnx.numpy.algebra.einsums import einsum
from fnx.numpy.arrays.util import convert, promote_inexact, to_array
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.structure.ranges import arange
from fnx.numpy.structure.tiling import repeat


def dot_product_attention(
    query,
    key,
    value,
    bias=None,
    mask=None,
    *,
    scale=None,
    is_causal=False,
    query_seq_lengths=None,
    key_value_seq_lengths=None,
    local_window_size=None,
    implementation=None,
    return_residual=False,
):
    """softmax(query key^T * scale + bias) value, for each head.

    query has shape (batch, T, heads, features), key and value (batch, S, kv_heads, features), bias
    and mask broadcast to (batch, heads, T, S); the batch axis may be left out of all three.

    ShapeError for shapes that do not fit, and for heads that do not divide.

    >>> x = jnp.ones((1, 4, 2, 8))
    >>> fnx.nn.dot_product_attention(x, x, x, is_causal=True).shape
    (1, 4, 2, 8)
    """
    del implementation
    q, k, v = promote_inexact("dot_product_attention", query, key, value)
    single = q.ndim == 3
    if single:
        q, k, v = q[None], k[None], v[None]
    if q.ndim != 4 or k.ndim != 4 or q.shape[-1] != k.shape[-1] or k.shape[:-1] != v.shape[:-1]:
        raise ShapeError(
            f"dot_product_attention of query {q.shape}, key {k.shape}, value {v.shape}; expected (batch, "
            "length, heads, features) with equal features, and key and value alike"
        )
    heads, kv_heads = q.shape[2], k.shape[2]
    if heads % kv_heads:
        raise ShapeError(
            f"dot_product_attention of {heads} heads of the query and {kv_heads} of key and value; the "
            "first must be a multiple of the second"
        )
    if heads != kv_heads:
        k, v = (repeat(x, heads // kv_heads, axis=2) for x in (k, v))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    wide = np.dtype(np.float32) if q.dtype.itemsize < 4 else q.dtype
    logits = convert(einsum("btnh,bsnh->bnts", q, k), wide) * scale
    if bias is not None:
        logits = u.add(logits, convert(to_array(bias), wide))
    keep = _kept(
        logits.shape, mask, is_causal, query_seq_lengths, key_value_seq_lengths, local_window_size
    )
    if keep is not None:
        logits = u.where3(keep, logits, float(np.finfo(wide).min) * 0.7)
    # Where nothing is kept all weigh the same: logits may be so large that a logarithm adds nothing.
    out = einsum("bnts,bsnh->btnh", convert(softmax(logits), q.dtype), v)
    residual = logsumexp(logits, axis=-1).transpose(0, 2, 1) if return_residual else None
    if single:
        out, residual = out[0], residual[0] if return_residual else None
    return (out, convert(residual, q.dtype)) if return_residual else out


def _kept(shape, mask, is_causal, query_lengths, key_lengths, window):
    """Which pairs of query and key meet, or None for all."""
    _, _, t, s = shape
    row, column = arange(t)[:, None], arange(s)[None]
    parts = [] if mask is None else [u.truth(mask)]
    if is_causal:
        parts.append(row >= column)
    if window is not None:
        before, after = (window, window) if isinstance(window, int) else window
        parts.append((column >= row - before) & (column <= row + after))
    if query_lengths is not None:
        parts.append(row < to_array(query_lengths)[:, None, None, None])
    if key_lengths is not None:
        parts.append(column < to_array(key_lengths)[:, None, None, None])
    out = None
    for part in parts:
        out = part if out is None else u.logical_and(out, part)
    return out


__all__ = ["dot_product_attention"]
