"""Memory that programs free: kept, or given back to the system, which then has to clear it page by page when it is taken again."""
import ctypes
from typing import Any

# Of mallopt, by the numbers in glibc's malloc.h: nothing is mapped by itself, nothing is given back, and the heap grows in pieces of 64 MB.
KEEP = {"M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, 2**31 - 1), "M_TOP_PAD": (-2, 64 << 20)}


def keep_freed_memory() -> bool:
    """Lets malloc keep the memory that this process frees, so that gradients, which autograd frees and takes again in every step, get
    memory that is mapped already.

    Call it at the beginning of a program.  The process stays as large as it has once been.  The same can be had from outside with
    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647 MALLOC_TOP_PAD_=67108864.  False: this C library has no such settings.
    """
    mallopt: Any = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all([mallopt(what, value) == 1 for what, value in KEEP.values()])
