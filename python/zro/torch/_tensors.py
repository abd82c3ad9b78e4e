"""Tensors as parameters of zro: `Table`, which has a zro_param for each of some tensors, and keeps them up to date.

Addresses of tensors change between steps: autograd makes new gradients, programs set `p.data`.  A step reads all of them in a few
passes of built-in functions over lists, and writes to the structs, through NumPy, only what has changed: about 0.3 us per
parameter.

Parameters are handed over as flat arrays.  A tensor that is dense but not contiguous (channels_last) is the array of its elements
as they lie in memory; its gradient is brought into the same order, and its state is seen through the same strides.
"""
import ctypes
from operator import attrgetter
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor

from .. import _c
from .._c import lib
from ._groups import Handle

DTYPES = {
    torch.float32: _c.ZRO_F32, torch.float64: _c.ZRO_F64, torch.bfloat16: _c.ZRO_BF16, torch.float16: _c.ZRO_F16,
    torch.int8: _c.ZRO_I8, torch.uint8: _c.ZRO_U8, torch.int32: _c.ZRO_I32, torch.int64: _c.ZRO_I64,
}
FROM_ZRO = {_c.ZRO_F32: torch.float32, _c.ZRO_F64: torch.float64}

_grad = attrgetter("grad")
_data_ptr = Tensor.data_ptr
_numel = Tensor.numel
_stride = Tensor.stride


def is_dense(tensor: Tensor) -> bool:
    """Whether a tensor's elements fill one block of memory, each once, in any order."""
    if tensor.layout is not torch.strided or tensor.is_contiguous():
        return tensor.layout is torch.strided
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def at_address(address: int, like: Tensor, dtype: torch.dtype, owner: Any) -> Tensor:
    """A tensor with the size and strides of `like` that lies at an address, and that keeps `owner` alive."""
    count = like.numel()
    if count == 0:
        return torch.empty_like(like, dtype=dtype)
    buffer = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    buffer.owner = owner  # the tensor holds the buffer, and that holds the owner
    flat = torch.frombuffer(buffer, dtype=dtype)
    return flat.view(like.shape) if like.is_contiguous() else flat.as_strided(like.shape, like.stride())


def number_at(address: int, owner: Any) -> Tensor:
    """A tensor without dimensions that lies at an address, where there is an f64."""
    buffer = (ctypes.c_char * 8).from_address(address)
    buffer.owner = owner
    return torch.frombuffer(buffer, dtype=torch.float64).view(())


def in_order_of(like: Tensor, tensor: Tensor) -> Tensor:
    """A tensor whose elements lie in memory in the order of `like`, of the same shape: `tensor` itself, or a copy."""
    if tensor.layout is torch.strided and (tensor.stride() == like.stride() or (tensor.is_contiguous() and like.is_contiguous())):
        return tensor
    return torch.empty_like(like, dtype=tensor.dtype).copy_(tensor.to_dense() if tensor.layout is not torch.strided else tensor)


class Homes:
    """Memory of a group in which some parameters live: `p.data` is a view of it from then on.  One storage per parameter."""

    def __init__(self, group: Any, tensors: Sequence[Tensor], owners: Sequence[int]) -> None:
        order = sorted(range(len(tensors)), key=lambda i: owners[i])  # an owner's parameters lie next to each other
        offsets, total = [0] * len(tensors), 0
        for i in order:
            offsets[i] = total
            total += (tensors[i].numel() * tensors[i].element_size() + 63) // 64 * 64
        memory = Handle(_c.make(lib.zro_memory_alloc, group, _c.ZRO_MEMORY_EACH, max(total, 64)), lib.zro_memory_free)
        base = lib.zro_memory_data(memory)
        self.views = [at_address(base + offset, t, t.dtype, memory) for offset, t in zip(offsets, tensors)]
        for tensor, view in zip(tensors, self.views):
            self.move_in(tensor, view)

    @staticmethod
    def move_in(tensor: Tensor, view: Tensor) -> None:
        view.copy_(tensor.data)
        tensor.data = view


