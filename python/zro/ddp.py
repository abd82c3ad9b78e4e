"""The data-parallel layer: gradients are averaged in buckets while backward goes on; join; which samples a rank trains on."""
from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Union

import numpy

from . import _c
from ._c import byref, lib, make, new
from ._core import Box, Handle, address_of, as_tuple, configure, dense, dtype_number, query, sizes, stats, view
from .group import Group
from .optim import Optimizer
from .params import Param, Params, Some, params_of


class Bucket:
    """What a hook gets (zro_bucket): valid until the hook returns."""

    def __init__(self, handle: int) -> None:
        self._as_parameter_ = handle
        self.replaced: Optional[numpy.ndarray] = None

    @property
    def index(self) -> int:
        """The bucket's number."""
        return lib.zro_bucket_index(self)

    @property
    def is_last(self) -> bool:
        """Whether it is the last one of the iteration."""
        return bool(lib.zro_bucket_is_last(self))

    @property
    def params(self) -> List[int]:
        """The indices of its parameters."""
        return [lib.zro_bucket_param(self, i) for i in range(lib.zro_bucket_params(self))]

    @property
    def buffer(self) -> numpy.ndarray:
        """All gradients of the bucket one after another; the hook leaves its result here."""
        count, dtype = ctypes.c_size_t(), ctypes.c_int()
        address = lib.zro_bucket_buffer(self, byref(count), byref(dtype))
        return view(address, (count.value,), dtype.value, None)

    @buffer.setter
    def buffer(self, array: numpy.ndarray) -> None:
        self.replaced = dense("the buffer", array)
        lib.zro_bucket_set_buffer(self, address_of(array), dtype_number(array.dtype))

    @property
    def group(self) -> Group:
        """All ranks, for collective calls of the hook."""
        return Group.borrowed(lib.zro_bucket_group(self))

    @property
    def divisor(self) -> float:
        """By what an average divides."""
        return lib.zro_bucket_divisor(self)


Hook = Union[None, str, Callable[[Bucket], Any]]


class Ddp(Handle):
    """Averages gradients over the ranks of a group (zro_ddp).

        with ddp.iteration():                      # forward() ... backward_end()
            ...                                    # p.grad = ...; ddp.ready(p), as gradients become final
        optim.step()

    `hook`: what is done with a full bucket instead of averaging it: "bf16", "f16", "none", "all_reduce", or a function of a Bucket, which
    runs on the library's thread.  `buffers`: data of the model that is not trained.  Settings are the fields of zro_ddp_config:
    bucket_bytes, find_unused, static_graph, gradient_as_bucket_view, broadcast, broadcast_buffers, weighted; and bucket_limits, a list.

    An optimizer that is made with ddp=... is attached: it averages, updates and publishes in one pass in its step.
    """

    def __init__(self, group: Group, params: Some, hook: Hook = None, buffers: Optional[Some] = None, **settings: Any) -> None:
        self.params, index = params_of(params)
        if index != list(range(len(self.params))):
            raise ValueError("Ddp takes all parameters of a zro.Params")
        limits = settings.pop("bucket_limits", None)
        config = configure(_c.zro_ddp_config, settings)
        self._hook: List[Any] = []
        if buffers is not None:
            self.buffers: Optional[Params] = params_of(buffers)[0]
            config.buffers, config.n_buffers = self.buffers.array, len(self.buffers)
        else:
            self.buffers = None
        if limits is not None:
            config.bucket_limits, config.n_bucket_limits = sizes(limits), len(limits)
        config.hook = self._take(hook)
        handle = make(lib.zro_ddp_create, group.box, self.params.array, len(self.params), byref(config))
        self._box = Box(lib.zro_ddp_destroy, handle, group.box, self.params, self.buffers, config, self._hook)
        if config.gradient_as_bucket_view:
            self.params.moved_by(self.box)

    def _take(self, hook: Hook) -> Any:
        if isinstance(hook, str):
            call = getattr(lib, "zro_hook_" + hook, None)
            if call is None:
                raise ValueError(f"there is no hook {hook!r}, only all_reduce, none, bf16, f16")
            callback: Any = ctypes.cast(call, _c.zro_hook_fn)
        elif hook is None:
            callback = _c.zro_hook_fn()
        else:
            buckets = {}  # what set_buffer was given must stay until the next call

            def call_hook(_: Any, handle: int) -> None:
                buckets["last"] = bucket = Bucket(handle)
                hook(bucket)

            self.guard = _c.Callback(_c.zro_hook_fn, call_hook)
            callback = self.guard._as_parameter_
        self._hook.append((callback, getattr(self, "guard", None)))
        return callback

    def set_hook(self, hook: Hook) -> None:
        """Another hook from the next forward on.  Collective."""
        lib.zro_ddp_set_hook(self.box, self._take(hook), None)

    def forward(self) -> None:
        """Begins an iteration.  Collective, unless under no_sync."""
        self._call(lib.zro_ddp_forward)

    def ready(self, *params: Union[int, Param]) -> None:
        """Says that the gradients of these parameters are final in this iteration, and present; without any: those of all.  Local."""
        index = range(len(self.params)) if not params else [each if isinstance(each, int) else each.index for each in params]
        lib.zro_ddp_grads_ready(self.box, sizes(index), len(index))

    def unused(self, *params: Union[int, Param]) -> None:
        """Says that this iteration does not use these parameters on this rank (find_unused).  Local."""
        for each in params:
            lib.zro_ddp_unused(self.box, each if isinstance(each, int) else each.index)

    def backward_end(self) -> None:
        """Ends an iteration: waits until all buckets are done.  Collective, unless under no_sync."""
        self._call(lib.zro_ddp_backward_end)

    def shadow(self) -> None:
        """A whole iteration in which this rank has no gradients, whatever find_unused says.  Collective."""
        self._call(lib.zro_ddp_shadow)

    def _call(self, call: Callable[..., None]) -> None:
        """A call in which a hook's own exception, if there was one, is raised instead of the library's error."""
        guard = getattr(self, "guard", None)
        with contextlib.nullcontext() if guard is None else guard:
            call(self.box)

    @contextlib.contextmanager
    def iteration(self) -> Iterator["Ddp"]:
        """forward() at the beginning of the block, backward_end() at its end."""
        self.forward()
        yield self
        self.backward_end()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Iterations in the block are micro-batches whose gradients add up on each rank and do not travel."""
        lib.zro_ddp_no_sync(self.box, _c.ZRO_ON)
        try:
            yield
        finally:
            lib.zro_ddp_no_sync(self.box, _c.ZRO_OFF)

    def set_weight(self, weight: float) -> None:
        """This rank's weight in averages from the next forward on (weighted=True).  Local."""
        lib.zro_ddp_set_weight(self.box, weight)

    def average(self) -> None:
        """Makes gradients that attached optimizers consume the average on all ranks, between backward_end and step.  Collective."""
        lib.zro_ddp_average(self.box)

    def check(self) -> None:
        """Raises MismatchError if parameters or buffers differ between ranks.  Collective."""
        lib.zro_ddp_check(self.box)

    def buckets(self) -> List[List[int]]:
        """The parameters of each bucket, as they are now.  Local."""
        params, lengths, n = ctypes.POINTER(ctypes.c_size_t)(), ctypes.POINTER(ctypes.c_size_t)(), ctypes.c_size_t()
        lib.zro_ddp_buckets(self.box, byref(params), byref(lengths), byref(n))
        listed, at = [], 0
        for length in lengths[:n.value]:
            listed.append(params[at:at + length])
            at += length
        return listed

    def stats(self) -> Any:
        """Statistics of the group that the ddp and its attached optimizers work on, as a named tuple (zro_stats)."""
        return stats(lib.zro_ddp_stats, self.box)


