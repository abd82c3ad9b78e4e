"""DistributedDataParallel: PyTorch's, with a ddp of zro's in place of its reducer.

The class is PyTorch's own with all that it does around forward; what it overrides is the making of the reducer.  `_Reducer` below has
the reducer's methods that PyTorch's Python code calls, and drives a zro_ddp:

- Default form.  Each parameter has a hook that autograd calls when its gradient is complete.  The first one of a backward begins an
  iteration of zro's, each says where the gradient lies, and the last one asks autograd to call `end` when backward is over.  The
  library averages gradients where they lie, on a thread of its own, while backward goes on.
- Attached form.  There are no hooks.  The step of the optimizer says where all gradients lie, and averages, updates and publishes
  in one pass over memory.  Parameters are moved into memory that all ranks of the machine can reach.

As in PyTorch an iteration counts if its forward was not under no_sync, an iteration that leaves out a parameter is an error at the
next forward (on all ranks here), and a forward without a backward costs nothing.
"""
import contextlib
import ctypes
import weakref
from typing import Any, Callable, Dict, List, Optional

import torch
import torch.distributed as dist
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel as _Torch

from .. import _c
from .._c import ZRO_OFF, ZRO_ON, byref, lib, make, new, zro_ddp_config, zro_hook_fn, zro_param
from ._groups import Handle, group_of
from ._tensors import DTYPES, Homes, Table, is_dense

if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
    raise ImportError(f"zro.torch needs PyTorch 2.1 or newer (register_post_accumulate_grad_hook), and this is {torch.__version__}")

TYPES = {number: dtype for dtype, number in DTYPES.items()}
MOST_DIMS = 8  # ZRO_MAX_DIMS

_queue = Variable._execution_engine.queue_callback  # pylint: disable=protected-access


# ---- tensors ----


def _describe(entry: zro_param, tensor: torch.Tensor, name: bytes) -> None:
    """Fills a parameter of zro's.  An order of dimensions other than the usual one is not told: it is a vector then."""
    shape = list(tensor.shape) if tensor.is_contiguous() and 0 < tensor.dim() <= MOST_DIMS else [tensor.numel()]
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None:  # bool, complex numbers, ...: bytes
        dtype, shape = _c.ZRO_U8, [tensor.numel() * tensor.element_size()]
    entry.data, entry.dtype, entry.n_dims, entry.name = tensor.data_ptr(), dtype, len(shape), name
    for i, length in enumerate(shape):
        entry.shape[i] = length


def _tensor_at(address: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Memory of the library's as a tensor; it must not be used longer than the library says."""
    if count == 0:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype=dtype)


# ---- hooks on buckets ----


class GradBucket:
    """What a communication hook gets: torch.distributed.GradBucket's methods.  The buffer is a copy, which lives as long as the hook likes."""

    def __init__(self, reducer: "_Reducer", handle: int) -> None:
        self._reducer, self._handle = reducer, handle
        count, dtype = ctypes.c_size_t(), ctypes.c_int()
        address = lib.zro_bucket_buffer(handle, byref(count), byref(dtype))
        self.memory = _tensor_at(address, count.value, TYPES[dtype.value])
        self._buffer = self.memory.clone()

    def index(self) -> int:
        return lib.zro_bucket_index(self._handle)

    def is_last(self) -> bool:
        return bool(lib.zro_bucket_is_last(self._handle))

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def set_buffer(self, tensor: torch.Tensor) -> None:
        self._buffer = tensor

    def parameters(self) -> List[torch.Tensor]:
        numbers = range(lib.zro_bucket_params(self._handle))
        return [self._reducer.parameters[lib.zro_bucket_param(self._handle, i)] for i in numbers]

    def gradients(self) -> List[torch.Tensor]:
        parameters = self.parameters()
        parts = self._buffer.split([p.numel() for p in parameters])
        return [part.as_strided(p.shape, p.stride()) for part, p in zip(parts, parameters)]