class Table:
    """zro's structs of some tensors.  `array` is what the library is given; its address stays."""

    def __init__(self, tensors: Sequence[Tensor], homes: Optional[Homes] = None) -> None:
        self.tensors: List[Tensor] = list(tensors)
        self.homes = homes
        n = len(self.tensors)
        self.array = (_c.zro_param * max(n, 1))()
        self._raw = np.frombuffer(self.array, dtype=np.uint8).reshape(max(n, 1), ctypes.sizeof(_c.zro_param))
        self._raw[:] = np.frombuffer(bytes(_c.new(_c.zro_param, n_dims=1)), dtype=np.uint8)
        self.data, self.grad = self.column("data", np.uint64), self.column("grad", np.uint64)
        self.present = self.column("grad_present", np.uint32)
        self._data_pointers: List[int] = [-1] * n
        self._grad_pointers: Optional[List[int]] = None
        self._temporaries: Dict[int, Tensor] = {}  # gradients that were brought into another order, until the next step
        self._shapes = [(t.shape, t.stride(), t.dtype) for t in self.tensors]
        self._counts, self._strides = list(map(_numel, self.tensors)), list(map(_stride, self.tensors))
        self._dtype = self.tensors[0].dtype if n > 0 and len({t.dtype for t in self.tensors}) == 1 else None
        self._strided = [i for i, t in enumerate(self.tensors) if not t.is_contiguous()]
        self.shadows: Dict[int, Tensor] = {i: torch.empty(t.shape, dtype=t.dtype) for i, t in enumerate(self.tensors)
                                           if not is_dense(t)}
        self._names: List[bytes] = []  # kept: the structs have their addresses
        counts = self.column("shape", np.uint64)
        dtypes = self.column("dtype", np.int32)
        for i, t in enumerate(self.tensors):
            kind = DTYPES.get(t.dtype)
            counts[i] = t.numel() if kind is not None else t.numel() * t.element_size()
            dtypes[i] = _c.ZRO_U8 if kind is None else kind
            if i not in self.shadows and not t.is_contiguous():  # ranks must agree about the order of elements
                self._names.append(f"{i} (strides {', '.join(map(str, t.stride()))})".encode())
                self.array[i].name = self._names[-1]
        self.refresh_data()

    def column(self, field: str, dtype: Any) -> np.ndarray:
        """One field of all structs as an array."""
        return np.ndarray((len(self.tensors),), dtype=dtype, buffer=self.array, offset=getattr(_c.zro_param, field).offset,
                          strides=(ctypes.sizeof(_c.zro_param),))

    # ---- data ----

    def refresh_data(self) -> None:
        """Notices parameters whose `data` the program has set, also to another view of the same memory."""
        pointers = list(map(_data_ptr, self.tensors))
        if list(map(_numel, self.tensors)) != self._counts or list(map(_stride, self.tensors)) != self._strides:
            for i in range(len(self.tensors)):
                self._check_moved(i)
        if pointers == self._data_pointers:
            return
        for i, (old, new) in enumerate(zip(self._data_pointers, pointers)):
            if old != new:
                self._check_moved(i)
                if self.homes is not None and self.homes.views[i].data_ptr() != new:
                    Homes.move_in(self.tensors[i], self.homes.views[i])
                    pointers[i] = self.tensors[i].data_ptr()
        self._data_pointers = pointers
        self.data[:] = pointers
        for i, shadow in self.shadows.items():
            self.data[i] = shadow.data_ptr()

    def _check_moved(self, i: int) -> None:
        tensor, (shape, stride, dtype) = self.tensors[i], self._shapes[i]
        if tensor.device.type != "cpu":
            raise RuntimeError(f"parameter {i} is on device {tensor.device}, and zro.torch works on CPUs; use "
                               "torch.distributed.optim.ZeroRedundancyOptimizer there")
        if tensor.shape != shape or tensor.dtype is not dtype:
            raise RuntimeError(f"parameter {i} has become {tensor.dtype} {tuple(tensor.shape)}, and was {dtype} {tuple(shape)} when "
                               "its optimizer first stepped; make a new optimizer after such a change")
        if tensor.stride() != stride and (i in self.shadows or tensor.numel() > 1):
            raise RuntimeError(f"parameter {i} has strides {tensor.stride()} now, and had {stride} when its optimizer first stepped; "
                               "make a new optimizer after such a change, and load the state of this one")

    def fill_shadows(self) -> None:
        """Before parameters are published: those that are not dense are copied to memory that is."""
        for i, shadow in self.shadows.items():
            shadow.copy_(self.tensors[i].detach())

    def empty_shadows(self) -> None:
        """After parameters were published."""
        for i, shadow in self.shadows.items():
            self.tensors[i].data.copy_(shadow)

    # ---- gradients ----

    def refresh_grads(self, take_sparse: Optional[Callable[[int, Tensor], Tensor]] = None) -> None:
        """Takes the tensors' present gradients; take_sparse makes a dense one of one that is not, or raises."""
        self.set_grads(list(map(_grad, self.tensors)), take_sparse)

    def set_grads(self, grads: Sequence[Optional[Tensor]], take_sparse: Optional[Callable[[int, Tensor], Tensor]] = None) -> None:
        """Takes one gradient, or None, per tensor.  They must stay until the step is done."""
        dtype = self._dtype
        try:
            pointers = [0 if g is None else (_data_ptr(g) if g.dtype is dtype and g.is_contiguous() else -1) for g in grads]
            odd = -1 in pointers
        except RuntimeError:  # a sparse gradient has no address
            pointers, odd = [-1 if g is not None else 0 for g in grads], True
        if self._temporaries:
            self._temporaries = {}
        if odd or self._strided:
            self._take_odd(grads, pointers, take_sparse)
        if pointers == self._grad_pointers:
            return
        self._grad_pointers = pointers
        self.grad[:] = pointers
        self.present[:] = [0 if g is None else 1 for g in grads]

    def _take_odd(self, grads: Sequence[Optional[Tensor]], pointers: List[int], take_sparse: Any) -> None:
        """Brings gradients into the order and type of their parameters where they are not."""
        for i in {*self._strided, *(i for i, pointer in enumerate(pointers) if pointer == -1)}:
            grad, like = grads[i], self.tensors[i]
            if grad is None:
                continue
            if grad.layout is not torch.strided:
                grad = take_sparse(i, grad) if take_sparse is not None else grad.to_dense()
            grad = in_order_of(like, grad.to(like.dtype))
            self._temporaries[i] = grad
            pointers[i] = grad.data_ptr()

    def forget_grads(self) -> None:
        """Says that no gradient is present."""
        self._grad_pointers = None
        self.present[:] = 0
        self._temporaries = {}


def group_struct(table: Table, owners: Sequence[int], indices: Optional[Sequence[int]] = None) -> Tuple[Any, Tuple[Any, ...]]:
    """A zro_param_group of a table's tensors (or of those with these indices) with given owners, and what must stay with it."""
    n = len(table.tensors) if indices is None else len(indices)
    given = (ctypes.c_int32 * max(n, 1))(*owners)
    group = _c.new(_c.zro_param_group, params=table.array, n=n, owners=given)
    index = None
    if indices is not None:
        index = (ctypes.c_size_t * max(n, 1))(*indices)
        group.index = index
    return group, (table, given, index)
