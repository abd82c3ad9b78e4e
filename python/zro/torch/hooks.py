"""`hook_with_zero_step` and `hook_with_zero_step_interleaved`: steps of a ZeroRedundancyOptimizer during torch's backward.

A hook of torch's DistributedDataParallel gets one bucket of gradients after another, in the same order on all ranks.  Here the hook
that is wrapped begins to average a bucket, and a thread of ours does the rest in that order: it waits for the average, steps what
this rank owns, and brings it to all ranks.  The last bucket's future is done when everything is, so a backward that has returned has
stepped.  Because one thread makes all calls of zro, ranks make them in the same order; torch's own hooks make theirs on threads of
gloo, where they may hang, and are refused there.
"""
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, List, Optional

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import _hook_with_zero_step_setup
from torch.distributed.optim.zero_redundancy_optimizer import _OverlapStatus

from .optimizer import Part, ZeroRedundancyOptimizer

__all__ = ["hook_with_zero_step", "hook_with_zero_step_interleaved"]


class _Bucket:
    """A bucket of the present iteration: its parameters and gradients, and the average that is under way."""

    def __init__(self, bucket: dist.GradBucket, future: Any) -> None:
        self.params, self.grads, self.buffer = bucket.parameters(), bucket.gradients(), bucket.buffer()
        self.future = future

    def wait(self) -> None:
        """Waits until the gradients are what the wrapped hook makes of them."""
        result = self.future.wait()
        result = result[0] if isinstance(result, (list, tuple)) else result
        if isinstance(result, torch.Tensor) and result.data_ptr() != self.buffer.data_ptr():
            self.buffer.copy_(result)


class _Overlap:
    """The steps of one optimizer during the backward of one DistributedDataParallel."""

    def __init__(self, hook: Any, ddp: Any, zero: ZeroRedundancyOptimizer, interleaved: bool, lose_first: bool) -> None:
        self.hook, self.ddp, self.zero = hook, weakref.ref(ddp), zero
        self.interleaved, self.lose_first = interleaved, lose_first
        self.buckets: List[_Bucket] = []  # of the present iteration, so far
        self.layout: Optional[List[List[torch.Tensor]]] = None  # parameters of the buckets that zero's parts belong to
        self.known: Optional[List[List[torch.Tensor]]] = None  # those of the buckets that torch will keep
        self.thread: Optional[ThreadPoolExecutor] = None

    # ---- preparing ----

    def is_ready(self, bucket: dist.GradBucket) -> bool:
        """Whether this iteration steps; prepares the optimizer in the first one that does."""
        zero = self.zero
        if self.lose_first:
            _hook_with_zero_step_setup(self.ddp, zero, bucket)
            self.known = zero._overlap_info.params_per_bucket
        elif zero._overlap_info.status != _OverlapStatus.INITIALIZED:
            zero._overlap_info.status = _OverlapStatus.INITIALIZED
            zero._clear_cache()
            zero._partition_parameters()
            zero._init_local_optimizer()
        if zero._overlap_info.status != _OverlapStatus.INITIALIZED:
            return False
        if bucket.index() == 0:
            self.begin()
        return True

    def begin(self) -> None:
        """Makes zro's optimizers: one per bucket for the interleaved hook, where buckets stay as they are; otherwise a single one."""
        zero = self.zero
        if zero._get_is_trainable_mask() != zero._is_trainable_mask:
            raise RuntimeError("ZeroRedundancyOptimizer with `overlap_with_ddp=True` does not support changing parameter trainability "
                               "at run time")
        self.buckets = []
        layout = self.known if self.interleaved and self.known else None
        if zero._parts and layout is self.layout:
            return
        if not zero._parts:
            zero._rule = zero._find_rule()
        every = [p for params in self.known for p in params] if self.lose_first else zero._index_to_param
        zero._set_parts([Part(zero, zero._rule, [params], [0]) for params in (layout if layout is not None else [every])])
        self.layout = layout

    # ---- steps ----

    def step(self, buckets: List[_Bucket], part: Part) -> torch.Tensor:
        """On our thread: steps the parameters of a part, whose gradients are in these buckets."""
        with torch.no_grad():
            grads = {}
            for bucket in buckets:
                bucket.wait()
                grads.update(zip(bucket.params, bucket.grads))
            self.zero._step_part(part, [grads.get(p) for p in part.params])
        return buckets[-1].buffer

    def submit(self, buckets: List[_Bucket], part: Part) -> Any:
        """Lets our thread step, and returns the future of the last of these buckets."""
        future: Any = torch.futures.Future()

        def work() -> None:
            try:
                future.set_result(self.step(buckets, part))
            except BaseException as error:  # pylint: disable=broad-except  # backward raises it
                future.set_exception(error)

        if self.thread is None:
            self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="zro")
        self.thread.submit(work)
        return future

    def take(self, state: Any, bucket: dist.GradBucket) -> Any:
        """What the hook of torch's DistributedDataParallel does with a bucket."""
        future = self.hook(state, bucket)
        if not self.is_ready(bucket):
            return future
        self.buckets.append(_Bucket(bucket, future))
        if self.layout is not None:
            future = self.submit(self.buckets[-1:], self.zero._parts[bucket.index()])
        elif bucket.is_last():
            future = self.submit(self.buckets, self.zero._parts[0])
        if bucket.is_last() and not self.lose_first and self.known is None and self.ddp()._has_rebuilt_buckets:
            self.known = [taken.params for taken in self.buckets]
        return future