def _native_hook(state: Any, hook: Callable, group: Any) -> Optional[Any]:
    """The library's own form of a hook of PyTorch's, as a function pointer; None if it has none."""
    from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks
    known = {default_hooks.allreduce_hook: zro_hook_fn(), default_hooks.fp16_compress_hook: lib.zro_hook_f16,
             default_hooks.bf16_compress_hook: lib.zro_hook_bf16, debugging_hooks.noop_hook: lib.zro_hook_none}
    if hook not in known or not (state is None or state is group or state is dist.group.WORLD):
        return None
    return ctypes.cast(known[hook], zro_hook_fn)


# ---- the reducer ----


class _Nothing:
    """Stands where torch's logger stands: every method does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class _LoggingData:
    def __init__(self, strings: Dict[str, str], numbers: Dict[str, int]) -> None:
        self.strs_map, self.ints_map = strings, numbers


class _Logger(_Nothing):
    def __init__(self, reducer: "_Reducer") -> None:
        self._reducer = weakref.ref(reducer)

    def _get_ddp_logging_data(self) -> _LoggingData:
        reducer = self._reducer()
        stats = new(_c.zro_stats)
        if reducer.handle is not None:
            lib.zro_ddp_stats(reducer.handle, byref(stats))
        numbers = {"zro_" + name: getattr(stats, name) for name, _ in stats._fields_ if name != "struct_size"}
        return _LoggingData({"backend_name": "zro " + lib.zro_version()}, {"world_size": reducer.world_size, **numbers})


def _make_hook(reducer: "_Reducer", i: int) -> Callable[[torch.Tensor], None]:
    """What autograd calls when the gradient of parameter i is complete.  It runs once per parameter and backward, so it is short."""
    find, entry, ready, dtype = weakref.ref(reducer), reducer.entries[i], lib.zro_ddp_grad_ready, reducer.parameters[i].dtype

    def hook(p: torch.Tensor) -> None:
        r = find()
        if r is None or not r.expects:
            return
        if not r.is_open:
            r.begin()
        g = p.grad
        if r.scale != 1 or g.dtype is not dtype or not g.is_contiguous():
            g = r.adapt(i, p, g)
        entry.grad = g.data_ptr()
        r.held.append(g)
        ready(r.handle, i)
        r.count += 1
        if r.count == r.expected:
            _queue(r.end)

    return hook


_open: "weakref.WeakSet[_Reducer]" = weakref.WeakSet()  # those whose iteration has not ended


def check_ended(params: List[torch.Tensor]) -> None:
    """Before a step of these parameters: if a backward has left out some, and other ranks wait for them, that is an error on all ranks."""
    for reducer in list(_open):
        if any(p in reducer.places for p in params):
            reducer.check_ended()


class _Reducer:
    """An iteration of zro's per backward, or per step in the attached form; with the methods of torch's reducer that its Python code
    calls."""

    def __init__(self, ddp: "DistributedDataParallel", parameters: List[torch.Tensor], is_static: bool) -> None:
        names = {p: name for name, p in ddp.module.named_parameters()}
        self.ddp, self.parameters = weakref.ref(ddp), parameters
        self.names = [names[p] for p in parameters]
        self.world_size = dist.get_world_size(ddp.process_group)
        self.attached, self.find_unused, self.is_static = ddp.attached, ddp.find_unused_parameters, is_static
        self.group: Any = None
        self.handle: Optional[Handle] = None
        self.callback: Optional[_c.Callback] = None  # a hook in Python
        self.futures: List[Any] = []
        self.expects = False  # the next backward is to be averaged
        self.is_open = False  # an iteration of zro's has begun, and not ended
        self.held: List[torch.Tensor] = []  # gradients that the library may write until the iteration has ended, whatever the program frees
        self.count = 0  # how often parameters became ready in it
        self.expected = -1  # so often that makes it complete; -1: it is over when backward is
        self.n_first: Optional[int] = None  # static graph: how often they did in the first iteration
        self.trains: Optional[List[bool]] = None
        self.n_ended = 0
        self.has_rebuilt = False
        self.scale = 1.0  # under a Join that divides by the number of ranks that have inputs
        self.shadows = False  # attached, under a Join: this rank has run out of inputs
        self.optimizers: Any = weakref.WeakSet()  # attached ones
        self.is_attached_to = False  # an optimizer was made for this module
        self.waiting: Any = weakref.WeakSet()  # those of them that have yet to consume the gradients of this iteration
        for p, name in zip(parameters, self.names):
            if DTYPES.get(p.dtype, _c.ZRO_U8) not in (_c.ZRO_F32, _c.ZRO_F64, _c.ZRO_BF16, _c.ZRO_F16):
                raise TypeError(f"parameter {name} is {p.dtype}; zro averages float32, float64, bfloat16 and float16")
            if not is_dense(p):
                raise ValueError(f"parameter {name} does not lie in one piece of memory (strides {p.stride()}): give it a contiguous "
                                 "tensor, p.data = p.data.contiguous()")
        self.table = Table(parameters)
        self.entries = self.table.array
        self.kept_names = [(name if p.is_contiguous() else f"{name} with strides {p.stride()}").encode()  # ranks compare them
                           for name, p in zip(self.names, parameters)]
        self.places = {p: i for i, p in enumerate(parameters)}
        self.counts = [p.numel() for p in parameters]
        for entry, p, name in zip(self.entries, parameters, self.kept_names):
            _describe(entry, p, name)
        self.hooks = [] if self.attached else [p.register_post_accumulate_grad_hook(_make_hook(self, i))
                                               for i, p in enumerate(parameters)]

    # ---- making ----

    def create(self, broadcast: bool, others: Dict[str, torch.Tensor], limits: List[int], bucket_bytes: int) -> None:
        """Makes the ddp; broadcast: all ranks get rank 0's parameters, and `others`, which are not trained.  Collective."""
        ddp = self.ddp()
        self.group = group_of(ddp.process_group)
        if self.attached:  # parameters move into memory that all ranks of the machine can reach: an array of its own for each rank
            with torch.no_grad():
                self.table.homes = Homes(self.group, self.parameters, [0] * len(self.parameters))
        self.table.refresh_data()
        copies = [(t, t if is_dense(t) else t.contiguous()) for t in others.values()]
        buffers = (zro_param * max(1, len(copies)))()
        for entry, (name, (_, dense)) in zip(buffers, zip(others, copies)):
            lib.zro_param_init(byref(entry))
            _describe(entry, dense, name.encode())
        # In the attached form gradients become ready once per step, whatever the graph is.
        config = new(zro_ddp_config, broadcast=ZRO_ON if broadcast else ZRO_OFF, broadcast_buffers=ZRO_OFF,
                     find_unused=ZRO_ON if self.find_unused or self.attached and self.is_static else ZRO_OFF,
                     static_graph=ZRO_ON if self.is_static and not self.attached else ZRO_OFF, bucket_bytes=bucket_bytes)
        if limits:
            config.bucket_limits, config.n_bucket_limits = (ctypes.c_size_t * len(limits))(*limits), len(limits)
        if copies:
            config.buffers, config.n_buffers = buffers, len(copies)
        self.handle = Handle(make(lib.zro_ddp_create, self.group, self.entries, len(self.parameters), byref(config)),
                             lib.zro_ddp_destroy, self.group, self.table, self.kept_names, self.held)
        for tensor, dense in copies:
            if tensor is not dense and broadcast:
                tensor.copy_(dense)

    def __del__(self) -> None:
        for hook in getattr(self, "hooks", ()):
            hook.remove()

    # ---- an iteration ----

    def begin(self) -> None:
        if self.handle is None:
            self.ddp()._create()
        self.note_frozen()
        lib.zro_ddp_forward(self.handle)
        self.table.present[:] = 0
        self.is_open, self.count = True, 0
        _open.add(self)
        self.check_sizes()  # now, so that the next forward is an error on all ranks if it raises
        if self.is_static:
            self.expected = -1 if self.n_first is None else self.n_first
        elif self.find_unused:
            self.expected = -1
            _queue(self.end)

    def check_sizes(self) -> None:
        """Before the library is given addresses of gradients: they are as long as it believes."""
        if list(map(torch.Tensor.numel, self.parameters)) == self.counts:
            return
        for p, name, count in zip(self.parameters, self.names, self.counts):
            if p.numel() != count:
                raise RuntimeError(f"parameter {name} has {p.numel()} elements now, and had {count} when its DistributedDataParallel was "
                                   "made; make a new one after such a change")

    def note_frozen(self) -> None:
        trains = [p.requires_grad for p in self.parameters]
        if trains != self.trains:
            for entry, flag in zip(self.entries, trains):
                entry.requires_grad = flag
            self.trains, self.expected = trains, sum(trains)

    def adapt(self, i: int, p: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        """A gradient in one piece of memory, in the order of its parameter's elements."""
        if g.layout is not torch.strided:
            raise TypeError(f"the gradient of parameter {self.names[i]} is sparse; zro averages dense gradients: use "
                            "Embedding(sparse=False)")
        if g.dtype is not p.dtype:
            raise TypeError(f"the gradient of parameter {self.names[i]} is {g.dtype}, and the parameter {p.dtype}")
        if g.stride() != p.stride():
            g = p.grad = torch.empty_like(p, memory_format=torch.preserve_format).copy_(g)
        if self.scale != 1:
            g.mul_(self.scale)
        return g

    def fill_absent(self) -> List[Any]:
        """Gives memory to gradients that did not become ready: others may have them.  One from an earlier micro-batch counts."""
        self.check_sizes()
        spares = []
        for i, (entry, p) in enumerate(zip(self.entries, self.parameters)):
            if entry.grad_present or not p.requires_grad:
                continue
            if p.grad is not None:
                entry.grad, entry.grad_present = self.adapt(i, p, p.grad).data_ptr(), 1
            else:
                spare = torch.empty_like(p, memory_format=torch.preserve_format, requires_grad=False)
                entry.grad = spare.data_ptr()
                spares.append((p, entry, spare))
        return spares

    def finish(self, call: Callable[[Any], None], spares: List[Any]) -> None:
        """Makes the call that ends an iteration."""
        self.is_open = self.expects = False
        self.scale = 1.0
        _open.discard(self)
        try:
            with self.callback if self.callback is not None else contextlib.nullcontext():
                call(self.handle)
        except (_c.StateError, _c.PeerError) as error:
            if "never became ready" in str(error):  # the text speaks of calls in C
                raise type(error)(f"{error}; in PyTorch: DistributedDataParallel(..., find_unused_parameters=True)") from None
            raise
        finally:
            self.held.clear()
        for p, entry, spare in spares:
            if entry.grad_present:
                p.grad = spare
        futures, self.futures = self.futures, []
        for future in futures:
            future.wait()
        self.n_ended += 1

    def end(self) -> None:
        """Autograd calls it when backward is over."""
        if not self.is_open:
            return
        if self.is_static and self.n_first is None:
            n_first, spares = self.count, self.fill_absent()
            self.finish(lib.zro_ddp_backward_end, spares)
            self.n_first = n_first
        else:
            self.finish(lib.zro_ddp_backward_end, self.fill_absent() if self.find_unused and not self.is_static else [])

    def check_ended(self) -> None:
        """Some parameters became ready in the last backward, and others did not: an error, on all ranks."""
        if self.is_open:  # where the library does not mind, it writes averages for those, too
            first = self.is_static and self.n_first is None
            self.finish(lib.zro_ddp_backward_end, self.fill_absent() if first or self.find_unused and not self.is_static else [])

    # ---- under a Join ----

    def shadow(self) -> None:
        """An iteration of a rank that has run out of inputs: it gets the others' average."""
        if self.attached:
            self.shadows = True  # the optimizer's step does it
            return
        if self.handle is None:
            self.ddp()._create()
        self.note_frozen()
        self.check_sizes()
        spares = []
        for i, (entry, p) in enumerate(zip(self.entries, self.parameters)):
            if p.grad is None:
                spares.append((p, entry, torch.empty_like(p, memory_format=torch.preserve_format, requires_grad=False)))
                entry.grad = spares[-1][2].data_ptr()
            else:
                entry.grad = self.adapt(i, p, p.grad).data_ptr()
        self.finish(lib.zro_ddp_shadow, spares)

    # ---- the attached form ----

    def begin_step(self, optimizer: Any) -> None:
        """What a step of an attached optimizer begins with: says where the gradients are.  Collective."""
        if optimizer in self.waiting:  # another one has done it
            self.waiting.discard(optimizer)
            return
        others = weakref.WeakSet(other for other in self.optimizers if other is not optimizer)
        consumed = optimizer in self.optimizers  # otherwise it is averaged for all ranks
        try:
            self.table.refresh_data()
            if self.shadows:
                spares = [] if consumed else self.fill_absent()
            else:
                ready, spares = self.place_grads(consumed)
        except BaseException:
            self.refuse_step(optimizer)
            raise
        if self.shadows:
            self.shadows = False
            self.finish(lib.zro_ddp_shadow, spares)
        else:
            lib.zro_ddp_forward(self.handle)
            lib.zro_ddp_grads_ready(self.handle, ready.ctypes.data_as(ctypes.POINTER(ctypes.c_size_t)), len(ready))
            self.finish(lib.zro_ddp_backward_end, spares)
        self.waiting = others

    def place_grads(self, consumed: bool) -> Any:
        """Says where the gradients lie: the numbers of those that are there, and memory for those that are not."""
        self.note_frozen()
        if self.scale != 1:
            torch._foreach_mul_([p.grad for p in self.parameters if p.grad is not None], self.scale)
        self.table.forget_grads()
        self.table.set_grads([p.grad if p.requires_grad else None for p in self.parameters])
        ready = self.table.present.nonzero()[0].astype("uintp")
        return ready, [] if consumed else self.fill_absent()

    def refuse_step(self, optimizer: Any) -> None:
        """A step whose gradients cannot be had: this rank is in the iteration without any, so that the step can tell the others.
        Collective."""
        if optimizer in self.waiting:
            self.waiting.discard(optimizer)
            return
        self.shadows = False
        spares = [torch.empty_like(p, memory_format=torch.preserve_format, requires_grad=False) for p in self.parameters]
        for entry, spare in zip(self.entries, spares):  # for the others' average; what is there may be freed
            entry.grad = spare.data_ptr()
        self.finish(lib.zro_ddp_shadow, [])
        self.waiting = weakref.WeakSet(other for other in self.optimizers if other is not optimizer)

    # ---- what torch's Python code calls ----

    def prepare_for_forward(self) -> None:
        self.check_ended()
        if self.attached and not self.is_attached_to:  # gradients would never be averaged
            raise RuntimeError("this DistributedDataParallel was made with attached=True, and no optimizer is attached to it: make a "
                               "zro.torch.ZeroRedundancyOptimizer(..., ddp=model) before the first forward, or leave attached=True out")

    def _rebuild_buckets(self) -> bool:
        self.check_ended()
        rebuilds = self.n_ended > 0 and not self.has_rebuilt and (self.is_static or not self.find_unused)
        self.has_rebuilt |= rebuilds
        return rebuilds

    def prepare_for_backward(self, outputs: List[torch.Tensor]) -> None:
        """outputs: with find_unused, what forward returned; a rank on which no parameter is used begins the iteration by them."""
        self.expects = not self.attached
        if not self.expects:
            return
        find = weakref.ref(self)

        def begin(_: torch.Tensor) -> None:
            r = find()
            if r is not None and r.expects and not r.is_open:
                r.begin()

        for tensor in outputs:
            if tensor.requires_grad:
                tensor.register_hook(begin)

    def _delay_all_reduce(self) -> None:
        """Static graph: the first backward is over."""
        if self.expects:
            self.end()
        else:  # it was under no_sync: the next one is the first
            self.ddp()._static_graph_delay_allreduce_enqueued = False

    def _set_static_graph(self) -> None:
        if not self.is_static and self.handle is not None:
            raise RuntimeError("static_graph must be given when DistributedDataParallel is made, since the ranks compare it then")
        self.is_static = True

    def _set_forward_pass_work_handle(self, work: Any, use_static_world_size: bool) -> None:
        """Under a Join: `work` counts the ranks that have inputs."""
        self.scale = 1.0
        if not use_static_world_size:
            self.scale = self.world_size / work.get_future().wait()[0].item()

    def _install_post_backward_futures(self, futures: List[Any]) -> None:
        self.futures += futures

    def _push_all_rebuilt_params(self) -> None:
        """The library forms buckets anew by itself."""

    def _set_ddp_runtime_logging_sample_rate(self, rate: int) -> None:
        """There is no log of times."""

    def _remove_autograd_hooks(self) -> None:
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    def _check_reducer_finalized(self) -> None:
        self.check_ended()


class Attachment:
    """What a ZeroRedundancyOptimizer that is attached asks its DistributedDataParallel for."""

    def __init__(self, ddp: "DistributedDataParallel", optimizer: Any) -> None:
        if not isinstance(ddp, DistributedDataParallel) or not ddp.attached:
            raise ValueError("an optimizer is attached to a zro.torch.DistributedDataParallel that was made with attached=True")
        self.reducer, self._optimizer = ddp.reducer, weakref.ref(optimizer)
        self.reducer.is_attached_to = True

    def table_of(self, params: List[torch.Tensor], owners: Any) -> Any:
        """The table of all parameters, and the indices of these."""
        if self.reducer.handle is None:
            self.reducer.ddp()._create()
        places = self.reducer.places
        for p in params:
            if p not in places:
                raise ValueError(f"a parameter of shape {tuple(p.shape)} is not trained by the DistributedDataParallel that the optimizer "
                                 "is attached to")
        return self.reducer.table, [places[p] for p in params]

    def configure(self, config: Any) -> None:
        """The optimizer consumes the gradients."""
        config.ddp = self.reducer.handle._as_parameter_
        self.reducer.optimizers.add(self._optimizer())

    def begin_step(self) -> None:
        """Says where the gradients are.  Collective."""
        self.reducer.begin_step(self._optimizer())

    def refuse_step(self) -> None:
        """In place of begin_step: this rank has no gradients, because of an exception.  Collective."""
        self.reducer.refuse_step(self._optimizer())


# ---- the module ----


class DistributedDataParallel(_Torch):
    """torch.nn.parallel.DistributedDataParallel on CPUs, with its arguments, and gradients averaged by zro.

    attached: gradients stay each rank's own, and the step of a zro.torch.ZeroRedundancyOptimizer that was given this module as `ddp`
    averages them, updates the parameters and publishes them in one pass over memory.  That is the fastest form.  `p.grad` is not
    the average then, so clipping and the loss scale are settings of the optimizer; no_sync has nothing to do, since gradients
    travel in the step; and parameters lie in memory that is shared between the ranks of a machine, one array for each rank.
    """

    def __init__(self, module: torch.nn.Module, *arguments: Any, attached: bool = False, init_sync: bool = True, **options: Any) -> None:
        if len(arguments) > 4:  # device_ids, output_device, dim, broadcast_buffers; then comes init_sync
            init_sync, arguments = arguments[4], (*arguments[:4], False, *arguments[5:])
        else:
            options["init_sync"] = False  # zro compares and copies, in one call
        if options.get("mixed_precision") is not None:
            raise NotImplementedError("zro.torch.DistributedDataParallel has no mixed_precision: use torch.autocast")
        for name, p in module.named_parameters():
            if p.device.type not in ("cpu", "meta"):
                raise ValueError(f"zro trains on CPUs, and parameter {name} is on {p.device}: call module.cpu(), or take "
                                 "torch.nn.parallel.DistributedDataParallel")
        self.__dict__["attached"] = attached  # Module.__init__ comes later, and leaves it there
        super().__init__(module, *arguments, **options)
        if not hasattr(self, "reducer"):  # all parameters are delayed: torch does everything itself
            return
        self._init_sync = init_sync
        # torch: broadcast_buffers=False leaves buffers out of the beginning, too; forward_sync_buffers=False does not
        self._init_sync_buffers = self.broadcast_buffers or options.get("forward_sync_buffers") is not None
        if init_sync:
            self._create()

    def _ddp_init_helper(self, parameters: Any, expect_sparse_gradient: Any, param_to_name_mapping: Any, static_graph: bool) -> None:
        if any(expect_sparse_gradient):
            raise NotImplementedError("the module has an Embedding with sparse=True; zro averages dense gradients: set sparse=False")
        self.reducer = _Reducer(self, list(parameters), static_graph)
        self.logger = _Logger(self.reducer)
        self._passing_sync_batchnorm_handle(self.module)

    def _create(self) -> None:
        """Makes the ddp of zro's.  Collective."""
        others = {name: p.detach() for name, p in self.module.named_parameters()
                  if p not in self.reducer.places and name not in self.parameters_to_ignore}
        if self._init_sync_buffers:
            others.update((name, b) for name, b in self.module.named_buffers() if name not in self.parameters_to_ignore)
        limits = list(getattr(self, "bucket_bytes_cap_list", ()))
        default = getattr(self, "bucket_bytes_cap_default", self.bucket_bytes_cap == 25 << 20)
        self.reducer.create(self._init_sync, others, limits, 0 if default or limits else int(self.bucket_bytes_cap))

    def __getstate__(self) -> Dict[str, Any]:
        return {**super().__getstate__(), "_init_sync": False}

    # ---- what differs ----

    def _distributed_broadcast_coalesced(self, tensors: List[torch.Tensor], buffer_size: int, authoritative_rank: int = 0) -> None:
        if self.reducer.handle is None:
            self._create()
        for tensor in tensors:
            dense = tensor if is_dense(tensor) else tensor.contiguous()
            if dense.numel() > 0:
                lib.zro_broadcast(self.reducer.group, dense.data_ptr(), dense.numel() * dense.element_size(), _c.ZRO_U8,
                                  authoritative_rank)
            if dense is not tensor:
                tensor.copy_(dense)

    def _match_all_reduce_for_bwd_pass(self) -> None:
        self.reducer.shadow()

    def _match_unused_params_allreduce(self) -> None:
        """Presence travels with each bucket."""

    def _setup_in_backward_optimizers(self) -> None:
        if any(hasattr(p, "_in_backward_optimizers") for p in self._module_parameters):
            raise NotImplementedError("an optimizer runs in backward (_apply_optimizer_in_backward); with zro, attach a "
                                      "ZeroRedundancyOptimizer: DistributedDataParallel(module, attached=True)")

    def _update_process_group(self, new_process_group: Any) -> None:
        raise NotImplementedError("the ranks of a zro.torch.DistributedDataParallel stay the same: make another one from .module")

    # ---- hooks ----

    def _set_hook(self, hook: Any, callback: Optional[_c.Callback]) -> None:
        if self.attached:
            raise NotImplementedError("the attached form averages in the step, without buckets: communication hooks need "
                                      "DistributedDataParallel(module) without attached=True")
        if self._comm_hooks:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        if self.reducer.handle is None:
            self._create()
        lib.zro_ddp_set_hook(self.reducer.handle, hook, None)
        self.reducer.callback = callback

    def register_comm_hook(self, state: object, hook: Callable) -> None:
        """PyTorch's: hook(state, bucket) returns a future, whose value becomes the gradients of the bucket.  It runs on a thread of
        the library's, one bucket after another, in the same order on all ranks.  PyTorch's own allreduce_hook, fp16_compress_hook
        and bf16_compress_hook are done by the library."""
        native = _native_hook(state, hook, self.process_group)
        if native is None:
            self._check_comm_hook(hook)
            reducer = weakref.ref(self.reducer)

            def run(_: Any, handle: int) -> None:
                bucket = GradBucket(reducer(), handle)
                result = hook(state, bucket)
                if not isinstance(result, torch.Tensor):
                    result = result.wait()
                if isinstance(result, (list, tuple)):
                    result = result[0]
                bucket.memory.copy_(result.view(-1))

            callback = _c.Callback(zro_hook_fn, run)
            self._set_hook(callback._as_parameter_, callback)
        else:
            self._set_hook(native, None)
        self._comm_hooks.append((hook, state))

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        known = {dist.BuiltinCommHookType.ALLREDUCE: zro_hook_fn(), dist.BuiltinCommHookType.FP16_COMPRESS: lib.zro_hook_f16}
        self._set_hook(ctypes.cast(known[comm_hook_type], zro_hook_fn), None)
        self._comm_hooks.append((comm_hook_type, None))
