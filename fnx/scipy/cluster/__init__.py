"""Clustering."""

from fnx.scipy.cluster import vq as vq
