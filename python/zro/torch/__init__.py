"""PyTorch's ZeroRedundancyOptimizer and DistributedDataParallel, and what belongs to them, on zro: on CPUs, with any process group.

    from zro.torch import DistributedDataParallel, ZeroRedundancyOptimizer

is all that changes in a program: see docs/pytorch.md.
"""
try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("zro.torch needs PyTorch 2: pip install torch") from error
from ._malloc import keep_freed_memory
from .ddp import DistributedDataParallel
from .hooks import hook_with_zero_step, hook_with_zero_step_interleaved
from .optimizer import ZeroRedundancyOptimizer

__all__ = ["DistributedDataParallel", "ZeroRedundancyOptimizer", "hook_with_zero_step", "hook_with_zero_step_interleaved",
           "keep_freed_memory"]