def _make(hook: Any, ddp: Any, zero: Any, shard_buckets: bool, lose_first_iterations: bool, interleaved: bool) -> Any:
    if not isinstance(zero, ZeroRedundancyOptimizer):
        raise TypeError(f"zero is a {type(zero).__module__}.{type(zero).__qualname__}, must be a zro.torch.ZeroRedundancyOptimizer; use "
                        "torch's own hook with torch's own optimizer")
    if not zero._overlap_with_ddp:
        raise ValueError("ZeroRedundancyOptimizer must be constructed with `overlap_with_ddp=True` to use this hook properly")
    if shard_buckets:
        zero._overlap_info.shard_buckets = True
        zero._overlap_info.total_size = 0
    return _Overlap(hook, ddp, zero, interleaved, lose_first_iterations)


def hook_with_zero_step(hook: Callable[[Any, dist.GradBucket], Any], ddp: Any, zero: ZeroRedundancyOptimizer,
                        shard_buckets: bool = False, lose_first_iterations: bool = True) -> Callable[[Any, dist.GradBucket], Any]:
    """Wraps a hook so that `zero` steps when all gradients of a backward are there: torch's function of this name, also on gloo.

    As in torch, the first two iterations (static graph: three) change no parameters, because ownership follows the buckets that torch
    has from then on.  With lose_first_iterations=False all iterations step; ownership is that without overlap, and shard_buckets does
    nothing.
    """
    overlap = _make(hook, ddp, zero, shard_buckets, lose_first_iterations, False)

    def hook_with_zero_fn(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return overlap.take(state, bucket)

    return hook_with_zero_fn


def hook_with_zero_step_interleaved(hook: Callable[[Any, dist.GradBucket], Any], ddp: Any, zero: ZeroRedundancyOptimizer,
                                    shard_buckets: bool = False,
                                    lose_first_iterations: bool = True) -> Callable[[Any, dist.GradBucket], Any]:
    """The same, but each bucket's parameters step as soon as its gradients are averaged, while backward goes on.

    With lose_first_iterations=False the iterations that torch loses step when all gradients are there.
    """
    overlap = _make(hook, ddp, zero, shard_buckets, lose_first_iterations, True)

    def hook_with_zero_interleaved_fn(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return overlap.take(state, bucket)

    return hook_with_zero_interleaved_fn
