"""`jax.experimental.compilation_cache.compilation_cache`: where code is kept on disk.

fnx keeps its own in the folder that `fnx.cache.info()` names, of which FNX_CACHE_DIR is the choice.
"""

from fnx.process.settings import config


def set_cache_dir(path: str) -> None:
    """Remember JAX's folder, in which fnx keeps nothing."""
    config.update("jax_compilation_cache_dir", str(path))


def reset_cache() -> None:
    """Forget the folder that `set_cache_dir` named."""
    config.update("jax_compilation_cache_dir", None)