class Join(Handle):
    """Training on inputs of which ranks have different numbers (zro_join).

        with zro.Join(group, [ddp]):
            for batch in inputs: ...

    At the end of the block a rank that has run out of inputs follows the others until they have none.  An exception in the block makes
    the others' calls fail instead.  Attached optimizers are part of their ddp; others are listed.  Settings are the fields of
    zro_join_config: enable, throw_on_early_termination, divide_by ("initial_ranks", "remaining_ranks").  The constructor is collective.
    """

    def __init__(self, group: Group, handles: Iterable[Union[Ddp, Optimizer]], **settings: Any) -> None:
        listed = list(handles)
        joinables = (_c.zro_joinable * len(listed))()
        for joinable, each in zip(joinables, listed):
            (lib.zro_ddp_joinable if isinstance(each, Ddp) else lib.zro_optim_joinable)(each.box, byref(joinable))
        config = configure(_c.zro_join_config, settings)
        handle = make(lib.zro_join_create, group.box, joinables, len(listed), byref(config))
        self._box = Box(lib.zro_join_destroy, handle, [each.box for each in listed], group.box)

    def run(self) -> None:
        """This rank has no inputs left: follows the others until they have none.  Collective; afterwards all may begin again."""
        lib.zro_join_run(self.box)

    def info(self) -> Any:
        """How many ranks still have inputs, and so on, as a named tuple (zro_join_info)."""
        out = new(_c.zro_join_info)
        lib.zro_join_get_info(self.box, byref(out))
        return as_tuple(out)

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            if kind is None and not self.closed:
                self.run()
        finally:
            self.close()


def sample_indices(n: int, rank: int, size: int, first: int = 0, count: Optional[int] = None, **settings: Any) -> numpy.ndarray:
    """Which of n samples a rank of `size` trains on, from its first-th on: those of PyTorch's DistributedSampler.

    Settings are drop_last, shuffle, seed and epoch.  Local.
    """
    config = configure(_c.zro_sample_config, settings)
    total = lib.zro_sample_count(n, size, config.drop_last)
    out = numpy.empty(max(total - first, 0) if count is None else count, numpy.uintp)
    lib.zro_sample_indices(n, rank, size, byref(config), first, out.size, out.ctypes.data_as(ctypes.POINTER(ctypes.c_size_t)))
    return out
